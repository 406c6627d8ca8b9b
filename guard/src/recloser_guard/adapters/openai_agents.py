"""The OpenAI Agents SDK: guardrails on tools, and hooks of the run.

    agent = protected(Agent(name="ops", tools=[...]), guard)
    await Runner.run(agent, "...", hooks=GuardHooks(guard))

A denied call is rejected with the guard's text, which the model gets as the call's result. A halt raises
`RunHalted` out of `Runner.run`, at the next tool call or, by the hooks, before the next model call.

The session is the guard's own context (`guard.session`) where there is one, else what `session_of` makes of
the run's context.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Callable

from agents import (
    AgentsException,
    FunctionTool,
    RunHooks,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    ToolOutputGuardrail,
)

from recloser_guard.decision import Decision
from recloser_guard.errors import RunHalted
from recloser_guard.guard import Guard

SessionOf = Callable[[Any], "str | None"]


class AgentHalted(RunHalted, AgentsException):  # type: ignore[misc]  # the framework is not installed where this is checked
    """A halt as the SDK lets it through: it wraps exceptions that are not its own."""

    def __init__(self, decision: Decision) -> None:
        super().__init__(decision)
        self.run_data = None


class GuardHooks(RunHooks):  # type: ignore[misc]  # as above
    """Ends a halted run before it asks the model again."""

    def __init__(self, guard: Guard, session_of: SessionOf | None = None) -> None:
        self._guard = guard
        self._session_of = session_of or _unnamed

    async def on_llm_start(self, context: Any, agent: Any, *_asked: Any) -> None:
        """Raise `RunHalted` when the run must end."""
        decision = await self._guard.acheck(
            session=self._session_of(context), agent=self._guard.agent or agent.name
        )
        if decision.halted:
            raise AgentHalted(decision)


def protected(agent: Any, guard: Guard, session_of: SessionOf | None = None) -> Any:
    """Return a copy of an agent whose function tools ask the guard first; its handoffs are not copied.

    Tools of MCP servers and hosted tools have no guardrails in this SDK: wrap an MCP session instead
    (`recloser_guard.adapters.mcp`). The hooks end a halted run in any case.
    """
    return replace(
        agent, tools=[_protected_tool(tool, guard, session_of or _unnamed) for tool in agent.tools]
    )


def _protected_tool(tool: Any, guard: Guard, session_of: SessionOf) -> Any:
    if not isinstance(tool, FunctionTool):
        return tool
    leases: dict[str, Decision] = {}

    async def ask(data: Any) -> Any:
        context = data.context
        decision = await guard.acheck(
            tool.name,
            _arguments(context.tool_arguments),
            session=session_of(context),
            agent=guard.agent or data.agent.name,
            lease=True,
        )
        if decision.halted:
            raise AgentHalted(decision)
        if not decision:
            return ToolGuardrailFunctionOutput.reject_content(decision.message_for_model)
        if decision.lease_id is not None:
            leases[context.tool_call_id] = decision
        return ToolGuardrailFunctionOutput.allow()

    async def tell(data: Any) -> Any:
        decision = leases.pop(data.context.tool_call_id, None)
        if decision is not None:
            guard.report(decision, ok=not _failed(data.output))
        return ToolGuardrailFunctionOutput.allow()

    return replace(
        tool,
        tool_input_guardrails=[
            ToolInputGuardrail(guardrail_function=ask, name="recloser"),
            *(tool.tool_input_guardrails or []),
        ],
        tool_output_guardrails=[
            ToolOutputGuardrail(guardrail_function=tell, name="recloser"),
            *(tool.tool_output_guardrails or []),
        ],
    )


def _failed(output: Any) -> bool:
    """Tell the SDK's own text for a tool that raised: it hands errors on as results."""
    return isinstance(output, str) and output.startswith("An error occurred while running the tool")


def _arguments(text: str) -> Any:
    try:
        return json.loads(text) if text else {}
    except ValueError:
        return text


def _unnamed(_context: Any) -> None:
    return None
