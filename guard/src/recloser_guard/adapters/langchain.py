"""LangChain and LangGraph: a middleware for `create_agent`.

    agent = create_agent(model, tools, middleware=[GuardMiddleware(guard)])

A denied call becomes a tool message with the guard's text, so that the model goes on without it. A halt
ends the run: the pending calls are answered, a last message says why, and no further model call is made.

The session is the guard's own context (`guard.session`) where there is one, else the `thread_id` of the run.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Collection
from typing import Any, Callable

from langchain.agents.middleware import AgentMiddleware, hook_config
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.config import get_config

from recloser_guard.context import CURRENT
from recloser_guard.decision import Decision
from recloser_guard.errors import CallDenied, RunHalted
from recloser_guard.guard import Guard

MARK = "recloser"
"""Under this key a refused call's message has what the guard decided, in `additional_kwargs`."""


class GuardMiddleware(AgentMiddleware):  # type: ignore[misc]  # the framework is not installed where this is checked
    """Asks the guard before each tool call and before each model call.

    With `raise_halts` a halt raises `RunHalted` out of `invoke`; else the run ends by itself.
    `on_quarantine` is called once for a refusal that names tainted steps.
    """

    def __init__(
        self,
        guard: Guard,
        *,
        raise_halts: bool = False,
        on_quarantine: Callable[[Decision], None] | None = None,
    ) -> None:
        super().__init__()
        self.guard = guard
        self._raise_halts = raise_halts
        self._on_quarantine = on_quarantine
        self._quarantined: set[tuple[str | None, str]] = set()

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Make the call if it may be made."""
        call = request.tool_call
        try:
            with self.guard.permit(call["name"], call["args"], session=_session()) as permit:
                result = handler(request)
                if getattr(result, "status", None) == "error":
                    permit.failed()
                return result
        except (CallDenied, RunHalted) as refusal:
            return self._refused(call, refusal)

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """Make the call if it may be made; it is cancelled when its run is halted meanwhile."""
        call, session = request.tool_call, _session()
        try:
            async with self.guard.permit(call["name"], call["args"], session=session) as permit:
                result = await self.guard.run(handler(request), session=session)
                if getattr(result, "status", None) == "error":
                    permit.failed()
                return result
        except (CallDenied, RunHalted) as refusal:
            return self._refused(call, refusal)

    @hook_config(can_jump_to=["end"])  # type: ignore[untyped-decorator]  # as the class
    def before_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """End a run that is halted before it asks the model again."""
        halt = _halted_by(state["messages"])
        if halt is None:
            decision = self.guard.check(session=_session())
            halt = decision.message_for_model if decision.halted else None
            if decision.halted and self._raise_halts:
                raise RunHalted(decision)
        if halt is None:
            return None
        return {"messages": [AIMessage(content=halt)], "jump_to": "end"}

    @hook_config(can_jump_to=["end"])  # type: ignore[untyped-decorator]  # as the class
    async def abefore_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """Do the same in an asynchronous run."""
        ended: dict[str, Any] | None = self.before_model(state, runtime)
        return ended

    def _refused(self, call: Any, refusal: CallDenied | RunHalted) -> Any:
        decision = refusal.decision
        key = (decision.breaker_id, json.dumps(decision.quarantine, sort_keys=True))
        if decision.quarantine and self._on_quarantine is not None and key not in self._quarantined:
            self._quarantined.add(key)
            self._on_quarantine(decision)
        if decision.halted and self._raise_halts:
            raise refusal
        return ToolMessage(
            content=decision.message_for_model,
            tool_call_id=call["id"],
            name=call["name"],
            status="error",
            additional_kwargs={MARK: {"decision": decision.decision, "breaker_id": decision.breaker_id}},
        )


def clean_checkpoint(agent: Any, config: Any, tainted_calls: Collection[str]) -> Any:
    """Return the config of the newest checkpoint that knows nothing of the tainted tool calls.

    `tainted_calls` are the ids of tool calls; a refusal's `quarantine` names steps (trace id and span id), so
    note which call was which step when the span is made. Returns None when every checkpoint is tainted.
    `agent.invoke(new_input, that_config)` goes on from there; `agent.invoke(None, that_config)` does so
    without anything new. What was checkpointed later stays in the history and is not looked at any more.
    """
    for snapshot in agent.get_state_history(config):
        messages = snapshot.values.get("messages")
        if messages and not any(_is_tainted(message, tainted_calls) for message in messages):
            return snapshot.config
    return None


def _is_tainted(message: Any, calls: Collection[str]) -> bool:
    if isinstance(message, ToolMessage):
        return message.tool_call_id in calls
    return any(call["id"] in calls for call in getattr(message, "tool_calls", ()))


def _session() -> str | None:
    own = CURRENT.get().session
    if own is not None:
        return own
    try:
        thread = get_config().get("configurable", {}).get("thread_id")
    except RuntimeError:  # outside of a run
        return None
    return None if thread is None else str(thread)


def _halted_by(messages: Any) -> str | None:
    """Return the text of a halt among the tool messages at the end."""
    for message in reversed(messages):
        if not isinstance(message, ToolMessage):
            return None
        if message.additional_kwargs.get(MARK, {}).get("decision") == "halt":
            return str(message.content)
    return None
