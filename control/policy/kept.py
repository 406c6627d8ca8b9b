"""The text of the policy file in force, kept in `control.db`.

A restart while somebody is in the middle of an edit must not leave the agents without a policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3

    from control.db import Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A policy file as it was when it was last put in force (unix ns)."""

    path: str
    text: str
    sha256: str
    loaded_at: int


def keep(tx: Transaction, kept: Kept) -> None:
    """Remember what is in force, with the decision that it is."""
    tx.execute(
        "INSERT INTO policy_in_force (one, path, text, sha256, loaded_ns) VALUES (1, ?, ?, ?, ?) "
        "ON CONFLICT (one) DO UPDATE SET path = excluded.path, text = excluded.text, "
        "sha256 = excluded.sha256, loaded_ns = excluded.loaded_ns",
        (kept.path, kept.text, kept.sha256, kept.loaded_at),
    )


def kept(connection: sqlite3.Connection | Transaction, path: str) -> Kept | None:
    """Return what was in force last, None when that was no file, or another one."""
    row = connection.execute("SELECT * FROM policy_in_force WHERE path = ?", (path,)).fetchone()
    if row is None:
        return None
    return Kept(path=row["path"], text=row["text"], sha256=row["sha256"], loaded_at=row["loaded_ns"])
