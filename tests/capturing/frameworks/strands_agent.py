"""AWS Strands agent with its own tracer.

pip: strands-agents[openai] opentelemetry-sdk opentelemetry-exporter-otlp-proto-http. usage:
strands_agent.py [main|sub]; OTEL_SEMCONV_STABILITY_OPT_IN chooses the conventions.
"""

import sys

import scenario

KIND = [*sys.argv[1:], "main"][0]
scenario.telemetry()

from strands import Agent, tool
from strands.models.openai import OpenAIModel

model = OpenAIModel(client_args={"base_url": scenario.BASE_URL, "api_key": "stub"}, model_id="stub-model")
tools = [tool(function) for function in scenario.TOOLS]
if KIND == "sub":
    inner = Agent(model=model, name="researcher", tools=tools, callback_handler=None)

    @tool
    def researcher(question: str) -> str:
        """Ask the researcher."""
        text = str(inner(question))
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
agent = Agent(
    model=model,
    name="ops_agent",
    tools=tools,
    callback_handler=None,
    trace_attributes={"session.id": "sess-strands-1", "user.id": "user-7"},
)
agent(scenario.PROMPT)
scenario.write_notes(
    ["strands-agents", "opentelemetry-sdk"],
    scenario.MAIN if KIND == "main" else KIND,
    instrumentation="native",
    trace_attributes={"session.id": "sess-strands-1", "user.id": "user-7"},
)
