"""Pydantic AI: a capability of the agent, or a toolset around another one.

    agent = Agent(model, tools=[...], capabilities=[GuardCapability(guard)])
    agent = Agent(model, toolsets=[GuardToolset(FunctionToolset([...]), guard)])

A denied call fails with the guard's text, which the model gets (`ToolFailed`: no retry is asked for). A halt
raises `RunHalted` out of the run, at the next tool call or, by the capability, before the next model call.

The session is the guard's own context (`guard.session`) where there is one, else the run's conversation id.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.toolsets import WrapperToolset

from recloser_guard.context import CURRENT
from recloser_guard.errors import CallDenied
from recloser_guard.guard import Guard


@dataclass
class GuardCapability(AbstractCapability[Any]):  # type: ignore[misc]  # the framework is not installed where this is checked
    """Asks the guard before each tool call and before each model call, whatever toolset the tool is from."""

    guard: Guard

    async def wrap_tool_execute(
        self,
        ctx: Any,
        *,
        call: Any,
        tool_def: Any,
        args: Any,
        handler: Any,
    ) -> Any:
        """Make the call if it may be made; it is cancelled when its run is halted meanwhile."""
        whose = _whose(ctx, self.guard)
        try:
            async with self.guard.permit(call.tool_name, args, **whose):
                return await self.guard.run(handler(args), **whose)
        except CallDenied as refusal:
            raise ToolFailed(refusal.message_for_model) from refusal

    async def before_model_request(self, ctx: Any, request_context: Any) -> Any:
        """Raise `RunHalted` when the run must end."""
        decision = await self.guard.acheck(**_whose(ctx, self.guard))
        if decision.halted:
            self.guard.raise_for(decision)
        return request_context


@dataclass
class GuardToolset(WrapperToolset[Any]):  # type: ignore[misc]  # as above
    """Asks the guard before each call of the wrapped toolset's tools."""

    guard: Guard

    async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: Any, tool: Any) -> Any:
        """Make the call if it may be made."""
        whose = _whose(ctx, self.guard)
        try:
            async with self.guard.permit(name, tool_args, **whose):
                return await self.guard.run(super().call_tool(name, tool_args, ctx, tool), **whose)
        except CallDenied as refusal:
            raise ToolFailed(refusal.message_for_model) from refusal


def _whose(ctx: Any, guard: Guard) -> dict[str, str | None]:
    """Name the session and the agent of a call, where the guard's context does not."""
    agent, conversation = getattr(ctx, "agent", None), getattr(ctx, "conversation_id", None)
    session = CURRENT.get().session or (None if conversation is None else str(conversation))
    return {"session": session, "agent": guard.agent or getattr(agent, "name", None)}
