"""BeeAI ToolCalling agent.

pip: beeai-framework openinference-instrumentation-beeai opentelemetry-sdk
opentelemetry-exporter-otlp-proto-http. usage: beeai_agent.py
"""

import scenario

scenario.telemetry()
from openinference.instrumentation.beeai import BeeAIInstrumentor

BeeAIInstrumentor().instrument()

from beeai_framework.adapters.openai import OpenAIChatModel
from beeai_framework.agents.requirement import RequirementAgent
from beeai_framework.tools import tool

model = OpenAIChatModel("stub-model", base_url=scenario.BASE_URL, api_key="stub")
model.allow_parallel_tool_calls = True
agent = RequirementAgent(llm=model, name="ops_agent", tools=[tool(function) for function in scenario.TOOLS])


async def main() -> None:
    import stub_model

    answer = {"response": "Paris is fine."}
    scenario.use([*stub_model.MAIN[:-1], {"calls": [["final_answer", answer]]}])
    await agent.run(scenario.PROMPT)


scenario.run(main())
scenario.write_notes(
    ["beeai-framework", "openinference-instrumentation-beeai", "opentelemetry-sdk"],
    [*scenario.MAIN, "the framework itself refuses to repeat a call with the same arguments"],
    instrumentation="openinference",
)
