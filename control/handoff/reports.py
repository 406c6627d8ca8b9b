"""Reports of sessions: made anew of what is known now, and kept as they stood when something happened.

A report is kept under the id of each alert that fires and of each breaker that opens over a session, by a
duty that follows their events with cursors of its own: what fires or trips never waits for a report, and a
crash leaves none out.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from control.alerts.record import from_json as alert_from_json
from control.breakers.record import from_json as breaker_from_json
from control.breakers.states import State
from control.breakers.store import session_of
from control.db import get_cursor, set_cursor
from control.findings import MalformedFinding, finding_from_json
from control.handoff.build import build
from control.handoff.forms import to_dict
from control.handoff.holding import held_by, wide_breakers
from control.handoff.store import forget, keep, kept_of_session
from detectors.notes import Notes

if TYPE_CHECKING:
    from control.breakers.record import Breaker
    from control.db import ControlDb, Transaction
    from control.handoff.record import Handoff
    from detectors.protocol import Finding

ALERTS: Final = "handoffs:alerts"
BREAKERS: Final = "handoffs:breakers"
FINDINGS_READ: Final = 50
BREAKERS_READ: Final = 20
EVENTS_AT_ONCE: Final = 256
KEEP_NS: Final = 30 * 86_400 * 10**9
_FORGET_NS: Final = 3600 * 10**9
_FIRES: Final = "fire"
_STOPS: Final = frozenset({State.OPEN, State.FORCED_OPEN})


class Reports:
    """See the module. `notes_of` gives a session's notes, None when there are none. Any thread may ask."""

    def __init__(
        self, db: ControlDb, notes_of: Callable[[str], Notes | None], now_ns: Callable[[], int]
    ) -> None:
        self._db = db
        self._notes_of = notes_of
        self._now_ns = now_ns

    def of(self, session_id: str) -> dict[str, Any] | None:
        """The report of a session as plain data; None when nothing is known of it.

        Made anew while there are notes; without them the one kept last says more than findings alone. What
        holds the session is always told as it is now.
        """
        with self._db.reading() as connection:
            notes = self._notes_of(session_id)
            old = None if notes is not None else kept_of_session(connection, session_id)
            wide = wide_breakers(connection)
            if old is not None:
                known = Notes(session_id=session_id, service=old["service"], agent=old["agent"])
                held = held_by(known, (*breakers_over(connection, session_id), *wide))
                return {**old, "held_by": [asdict(one) for one in held]}
            made = self._made(connection, session_id, notes, wide)
        return None if made is None else to_dict(made)

    def made(self, tx: Transaction, session_id: str, wide: Sequence[Breaker]) -> Handoff | None:
        """The report of a session as it stands within a transaction; None when nothing is known of it.

        `wide` are the breakers over more than one session.
        """
        return self._made(tx, session_id, self._notes_of(session_id), wide)

    def _made(
        self,
        connection: sqlite3.Connection | Transaction,
        session_id: str,
        notes: Notes | None,
        wide: Sequence[Breaker],
    ) -> Handoff | None:
        findings = list(findings_of(connection, session_id))
        if notes is None and not findings:
            return None
        return build(notes, findings, breakers_over(connection, session_id), self._now_ns(), wide)


class HandoffDuty:
    """Keeps a report for each alert that fires and each breaker that opens, soon after it did."""

    name: Final = "handoffs"
    every_s: Final = 0.5

    def __init__(self, db: ControlDb, reports: Reports, now_ns: Callable[[], int]) -> None:
        self._db = db
        self._reports = reports
        self._now_ns = now_ns
        self._forgot_ns = 0
        with db.reading() as connection:
            self._alerts = get_cursor(connection, ALERTS)
            self._breakers = get_cursor(connection, BREAKERS)

    def turn(self) -> None:
        """Follow the next events; once an hour, delete what is old."""
        with self._db.reading() as connection:
            alerts = _events(connection, "alert_events", self._alerts)
            breakers = _events(connection, "breaker_events", self._breakers)
        now = self._now_ns()
        due = now - self._forgot_ns >= _FORGET_NS
        if not (alerts or breakers or due):
            return
        with self._db.transaction() as tx:
            subjects = {**_fired(alerts), **_opened(breakers)}
            wide = wide_breakers(tx) if subjects else []
            for subject, session_id in subjects.items():
                made = self._reports.made(tx, session_id, wide)
                if made is not None:
                    keep(tx, subject, made)
            if alerts:
                set_cursor(tx, ALERTS, alerts[-1]["seq"])
            if breakers:
                set_cursor(tx, BREAKERS, breakers[-1]["seq"])
            if due:
                forget(tx, now - KEEP_NS)
        self._alerts = alerts[-1]["seq"] if alerts else self._alerts
        self._breakers = breakers[-1]["seq"] if breakers else self._breakers
        self._forgot_ns = now if due else self._forgot_ns


def findings_of(connection: sqlite3.Connection | Transaction, session_id: str) -> Iterator[Finding]:
    """The newest findings of a session; what cannot be read is left out, as it was when it came."""
    rows = connection.execute(
        "SELECT payload FROM findings WHERE session_id = ? ORDER BY seq DESC LIMIT ?",
        (session_id, FINDINGS_READ),
    )
    for row in rows:
        try:
            yield finding_from_json(row["payload"])
        except MalformedFinding:
            continue


def breakers_over(connection: sqlite3.Connection | Transaction, session_id: str) -> list[Breaker]:
    """The breakers that are listed under a session, the last changed first."""
    rows = connection.execute(
        "SELECT payload FROM breakers WHERE session_id = ? ORDER BY revision DESC LIMIT ?",
        (session_id, BREAKERS_READ),
    )
    return [breaker_from_json(row["payload"]) for row in rows]


def _events(connection: sqlite3.Connection, table: str, after: int) -> list[Any]:
    return connection.execute(
        f"SELECT seq, event, payload FROM {table} WHERE seq > ? ORDER BY seq LIMIT ?",  # noqa: S608 - our tables
        (after, EVENTS_AT_ONCE),
    ).fetchall()


def _fired(events: list[Any]) -> dict[str, str]:
    """Alerts that fired, with their sessions; those of the whole fleet and of the system have none."""
    fired = [alert_from_json(row["payload"]) for row in events if row["event"] == _FIRES]
    return {alert.id: alert.finding.session_id for alert in fired if alert.finding.session_id}


def _opened(events: list[Any]) -> dict[str, str]:
    opened = [breaker_from_json(row["payload"]) for row in events]
    return {one.id: session for one in opened if one.state in _STOPS and (session := session_of(one))}
