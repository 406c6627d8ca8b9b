"""Keys of a policy made into what control takes; what makes no sense is noted under its key."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, TypeVar

from api.policykeys import FileKeys, ModeKeys, RuleKeys, ThresholdKeys
from control.action import Action
from control.alerts.system import KINDS as SYSTEM_KINDS
from control.breakers.settings import BreakerSettings
from control.policy import (
    BudgetRule,
    CheckSettings,
    Hours,
    Mode,
    ModeRule,
    Per,
    Policy,
    Reach,
    Rule,
    Threshold,
    Unit,
)
from detectors.catalog import unknown_findings
from detectors.errors.kinds import Nature
from detectors.protocol import Severity

if TYPE_CHECKING:
    from api.tomllines import Path

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a policy, and with which of its keys."""

    path: Path
    message: str


class Compiler:
    """Makes a policy.

    `destinations` are the names that may be told, None: any name. `escalate_after` holds where the keys of
    breakers do not say it.
    """

    def __init__(self, destinations: Iterable[str] | None, escalate_after: int = 3) -> None:
        self._escalate_after = escalate_after
        self._destinations = None if destinations is None else tuple(sorted(set(destinations)))
        self._found = frozenset(unknown_findings(())[1])
        self._asked_all = False
        self.problems: list[Problem] = []

    def policy(self, keys: FileKeys) -> Policy | None:
        """Return the policy; None when there are problems."""
        for table in ("rule", "threshold", "budget", "mode"):
            self._names(table, [each.name for each in getattr(keys, table)])
        rules = [self.rule(("rule", n), n + 1, each) for n, each in enumerate(keys.rule)]
        thresholds = [self._threshold(("threshold", n), n + 1, t) for n, t in enumerate(keys.threshold)]
        modes = [self._mode(("mode", n), n + 1, each) for n, each in enumerate(keys.mode)]
        breakers = self._breakers(keys)
        if self.problems or breakers is None:
            return None
        return Policy(
            rules=tuple(rules),
            thresholds=tuple(thresholds),
            budgets=tuple(
                BudgetRule(
                    name=each.name,
                    per=Per(each.per),
                    unit=Unit(each.unit),
                    limit=each.limit,
                    window_s=each.window_s,
                    ttl_s=each.ttl_s,
                )
                for each in keys.budget
            ),
            modes=tuple(modes),
            breakers=breakers,
            check=CheckSettings(known_dead_calls=keys.check.known_dead_calls),
        )

    def rule(self, path: Path, number: int, keys: RuleKeys) -> Rule:
        """Make one rule."""
        self._kinds((*path, "kinds"), keys.kinds, tuple(sorted(SYSTEM_KINDS)))
        self._known((*path, "severities"), keys.severities, [each.value for each in Severity], "severity")
        if keys.severities and keys.min_severity is not None:
            self._note((*path, "min_severity"), "say `severities` or `min_severity`, not both")
        if self._destinations is not None:
            self._known((*path, "alert"), keys.alert or (), self._destinations, "destination")
        trip = keys.trip
        if trip is None and keys.alert is None and not keys.stop:
            self._note(path, "says nothing: it needs `alert`, `trip` or `stop`")
        trips_at = Severity.WARNING if trip is None else Severity.CRITICAL
        return Rule(
            name=keys.name or f"rule-{number}",
            kinds=frozenset(keys.kinds),
            severities=frozenset(Severity(s) for s in keys.severities if s in {x.value for x in Severity}),
            min_severity=trips_at if keys.min_severity is None else Severity(keys.min_severity),
            services=keys.services,
            agents=keys.agents,
            tools=keys.tools,
            sessions=keys.sessions,
            hours=self._hours(path, keys),
            alert=keys.alert,
            reach=None if trip is None else Reach(trip.scope),
            action=Action.DENY if trip is None else Action(trip.action),
            open_s=None if trip is None else trip.open_s,
            quarantine=trip is not None and trip.quarantine,
            trip_in_shadow=trip is not None and trip.shadow,
            shadow=keys.shadow,
            stop=keys.stop,
        )

    def _threshold(self, path: Path, number: int, keys: ThresholdKeys) -> Threshold:
        self._known((*path, "nature"), keys.nature, [each.value for each in Nature], "nature")
        if not keys.nature:
            self._note((*path, "nature"), "name at least one nature of errors")
        made = Threshold(
            name=keys.name or f"threshold-{number}",
            reach=Reach(keys.scope),
            failures=keys.failures,
            natures=frozenset(keys.nature),
            services=keys.services,
            agents=keys.agents,
            tools=keys.tools,
            open_s=keys.open_s,
            action=Action(keys.action),
            shadow=keys.shadow,
        )
        try:
            return replace(made, sessions=made.quorum if keys.sessions is None else keys.sessions)
        except ValueError as error:
            key, _, message = str(error).partition(": ")
            self._note((*path, key), message)
            return made

    def _mode(self, path: Path, number: int, keys: ModeKeys) -> ModeRule:
        self._kinds((*path, "when", "kind"), (keys.when.kind,))
        return ModeRule(
            name=keys.name or f"mode-{number}",
            agents=(keys.agent,) if isinstance(keys.agent, str) else keys.agent,
            services=keys.services,
            tool_patterns=keys.tools,
            kind=keys.when.kind,
            tools=keys.when.tools,
            mode=Mode(keys.mode),
            hold_s=keys.hold_s,
        )

    def _hours(self, path: Path, keys: RuleKeys) -> Hours | None:
        spelled = (keys.hours,) if isinstance(keys.hours, str) else keys.hours
        self._try((*path, "timezone"), lambda: Hours.of((), keys.timezone))
        made = [self._try((*path, "hours"), lambda text=text: Hours.of((text,), "UTC")) for text in spelled]  # type: ignore[misc]  # a default binds the text
        if not spelled or self.problems or None in made:
            return None
        return Hours.of(spelled, keys.timezone)

    def _breakers(self, keys: FileKeys) -> BreakerSettings | None:
        try:
            said = keys.breaker.model_dump(exclude_unset=True)
            return BreakerSettings(**{"escalate_after": self._escalate_after, **said})
        except ValueError as error:
            key, _, message = str(error).partition(": ")
            self._note(tuple(key.split(".")), message)
            return None

    def _names(self, table: str, names: list[str]) -> None:
        first: dict[str, int] = {}
        for position, name in enumerate(names):
            known = first.setdefault(name or f"{table}-{position + 1}", position)
            if known != position:
                self._note((table, position, "name"), f"{table} {known + 1} has the name {name!r}, too")

    def _kinds(self, path: Path, kinds: tuple[str, ...], others: tuple[str, ...] = ()) -> None:
        unknown = [kind for kind in dict.fromkeys(kinds) if kind not in self._found and kind not in others]
        if unknown and not self._asked_all:  # packages of third parties are loaded once, if at all
            self._asked_all = True
            self._found = frozenset(unknown_findings(unknown)[1])
            unknown = [kind for kind in unknown if kind not in self._found]
        choice = sorted({*self._found, *others})
        for kind in unknown:
            where = (*path, kinds.index(kind)) if path[-1] == "kinds" else path
            self._note(where, f"no detector finds {kind!r}; {suggestion(kind, choice)}")

    def _known(self, path: Path, values: Iterable[str], known: Iterable[str], what: str) -> None:
        choice = tuple(known)
        for position, value in enumerate(values):
            if value not in choice:
                self._note((*path, position), f"there is no {what} {value!r}; {suggestion(value, choice)}")

    def _try(self, path: Path, make: Callable[[], _T]) -> _T | None:
        try:
            return make()
        except ValueError as error:
            self._note(path, str(error))
            return None

    def _note(self, path: Path, message: str) -> None:
        self.problems.append(Problem(path, message))


def suggestion(wrong: str, known: Iterable[str]) -> str:
    """Say what may have been meant.

    >>> suggestion("dom_loop", ["doom_loop", "flail"]), suggestion("x", ["doom_loop", "flail"])
    ("did you mean 'doom_loop'?", 'there are doom_loop, flail')
    """
    choice = list(known)
    close = get_close_matches(wrong, choice, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"there are {', '.join(choice)}" if choice else "there are none"
