"""Hand-off reports as they stood when an alert fired or a breaker tripped: the table `handoffs`."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any, Final

import orjson

from control.handoff.forms import to_json

if TYPE_CHECKING:
    from control.db import Transaction
    from control.handoff.record import Handoff

MAX_KEPT: Final = 10_000


def keep(tx: Transaction, subject: str, handoff: Handoff) -> None:
    """Keep a report under the id of the alert or breaker that it is about; a later one takes its place."""
    tx.execute(
        "INSERT INTO handoffs (subject, session_id, payload, created_ns) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (subject) DO UPDATE SET session_id = excluded.session_id, "
        "payload = excluded.payload, created_ns = excluded.created_ns",
        (subject, handoff.session_id, to_json(handoff).decode(), handoff.made_ns),
    )


def kept(connection: sqlite3.Connection | Transaction, subject: str) -> dict[str, Any] | None:
    """The report of an alert or breaker; None when there is none."""
    row: Any = connection.execute("SELECT payload FROM handoffs WHERE subject = ?", (subject,)).fetchone()
    return None if row is None else dict(orjson.loads(row["payload"]))


def kept_of_session(connection: sqlite3.Connection | Transaction, session_id: str) -> dict[str, Any] | None:
    """The newest report of a session; None when there is none."""
    row: Any = connection.execute(
        "SELECT payload FROM handoffs WHERE session_id = ? ORDER BY created_ns DESC LIMIT 1", (session_id,)
    ).fetchone()
    return None if row is None else dict(orjson.loads(row["payload"]))


def forget(tx: Transaction, before_ns: int) -> None:
    """Delete reports from before `before_ns`, and the oldest of too many."""
    tx.execute("DELETE FROM handoffs WHERE created_ns < ?", (before_ns,))
    tx.execute(
        "DELETE FROM handoffs WHERE subject IN "
        "(SELECT subject FROM handoffs ORDER BY created_ns DESC LIMIT -1 OFFSET ?)",
        (MAX_KEPT,),
    )
