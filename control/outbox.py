"""What is to be delivered: rows written together with the alert, gone only when a destination took them.

The order is kept per alert and destination: a message waits until all earlier ones of its alert were
delivered or given up. A destination in trouble is left alone as a whole; a message that a destination does
not like steps aside, so that others go ahead.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias

from control.notifiers.protocol import Delivered, Failed, Gone, Message, Result

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    from control.db import ControlDb, Transaction
    from control.retry import RetryPolicy

_NS: Final = 1_000_000_000
_MAX_ERROR: Final = 500


class Settled(StrEnum):
    """What became of an attempt."""

    DELIVERED = "delivered"
    RETRY = "retry"
    DEAD = "dead"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True)
class Due:
    """A message to be tried now: its row, and how often it was tried before."""

    seq: int
    message: Message
    attempts: int
    next_ns: int
    created_ns: int


@dataclass(frozen=True, slots=True)
class NotYet:
    """Nothing to do before `until_ns`; None: until something is enqueued."""

    until_ns: int | None


Next: TypeAlias = Due | NotYet


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """A destination as it stands.

    `held_until_ns` lies ahead while it is left alone after failures; `disabled_ns` is when it answered 410,
    None when it is in use.
    """

    name: str
    failures: int
    held_until_ns: int
    disabled_ns: int | None
    reason: str
    pending: int
    oldest_pending_ns: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """How one message to one destination stands. Times are unix ns."""

    message_id: str
    destination: str
    type: str
    state: str
    attempts: int
    created_ns: int
    finished_ns: int | None
    last_error: str


class Outbox:
    """The durable queue. Every change is on disk when the method returns."""

    def __init__(
        self, db: ControlDb, retry: RetryPolicy, *, now_ns: Callable[[], int], random: Callable[[], float]
    ) -> None:
        self._db = db
        self._retry = retry
        self._now_ns = now_ns
        self._random = random

    def register(self, name: str, address: str) -> None:
        """Make a destination known. One whose address changed starts afresh: neither held nor disabled."""
        with self._db.transaction() as tx:
            tx.execute(
                "INSERT INTO destinations (name, address) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET "
                "address = ?2, failures = 0, held_until_ns = 0, disabled_ns = NULL, reason = '' "
                "WHERE address <> ?2",
                (name, address),
            )

    def enqueue(self, tx: Transaction, destination: str, order_key: str, message: Message) -> bool:
        """Add a message in the caller's transaction; False when it is there already."""
        now = self._now_ns()
        added = tx.execute(
            "INSERT INTO outbox (message_id, destination, order_key, type, body, state, next_ns, created_ns) "
            "VALUES (?, ?, ?, ?, ?, 'pending', ?, ?) ON CONFLICT (message_id, destination) DO NOTHING",
            (message.id, destination, order_key, message.type, message.body, now, now),
        )
        return added.rowcount > 0

    def next(self, destination: str) -> Next:
        """Return the message that is due at a destination, or how long there is none."""
        now = self._now_ns()
        with self._db.reading() as connection:
            place = connection.execute(
                "SELECT held_until_ns, disabled_ns FROM destinations WHERE name = ?", (destination,)
            ).fetchone()
            if place is not None and place["disabled_ns"] is not None:
                return NotYet(None)
            row = connection.execute(_FIRST_OF_EACH_KEY, (destination, now)).fetchone()
        if row is None:
            return NotYet(None)
        due_ns = max(row["next_ns"], 0 if place is None else place["held_until_ns"])
        if due_ns > now:
            return NotYet(due_ns)
        message = Message(id=row["message_id"], type=row["type"], body=row["body"])
        return Due(row["seq"], message, row["attempts"], row["next_ns"], row["created_ns"])

    def settle(self, destination: str, due: Due, result: Result, at_ns: int) -> Settled:
        """Write down an attempt that began at `at_ns`, and what follows from it."""
        now = self._now_ns()
        with self._db.transaction() as tx:
            settled = self._follow(tx, destination, due, result, now)
            tx.execute(
                "INSERT INTO attempts (outbox_seq, at_ns, took_ns, status, result, error, body_sha256) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    due.seq,
                    at_ns,
                    max(0, now - at_ns),
                    result.status,
                    settled.value,
                    _reason(result),
                    hashlib.sha256(due.message.body).hexdigest(),
                ),
            )
        return settled

    def expire(self) -> int:
        """Give up on messages that have waited for too long, wherever they go; return how many."""
        now = self._now_ns()
        with self._db.transaction() as tx:
            dead = tx.execute(
                "UPDATE outbox SET state = 'dead', finished_ns = ?1, last_error = 'given up: ' || last_error "
                "WHERE state = 'pending' AND created_ns < ?2",
                (now, now - int(self._retry.give_up_after_s * _NS)),
            )
        return dead.rowcount

    def _follow(self, tx: Transaction, destination: str, due: Due, result: Result, now: int) -> Settled:
        match result:
            case Delivered():
                _finish(tx, due, "delivered", now, "")
                tx.execute(
                    "UPDATE destinations SET failures = 0, held_until_ns = 0, reason = '' "
                    "WHERE name = ? AND (failures > 0 OR held_until_ns > 0)",
                    (destination,),
                )
                return Settled.DELIVERED
            case Gone():
                tx.execute(
                    "UPDATE destinations SET disabled_ns = ?, reason = ? WHERE name = ?",
                    (now, result.reason, destination),
                )
                _postpone(tx, due, due.next_ns, result.reason)
                return Settled.DISABLED
            case Failed():
                if now - due.created_ns >= self._retry.give_up_after_s * _NS:
                    _finish(tx, due, "dead", now, result.reason)
                    return Settled.DEAD
                self._postpone_failed(tx, destination, due, result, now)
                return Settled.RETRY

    def _postpone_failed(self, tx: Transaction, destination: str, due: Due, result: Failed, now: int) -> None:
        if result.about_message:
            delay = self._retry.delay_s(due.attempts + 1, self._random, result.retry_after)
            _postpone(tx, due, now + int(delay * _NS), result.reason)
            return
        row = tx.one("SELECT failures FROM destinations WHERE name = ?", (destination,))
        failures = 1 if row is None else row["failures"] + 1
        delay = self._retry.delay_s(failures, self._random, result.retry_after)
        tx.execute(
            "UPDATE destinations SET failures = ?, held_until_ns = ?, reason = ? WHERE name = ?",
            (failures, now + int(delay * _NS), result.reason[:_MAX_ERROR], destination),
        )
        _postpone(tx, due, due.next_ns, result.reason)


