"""What is to be delivered: rows written together with the alert, gone only when a destination took them.

The order is kept per alert and destination: a message waits until all earlier ones of its alert were
delivered or given up. A destination in trouble is left alone as a whole; a message that a destination does
not like steps aside, so that others go ahead. What was over before anybody heard of it is overtaken
(`control/overtaking.py`).

Before each attempt its row says `unsure`: whoever is killed in the middle of it may have delivered it. Only
an answer that means no takes that back, so that the end of a firing is told wherever the firing may be known.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias

from control.notifiers.protocol import (
    FIRING,
    RESOLVED,
    Audience,
    Delivered,
    Failed,
    Gone,
    Message,
    Refused,
    Result,
)
from control.overtaking import SHARED, others_fire, overtake, supersede

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
    """A message to be tried now: its row, and how often it was tried before.

    `waits_since_ns` is when it was enqueued, or when somebody had it sent again; `unsure` whether an earlier
    attempt may have delivered it.
    """

    seq: int
    order_key: str
    message: Message
    attempts: int
    next_ns: int
    waits_since_ns: int
    unsure: bool


@dataclass(frozen=True, slots=True)
class NotYet:
    """Nothing to do before `until_ns`; None: until something is enqueued."""

    until_ns: int | None


Next: TypeAlias = Due | NotYet


class Outbox:
    """The durable queue. Every change is on disk when the method returns."""

    def __init__(
        self, db: ControlDb, retry: RetryPolicy, *, now_ns: Callable[[], int], random: Callable[[], float]
    ) -> None:
        self.db = db
        self._retry = retry
        self._now_ns = now_ns
        self._random = random

    def register(self, name: str, address: str) -> None:
        """Make a destination known. One whose address changed starts afresh: neither held nor disabled."""
        with self.db.transaction() as tx:
            tx.execute(
                "INSERT INTO destinations (name, address) VALUES (?1, ?2) "  # noqa: S608 - constants of ours
                "ON CONFLICT (name) DO UPDATE SET "
                f"address = ?2, {_AFRESH} WHERE address <> ?2",
                (name, address),
            )

    def enable(self, tx: Transaction, name: str) -> bool:
        """Use a destination again that is held or disabled; False when nobody knows it."""
        found = tx.execute(
            f"UPDATE destinations SET {_AFRESH} WHERE name = ?",  # noqa: S608 - a constant of ours
            (name,),
        )
        return found.rowcount > 0

    def enqueue(
        self,
        tx: Transaction,
        destination: str,
        order_key: str,
        message: Message,
        *,
        notice: bytes | None = None,
        fallback_of: str = "",
    ) -> bool:
        """Add a message in the caller's transaction; False when it is there already."""
        now = self._now_ns()
        added = tx.execute(
            "INSERT INTO outbox (message_id, destination, order_key, type, body, state, next_ns, created_ns, "
            "fallback_of, fresh, group_key, brief, notice) "
            "VALUES (?, ?, ?, ?, ?, 'pending', ?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (message_id, destination) DO NOTHING",
            (
                message.id,
                destination,
                order_key,
                message.type,
                message.body,
                now,
                now,
                fallback_of,
                message.type == RESOLVED,
                message.group,
                message.brief,
                notice,
            ),
        )
        return added.rowcount > 0

    def next(self, destination: str, audience: Audience = Audience.PAGER) -> Next:
        """Return the message that is due at a destination, or how long there is none.

        What has been overtaken is put aside first. Only the destination's worker may call it.
        """
        self.put_aside_overtaken(destination, audience)
        while True:
            now = self._now_ns()
            with self.db.reading() as connection:
                turn = _turn(connection, destination, now)
                if isinstance(turn, NotYet) or not _is_shared(connection, destination, turn):
                    return turn
            with self.db.transaction() as tx:
                supersede(tx, turn.seq, SHARED, now)

    def begin(self, due: Due) -> None:
        """Write down that an attempt is about to be made."""
        if not due.unsure:
            with self.db.transaction() as tx:
                tx.execute("UPDATE outbox SET unsure = 1 WHERE seq = ?", (due.seq,))

    def settle(
        self,
        destination: str,
        due: Due,
        result: Result,
        at_ns: int,
        on_dead: Callable[[Transaction, int], object] = lambda _tx, _seq: None,
    ) -> Settled:
        """Write down an attempt that began at `at_ns`, and what follows from it.

        `on_dead` is called in the transaction that gives a message up.
        """
        now = self._now_ns()
        with self.db.transaction() as tx:
            settled = self._follow(tx, destination, due, result, now)
            write_attempt(tx, due.seq, due.message.body, result, settled.value, at_ns, now)
            if settled is Settled.DEAD:
                on_dead(tx, due.seq)
        return settled

    def refreshed(self, destination: str, result: Result) -> None:
        """Write down how a refresh went: a destination that did not take it is left alone for a while."""
        with self.db.transaction() as tx:
            match result:
                case Delivered():
                    _well(tx, destination)
                case Failed() | Refused() | Gone():
                    asked = result.retry_after if isinstance(result, Failed) else None
                    self._hold(tx, destination, result.reason, asked, self._now_ns())

    def expire(self) -> int:
        """Give up on messages that have waited for too long, wherever they go; return how many.

        What a clock that was ahead has put off, until it would be there again, is due now.
        """
        now = self._now_ns()
        with self.db.transaction() as tx:
            for statement in _PUT_OFF_AHEAD:
                tx.execute(statement, (now, now + int(self._retry.longest_s * _NS)))
            dead = tx.execute(
                "UPDATE outbox SET state = 'dead', finished_ns = ?1, last_error = 'given up: ' || last_error "
                "WHERE state = 'pending' AND coalesce(replayed_ns, created_ns) < ?2",
                (now, now - int(self._retry.give_up_after_s * _NS)),
            )
        return dead.rowcount

    def put_aside_overtaken(self, destination: str, audience: Audience) -> None:
        """Look at every end of an alert that came in, and at what waits before it."""
        with self.db.reading() as connection:
            if connection.execute(_ANY_FRESH, (destination,)).fetchone() is None:
                return
        with self.db.transaction() as tx:
            overtake(tx, destination, audience, self._now_ns())

    def _follow(self, tx: Transaction, destination: str, due: Due, result: Result, now: int) -> Settled:
        match result:
            case Delivered():
                _finish(tx, due, "delivered", now, result.note)
                _well(tx, destination)
                return Settled.DELIVERED
            case Refused():
                _finish(tx, due, "dead", now, f"refused: {result.reason}")
                _unsure(tx, due, unsure=due.unsure)
                _well(tx, destination)
                return Settled.DEAD
            case Gone():
                tx.execute(
                    "UPDATE destinations SET disabled_ns = ?, reason = ? WHERE name = ?",
                    (now, result.reason, destination),
                )
                _postpone(tx, due, due.next_ns, result.reason)
                _unsure(tx, due, unsure=due.unsure)
                return Settled.DISABLED
            case Failed():
                _unsure(tx, due, unsure=due.unsure or result.unsure)
                if now - due.waits_since_ns >= self._retry.give_up_after_s * _NS:
                    _finish(tx, due, "dead", now, result.reason)
                    return Settled.DEAD
                self._postpone_failed(tx, destination, due, result, now)
                return Settled.RETRY

    def _postpone_failed(self, tx: Transaction, destination: str, due: Due, result: Failed, now: int) -> None:
        if result.about_message:
            delay = self._retry.delay_s(due.attempts + 1, self._random, result.retry_after)
            _postpone(tx, due, now + int(delay * _NS), result.reason)
            return
        self._hold(tx, destination, result.reason, result.retry_after, now)
        _postpone(tx, due, due.next_ns, result.reason)

    def _hold(self, tx: Transaction, destination: str, reason: str, asked: float | None, now: int) -> None:
        row = tx.one("SELECT failures FROM destinations WHERE name = ?", (destination,))
        failures = 1 if row is None else row["failures"] + 1
        delay = self._retry.delay_s(failures, self._random, asked, held=True)
        tx.execute(
            "UPDATE destinations SET failures = ?1, held_until_ns = ?2, reason = ?3, "
            "failing_since_ns = coalesce(failing_since_ns, ?4) WHERE name = ?5",
            (failures, now + int(delay * _NS), reason[:_MAX_ERROR], now, destination),
        )


