"""What alerting remembers between two turns, in the table `alert_memory`: JSON by key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    import sqlite3

    from collector.step import Json
    from control.db import Transaction


def recall(source: sqlite3.Connection | Transaction, key: str) -> Any:  # noqa: ANN401 - JSON
    """Return what was remembered, None when there is nothing."""
    row = source.execute("SELECT payload FROM alert_memory WHERE key = ?", (key,)).fetchone()
    return None if row is None else orjson.loads(row["payload"])


def remember(tx: Transaction, key: str, value: Json, now_ns: int) -> None:
    """Keep a value."""
    tx.execute(
        "INSERT INTO alert_memory (key, payload, updated_ns) VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE "
        "SET payload = excluded.payload, updated_ns = excluded.updated_ns",
        (key, orjson.dumps(value).decode(), now_ns),
    )


def forget(tx: Transaction, key: str) -> None:
    """Let go of a value."""
    tx.execute("DELETE FROM alert_memory WHERE key = ?", (key,))