_FIRST_OF_EACH_KEY: Final = """
    SELECT seq, message_id, type, body, attempts, next_ns, created_ns FROM outbox AS mine
    WHERE destination = ?1 AND state = 'pending' AND NOT EXISTS (
        SELECT 1 FROM outbox AS earlier WHERE earlier.destination = mine.destination
        AND earlier.order_key = mine.order_key AND earlier.state = 'pending' AND earlier.seq < mine.seq)
    ORDER BY next_ns > ?2, CASE WHEN next_ns > ?2 THEN next_ns END, seq LIMIT 1
"""


def list_destinations(connection: sqlite3.Connection) -> list[Destination]:
    """Return all destinations by name, those without configuration included while something waits."""
    rows = connection.execute(
        "SELECT d.*, count(o.seq) AS pending, min(o.created_ns) AS oldest FROM destinations AS d "
        "LEFT JOIN outbox AS o ON o.destination = d.name AND o.state = 'pending' "
        "GROUP BY d.name ORDER BY d.name"
    )
    return [
        Destination(
            name=row["name"],
            failures=row["failures"],
            held_until_ns=row["held_until_ns"],
            disabled_ns=row["disabled_ns"],
            reason=row["reason"],
            pending=row["pending"],
            oldest_pending_ns=row["oldest"],
        )
        for row in rows
    ]


def list_deliveries(connection: sqlite3.Connection, order_key: str) -> list[Delivery]:
    """Return every message of one alert, in order."""
    rows = connection.execute(
        "SELECT message_id, destination, type, state, attempts, created_ns, finished_ns, last_error "
        "FROM outbox WHERE order_key = ? ORDER BY seq",
        (order_key,),
    )
    return [Delivery(**dict(row)) for row in rows]


def _finish(tx: Transaction, due: Due, state: str, now: int, error: str) -> None:
    tx.execute(
        "UPDATE outbox SET state = ?, attempts = attempts + 1, finished_ns = ?, last_error = ? WHERE seq = ?",
        (state, now, error[:_MAX_ERROR], due.seq),
    )


def _postpone(tx: Transaction, due: Due, next_ns: int, error: str) -> None:
    tx.execute(
        "UPDATE outbox SET attempts = attempts + 1, next_ns = ?, last_error = ? WHERE seq = ?",
        (next_ns, error[:_MAX_ERROR], due.seq),
    )


def _reason(result: Result) -> str:
    return "" if isinstance(result, Delivered) else result.reason[:_MAX_ERROR]
