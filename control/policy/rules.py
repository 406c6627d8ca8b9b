"""What a policy is made of: rules about findings, thresholds of failed calls, budgets, modes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from control.action import Action
from control.policy.hours import Hours
from control.policy.reach import Reach, Target, scope_of
from control.spoken import also_of
from detectors.protocol import Severity

if TYPE_CHECKING:
    from control.scope import Scope
    from detectors.protocol import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule about findings: which are meant, who hears of them, what they trip.

    A finding is meant when every part that is not empty fits: kind, severity (one of `severities`, else
    `min_severity` and worse; that of the kind that fits), patterns (`*`, `?`, `[...]`, case matters) of
    service, agent, tool and session, and the time. `alert`: names of destinations, empty: nobody, None: the
    rule does not say. `reach` None: it trips nothing. `open_s`: seconds open, None: as breakers usually do.
    `quarantine`: the refusal names the tainted steps. `trip_in_shadow`: record what would have been stopped,
    stop nothing. `shadow`: so, and neither `alert` nor `stop` count. `stop`: later rules are not asked about
    a finding that this one means.
    """

    name: str
    kinds: frozenset[str] = frozenset()
    severities: frozenset[Severity] = frozenset()
    min_severity: Severity = Severity.CRITICAL
    services: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    hours: Hours | None = None
    alert: tuple[str, ...] | None = None
    reach: Reach | None = Reach.SESSION_TOOL
    action: Action = Action.DENY
    open_s: float | None = None
    quarantine: bool = False
    trip_in_shadow: bool = False
    shadow: bool = False
    stop: bool = False

    def means(self, finding: Finding, at_ns: int) -> bool:
        """Tell whether the rule is about this finding at this moment (unix ns), by its present kind."""
        return self._kind(finding.kind, finding.severity) and self._about(finding, at_ns)

    def means_streak(self, finding: Finding, at_ns: int) -> bool:
        """Tell whether the rule is about what other detectors say of the finding's streak.

        Only a rule that names kinds can be: one that names none goes by the finding as it is.
        """
        return (
            bool(self.kinds)
            and any(self._kind(one.kind, one.severity) for one in also_of(finding))
            and self._about(finding, at_ns)
        )

    def _kind(self, kind: str, severity: Severity) -> bool:
        return (not self.kinds or kind in self.kinds) and self._severe(severity)

    def _about(self, finding: Finding, at_ns: int) -> bool:
        return (
            fits(self.services, finding.service)
            and fits(self.agents, finding.agent)
            and fits(self.tools, finding.tool)
            and fits(self.sessions, finding.session_id, *finding.session_ids)
            and (self.hours is None or self.hours.hold(at_ns))
        )

    def _severe(self, severity: Severity) -> bool:
        return severity in self.severities if self.severities else severity.rank >= self.min_severity.rank


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """`failures` failed calls in a row, of these natures, open a breaker over `reach`.

    Natures are those of the error model (`structural`, `transient`, …); a failure of another nature neither
    counts nor breaks the row, a success does. Patterns as in `Rule`. `open_s`: seconds open, None: as usual.
    `sessions`: from so many different sessions the failures of a row must come at least; None: see `quorum`.

    Raises `ValueError` that names the key when a reach of one session asks for more than one.
    """

    name: str
    reach: Reach = Reach.SERVICE_TOOL
    failures: int = 5
    sessions: int | None = None
    natures: frozenset[str] = frozenset({"structural"})
    services: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    open_s: float | None = 60.0
    action: Action = Action.DENY
    shadow: bool = False

    def __post_init__(self) -> None:
        """Refuse what can never be reached."""
        if self.sessions is None:
            return
        if self.sessions < 1:
            raise ValueError("sessions: must be at least 1")
        if self.sessions > 1 and not self.reach.wide:
            raise ValueError(f"sessions: the scope {self.reach.value!r} has one session, it cannot be more")
        if self.sessions > self.failures:
            raise ValueError(f"sessions: {self.failures} failures cannot come from more sessions than that")

    @property
    def quorum(self) -> int:
        """From how many sessions the failures of a row must come: one session alone opens nothing for all.

        Without `sessions` 3 where the reach is over many sessions, or `failures` if that is less; else 1.
        """
        if self.sessions is not None:
            return self.sessions
        return min(SESSIONS, self.failures) if self.reach.wide else 1

    def scope(self, target: Target, nature: str) -> Scope | None:
        """Return the scope that a failed call counts towards; None when it does not count.

        What a success of the same target clears is asked with any nature of `natures`.
        """
        meant = (
            nature in self.natures
            and fits(self.services, target.service)
            and fits(self.agents, target.agent)
            and fits(self.tools, target.tool)
        )
        return scope_of(self.reach, target) if meant else None


class Unit(StrEnum):
    """What a budget counts."""

    CALLS = "calls"
    TOKENS = "tokens"
    USD = "usd"


class Per(StrEnum):
    """Whose budget it is: each session, agent or service has one of its own, or all share one."""

    SESSION = "session"
    AGENT = "agent"
    SERVICE = "service"
    TENANT = "tenant"


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRule:
    """A budget that clients reserve from before they spend.

    `limit` in `unit` per window of `window_s` seconds (0: for ever); a reservation that is neither committed
    nor released within `ttl_s` seconds is given back.
    """

    name: str
    per: Per
    unit: Unit
    limit: float
    window_s: float = 0.0
    ttl_s: float = 120.0


class Mode(StrEnum):
    """How much an agent may do: all, the least that its domain needs, or no model at all."""

    FULL = "full"
    MINIMAL = "minimal"
    DETERMINISTIC = "deterministic"

    @property
    def rank(self) -> int:
        """0 for full, 2 for deterministic: the higher one wins."""
        return ("full", "minimal", "deterministic").index(self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeRule:
    """An agent's mode while at least `tools` tools of its service are degraded.

    A tool counts until `hold_s` seconds passed without another revision of its finding. `kind`: the kind of
    finding that says a tool is degraded; `tool_patterns` narrows which tools count.
    """

    name: str
    agents: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    tool_patterns: tuple[str, ...] = ()
    kind: str = "tool_degraded"
    tools: int = 1
    mode: Mode = Mode.MINIMAL
    hold_s: float = 900.0

    def means(self, agent: str) -> bool:
        """Tell whether the rule is about an agent."""
        return fits(self.agents, agent)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSettings:
    """The section `check` of a policy.

    `known_dead_calls`: a check refuses a call whose failure is known and after which nothing has changed.
    """

    known_dead_calls: bool = False


SESSIONS: Final = 3
THRESHOLD_REACHES: Final = (
    Reach.SERVICE_TOOL,
    Reach.TOOL,
    Reach.SESSION_TOOL,
    Reach.SESSION,
    Reach.AGENT,
    Reach.SERVICE_AGENT,
)


def fits(patterns: tuple[str, ...], *values: str | None) -> bool:
    """Tell whether any value fits any pattern; no patterns fit everything. An unknown value is empty.

    >>> fits(("shop-*",), "shop-eu"), fits(("*",), None), fits((), None), fits(("?*",), None)
    (True, True, True, False)
    """
    return not patterns or any(fnmatchcase(v or "", pattern) for v in values for pattern in patterns)
