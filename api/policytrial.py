"""What a policy would have done to a history: whom it would have told, what it would have stopped. Pure.

A breaker over a session or run without a tool is taken to end it: all that comes after counts as spared. Any
other one refuses the tool calls that it covers, a halt its model calls, too. One over more than a session is
open for the time that rule or settings say and then closed: half-open probes, growing times, escalation and
latching are left out, and so is whatever the agents would have done instead. Budgets and modes act through
clients and are not tried.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from api.stopping import Price, Run, Spared
from collector.step import Kind, Outcome, Step
from control.action import Action
from control.breakers.thresholds import ROW_GAP_S, with_session
from control.policy import Policy, Ruling, Target, Trip
from control.scope import Asked, Scope
from detectors.protocol import Severity

if TYPE_CHECKING:
    from api.backtesting import Place
    from detectors.protocol import Finding
    from detectors.reading import Reading

STREAKS_KEPT: Final = 50_000
"""Scopes whose failures in a row are counted; the least recent go first."""
_NS: Final = 1_000_000_000
_MINUTE_NS: Final = 60 * _NS


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A finding as it became an alert, or a critical one; `destinations` None: everybody, empty: nobody.

    Critical ones become alerts, lesser ones where a rule names destinations (`control.alerts.alerting`).
    """

    finding_id: str
    kind: str
    severity: Severity
    session: str
    summary: str
    place: Place
    destinations: tuple[str, ...] | None
    rules: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """What opened a breaker: a finding, or failed calls in a row (`kind` threshold, no id)."""

    finding_id: str
    kind: str
    summary: str
    session: str


@dataclass(slots=True, kw_only=True)
class Opening:
    """A breaker that would have opened: by which rule, why, where, and what that would have stopped.

    `capped`: too much had been opened in that minute, so that it would have been noted in shadow only.
    `refused` counts tool calls, `runs` are those of which one would have been refused, by id.
    """

    rule: str
    scope: Scope
    action: Action
    shadow: bool
    capped: bool
    cause: Cause
    place: Place
    until_ns: int | None
    refused: int = 0
    sessions: set[str] = field(default_factory=set)
    runs: dict[str, Run] = field(default_factory=dict)
    spared: Spared = field(default_factory=Spared)

    @property
    def real(self) -> bool:
        """Whether anything would have been refused."""
        return not (self.shadow or self.capped)

    def covers(self, asked: Asked, step: Step, at_ns: int) -> bool:
        """Tell whether a step would not have happened."""
        if (self.until_ns is not None and at_ns >= self.until_ns) or not self.scope.covers(asked):
            return False
        ends_it = self.scope.of_one_run and self.scope.tool is None
        return step.kind is Kind.TOOL_CALL or ends_it or self.action is Action.HALT

    def spend(self, step: Step, run: Run, price: Price) -> None:
        """Note a step that would not have happened."""
        self.spared.spend(step, price)
        if step.kind is Kind.TOOL_CALL:
            self.refused += 1
            self.sessions.add(step.session_id)
            self.runs.setdefault(run.run_id, run)


