"""Pydantic AI, instrumented by itself or by Logfire.

pip: pydantic-ai-slim[openai,mcp] logfire fastmcp opentelemetry-sdk opentelemetry-exporter-otlp-proto-http.
usage: pydantic_ai_agent.py native|nocontent|format2|format6|openinference|logfire|logfire-openai
[main|mcp|sub|noargs]. openinference needs openinference-instrumentation-pydantic-ai.
"""

import sys

import scenario

HOW = sys.argv[1]
KIND = sys.argv[2] if len(sys.argv) > 2 else "main"

from pydantic_ai import Agent, ModelRetry
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import UsageLimits

if HOW in ("native", "nocontent", "openinference") or HOW.startswith("format"):
    provider = scenario.telemetry()
    from pydantic_ai.models.instrumented import InstrumentationSettings

    settings = (
        {"version": int(HOW[-1])} if HOW.startswith("format") else {"include_content": HOW != "nocontent"}
    )
    Agent.instrument_all(InstrumentationSettings(**settings))
    if HOW == "openinference":
        from openinference.instrumentation.pydantic_ai import OpenInferenceSpanProcessor

        processors = provider._active_span_processor
        processors._span_processors = (OpenInferenceSpanProcessor(), *processors._span_processors)
else:
    import logfire

    logfire.configure(send_to_logfire=False, service_name="recorded-agent", console=False)
    logfire.instrument_pydantic_ai()
    if HOW == "logfire-openai":
        logfire.instrument_openai()


def retried(function):
    from functools import wraps

    @wraps(function)
    def call(**arguments):
        try:
            return function(**arguments)
        except Exception as error:
            raise ModelRetry(str(error)) from error

    return call


model = OpenAIChatModel("stub-model", provider=OpenAIProvider(base_url=scenario.BASE_URL, api_key="stub"))
tools = [retried(tool) for tool in [*scenario.TOOLS, scenario.list_jobs]]


def agents():
    if KIND == "mcp":
        from fastmcp import FastMCP
        from pydantic_ai.mcp import MCPToolset

        server = FastMCP("ops-tools")
        for tool in scenario.TOOLS:
            server.tool(tool)
        return Agent(model, name="ops_agent", toolsets=[MCPToolset(server, max_retries=20)])
    if KIND != "sub":
        return Agent(model, name="ops_agent", tools=tools, retries=20)
    inner = Agent(model, name="researcher", tools=tools, retries=20)
    outer = Agent(model, name="ops_agent", retries=20)

    @outer.tool_plain
    async def researcher(question: str) -> str:
        """Ask the researcher."""
        text = (await inner.run(question)).output
        scenario.note_call("researcher", {"question": question}, failed=False)
        return text

    scenario.use(
        [
            {"calls": [["researcher", {"question": "What is wrong with the status page?"}]]},
            *[{"calls": [["fetch_page", {"url": "https://example.invalid/status"}]]} for _ in range(3)],
            {"text": "It does not answer."},
            {"text": "The status page does not answer."},
        ]
    )
    return outer


async def main() -> None:
    if KIND == "noargs":
        scenario.use([*[{"calls": [["list_jobs", {}]]} for _ in range(4)], {"text": "Nothing runs."}])
    agent = agents()
    await agent.run(
        scenario.PROMPT, usage_limits=UsageLimits(request_limit=60), conversation_id="conv-pyai-1"
    )


scenario.run(main())
scenario.write_notes(
    ["pydantic-ai-slim", "logfire", "fastmcp", "openai", "opentelemetry-sdk"],
    scenario.MAIN if KIND in ("main", "mcp") else KIND,
    instrumentation=HOW,
    conversation_id_passed="conv-pyai-1",
)
