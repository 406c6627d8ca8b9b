r"""Who did what to what, and why: append-only, each entry chained to the one before by a hash.

`hash = sha256(previous hash + "\n" + payload)`; the first entry follows `GENESIS`. Whoever changes, removes,
inserts or reorders entries breaks the chain from there on. Entries that are cut off the end leave a chain
that is whole; the table's own counter shows it, and so does the newest hash if it was noted elsewhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson

from control.actor import Actor

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

    from collector.step import Json
    from control.db import Transaction

GENESIS: Final = "0" * 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry. `before` and `after` are what was changed, None when it was not there; `at` is unix ns."""

    seq: int
    at: int
    actor: Actor
    verb: str
    subject: str
    reason: str
    before: Mapping[str, Json] | None
    after: Mapping[str, Json] | None
    extra: Mapping[str, Json]
    previous: str
    hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The newest entry: noted elsewhere, it shows when entries were cut off the end."""

    seq: int
    hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """Where the chain is broken first, and in which way."""

    seq: int
    what: str


def record(
    tx: Transaction,
    *,
    at_ns: int,
    actor: Actor,
    verb: str,
    subject: str,
    reason: str,
    before: Mapping[str, Json] | None = None,
    after: Mapping[str, Json] | None = None,
    extra: Mapping[str, Json] | None = None,
) -> Head:
    """Append an entry within the transaction of what it is about."""
    previous = head(tx)
    chained = GENESIS if previous is None else previous.hash
    entry: dict[str, Json] = {
        "actor": {"id": actor.id, "type": actor.type},
        "after": None if after is None else dict(after),
        "at": at_ns,
        "before": None if before is None else dict(before),
        "extra": dict(extra or {}),
        "reason": reason,
        "subject": subject,
        "verb": verb,
    }
    payload = orjson.dumps(entry, option=orjson.OPT_SORT_KEYS).decode()
    digest = chain(chained, payload)
    seq = tx.insert(
        "INSERT INTO audit (at_ns, payload, previous, hash) VALUES (?, ?, ?, ?)",
        (at_ns, payload, chained, digest),
    )
    return Head(seq=seq, hash=digest)


def chain(previous: str, payload: str) -> str:
    """Return the hash of an entry that follows the one with the hash `previous`."""
    return hashlib.sha256(f"{previous}\n{payload}".encode()).hexdigest()


def head(connection: sqlite3.Connection | Transaction) -> Head | None:
    """Return the newest entry's position and hash, None while there is none."""
    row = connection.execute("SELECT seq, hash FROM audit ORDER BY seq DESC LIMIT 1").fetchone()
    return None if row is None else Head(seq=row["seq"], hash=row["hash"])


def entries(connection: sqlite3.Connection, *, since: int, limit: int) -> list[Entry]:
    """Return up to `limit` entries after position `since`, oldest first."""
    rows = connection.execute(
        "SELECT seq, payload, previous, hash FROM audit WHERE seq > ? ORDER BY seq LIMIT ?", (since, limit)
    )
    return [_entry(row) for row in rows]


def verify(connection: sqlite3.Connection, noted: Head | None = None) -> Broken | int:
    """Check the whole chain; return the number of entries, or where it is broken first.

    With `noted`, a head that was kept elsewhere, also that the entry of that time is still there.
    """
    previous, count, found = GENESIS, 0, False
    rows: Iterable[sqlite3.Row] = connection.execute(
        "SELECT seq, at_ns, payload, previous, hash FROM audit ORDER BY seq"
    )
    for row in rows:
        wrong = _wrong(row, count + 1, previous)
        if wrong is not None:
            return Broken(seq=count + 1, what=wrong)
        count, previous = count + 1, row["hash"]
        found = found or (noted is not None and noted == Head(seq=count, hash=previous))
    counter = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'audit'").fetchone()
    given = 0 if counter is None else int(counter["seq"])
    if given > count:
        return Broken(seq=count + 1, what=f"entries up to {given} were written, they are gone")
    if noted is not None and not found:
        return Broken(seq=noted.seq, what="the entry that was noted as the newest is gone or another one")
    return count


def _wrong(row: sqlite3.Row, expected: int, previous: str) -> str | None:
    if row["seq"] != expected:
        return f"entry {expected} is missing"
    if row["previous"] != previous:
        return "it does not follow the entry before it"
    if row["hash"] != chain(previous, row["payload"]):
        return "it was changed: its hash is another one"
    try:
        at = orjson.loads(row["payload"])["at"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return "it is no entry"
    return None if at == row["at_ns"] else "its time was changed"


def _entry(row: sqlite3.Row) -> Entry:
    told: dict[str, Any] = orjson.loads(row["payload"])
    return Entry(
        seq=row["seq"],
        at=told["at"],
        actor=Actor(**told["actor"]),
        verb=told["verb"],
        subject=told["subject"],
        reason=told["reason"],
        before=told["before"],
        after=told["after"],
        extra=told["extra"],
        previous=row["previous"],
        hash=row["hash"],
    )
