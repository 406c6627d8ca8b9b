"""What a flag client is told: breakers as boolean flags, and as a text how much an agent may do.

`allow.<tool>`: may this call go ahead? `breaker.<id>`: does this breaker refuse it? `mode.<agent>`: `full`,
`minimal` or `deterministic`. Values, reasons and codes are those of OFREP 0.1 and OpenFeature.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from collector.naming import name_kept
from control.breakers.states import State
from control.breakers.verdict import Decision
from control.scope import Asked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from control.breakers.index import BreakerIndex
    from control.breakers.record import Breaker
    from control.modes import ModeNow

ALLOW: Final = "allow."
BREAKER: Final = "breaker."
MODE: Final = "mode."
TARGETING_KEY: Final = "targetingKey"
MATCH: Final = "TARGETING_MATCH"
DEFAULT: Final = "DEFAULT"
NOT_FOUND: Final = "FLAG_NOT_FOUND"
KEY_MISSING: Final = "TARGETING_KEY_MISSING"
INVALID: Final = "INVALID_CONTEXT"
PARSE: Final = "PARSE_ERROR"
_PARTS: Final = ("service", "agent", "agent_version", "run", "tool", "args", "model")
_REFUSING: Final = (State.OPEN, State.HALF_OPEN, State.FORCED_OPEN)
_MAX_TEXT: Final = 1024


class FlagError(Exception):
    """A flag cannot be evaluated: OpenFeature's code, and why."""

    def __init__(self, code: str, details: str) -> None:
        super().__init__(details)
        self.code = code
        self.details = details


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One evaluated flag."""

    key: str
    value: bool | str
    variant: str
    reason: str = DEFAULT
    metadata: Mapping[str, bool | str | float] = field(default_factory=dict)


def asked_of(context: Mapping[str, Any]) -> Asked:
    """Read the call out of an evaluation context. Raises `FlagError`."""
    parts: dict[str, str] = {}
    for name in (TARGETING_KEY, *_PARTS):
        value = context.get(name)
        if value is None:
            continue
        if not isinstance(value, str) or len(value) > _MAX_TEXT:
            raise FlagError(INVALID, f"context.{name}: must be a text of {_MAX_TEXT} characters at most")
        parts[name] = name_kept(value)
    return Asked(session=parts.pop(TARGETING_KEY, None), **parts)


class Flags:
    """Evaluates flags against what is in memory. Belongs to the event loop."""

    def __init__(self, index: BreakerIndex, mode_of: Callable[[str, str | None], ModeNow]) -> None:
        self._index = index
        self._mode_of = mode_of

    def allow(self, tool: str, asked: Asked, *, count: bool) -> Flag:
        """Tell whether a call of `tool` may go ahead; `count` it as asked for when it may not."""
        if asked.session is None:
            raise FlagError(KEY_MISSING, "context.targetingKey: the session is needed")
        call = _of_tool(asked, tool)
        verdict = self._index.check(call) if count else self._index.peek(call)
        metadata: dict[str, bool | str | float] = {"revision": verdict.revision}
        if verdict.breaker_id is not None:
            metadata |= {"breaker_id": verdict.breaker_id, "message": verdict.message}
        if verdict.strength is not None:
            metadata["strength"] = verdict.strength.value
        if verdict.reason is not None:
            metadata["reason"] = verdict.reason
        if verdict.override is not None:
            metadata["override"] = verdict.override
        decided = verdict.breaker_id is not None or verdict.override is not None
        return Flag(
            key=f"{ALLOW}{tool}",
            value=verdict.decision is Decision.ALLOW,
            variant=verdict.decision.value,
            reason=MATCH if decided else DEFAULT,
            metadata=metadata,
        )

    def breaker(self, breaker: Breaker, asked: Asked) -> Flag:
        """Tell whether a breaker refuses the call; without a session, whether it refuses any."""
        meant = asked.session is None or breaker.scope.covers(asked)
        return Flag(
            key=f"{BREAKER}{breaker.id}",
            value=meant and breaker.state in _REFUSING,
            variant=breaker.state.value,
            reason=MATCH if meant else DEFAULT,
            metadata={
                "revision": breaker.revision,
                "action": breaker.action.value,
                "reason": breaker.reason,
                "scope": str(breaker.scope),
            },
        )

    def mode(self, agent: str, asked: Asked) -> Flag:
        """Tell how much an agent may do."""
        now = self._mode_of(agent, asked.service)
        return Flag(
            key=f"{MODE}{agent}",
            value=now.mode.value,
            variant=now.mode.value,
            reason=DEFAULT if now.cause == "default" else MATCH,
            metadata={"cause": now.cause},
        )

    def all(self, asked: Asked) -> list[Flag]:
        """Evaluate what a context is about.

        The breakers that may cover its calls, the tools that they and the context name, and the agent's mode.
        Raises `FlagError` without a session.
        """
        if asked.session is None:
            raise FlagError(KEY_MISSING, "context.targetingKey: the session is needed")
        found = [b for b in self._index.snapshot()[1] if _may_cover(b, asked)]
        tools = {b.scope.tool for b in found if b.scope.tool is not None} | {asked.tool} - {None}
        flags = [self.breaker(b, _of_tool(asked, b.scope.tool)) for b in found]
        flags += [self.allow(tool, asked, count=False) for tool in sorted(filter(None, tools))]
        if asked.agent is not None:
            flags.append(self.mode(asked.agent, asked))
        return flags


def _of_tool(asked: Asked, tool: str | None) -> Asked:
    return asked if tool is None else replace(asked, tool=tool)


def _may_cover(breaker: Breaker, asked: Asked) -> bool:
    """Tell whether a breaker covers some call of the context, whose tool may be left open."""
    return breaker.scope.covers(_of_tool(asked, breaker.scope.tool) if asked.tool is None else asked)
