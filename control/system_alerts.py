"""Alerts about Recloser itself: what breakers report, and conditions that are looked at by the clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from control.alerts import memory
from control.alerts.book import fetch, firing_of_kind
from control.alerts.record import alert_id
from control.alerts.states import AlertState
from control.alerts.system import (
    BREAKER_CAPPED,
    BREAKER_FLAPPING,
    CLEARED,
    STILL_RUNNING,
    system_finding,
    system_id,
)
from control.breakers import record
from detectors.protocol import Severity

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable

    from control.alerts.alerting import Alerting
    from control.breakers.record import Breaker
    from control.db import ControlDb, Transaction
    from detectors.notes import Notes

_NS: Final = 1_000_000_000
_CAPPED: Final = "capped_at"
_CAPPED_FOR_NS: Final = 600 * _NS
_ONE_FOR_ALL: Final = "blast_radius"


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """Something that is wrong now, since `since_ns`: one alert a kind and key.

    `destinations`: who is told, None for all. A person who resolves the alert is not told of the same
    condition again: only what began after that fires.
    """

    kind: str
    key: str
    summary: str
    since_ns: int
    severity: Severity = Severity.WARNING
    labels: tuple[tuple[str, str], ...] = ()
    destinations: tuple[str, ...] | None = None


class SystemAlerts:
    """Raises and clears alerts about Recloser. The methods named `on_…` are hooks of the breakers."""

    def __init__(self, alerting: Alerting, now_ns: Callable[[], int]) -> None:
        self._alerting = alerting
        self._now_ns = now_ns

    def on_flapping(self, tx: Transaction, breaker: Breaker) -> None:
        """Tell that a breaker went to and fro and stays open until a person resets it."""
        self._raise_of(
            tx,
            BREAKER_FLAPPING,
            breaker,
            f"the breaker {breaker.id} opened again and again; it stays open until a person resets it",
        )

    def on_capped(self, tx: Transaction, breaker: Breaker) -> None:
        """Tell that too much was opened automatically, so that breakers only record what they would do."""
        now = self._now_ns()
        memory.remember(tx, _CAPPED, now, now)
        summary = "too many breakers opened by themselves; further ones only record what they would refuse"
        labels = {"breaker_id": breaker.id, "breaker_rule": breaker.rule}
        self._alerting.raise_system(
            tx,
            system_finding(
                BREAKER_CAPPED, _ONE_FOR_ALL, summary, severity=Severity.CRITICAL, labels=labels, now_ns=now
            ),
        )

    def on_still_running(self, tx: Transaction, breaker: Breaker, notes: Notes | None = None) -> None:
        """Tell that a run goes on although it was halted: the agent does not obey."""
        self._raise_of(
            tx,
            STILL_RUNNING,
            breaker,
            "the run was halted and goes on: the agent does not ask, or does not obey; end it by other means",
            notes,
        )

    def on_run_ended(self, tx: Transaction, breaker: Breaker) -> None:
        """Tell that a run which went on has ended, or is held no more."""
        self._alerting.clear_system(
            tx, system_id(STILL_RUNNING, breaker.id), CLEARED, "the run has ended, or is held no more"
        )

    def reconcile(self, tx: Transaction, kinds: Iterable[str], conditions: Iterable[Condition]) -> None:
        """Fire what holds and does not fire, end what fires and does not hold, of these kinds."""
        now, held = self._now_ns(), set[str]()
        for one in conditions:
            finding = system_finding(
                one.kind,
                one.key,
                one.summary,
                severity=one.severity,
                labels=dict(one.labels),
                now_ns=now,
            )
            held.add(alert_id(finding.id))
            before = fetch(tx, alert_id(finding.id))
            if before is None or not _dismissed(before.resolved_at, before.resolved_by, one):
                self._alerting.raise_system(tx, finding, one.destinations)
        for kind in kinds:
            for alert in firing_of_kind(tx, kind):
                if alert.id not in held and alert.state is AlertState.FIRING:
                    self._alerting.clear_system(tx, alert.finding.id, CLEARED, "it is well again")

    def changed(
        self, connection: sqlite3.Connection, kinds: Iterable[str], conditions: Iterable[Condition]
    ) -> bool:
        """Tell without a transaction whether `reconcile` would do anything."""
        wanted = {alert_id(system_id(one.kind, one.key)): one for one in conditions}
        firing = {alert.id: alert for kind in kinds for alert in firing_of_kind(connection, kind)}
        if any(key not in wanted for key in firing):
            return True
        return any(
            key not in firing or firing[key].finding.summary != one.summary for key, one in wanted.items()
        )

    def clear_breakers(self, db: ControlDb) -> None:
        """End the alerts about breakers that are well again."""
        with db.reading() as connection:
            over = [
                alert.finding.id
                for alert in firing_of_kind(connection, BREAKER_FLAPPING)
                if not _is_latched(connection, str(alert.finding.evidence.get("key", "")))
            ]
            capped = firing_of_kind(connection, BREAKER_CAPPED)
            if capped and self._now_ns() - (memory.recall(connection, _CAPPED) or 0) > _CAPPED_FOR_NS:
                over += [alert.finding.id for alert in capped]
        if over:
            with db.transaction() as tx:
                for finding_id in over:
                    self._alerting.clear_system(tx, finding_id, CLEARED, "it is well again")

    def _raise_of(
        self, tx: Transaction, kind: str, breaker: Breaker, summary: str, notes: Notes | None = None
    ) -> None:
        """Raise it; who runs a session that is the scope is known from its notes."""
        scope = breaker.scope
        labels = {
            "breaker_id": breaker.id,
            "session_id": scope.session or "",
            "service": scope.service or ("" if notes is None else notes.service),
            "agent": scope.agent or ("" if notes is None else notes.agent or ""),
            "tool": scope.tool or "",
        }
        now, severity = self._now_ns(), Severity.CRITICAL
        self._alerting.raise_system(
            tx, system_finding(kind, breaker.id, summary, severity=severity, labels=labels, now_ns=now)
        )


def _dismissed(resolved_at: int | None, resolved_by: object, condition: Condition) -> bool:
    """Whether a person ended the alert of this very condition."""
    by_person = getattr(resolved_by, "type", "") == "person"
    return by_person and resolved_at is not None and resolved_at >= condition.since_ns


def _is_latched(connection: sqlite3.Connection, breaker_id: str) -> bool:
    row = connection.execute("SELECT payload FROM breakers WHERE id = ?", (breaker_id,)).fetchone()
    return row is not None and record.from_json(row["payload"]).latched
