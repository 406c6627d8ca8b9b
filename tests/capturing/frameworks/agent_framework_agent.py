"""Microsoft Agent Framework with its own instrumentation, or with OpenInference's processor on top.

pip: agent-framework-core agent-framework-openai openinference-instrumentation-agent-framework
opentelemetry-sdk opentelemetry-exporter-otlp-proto-http. usage: agent_framework_agent.py
native|content|openinference [main|sub]
"""

import os
import sys

KIND = [*sys.argv[2:], "main"][0]
os.environ["ENABLE_INSTRUMENTATION"] = "true"
os.environ["ENABLE_SENSITIVE_DATA"] = str(sys.argv[1] != "native").lower()

import scenario

provider = scenario.telemetry()
if sys.argv[1] == "openinference":
    from openinference.instrumentation.agent_framework import AgentFrameworkToOpenInferenceProcessor

    added = AgentFrameworkToOpenInferenceProcessor()
    processors = provider._active_span_processor
    processors._span_processors = (added, *processors._span_processors)

from agent_framework.observability import enable_instrumentation

enable_instrumentation(enable_sensitive_data=sys.argv[1] != "native")

from agent_framework import Agent
from agent_framework.openai import OpenAIChatCompletionClient

client = OpenAIChatCompletionClient(model="stub-model", base_url=scenario.BASE_URL, api_key="stub")
client.function_invocation_configuration["max_consecutive_errors_per_request"] = 100
client.function_invocation_configuration["max_iterations"] = 40
tools = list(scenario.TOOLS)
if KIND == "sub":
    inner = Agent(client=client, name="researcher", tools=scenario.TOOLS)

    async def researcher(question: str) -> str:
        """Ask the researcher."""
        text = (await inner.run(question)).text
        scenario.note_call("researcher", {"question": question}, failed=False)
        return text

    tools = [researcher]
    scenario.use(
        [
            {"calls": [["researcher", {"question": "What is wrong with the status page?"}]]},
            *[{"calls": [["fetch_page", {"url": "https://example.invalid/status"}]]} for _ in range(3)],
            {"text": "It does not answer."},
            {"text": "The status page does not answer."},
        ]
    )
agent = Agent(client=client, name="ops_agent", tools=tools)


async def main() -> None:
    await agent.run(scenario.PROMPT)


scenario.run(main())
scenario.write_notes(
    [
        "agent-framework-core",
        "agent-framework-openai",
        "openinference-instrumentation-agent-framework",
        "opentelemetry-sdk",
    ],
    scenario.MAIN if KIND == "main" else KIND,
    instrumentation=sys.argv[1],
)
