"""What happens to alerts, announced or held back: the one place that decides who is told, and when.

An episode is announced once at most: when it fires, or later, when nothing holds it back any more. It is held
back while another alert speaks for it, while a silence matches it, and for a while after the alert that spoke
for it ended. What was announced gets its end announced, whatever holds now.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from control import flapping
from control.alerts import book
from control.alerts.inhibition import cover_of
from control.alerts.record import Alert, UnknownAlert, alert_id, from_json, kinds_beside, labels_of
from control.alerts.states import AlertEvent, AlertState, follow
from control.alerts.system import FLAPPING, flapping_finding
from control.policy import Policy, is_shadow
from detectors.protocol import Severity

if TYPE_CHECKING:
    from collections.abc import Callable

    from control.actor import Actor
    from control.alerts.announcing import Announcer
    from control.alerts.settings import AlertSettings
    from control.db import Transaction
    from control.metrics import ControlMetrics
    from control.policy import Ruling
    from control.silences import Silences
    from detectors.protocol import Finding

_NS: Final = 1_000_000_000


class Alerting:
    """Changes alerts, in the caller's transaction. Times are unix ns."""

    def __init__(
        self,
        settings: AlertSettings,
        silences: Silences,
        announcer: Announcer,
        metrics: ControlMetrics,
        now_ns: Callable[[], int],
    ) -> None:
        self.settings = settings
        self.silences = silences
        self._announcer = announcer
        self._metrics = metrics
        self._now_ns = now_ns
        self.routes: Callable[[Finding, int], Ruling] = Policy().rule_on

    def take(
        self, tx: Transaction, finding: Finding, breaker_ids: tuple[str, ...], ruling: Ruling
    ) -> tuple[Alert, AlertEvent] | None:
        """Begin or update the alert of a finding; None when it has none and needs none.

        A critical finding is alerted about unless policy says nobody is told; a lesser one when a rule of
        policy names who is.
        """
        now = self._now_ns()
        before = book.fetch(tx, alert_id(finding.id))
        named = ruling.destinations is not None
        severe = finding.severity is Severity.CRITICAL or named
        wanted = severe and ruling.alert and not is_shadow(finding)
        if before is not None and not (wanted and before.state is AlertState.RESOLVED):
            after = book.updated(before, finding, breaker_ids, now)
            if wanted and finding.severity is Severity.CRITICAL:
                after = self._widened(tx, after, ruling)
            return self._retold(tx, after, now)
        if not wanted:
            return None
        begun = replace(
            book.episode(before, finding, breaker_ids, now),
            destinations=ruling.destinations,
            rules=ruling.rules,
        )
        state = None if before is None else before.state
        if self.settings.min_firing_s:
            return self._stored(tx, book.moved(begun, AlertEvent.PEND, now, state=state), AlertEvent.PEND)
        return self._begin(tx, begun, state, now)

    def fire_pending(self, tx: Transaction, alert: Alert) -> Alert:
        """Let an alert fire that has waited for long enough."""
        return self._begin(tx, alert, alert.state, self._now_ns())[0]

    def resolve(
        self, tx: Transaction, alert_id: str, actor: Actor, note: str, event: AlertEvent = AlertEvent.RESOLVE
    ) -> Alert:
        """End an alert, and tell who heard of it.

        Raises `UnknownAlert`, or `IllegalAlertTransition` when it is over already.
        """
        before = book.fetch(tx, alert_id)
        if before is None:
            raise UnknownAlert(alert_id)
        now = self._now_ns()
        after = book.ended(before, event, actor, note, now)
        if after.was_told:
            self._announcer.resolved(tx, after)
        if after.finding.kind == FLAPPING:
            flapping.forget(tx, str(after.finding.evidence.get("key", "")))
        for child in book.covered_by(tx, after.id):
            freed = replace(
                child,
                state=follow(child.state, AlertEvent.HOLD),
                covered_by="",
                released_at=now,
                updated_at=now,
            )
            self._stored(tx, freed, AlertEvent.HOLD)
        return self._stored(tx, after, event)[0]

    def acknowledge(self, tx: Transaction, alert_id: str, actor: Actor, note: str) -> Alert:
        """Write down that a person has seen a firing alert, and tell who can make use of that.

        Raises `UnknownAlert`, or `IllegalAlertTransition` when it does not fire.
        """
        before = book.fetch(tx, alert_id)
        if before is None:
            raise UnknownAlert(alert_id)
        now = self._now_ns()
        after = replace(
            before,
            state=follow(before.state, AlertEvent.ACK),
            acked_at=now,
            acked_by=actor,
            updated_at=now,
            ack_note=note,
        )
        if after.was_told:
            self._announcer.acknowledged(tx, after)
        return self._stored(tx, after, AlertEvent.ACK)[0]

    def end_run(self, tx: Transaction, session_id: str, run_id: str, ended_ns: int) -> None:
        """Remember that the run of alerts has ended; they end after `keep_firing_s`.

        What was found later than that is of something that went on.
        """
        now = self._now_ns()
        for alert in _live_of(tx, session_id):
            finding = alert.finding
            other = run_id and finding.run_id not in ("", run_id)
            if other or ended_ns <= alert.run_ended_at or ended_ns < finding.detected_at:
                continue
            after = replace(alert, run_ended_at=ended_ns, updated_at=now)
            self._stored(tx, after, AlertEvent.UPDATE)

    def tell_late(self, tx: Transaction, alert: Alert) -> Alert:
        """Announce a firing alert that was held back, if nothing holds it back any more."""
        held, now = self._held(tx, alert), self._now_ns()
        if held is None:
            return self._stored(tx, self._told(tx, replace(alert, updated_at=now)), AlertEvent.TELL)[0]
        if held != alert:
            held = self._stored(tx, replace(held, updated_at=now), AlertEvent.HOLD)[0]
        return held

    def raise_system(
        self, tx: Transaction, finding: Finding, destinations: tuple[str, ...] | None = None
    ) -> Alert | None:
        """Fire an alert about Recloser itself; None when it fires already, or policy says nobody is told.

        `destinations` None: those that policy names. `clear_system` ends it.
        """
        before = book.fetch(tx, alert_id(finding.id))
        now = self._now_ns()
        if destinations is None:
            ruling = self.routes(finding, now)
            if not ruling.alert:
                return None
            destinations = ruling.destinations
        if before is not None and before.state is not AlertState.RESOLVED:
            if (before.finding.summary, before.finding.severity) != (finding.summary, finding.severity):
                self._stored(tx, book.updated(before, finding, (), now), AlertEvent.UPDATE)
            return None
        begun = replace(book.episode(before, finding, (), now), destinations=destinations)
        state = None if before is None else before.state
        return self._fire(tx, begun, state, now)[0]

    def clear_system(self, tx: Transaction, finding_id: str, actor: Actor, note: str) -> Alert | None:
        """End an alert about Recloser itself; None when it does not fire."""
        before = book.fetch(tx, alert_id(finding_id))
        if before is None or before.state is AlertState.RESOLVED:
            return None
        return self.resolve(tx, before.id, actor, note)

    def _begin(
        self, tx: Transaction, begun: Alert, state: AlertState | None, now: int
    ) -> tuple[Alert, AlertEvent]:
        """Let an episode fire: covered by its root, as one of many that flap, or on its own."""
        cover = cover_of(tx, begun)
        if cover:
            covered = book.moved(begun, AlertEvent.COVER, now, state=state, covered_by=cover)
            return self._stored(tx, covered, AlertEvent.COVER)
        episodes = flapping.count_episode(tx, begun.key, now, self.settings)
        if self.settings.flap_threshold and episodes >= self.settings.flap_threshold:
            cover = self._raise_flapping(tx, begun, episodes)
            flaps = book.moved(begun, AlertEvent.FLAP, now, state=state, covered_by=cover)
            return self._stored(tx, flaps, AlertEvent.FLAP)
        return self._fire(tx, begun, state, now)

    def _fire(
        self, tx: Transaction, begun: Alert, state: AlertState | None, now: int
    ) -> tuple[Alert, AlertEvent]:
        fired = book.moved(begun, AlertEvent.FIRE, now, state=state)
        silenced = self.silences.of(labels_of(fired), kinds_beside(fired))
        after = replace(fired, silenced_by=silenced) if silenced else self._told(tx, fired)
        return self._stored(tx, after, AlertEvent.FIRE)

    def _widened(self, tx: Transaction, alert: Alert, ruling: Ruling) -> Alert:
        """Let those hear, too, whom policy names for what has become critical; nobody hears twice.

        What began as a warning was told to those who hear of warnings. Silenced, it waits.
        """
        before, names = alert.destinations, ruling.destinations
        if before is None or (names is not None and set(names) <= set(before)):
            return alert
        if alert.was_told and self.silences.of(labels_of(alert), kinds_beside(alert)):
            return alert
        wider = None if names is None else (*before, *(name for name in names if name not in before))
        rules = (*alert.rules, *(rule for rule in ruling.rules if rule not in alert.rules))
        after = replace(alert, destinations=wider, rules=rules)
        if not alert.was_told or alert.told is None:
            return after
        more = self._announcer.firing(tx, after, but=alert.told)
        return replace(after, told=(*alert.told, *more))

    def _retold(self, tx: Transaction, after: Alert, now: int) -> tuple[Alert, AlertEvent]:
        """Store an update; what goes on although its root ended is announced with it."""
        released = after.state is AlertState.FIRING and not after.was_told and after.released_at
        if released and now - after.released_at >= self.settings.keep_firing_s * _NS:
            told = self.tell_late(tx, after)
            if told.was_told:
                return told, AlertEvent.TELL
            after = told
        return self._stored(tx, after, AlertEvent.UPDATE)

    def _held(self, tx: Transaction, alert: Alert) -> Alert | None:
        """The alert with what holds it back now; None when nothing does."""
        if alert.covered_by:
            return alert
        cover = "" if alert.is_system else cover_of(tx, alert)
        if cover:
            return replace(alert, covered_by=cover)
        silenced = self.silences.of(labels_of(alert), kinds_beside(alert))
        return replace(alert, silenced_by=silenced) if silenced else None

    def _told(self, tx: Transaction, alert: Alert) -> Alert:
        after = replace(alert, told_episode=alert.episode, silenced_by=())
        return replace(after, told=self._announcer.firing(tx, after))

    def _raise_flapping(self, tx: Transaction, alert: Alert, episodes: int) -> str:
        now = self._now_ns()
        finding = flapping_finding(alert, episodes, self.settings.flap_window_s, now)
        ruling = self.routes(finding, now)
        named = alert.destinations if ruling.destinations is None else ruling.destinations
        self.raise_system(tx, finding, named if ruling.alert else ())  # it speaks for others all the same
        return alert_id(finding.id)

    def _stored(self, tx: Transaction, alert: Alert, event: AlertEvent) -> tuple[Alert, AlertEvent]:
        book.store(tx, alert, event)
        tx.after_commit(lambda: self._metrics.alerts.labels(event.value).inc())
        return alert, event


def _live_of(tx: Transaction, session_id: str) -> list[Alert]:
    rows = tx.execute(
        "SELECT payload FROM alerts WHERE session_id = ? AND state <> 'resolved' ORDER BY seq", (session_id,)
    ).fetchall()
    return [from_json(row["payload"]) for row in rows]
