"""What control decided, as rows of the store: control.db stays the truth, ClickHouse gets a copy to query."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from control import alerts
from control.breakers import record
from control.breakers.store import session_of
from control.findings import CURSOR, finding_from_json
from control.scope import PARTS, Scope
from detectors.protocol import Finding
from storage.rows import AlertRow, AuditRow, BreakerEventRow

BUSY_TIMEOUT: Final = 5.0  # seconds
_EVENT: Final = "seq, event, payload, created_ns"
_COLUMNS: Final[Mapping[str, str]] = {
    "alert_events": _EVENT,
    "breaker_events": _EVENT,
    "audit": "seq, '', payload, at_ns, previous, hash",
}


@dataclass(frozen=True, slots=True)
class ControlEvent:
    """One row of `alert_events`, `breaker_events` or `audit` of control.db.

    An entry of the audit has no `event`; it alone has `hash` and that of the entry before.
    """

    seq: int
    event: str
    payload: str
    created_ns: int
    previous: str = ""
    hash: str = ""


class ControlFile:
    """control.db, read only. Every method raises `sqlite3.Error` when it cannot be read now."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def identity(self) -> str | None:
        """Its random id; positions in another file mean nothing in this. None while it is not made yet."""
        rows = self._read("SELECT id FROM identity", ())
        return str(rows[0][0]) if rows else None

    def events(self, table: str, after: int, upto: int, limit: int) -> list[ControlEvent]:
        """Events after `after` and up to `upto`, in order."""
        rows = self._read(
            f"SELECT {_COLUMNS[table]} FROM {table}"  # noqa: S608 - our own names
            " WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?",
            (after, upto, limit),
        )
        return [ControlEvent(*row) for row in rows]

    def findings_read(self, spool: str) -> int:
        """How far control has read the findings of the spool of this identity; 0 when it read none of it."""
        rows = self._read("SELECT position FROM cursors WHERE name = ? AND source = ?", (CURSOR, spool))
        return int(rows[0][0]) if rows else 0

    def _read(self, sql: str, values: tuple[str | int, ...]) -> list[tuple[Any, ...]]:
        if not self._path.exists():
            return []
        with closing(sqlite3.connect(f"file:{self._path}?mode=ro", uri=True, timeout=BUSY_TIMEOUT)) as file:
            return file.execute(sql, values).fetchall()


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


def _shape(scope: Scope) -> str:
    """The parts that a scope sets, joined: `session_tool`."""
    return "_".join(part for part in PARTS[1:] if getattr(scope, part) is not None) or "tenant"


def breaker_row(event: ControlEvent) -> BreakerEventRow:
    """A breaker after an event."""
    breaker = record.from_json(event.payload)
    return BreakerEventRow(
        breaker_id=breaker.id,
        seq=event.seq,
        at=event.created_ns,
        event=event.event,
        state=breaker.state.value,
        scope=_shape(breaker.scope),
        session_id=session_of(breaker),
        tool=breaker.scope.tool,
        finding_id=breaker.finding_id,
        actor=f"{breaker.actor.type}:{breaker.actor.id}",
        reason=breaker.reason,
        payload=event.payload,
    )


def audit_row(event: ControlEvent) -> AuditRow:
    """An entry of the audit, as it is chained.

    Raises `KeyError`, `TypeError` or `ValueError` for what is none.
    """
    told = orjson.loads(event.payload)
    return AuditRow(
        seq=event.seq,
        at=event.created_ns,
        actor_type=told["actor"]["type"],
        actor_id=told["actor"]["id"],
        verb=told["verb"],
        subject=told["subject"],
        reason=told["reason"],
        payload=event.payload,
        previous=event.previous,
        hash=event.hash,
    )
