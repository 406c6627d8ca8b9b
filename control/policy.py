"""Which findings stop what. Pure data, pure functions; no rules means that nothing is ever stopped."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from control.action import Action
from control.scope import Scope
from detectors.protocol import Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Sequence


class Reach(StrEnum):
    """What a rule's breaker covers: the whole session, or one tool of it."""

    SESSION = "session"
    SESSION_TOOL = "session_tool"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Findings of these kinds (empty: all) and at least this severity open a breaker over `reach`.

    `shadow`: record what would have been stopped, stop nothing.
    """

    name: str
    kinds: frozenset[str] = frozenset()
    min_severity: Severity = Severity.CRITICAL
    reach: Reach = Reach.SESSION_TOOL
    action: Action = Action.DENY
    shadow: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """All rules, and after how many refused checks a `deny` becomes a `halt` (0: never).

    A refusal alone is a hint that agents ignore: in five command-line agents the loop went on after it.
    """

    rules: tuple[Rule, ...] = ()
    escalate_after: int = 3

    def __post_init__(self) -> None:
        """Raise `ValueError` naming the key that makes no sense."""
        if self.escalate_after < 0:
            raise ValueError("policy.escalate_after: must be 0 (never) or more")
        names = [rule.name for rule in self.rules]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"policy.rules: two rules are named {name!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trip:
    """One breaker that a finding opens, and the rule that said so."""

    rule: str
    scope: Scope
    action: Action
    shadow: bool


def trips(policy: Policy, finding: Finding) -> Sequence[Trip]:
    """Say which breakers a finding opens: at most one a scope, the most restrictive one.

    A finding with missing evidence opens none, whatever the rules say. Neither does one of a detector in
    shadow, one without a session, nor a rule for one tool when the finding names none.
    """
    if finding.evidence.get("missing") or is_shadow(finding) or not finding.session_id:
        return ()
    wanted: dict[Scope, Trip] = {}
    for rule in policy.rules:
        scope = _scope(rule, finding)
        if scope is None or not _matches(rule, finding):
            continue
        trip = Trip(rule=rule.name, scope=scope, action=rule.action, shadow=rule.shadow)
        if scope not in wanted or _strength(trip) > _strength(wanted[scope]):
            wanted[scope] = trip
    return tuple(wanted.values())


def is_shadow(finding: Finding) -> bool:
    """Whether a finding is only recorded: its detector runs in shadow, nobody is told, nothing is stopped."""
    return bool(finding.evidence.get("shadow"))


def _matches(rule: Rule, finding: Finding) -> bool:
    return finding.severity.rank >= rule.min_severity.rank and (not rule.kinds or finding.kind in rule.kinds)


def _scope(rule: Rule, finding: Finding) -> Scope | None:
    if rule.reach is Reach.SESSION:
        return Scope(session=finding.session_id)
    if finding.tool is None:
        return None
    return Scope(session=finding.session_id, tool=finding.tool)


def _strength(trip: Trip) -> tuple[bool, int]:
    return (not trip.shadow, trip.action.rank)
