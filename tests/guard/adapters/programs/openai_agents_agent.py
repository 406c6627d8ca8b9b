"""The OpenAI Agents SDK with guarded tools and hooks."""

import asyncio
import json

import agents
from agents.items import ModelResponse
from agents.models.interface import Model as ModelInterface
from agents.testing import assistant_message, function_call
from agents.usage import Usage
from recloser_guard import RunHalted
from recloser_guard.adapters.openai_agents import GuardHooks, protected
from scene import SESSION, ended, guard, model, work

agents.set_tracing_disabled(disabled=True)


class Stub(ModelInterface):
    async def get_response(self, system_instructions, input, *args, **kwargs):  # noqa: A002 - the SDK's name
        last = input if isinstance(input, str) else input[-1]
        text = last if isinstance(last, str) else str(last.get("output", last.get("content", "")))
        step = await asyncio.to_thread(model.next, text)
        if step is None:
            output = [assistant_message("Done.")]
        else:
            output = [function_call(step[0], json.dumps(step[1]), call_id=f"call_{model.turns}")]
        return ModelResponse(output=output, usage=Usage(), response_id=None)

    def stream_response(self, *args, **kwargs):
        raise NotImplementedError


def shown(_context, error):
    return f"Error: {error}"


@agents.function_tool(failure_error_function=shown)
def fetch_page(url: str) -> str:
    """Fetch a page."""
    return work("fetch_page", {"url": url})


@agents.function_tool(failure_error_function=shown)
def replanned(url: str) -> str:
    """Fetch a page, another way."""
    return work("replanned", {"url": url})


@agents.function_tool(failure_error_function=shown)
def search(q: str) -> str:
    """Search."""
    return work("search", {"q": q})


async def main():
    agent = agents.Agent(name="ops_agent", model=Stub(), tools=[fetch_page, replanned, search])
    with guard.session(SESSION):
        try:
            result = await agents.Runner.run(
                protected(agent, guard), "What is the status?", max_turns=60, hooks=GuardHooks(guard)
            )
        except RunHalted as halt:
            ended("halted", halt.message_for_model)
        else:
            ended("finished", str(result.final_output))


asyncio.run(main())