class Trial:
    """Shows a history to a policy: `take` each step before what is found at it is `found`."""

    def __init__(self, policy: Policy, price: Price) -> None:
        self._policy = policy
        self._price = price
        self._told: dict[str, Told] = {}
        self._meant: dict[str, set[str]] = {}
        self._openings: list[Opening] = []
        self._of_session: dict[str, list[Opening]] = {}
        self._wide: dict[Scope, Opening] = {}
        self._lately: deque[int] = deque()
        self._streaks: OrderedDict[tuple[str, Scope], tuple[int, int, tuple[str, ...]]] = OrderedDict()

    def take(self, reading: Reading, run: Run, place: Place) -> None:
        """Take a step in: what open breakers make of it, then what it means to thresholds."""
        step = reading.step
        if step.outcome is Outcome.DENIED:
            return
        asked = _asked(reading)
        if place.inside:
            covering = [each for each in self._open(step) if each.covers(asked, step, step.start_ns)]
            first = next((each for each in covering if each.real), None)
            for opening in covering:
                if opening is first or not opening.real:
                    opening.spend(step, run, self._price)
            if first is not None:
                return  # it did not happen, so it fails and works no more
        if step.kind is Kind.TOOL_CALL and self._policy.thresholds:
            self._count(reading, place)

    def found(self, finding: Finding, place: Place) -> None:
        """Take what was found at the step before."""
        ruling = self._policy.rule_on(finding, place.at_ns)
        if ruling.shadow:
            return
        for name in ruling.rules:
            self._meant.setdefault(name, set()).add(finding.id)
        severe = finding.severity is Severity.CRITICAL or ruling.destinations is not None
        if severe and place.inside and finding.id not in self._told:
            self._told[finding.id] = Told(
                finding_id=finding.id,
                kind=finding.kind,
                severity=finding.severity,
                session=finding.session_id,
                summary=finding.summary,
                place=place,
                destinations=ruling.destinations if ruling.alert else (),
                rules=ruling.rules,
            )
        elif finding.id in self._told and finding.severity is Severity.CRITICAL and ruling.alert:
            self._told[finding.id] = _wider(self._told[finding.id], ruling)
        cause = Cause(
            finding_id=finding.id, kind=finding.kind, summary=finding.summary, session=finding.session_id
        )
        for trip in ruling.trips:
            self._trip(trip, cause, place)

    def told(self) -> list[Told]:
        """All alerts, in the order of the history."""
        return list(self._told.values())

    def openings(self) -> list[Opening]:
        """Every breaker that would have opened within the window, or refused a call there, in order."""
        return [
            each for each in self._openings if each.place.inside or each.refused or each.spared.model_calls
        ]

    def meant(self, rule: str) -> int:
        """How many findings a rule is about, those of the warm-up included."""
        return len(self._meant.get(rule, ()))

    def _open(self, step: Step) -> Iterator[Opening]:
        yield from self._of_session.get(step.session_id, ())
        yield from self._wide.values()

    def _trip(self, trip: Trip, cause: Cause, place: Place) -> None:
        if self._over(cause.session):
            return
        held = self._holding(trip.scope, place.at_ns)
        real = not trip.shadow
        if held is not None and (not real or (held.real and held.action.rank >= trip.action.rank)):
            return
        seconds = self._policy.breakers.base_open_s if trip.open_s is None else trip.open_s
        opening = Opening(
            rule=trip.rule,
            scope=trip.scope,
            action=trip.action,
            shadow=trip.shadow,
            capped=real and self._too_much(place.at_ns),
            cause=cause,
            place=place,
            until_ns=None if trip.scope.of_one_run else place.at_ns + int(seconds * _NS),
        )
        self._openings.append(opening)
        if trip.scope.session is None:
            self._wide[trip.scope] = opening
        else:
            self._of_session.setdefault(trip.scope.session, []).insert(0, opening)

    def _over(self, session: str) -> bool:
        """Tell whether a session was ended before."""
        opened = self._of_session.get(session, ()) if session else ()
        return any(each.real and each.scope == Scope(session=session) for each in opened)

    def _holding(self, scope: Scope, at_ns: int) -> Opening | None:
        """Return the breaker of a scope that is open at a moment."""
        known = self._wide.get(scope) if scope.session is None else None
        of_session = self._of_session.get(scope.session or "", ())
        held = known or next((each for each in of_session if each.scope == scope), None)
        return None if held is None or (held.until_ns or at_ns + 1) <= at_ns else held

    def _too_much(self, at_ns: int) -> bool:
        most = self._policy.breakers.blast_per_minute
        while self._lately and self._lately[0] <= at_ns - _MINUTE_NS:
            self._lately.popleft()
        if most and len(self._lately) >= most:
            return True
        self._lately.append(at_ns)
        return False

    def _count(self, reading: Reading, place: Place) -> None:
        step, verdict = reading.step, reading.verdict
        target = Target(
            service=step.service or None,
            agent=step.agent or None,
            session=step.session_id or None,
            tool=step.tool or None,
        )
        for threshold in self._policy.thresholds:
            nature = min(threshold.natures) if verdict is None else verdict.nature.value
            scope = threshold.scope(target, nature)
            if scope is None:
                continue
            key = (threshold.name, scope)
            if verdict is None:
                if step.outcome is Outcome.OK:
                    self._streaks.pop(key, None)
                continue
            before, last_ns, sessions = self._streaks.pop(key, (0, step.end_ns, ()))
            if step.end_ns - last_ns > ROW_GAP_S * _NS:
                before, sessions = 0, ()
            count, sessions = before + 1, with_session(sessions, step.session_id, threshold.quorum)
            if count < threshold.failures or len(sessions) < threshold.quorum:
                self._streaks[key] = (count, step.end_ns, sessions)
                if len(self._streaks) > STREAKS_KEPT:
                    self._streaks.popitem(last=False)
                continue
            trip = Trip(
                rule=threshold.name,
                scope=scope,
                action=threshold.action,
                shadow=threshold.shadow,
                open_s=threshold.open_s,
            )
            summary = f"{count} failed calls in a row, the last a {verdict.error_class.value} error"
            cause = Cause(finding_id="", kind="threshold", summary=summary, session=step.session_id)
            self._trip(trip, cause, place)


def _wider(told: Told, ruling: Ruling) -> Told:
    """Who has heard when the finding is critical: those whom policy names then, too."""
    before, names = told.destinations, ruling.destinations
    wider = None if before is None or names is None else tuple(dict.fromkeys((*before, *names)))
    rules = tuple(dict.fromkeys((*told.rules, *ruling.rules)))
    return replace(told, severity=Severity.CRITICAL, destinations=wider, rules=rules)


def _asked(reading: Reading) -> Asked:
    step = reading.step
    is_call = step.kind is Kind.TOOL_CALL
    known = is_call and step.arguments is not None
    return Asked(
        service=step.service or None,
        agent=step.agent or None,
        session=step.session_id or None,
        run=step.run_id or None,
        tool=step.tool if is_call else None,
        args=f"{reading.call.signature:016x}" if known else None,
        model=step.model if not is_call else None,
    )