_AFRESH: Final = "failures = 0, held_until_ns = 0, disabled_ns = NULL, failing_since_ns = NULL, reason = ''"
_ANY_FRESH: Final = "SELECT 1 FROM outbox WHERE destination = ? AND fresh = 1 LIMIT 1"
_PUT_OFF_AHEAD: Final = (
    """
    UPDATE outbox SET next_ns = ?1
    WHERE state = 'pending' AND next_ns > ?1 AND (next_ns > ?2 OR created_ns > ?1)
    """,
    """
    UPDATE destinations SET held_until_ns = ?1, failing_since_ns = min(failing_since_ns, ?1)
    WHERE held_until_ns > ?1 AND (held_until_ns > ?2 OR failing_since_ns > ?1)
    """,
)
_FIRST_DUE: Final = """
    SELECT seq, message_id, order_key, type, body, attempts, next_ns, group_key, unsure,
        coalesce(replayed_ns, created_ns) AS since_ns
    FROM outbox AS mine INDEXED BY outbox_waiting
    WHERE destination = ?1 AND state = 'pending' AND next_ns <= ?2 AND NOT EXISTS (
        SELECT 1 FROM outbox AS earlier INDEXED BY outbox_pending
        WHERE earlier.destination = mine.destination
        AND earlier.order_key = mine.order_key AND earlier.state = 'pending' AND earlier.seq < mine.seq)
    ORDER BY seq LIMIT 1
"""
_NEXT_DUE: Final = """
    SELECT min(next_ns) FROM outbox INDEXED BY outbox_waiting
    WHERE destination = ?1 AND state = 'pending' AND next_ns > ?2
"""
_OPENING: Final = """
    SELECT body FROM outbox INDEXED BY outbox_by_key
    WHERE destination = ?1 AND order_key = ?2 AND type = ?3 AND seq < ?4
    ORDER BY seq DESC LIMIT 1
"""


