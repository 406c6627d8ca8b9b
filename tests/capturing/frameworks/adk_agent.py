"""Google ADK with a scripted model and its own tracer.

pip: google-adk opentelemetry-sdk opentelemetry-exporter-otlp-proto-http
openinference-instrumentation-google-adk. usage: adk_agent.py native|openinference
[main|agenttool|main-plugin]
"""

import sys

import scenario
import stub_model

HOW, KIND = [*sys.argv[1:], "main"][:2]
scenario.telemetry()
if HOW == "openinference":
    from openinference.instrumentation.google_adk import GoogleADKInstrumentor

    GoogleADKInstrumentor().instrument()

from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import InMemoryRunner
from google.adk.tools.agent_tool import AgentTool
from google.genai import types

TURNS = stub_model.MAIN
if KIND == "agenttool":
    TURNS = [
        {"calls": [["researcher", {"request": "What is wrong with the status page?"}]]},
        *[{"calls": [["fetch_page", {"url": "https://example.invalid/status"}]]} for _ in range(3)],
        {"text": "It does not answer."},
        {"text": "The status page does not answer."},
    ]
script = stub_model.Script(TURNS)


class Stub(BaseLlm):
    async def generate_content_async(self, llm_request, stream=False):  # noqa: FBT002 - the base class has it so
        number, turn = script.take()
        parts = [types.Part(text=turn["text"])] if "text" in turn else []
        for k, (name, arguments) in enumerate(turn.get("calls", [])):
            call = types.FunctionCall(id=f"call_{number:02d}_{k}", name=name, args=arguments)
            parts.append(types.Part(function_call=call))
        yield LlmResponse(
            content=types.Content(role="model", parts=parts),
            model_version=stub_model.MODEL,
            finish_reason=types.FinishReason.STOP,
            usage_metadata=types.GenerateContentResponseUsageMetadata(
                prompt_token_count=100 + number,
                candidates_token_count=15,
                thoughts_token_count=5,
                cached_content_token_count=40,
                total_token_count=120 + number,
            ),
        )


class Catch(BasePlugin):
    async def on_tool_error_callback(self, *, tool, tool_args, tool_context, error):
        return {"status": "error", "error_message": str(error)} if "plugin" in KIND else None

    async def after_tool_callback(self, *, tool, tool_args, tool_context, result):
        if tool.name == "researcher":
            scenario.note_call("researcher", tool_args, failed=False)


def on_tool_error(tool, args, tool_context, error):
    return {"error": str(error)}


model = Stub(model="stub-model")
tools = list(scenario.TOOLS)
if KIND == "agenttool":
    tools = [
        AgentTool(
            LlmAgent(
                name="researcher", model=model, tools=scenario.TOOLS, on_tool_error_callback=on_tool_error
            )
        )
    ]
agent = LlmAgent(name="ops_agent", model=model, tools=tools, on_tool_error_callback=on_tool_error)


async def main() -> None:
    runner = InMemoryRunner(agent=agent, app_name="demo", plugins=[Catch(name="catch")])
    await runner.session_service.create_session(app_name="demo", user_id="user-7", session_id="sess-adk-1")
    message = types.Content(role="user", parts=[types.Part(text=scenario.PROMPT)])
    async for _ in runner.run_async(user_id="user-7", session_id="sess-adk-1", new_message=message):
        pass


scenario.run(main())
scenario.write_notes(
    ["google-adk", "google-genai", "openinference-instrumentation-google-adk", "opentelemetry-sdk"],
    scenario.MAIN if KIND.startswith("main") else KIND,
    instrumentation=HOW,
    session_id_passed="sess-adk-1",
    user_id_passed="user-7",
)
