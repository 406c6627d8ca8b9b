"""How far a trip reaches: which parts of what a finding is about become the breaker's scope."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from control.scope import Scope

if TYPE_CHECKING:
    from collections.abc import Mapping

    from detectors.protocol import Finding


class Reach(StrEnum):
    """What a rule's breaker covers. `tool` alone is that tool for every service and session."""

    SESSION = "session"
    SESSION_TOOL = "session_tool"
    SESSION_ARGS = "session_args"
    RUN = "run"
    AGENT = "agent"
    SERVICE_AGENT = "service_agent"
    TOOL = "tool"
    SERVICE_TOOL = "service_tool"

    @property
    def wide(self) -> bool:
        """Whether it covers more than one session."""
        return self in _WIDE


_WIDE: Final = frozenset({Reach.AGENT, Reach.SERVICE_AGENT, Reach.TOOL, Reach.SERVICE_TOOL})
_PARTS: Final[Mapping[Reach, tuple[str, ...]]] = MappingProxyType(
    {
        Reach.SESSION: ("session",),
        Reach.SESSION_TOOL: ("session", "tool"),
        Reach.SESSION_ARGS: ("session", "tool", "args"),
        Reach.RUN: ("session", "run"),
        Reach.AGENT: ("agent",),
        Reach.SERVICE_AGENT: ("service", "agent"),
        Reach.TOOL: ("tool",),
        Reach.SERVICE_TOOL: ("service", "tool"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What something is about, as far as it is told; `args` is a call's signature, 16 hex digits."""

    service: str | None = None
    agent: str | None = None
    session: str | None = None
    run: str | None = None
    tool: str | None = None
    args: str | None = None


def target_of(finding: Finding) -> Target:
    """Say what a finding is about. Empty texts are not told."""
    signature = finding.evidence.get("signature")
    return Target(
        service=finding.service or None,
        agent=finding.agent or None,
        session=finding.session_id or None,
        run=finding.run_id or None,
        tool=finding.tool or None,
        args=signature if isinstance(signature, str) and signature else None,
    )


def scope_of(reach: Reach, target: Target) -> Scope | None:
    """Return the scope of a trip; None when a part that it needs is not told.

    Every reach needs one part at least, so that nothing that is tripped automatically covers a whole tenant.
    """
    parts: dict[str, str] = {}
    for name in _PARTS[reach]:
        value: str | None = getattr(target, name)
        if value is None:
            return None
        parts[name] = value
    return Scope(**parts)
