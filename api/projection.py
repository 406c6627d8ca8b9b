"""What control decided, as rows of the store: control.db stays the truth, ClickHouse gets a copy to query."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from control import alerts, breakers
from control.findings import finding_from_json
from detectors.protocol import Finding
from storage.rows import AlertRow, BreakerEventRow

BUSY_TIMEOUT: Final = 5.0  # seconds


@dataclass(frozen=True, slots=True)
class ControlEvent:
    """One row of `alert_events` or `breaker_events` of control.db."""

    seq: int
    event: str
    payload: str
    created_ns: int


def control_events(control_db: Path, table: str, after: int, upto: int, limit: int) -> list[ControlEvent]:
    """Events after `after` and up to `upto`, in order; none while control has not made its database.

    Raises `sqlite3.Error` when the database cannot be read now.
    """
    if not control_db.exists():
        return []
    connection = sqlite3.connect(f"file:{control_db}?mode=ro", uri=True, timeout=BUSY_TIMEOUT)
    try:
        rows = connection.execute(
            f"SELECT seq, event, payload, created_ns FROM {table}"  # noqa: S608 - our own table names
            " WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?",
            (after, upto, limit),
        ).fetchall()
    finally:
        connection.close()
    return [ControlEvent(*row) for row in rows]


def finding(payload: str) -> Finding:
    """The finding that the detection loop wrote."""
    return finding_from_json(payload)


def alert_row(event: ControlEvent) -> AlertRow:
    """An alert after an event."""
    alert = alerts.from_json(event.payload)
    found = alert.finding
    return AlertRow(
        id=alert.id,
        seq=event.seq,
        event=event.event,
        state=alert.state.value,
        opened_at=alert.fired_at,
        updated_at=alert.updated_at,
        kind=found.kind,
        severity=found.severity.value,
        finding_id=found.id,
        session_id=found.session_id,
        service=found.service,
        agent=found.agent,
        tool=found.tool,
        summary=found.summary,
        payload=event.payload,
    )


def breaker_row(event: ControlEvent) -> BreakerEventRow:
    """A breaker after an event."""
    breaker = breakers.from_json(event.payload)
    return BreakerEventRow(
        breaker_id=breaker.id,
        seq=event.seq,
        at=event.created_ns,
        event=event.event,
        state=breaker.state.value,
        scope="session" if breaker.scope.tool is None else "session_tool",
        session_id=breaker.scope.session,
        tool=breaker.scope.tool,
        finding_id=breaker.finding_id,
        actor=f"{breaker.actor.type}:{breaker.actor.id}",
        reason=breaker.reason,
        payload=event.payload,
    )
