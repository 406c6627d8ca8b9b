"""OpenAI Agents SDK, over chat completions or the responses API.

pip: openai-agents opentelemetry-sdk opentelemetry-exporter-otlp-proto-http and, by the instrumentation
named: openinference-instrumentation-openai-agents | opentelemetry-instrumentation-openai-agents
(traceloop) | opentelemetry-instrumentation-openai-agents-v2 (v2) |
opentelemetry-instrumentation-genai-openai-agents (genai) | logfire. usage: openai_agents_sdk.py
INSTRUMENTATION[+openai] chat|responses [main|sub|handoff|returned]; returned: the tools' errors reach the
model as they are, through failure_error_function.
"""

import sys

import scenario

HOW, API, KIND = [*sys.argv[1:], "main"][:3]

import agents

agents.set_trace_processors([])
if HOW == "logfire":
    import logfire

    logfire.configure(send_to_logfire=False, service_name="recorded-agent", console=False)
    logfire.instrument_openai_agents()
else:
    scenario.telemetry()
    if HOW.startswith("openinference"):
        from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor as Instrumentor
    elif HOW.startswith("traceloop") or HOW == "v2":
        from opentelemetry.instrumentation.openai_agents import OpenAIAgentsInstrumentor as Instrumentor
    else:
        from opentelemetry.instrumentation.genai.openai_agents import OpenAIAgentsInstrumentor as Instrumentor
    Instrumentor().instrument()
    if HOW.endswith("+openai"):
        if HOW.startswith("openinference"):
            from openinference.instrumentation.openai import OpenAIInstrumentor
        elif HOW.startswith("traceloop"):
            from opentelemetry.instrumentation.openai import OpenAIInstrumentor
        else:
            from opentelemetry.instrumentation.genai.openai import OpenAIInstrumentor

        OpenAIInstrumentor().instrument()

from openai import AsyncOpenAI

client = AsyncOpenAI(base_url=scenario.BASE_URL, api_key="stub")
kind = agents.OpenAIChatCompletionsModel if API == "chat" else agents.OpenAIResponsesModel
model = kind(model="stub-model", openai_client=client)
shown = {"failure_error_function": lambda _, error: f"Error: {error}"} if KIND == "returned" else {}
tools = [agents.function_tool(tool, **shown) for tool in scenario.TOOLS]
researcher = agents.Agent(name="researcher", instructions="You look things up.", model=model, tools=tools)
PAGE = [{"calls": [["fetch_page", {"url": "https://example.invalid/status"}]]} for _ in range(3)]
if KIND == "sub":

    @agents.function_tool(name_override="researcher")
    async def ask(question: str) -> str:
        """Ask the researcher."""
        text = (await agents.Runner.run(researcher, question)).final_output
        scenario.note_call("researcher", {"question": question}, failed=False)
        return text

    agent = agents.Agent(name="ops_agent", instructions="You check things.", model=model, tools=[ask])
    question = {"question": "What is wrong with the status page?"}
    scenario.use(
        [{"calls": [["researcher", question]]}, *PAGE, {"text": "No answer."}, {"text": "It is down."}]
    )
elif KIND == "handoff":
    agent = agents.Agent(
        name="ops_agent", instructions="You check things.", model=model, tools=tools, handoffs=[researcher]
    )
    scenario.use([{"calls": [["transfer_to_researcher", {}]]}, *PAGE, {"text": "It is down."}])
else:
    agent = agents.Agent(name="ops_agent", instructions="You check things.", model=model, tools=tools)


async def main() -> None:
    config = agents.RunConfig(
        workflow_name="demo workflow", group_id="group-oa-1", trace_metadata={"user_id": "user-7"}
    )
    await agents.Runner.run(agent, scenario.PROMPT, max_turns=40, run_config=config)


scenario.run(main())
scenario.write_notes(
    [
        "openai-agents",
        "openinference-instrumentation-openai-agents",
        "opentelemetry-instrumentation-openai-agents",
        "opentelemetry-instrumentation-openai-agents-v2",
        "opentelemetry-instrumentation-genai-openai-agents",
        "logfire",
        "opentelemetry-sdk",
    ],
    scenario.MAIN if KIND == "main" else KIND,
    instrumentation=HOW,
    llm_api=API,
    group_id_passed="group-oa-1",
)
