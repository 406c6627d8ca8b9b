"""The control loop: findings in; alerts, messages and tripped breakers out, decided once and for good.

Everything that a batch of findings leads to, the reader's cursor included, is one transaction. A crash
before it ends leaves nothing behind, and the batch is read again; afterwards it is never decided again.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from control.alerts.desk import AlertDesk, AlertParts
from control.alerts.record import alert_id
from control.alerts.states import AlertEvent
from control.breakers.book import breakers_of
from control.db import get_cursor, get_cursor_source, set_cursor
from control.duties import Duties
from control.findings import CURSOR, MalformedFinding, finding_from_json, remember_finding
from control.policy import Policy, PolicyHolder
from control.postoffice import PostOffice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from control.actor import Actor
    from control.alerts.record import Alert
    from control.breakers.book import Breakers
    from control.breakers.record import Breaker
    from control.breakers.states import Event
    from control.db import ControlDb, Transaction
    from control.delivery import Delivery
    from control.duties import Duty
    from control.findings import SpoolFindings, SpoolRow
    from control.metrics import ControlMetrics
    from control.notifiers.protocol import Notifier
    from control.outbox import Outbox
    from control.policy import Ruling
    from control.scope import Scope
    from detectors.protocol import Finding

_log = logging.getLogger(__name__)
_NS: Final = 1_000_000_000
_BREAKERS_EXPIRED_AT_ONCE: Final = 1_000
_LONGEST_NS: Final = 50_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    """How often the loop looks (seconds), and how long finished things are kept."""

    poll_s: float = 0.05
    settle_every_s: float = 0.5
    housekeep_every_s: float = 300.0
    keep_s: float = 30 * 86_400.0
    trouble_pause_s: float = 1.0


class Control:
    """Decides about findings and carries out what people ask for.

    `step` belongs to the loop's thread; `resolve_alert` and `reset_breaker` may be called from any. `takers`
    are told each finding in the transaction that decides on it, and when it was found (unix ns).
    """

    def __init__(
        self,
        *,
        db: ControlDb,
        source: SpoolFindings,
        policy: Policy | PolicyHolder,
        breakers: Breakers,
        outbox: Outbox,
        notifiers: Mapping[str, Notifier],
        delivery: Delivery,
        metrics: ControlMetrics,
        now_ns: Callable[[], int],
        alerts: AlertParts | None = None,
        takers: Sequence[Callable[[Transaction, Finding, int], None]] = (),
    ) -> None:
        self.db = db
        self._takers = tuple(takers)
        self.breakers = breakers
        self.metrics = metrics
        self._source = source
        self.policies = policy if isinstance(policy, PolicyHolder) else PolicyHolder(policy)
        self._outbox = outbox
        self._now_ns = now_ns
        self.post = PostOffice(outbox, delivery, now_ns)
        self.desk = AlertDesk(
            alerts or AlertParts(),
            db=db,
            outbox=outbox,
            notifiers=notifiers,
            watched=delivery.notifiers.keys(),
            wake=delivery.wake,
            breakers_of=breakers_of,
            metrics=metrics,
            now_ns=now_ns,
        )
        self.desk.alerting.routes = self._ruling_now
        with db.reading() as connection:
            self._cursor = get_cursor(connection, CURSOR)
            self._spool = get_cursor_source(connection, CURSOR)
        self._checked_generation = 0
        system = self.desk.system
        breakers.hooks.on_flapping = system.on_flapping
        breakers.hooks.on_capped = system.on_capped
        breakers.hooks.on_still_running = system.on_still_running
        breakers.hooks.on_run_ended = system.on_run_ended
        breakers.hooks.on_change = self._breaker_changed
        breakers.hooks.on_refused = self._trip_refused
        self._refused_trips: set[tuple[str, str]] = set()
        self._show_open_breakers()

    @property
    def waiting_for(self) -> str | None:
        """What the reader of findings waits for, None when it follows the spool."""
        return self._source.waiting_for

    def step(self) -> int:
        """Decide about the next batch of findings; return how many rows were decided."""
        rows = self._source.poll(self._cursor)
        if self._source.generation != self._checked_generation:
            rows = self._checked(rows)
        if not rows:
            return 0
        begun, decided = self._now_ns(), 0
        with self.db.transaction() as tx:
            for row in rows:
                self._decide_row(tx, row)
                decided += 1
                if self._now_ns() - begun >= _LONGEST_NS:
                    break  # others wait for the file: a person's trip, a check that is counted
            set_cursor(tx, CURSOR, rows[decided - 1].seq, self._spool)
        self._cursor = rows[decided - 1].seq
        return decided

    def settle(self) -> None:
        """Bring counts of refused checks onto the disk, and escalate breakers that are ignored."""
        self.breakers.settle()

    def reset_breaker(self, breaker_id: str, actor: Actor, note: str) -> Breaker:
        """Close a breaker. Raises `UnknownBreaker` or `IllegalTransition`."""
        return self.breakers.reset(breaker_id, actor, note)

    def resolve_alert(self, alert_id: str, actor: Actor, note: str) -> Alert:
        """End an alert and tell its destinations. Raises `UnknownAlert` or `IllegalAlertTransition`."""
        return self.desk.resolve(alert_id, actor, note)

    def housekeep(self, keep_s: float) -> None:
        """Give up on messages that are too old; end what nothing happened to, delete what has been over.

        Both after `keep_s` seconds.
        """
        expired = self._outbox.expire()
        if expired:
            self.metrics.given_up.inc(expired)
            _log.error("%d messages waited for too long and were given up", expired)
        before = self._now_ns() - int(keep_s * _NS)
        self._expire(before)
        with self.db.transaction() as tx:
            for sql in _FORGET:
                tx.execute(sql, (before,))

    def _expire(self, before_ns: int) -> None:
        """Close breakers that nobody ran into and end alerts that nothing happened to since `before_ns`."""
        breakers = self.breakers.expire(before_ns, _BREAKERS_EXPIRED_AT_ONCE)
        ended = self.desk.expire(before_ns)
        if ended or breakers:
            _log.info("%d alerts and %d breakers were unused for long and ended", ended, len(breakers))

    def _checked(self, rows: list[SpoolRow]) -> list[SpoolRow]:
        """Read anew when the spool is not the one that our cursor belongs to, or younger than it.

        That decides nothing twice: decisions are known by id and revision. Nothing is read while it cannot be
        told which spool it is.
        """
        generation = self._source.generation
        last, name = self._source.last_position(), self._source.identity()
        if last is None or name is None or self._source.generation != generation:
            return []
        self._checked_generation = generation
        known, self._spool = self._spool, name
        if last >= self._cursor and known in ("", name):
            return rows
        _log.warning(
            "the spool is a new one: it is at %d, we were at %d; reading it anew", last, self._cursor
        )
        self._cursor = 0
        return self._source.poll(0)

    def _decide_row(self, tx: Transaction, row: SpoolRow) -> None:
        """Decide about one row; one that cannot be read or decided is logged, counted and left behind."""
        try:
            finding = finding_from_json(row.payload)
            now = self._now_ns()
            with tx.savepoint():
                if remember_finding(tx, finding, row.payload, now):
                    self._decide(tx, finding, row.created_ns, now)
        except MalformedFinding as error:
            _log.error("row %d of the spool is no finding: %s", row.seq, error)
            tx.after_commit(self.metrics.malformed.inc)
        except sqlite3.Error:
            raise
        except Exception:  # noqa: BLE001 - one row must not keep all others from being decided
            _log.exception("row %d of the spool cannot be decided", row.seq)
            tx.after_commit(self.metrics.malformed.inc)

    def _decide(self, tx: Transaction, finding: Finding, found_ns: int, now: int) -> None:
        ruling = self.policies.current.rule_on(finding, now)
        for trip in ruling.trips:
            with self._apart(tx, finding, f"the trip of rule {trip.rule}"):
                self.breakers.trip(tx, trip, finding, found_ns)
        event = None
        with self._apart(tx, finding, "the alert"):
            opened = breakers_of(tx, finding.session_id, finding.id)
            taken = self.desk.alerting.take(tx, finding, tuple(b.id for b in opened), ruling)
            event = None if taken is None else taken[1]
        for take in self._takers:
            with self._apart(tx, finding, "what is noted of tools"):
                take(tx, finding, found_ns)
        tx.after_commit(lambda: self._report(finding, found_ns, event))

    @contextmanager
    def _apart(self, tx: Transaction, finding: Finding, what: str) -> Iterator[None]:
        """Undo only this when it fails for another reason than the database, and count it."""
        try:
            with tx.savepoint():
                yield
        except sqlite3.Error:
            raise
        except Exception:  # noqa: BLE001 - an alert must not undo a brake, nor one brake an alert
            _log.exception("%s of finding %s failed", what, finding.id)
            tx.after_commit(self.metrics.malformed.inc)

    def _ruling_now(self, finding: Finding, at_ns: int) -> Ruling:
        """Ask the policy in force, whichever that is by then."""
        return self.policies.current.rule_on(finding, at_ns)

    def _report(self, finding: Finding, found_ns: int, event: AlertEvent | None) -> None:
        self.metrics.findings.labels(finding.kind, finding.severity.value).inc()
        self.metrics.decision_lag.observe(max(0, self._now_ns() - found_ns) / _NS)
        if event is AlertEvent.FIRE:
            _log.warning(
                "alert %s, session %s, agent %s of %s: %s",
                alert_id(finding.id),
                finding.session_id,
                finding.agent or "unknown",
                finding.service or "an unnamed service",
                finding.summary,
            )

    def _breaker_changed(self, event: Event, breaker: Breaker) -> None:
        self.metrics.breaker_changes.labels(event.value).inc()
        self._show_open_breakers()
        _log.warning(
            "breaker %s over %s: %s by %s %s, is %s (%s)",
            breaker.id,
            breaker.scope,
            event.value,
            breaker.actor.type,
            breaker.actor.id,
            breaker.state.value,
            breaker.action.value,
        )

    def _trip_refused(self, scope: Scope, rule: str, why: str) -> None:
        self.metrics.trips_refused.inc()
        if (rule, why) not in self._refused_trips:
            self._refused_trips.add((rule, why))
            _log.error("rule %s wants to open a breaker over %s, which is not done: %s", rule, scope, why)

    def _show_open_breakers(self) -> None:
        self.metrics.breakers_open.set(self.breakers.index.open_count)


class ControlLoop:
    """Runs `Control` in a thread until told to stop. Database trouble is logged and tried again, for ever."""

    def __init__(
        self,
        control: Control,
        settings: LoopSettings,
        monotonic: Callable[[], float],
        duties: Sequence[Duty] = (),
    ) -> None:
        self._control = control
        self._duties = Duties(duties)
        self._settings = settings
        self._monotonic = monotonic
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.last_turn = monotonic()

    @property
    def alive(self) -> bool:
        """Whether the thread is at work."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Begin to follow the findings."""
        self._thread = threading.Thread(target=self._run, name="control", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End after the batch at hand. Safe without `start`, and twice."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        settled = housekept = self._monotonic()
        trouble = ""
        while not self._stop.is_set():
            pause = self._settings.poll_s
            try:
                if self._control.step():
                    pause = 0.0
                now = self.last_turn = self._monotonic()
                self._duties.do_due(now)
                if now - settled >= self._settings.settle_every_s:
                    settled = now
                    self._control.settle()
                if now - housekept >= self._settings.housekeep_every_s:
                    housekept = now
                    self._control.housekeep(self._settings.keep_s)
                trouble = ""
            except Exception as error:  # noqa: BLE001 - alerts and breakers go on whatever one turn ran into
                if repr(error) != trouble:  # said once, not at every turn
                    trouble = repr(error)
                    _log.exception("the control loop failed; trying again")
                pause = self._settings.trouble_pause_s
            self._stop.wait(pause)


_FORGET: Final = (
    (
        "DELETE FROM outbox WHERE state <> 'pending' AND finished_ns < ? "
        "AND order_key NOT IN (SELECT id FROM alerts WHERE state <> 'resolved')"
    ),
    "DELETE FROM findings WHERE updated_ns < ?",
    "DELETE FROM alerts WHERE state = 'resolved' AND updated_ns < ?",
    "DELETE FROM alert_events WHERE created_ns < ?",
    "DELETE FROM alert_memory WHERE updated_ns < ?",
    "DELETE FROM silences WHERE ends_ns < ?",
    "DELETE FROM breaker_events WHERE created_ns < ?",
    "DELETE FROM breakers WHERE state = 'closed' AND json_extract(payload, '$.updated_at') < ?",
)
