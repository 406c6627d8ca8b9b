"""LangChain's create_agent with the guard's middleware; `async` and `raise` as words behind."""

import asyncio
import sys
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from recloser_guard import RunHalted
from recloser_guard.adapters.langchain import GuardMiddleware
from scene import SESSION, ended, guard, model, work


class Stub(BaseChatModel):
    @property
    def _llm_type(self) -> str:
        return "stub"

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
        step = model.next(str(messages[-1].content))
        if step is None:
            message = AIMessage(content="Done.")
        else:
            name, args = step
            call = {"name": name, "args": args, "id": f"call_{model.turns}", "type": "tool_call"}
            message = AIMessage(content="", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=message)])


@tool
def fetch_page(url: str) -> str:
    """Fetch a page."""
    return work("fetch_page", {"url": url})


@tool
def replanned(url: str) -> str:
    """Fetch a page, another way."""
    return work("replanned", {"url": url})


@tool
def search(q: str) -> str:
    """Search."""
    return work("search", {"q": q})


def shown(request, error):
    return ToolMessage(content=f"Error: {error}", tool_call_id=request.tool_call["id"], status="error")


class Catch(AgentMiddleware):
    """Hand errors of tools to the model."""

    def wrap_tool_call(self, request, handler):
        try:
            return handler(request)
        except RuntimeError as error:
            return shown(request, error)

    async def awrap_tool_call(self, request, handler):
        try:
            return await handler(request)
        except RuntimeError as error:
            return shown(request, error)


agent = create_agent(
    Stub(),
    [fetch_page, replanned, search],
    middleware=[GuardMiddleware(guard, raise_halts="raise" in sys.argv), Catch()],
    checkpointer=InMemorySaver(),
)
asked = {"messages": [("user", "What is the status?")]}
config = {"configurable": {"thread_id": SESSION}, "recursion_limit": 200}
try:
    state = asyncio.run(agent.ainvoke(asked, config)) if "async" in sys.argv else agent.invoke(asked, config)
except RunHalted as halt:
    ended("halted", halt.message_for_model)
else:
    last = str(state["messages"][-1].content)
    raised = "raise" in sys.argv
    ended("finished" if last == "Done." else "went on" if raised else "halted", last)
