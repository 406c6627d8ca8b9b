"""The whole policy, and what it says of a finding. Pure; no rules means that nothing is ever stopped."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from control.breakers.settings import BreakerSettings
from control.policy.reach import Target, scope_of, target_of
from control.policy.rules import BudgetRule, CheckSettings, ModeRule, Rule, Threshold

if TYPE_CHECKING:
    from control.action import Action
    from control.scope import Scope
    from detectors.protocol import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Trip:
    """One breaker that a finding opens, and the rule that said so.

    `open_s`: seconds until it tries again, None: as breakers usually do. `quarantine`: the refusal names
    the tainted steps and the last clean one.
    """

    rule: str
    scope: Scope
    action: Action
    shadow: bool
    open_s: float | None = None
    quarantine: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """What the policy says of a finding.

    `alert`: whether anybody is told; `destinations`: by which names, None: all there are. `trips`: at most
    one a scope. `shadow`: the detector runs in shadow, the finding is only recorded. `rules`: the names of
    those that mean the finding, in their order.
    """

    alert: bool = True
    destinations: tuple[str, ...] | None = None
    trips: tuple[Trip, ...] = ()
    shadow: bool = False
    rules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """All rules. Immutable: a reload makes another one. Raises `ValueError` naming what is there twice."""

    rules: tuple[Rule, ...] = ()
    thresholds: tuple[Threshold, ...] = ()
    budgets: tuple[BudgetRule, ...] = ()
    modes: tuple[ModeRule, ...] = ()
    breakers: BreakerSettings = field(default_factory=BreakerSettings)
    check: CheckSettings = field(default_factory=CheckSettings)

    def __post_init__(self) -> None:
        """Refuse two parts of one name."""
        for part in ("rules", "thresholds", "budgets", "modes"):
            names = [each.name for each in getattr(self, part)]
            for name in names:
                if names.count(name) > 1:
                    raise ValueError(f"policy.{part}: two {part} are named {name!r}")

    @property
    def escalate_after(self) -> int:
        """After how many refused checks a `deny` becomes a `halt` (0: never)."""
        return self.breakers.escalate_after

    def rule_on(self, finding: Finding, at_ns: int) -> Ruling:
        """Say who hears of a finding and what it trips, at a moment (unix ns).

        What a detector in shadow found is only recorded. A finding with missing evidence trips nothing,
        whatever the rules say. Of several trips of one scope the most restrictive one counts. A rule that
        means the finding only by another kind of its streak trips and names destinations; that nobody is
        told, and that later rules are not asked, it says of findings of its own kinds alone.
        """
        if is_shadow(finding):
            return Ruling(alert=False, shadow=True)
        own, meant = self._meant(finding, at_ns)
        told = [
            rule.alert
            for rule in meant
            if rule.alert is not None and not rule.shadow and (rule.alert or rule in own)
        ]
        names = tuple(dict.fromkeys(name for names in told for name in names))
        return Ruling(
            alert=bool(names) or not told,
            destinations=names if told else None,
            trips=() if finding.evidence.get("missing") else _trips(meant, target_of(finding)),
            rules=tuple(rule.name for rule in meant),
        )

    def _meant(self, finding: Finding, at_ns: int) -> tuple[list[Rule], list[Rule]]:
        """Return the rules that mean the finding by its present kind, and those that do by any."""
        own: list[Rule] = []
        meant: list[Rule] = []
        for rule in self.rules:
            if rule.means(finding, at_ns):
                own.append(rule)
                meant.append(rule)
                if rule.stop and not rule.shadow:
                    break
            elif rule.means_streak(finding, at_ns):
                meant.append(rule)
        return own, meant


def is_shadow(finding: Finding) -> bool:
    """Whether a finding is only recorded: its detector runs in shadow, nobody is told, nothing is stopped."""
    return bool(finding.evidence.get("shadow"))


def _trips(rules: list[Rule], target: Target) -> tuple[Trip, ...]:
    wanted: dict[Scope, Trip] = {}
    for rule in rules:
        scope = None if rule.reach is None else scope_of(rule.reach, target)
        if scope is None:
            continue
        trip = Trip(
            rule=rule.name,
            scope=scope,
            action=rule.action,
            shadow=rule.shadow or rule.trip_in_shadow,
            open_s=rule.open_s,
            quarantine=rule.quarantine,
        )
        if scope not in wanted or _strength(trip) > _strength(wanted[scope]):
            wanted[scope] = trip
    return tuple(wanted.values())


def _strength(trip: Trip) -> tuple[bool, int, bool]:
    return (not trip.shadow, trip.action.rank, trip.quarantine)