def opening_of(connection: sqlite3.Connection, destination: str, order_key: str, seq: int) -> bytes | None:
    """Return the body of the firing that the message at `seq` ends; None when none was for this place."""
    row = connection.execute(_OPENING, (destination, order_key, FIRING, seq)).fetchone()
    return None if row is None else bytes(row["body"])


def write_attempt(  # noqa: PLR0917 - one row, column by column
    tx: Transaction, seq: int, body: bytes, result: Result, what: str, at_ns: int, now: int
) -> None:
    """Add an attempt that began at `at_ns` to the ledger."""
    tx.execute(
        "INSERT INTO attempts (outbox_seq, at_ns, took_ns, status, result, error, body_sha256) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            seq,
            at_ns,
            max(0, now - at_ns),
            result.status,
            what,
            (result.note if isinstance(result, Delivered) else result.reason)[:_MAX_ERROR],
            hashlib.sha256(body).hexdigest(),
        ),
    )


def _turn(connection: sqlite3.Connection, destination: str, now: int) -> Next:
    """The first message that is due, or until when there is none."""
    place = connection.execute(
        "SELECT held_until_ns, disabled_ns FROM destinations WHERE name = ?", (destination,)
    ).fetchone()
    if place is not None and place["disabled_ns"] is not None:
        return NotYet(None)
    row = connection.execute(_FIRST_DUE, (destination, now)).fetchone()
    held_until_ns = 0 if place is None else place["held_until_ns"]
    if row is None:
        (next_ns,) = connection.execute(_NEXT_DUE, (destination, now)).fetchone()
        return NotYet(None if next_ns is None else max(next_ns, held_until_ns))
    return NotYet(held_until_ns) if held_until_ns > now else _due(connection, destination, row)


def _is_shared(connection: sqlite3.Connection, destination: str, due: Due) -> bool:
    """Tell whether a message ends an incident that another alert keeps open."""
    message = due.message
    return (
        message.type == RESOLVED
        and bool(message.group)
        and others_fire(connection, destination, message.group, due.order_key)
    )


def _due(connection: sqlite3.Connection, destination: str, row: sqlite3.Row) -> Due:
    opening = None
    if row["type"] == RESOLVED:
        opening = opening_of(connection, destination, row["order_key"], row["seq"])
    message = Message(
        id=row["message_id"], type=row["type"], body=row["body"], group=row["group_key"], opening=opening
    )
    return Due(
        row["seq"],
        row["order_key"],
        message,
        row["attempts"],
        row["next_ns"],
        row["since_ns"],
        bool(row["unsure"]),
    )


def _well(tx: Transaction, destination: str) -> None:
    tx.execute(
        "UPDATE destinations SET failures = 0, held_until_ns = 0, failing_since_ns = NULL, reason = '' "
        "WHERE name = ? AND (failures > 0 OR held_until_ns > 0)",
        (destination,),
    )


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


def _unsure(tx: Transaction, due: Due, *, unsure: bool) -> None:
    tx.execute("UPDATE outbox SET unsure = ? WHERE seq = ?", (unsure, due.seq))
