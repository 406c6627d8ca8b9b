"""LangGraph: a trip that names tainted steps sends the run back to the checkpoint before the first one."""

import json
import sys
import time
import urllib.request
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import wrap_tool_call
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from recloser_guard import Guard
from recloser_guard.adapters.langchain import GuardMiddleware, clean_checkpoint
from scene import OTLP, PACE, SESSION, note
from telemetry import send_call, step_of

guard = Guard(sys.argv[1], service="guarded-agent", agent="ops_agent", cache=None)
call_of_step: dict[str, str] = {}
seen: list[list[str]] = []


class Stub(BaseChatModel):
    """Reads once, then asks for the same poisoned page again and again, unless it is told better."""

    @property
    def _llm_type(self) -> str:
        return "stub"

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
        time.sleep(PACE)
        seen.append([m.content if m.type != "ai" else "" for m in messages])
        if messages[-1].type == "human" and len(messages) > 1:
            return _answer(AIMessage(content="Done without it."))
        name = "read_notes" if len(messages) == 1 else "poisoned"
        call = {"name": name, "args": {"q": "x"}, "id": f"call_{len(seen)}", "type": "tool_call"}
        return _answer(AIMessage(content="", tool_calls=[call]))


def _answer(message: AIMessage) -> ChatResult:
    return ChatResult(generations=[ChatGeneration(message=message)])


@tool
def read_notes(q: str) -> str:
    """Read the notes."""
    return "The notes say: be careful."


@tool
def poisoned(q: str) -> str:
    """Look at a page."""
    raise RuntimeError("KeyError: no column named total")


@wrap_tool_call
def traced(request, handler):
    """Make the span, and note which call it is: what an instrumentation does, with the ids at hand."""
    call, started = request.tool_call, time.time()
    try:
        message, error = handler(request), None
    except RuntimeError as raised:
        message, error = (
            ToolMessage(content=str(raised), tool_call_id=call["id"], status="error"),
            str(raised),
        )
    result = None if error else str(message.content)
    span = send_call(OTLP, SESSION, call["name"], call["args"], result=result, error=error, started=started)
    call_of_step[step_of(SESSION, span)] = call["id"]
    return message


trips = []
config = {"configurable": {"thread_id": SESSION}, "recursion_limit": 200}
agent = create_agent(
    Stub(),
    [read_notes, poisoned],
    middleware=[GuardMiddleware(guard, on_quarantine=trips.append), traced],
    checkpointer=InMemorySaver(),
)
agent.invoke({"messages": [("user", "Look at the page.")]}, config)
quarantine = trips[0].quarantine
tainted = {call_of_step[step] for step in quarantine["tainted_steps"]}
back = clean_checkpoint(agent, config, tainted)
kept = [m.content for m in agent.get_state(back).values["messages"] if m.type != "ai"]
note(
    "rolled_back",
    kept=kept,
    tainted=sorted(tainted),
    last_clean=call_of_step.get(quarantine["last_clean_step"]),
)

# A person has looked at it and lets the session go on from what is clean.
request = urllib.request.Request(
    f"{sys.argv[1]}/v1/breakers/{trips[0].breaker_id}/reset",
    json.dumps({"reason": "rolled back"}).encode(),
    {"content-type": "application/json"},
)
urllib.request.urlopen(request).read()
while not guard.check(session=SESSION):
    time.sleep(0.01)
final = agent.invoke({"messages": [("user", "The page is poisoned; go on without it.")]}, back)
note("end", how="finished", text=final["messages"][-1].content, last_seen=seen[-1])
guard.close()
