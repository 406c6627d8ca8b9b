"""Sessions with something to say about: what was found in each, and what is done about it now."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Final

from control.findings import finding_from_json

_LIST: Final = (
    "SELECT session_id, max(seq) AS newest, count(*) AS findings, "
    "sum(severity = 'critical') AS criticals, sum(severity = 'warning') AS warnings, "
    "group_concat(DISTINCT kind) AS kinds, max(updated_ns) AS updated_ns "
    "FROM findings WHERE session_id <> '' GROUP BY session_id HAVING newest < ? ORDER BY newest DESC LIMIT ?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A session and its findings, counted. `position` is for reading on; `updated_ns` unix nanoseconds."""

    session_id: str
    position: int
    findings: int
    severity: str
    kinds: tuple[str, ...]
    service: str
    agent: str | None
    summary: str
    updated_ns: int
    firing: int
    breakers_open: int


def list_runs(connection: sqlite3.Connection, *, before: int, limit: int) -> list[Run]:
    """Sessions with findings, the one with the newest finding first."""
    return [_run(connection, row) for row in connection.execute(_LIST, (before, limit)).fetchall()]


def _run(connection: sqlite3.Connection, row: sqlite3.Row) -> Run:
    session = row["session_id"]
    newest = connection.execute("SELECT payload FROM findings WHERE seq = ?", (row["newest"],)).fetchone()
    finding = finding_from_json(newest["payload"])
    firing = "SELECT count(*) FROM alerts WHERE session_id = ? AND state = 'firing'"
    stopping = "SELECT count(*) FROM breakers WHERE session_id = ? AND state IN ('open', 'forced_open')"
    return Run(
        session_id=session,
        position=row["newest"],
        findings=row["findings"],
        severity="critical" if row["criticals"] else "warning" if row["warnings"] else "info",
        kinds=tuple(sorted(row["kinds"].split(","))),
        service=finding.service,
        agent=finding.agent,
        summary=finding.summary,
        updated_ns=row["updated_ns"],
        firing=connection.execute(firing, (session,)).fetchone()[0],
        breakers_open=connection.execute(stopping, (session,)).fetchone()[0],
    )
