"""Pydantic AI with the guard's capability; `toolset` as a fifth word takes the guarded toolset instead."""

import asyncio
import sys

from pydantic_ai import Agent, ModelRetry
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.toolsets import FunctionToolset
from pydantic_ai.usage import UsageLimits
from recloser_guard import RunHalted
from recloser_guard.adapters.pydantic_ai import GuardCapability, GuardToolset
from scene import SESSION, ended, guard, model, work


async def stub(messages, _info):
    part = messages[-1].parts[-1]
    step = await asyncio.to_thread(model.next, str(getattr(part, "content", "")))
    if step is None:
        return ModelResponse(parts=[TextPart("Done.")])
    return ModelResponse(parts=[ToolCallPart(step[0], step[1], tool_call_id=f"call_{model.turns}")])


def retried(tool, args):
    try:
        return work(tool, args)
    except RuntimeError as error:
        raise ModelRetry(f"Error: {error}") from error


def fetch_page(url: str) -> str:
    """Fetch a page."""
    return retried("fetch_page", {"url": url})


def replanned(url: str) -> str:
    """Fetch a page, another way."""
    return retried("replanned", {"url": url})


def search(q: str) -> str:
    """Search."""
    return retried("search", {"q": q})


async def main():
    tools = FunctionToolset([fetch_page, replanned, search], max_retries=60)
    if "toolset" in sys.argv:
        agent = Agent(FunctionModel(stub), toolsets=[GuardToolset(tools, guard)])
    else:
        agent = Agent(FunctionModel(stub), toolsets=[tools], capabilities=[GuardCapability(guard)])
    try:
        result = await agent.run(
            "What is the status?", conversation_id=SESSION, usage_limits=UsageLimits(request_limit=100)
        )
    except RunHalted as halt:
        ended("halted", halt.message_for_model)
    else:
        ended("finished", result.output)


asyncio.run(main())
