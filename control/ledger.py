"""What was tried, when, with what answer; and having it sent once more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from control.notifiers.protocol import FIRING, RESOLVED, Message
from control.outbox import opening_of
from control.overtaking import others_fire

if TYPE_CHECKING:
    import sqlite3

    from control.db import Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """A destination as it stands.

    `held_until_ns` lies ahead while it is left alone after failures, `failing_since_ns` says since when it
    takes nothing; `disabled_ns` is when it answered 410, None when it is in use. `given_up` counts messages
    that it never took.
    """

    name: str
    failures: int
    held_until_ns: int
    disabled_ns: int | None
    reason: str
    pending: int
    oldest_pending_ns: int | None
    failing_since_ns: int | None = None
    given_up: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """How one message to one destination stands. Times are unix ns.

    `fallback_of` is the destination that it stands in for, `note` why it was not delivered, `unsure` whether
    it may have been delivered although nobody said so.
    """

    seq: int
    message_id: str
    destination: str
    order_key: str
    type: str
    state: str
    attempts: int
    created_ns: int
    finished_ns: int | None
    last_error: str
    fallback_of: str
    unsure: bool


_COLUMNS: Final = (
    "seq, message_id, destination, order_key, type, state, attempts, created_ns, finished_ns, last_error, "
    "fallback_of, unsure"
)


_SELECT: Final = f"SELECT {_COLUMNS} FROM outbox"  # noqa: S608 - constants of ours


def _delivery_of(row: sqlite3.Row) -> Delivery:
    """Read a row of `_COLUMNS`."""
    fields = dict(row)
    return Delivery(**fields | {"unsure": bool(fields["unsure"]) and fields["state"] != "delivered"})


class UnknownDelivery(Exception):  # noqa: N818 - the name says what is missing
    """No message has this number."""


class StillPending(Exception):  # noqa: N818 - the name says why not
    """The message is on its way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt. `took_ns` is how long it took; `status` the answer's, None when there was none."""

    at_ns: int
    took_ns: int
    status: int | None
    result: str
    error: str
    body_sha256: str


def list_destinations(connection: sqlite3.Connection) -> list[Destination]:
    """Return all destinations by name, those without configuration included while something waits."""
    rows = connection.execute(
        "SELECT d.*, "
        "(SELECT count(*) FROM outbox WHERE destination = d.name AND state = 'pending') AS pending, "
        "(SELECT min(coalesce(replayed_ns, created_ns)) FROM outbox INDEXED BY outbox_waits_since "
        "WHERE destination = d.name AND state = 'pending') AS oldest, "
        "(SELECT count(*) FROM outbox WHERE destination = d.name AND state = 'dead' AND type <> 'test') "
        "AS given_up FROM destinations AS d ORDER BY d.name"
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
            failing_since_ns=row["failing_since_ns"],
            given_up=row["given_up"],
        )
        for row in rows
    ]


def list_deliveries(connection: sqlite3.Connection | Transaction, order_key: str) -> list[Delivery]:
    """Return every message of one alert, in order."""
    rows = connection.execute(f"{_SELECT} WHERE order_key = ? ORDER BY seq", (order_key,))
    return [_delivery_of(row) for row in rows]


def find_deliveries(
    connection: sqlite3.Connection,
    *,
    destination: str | None,
    state: str | None,
    order_key: str | None,
    before: int | None,
    limit: int,
) -> list[Delivery]:
    """Return messages, the newest first; `before` is a number to go on from (exclusive)."""
    rows = connection.execute(
        f"{_SELECT} WHERE (?1 IS NULL OR destination = ?1) "
        "AND (?2 IS NULL OR state = ?2) AND (?3 IS NULL OR order_key = ?3) AND (?4 IS NULL OR seq < ?4) "
        "ORDER BY seq DESC LIMIT ?5",
        (destination, state, order_key, before, limit),
    )
    return [_delivery_of(row) for row in rows]


def get_delivery(connection: sqlite3.Connection | Transaction, seq: int) -> Delivery:
    """Return one message. Raises `UnknownDelivery`."""
    row = connection.execute(f"{_SELECT} WHERE seq = ?", (seq,)).fetchone()
    if row is None:
        raise UnknownDelivery(str(seq))
    return _delivery_of(row)


def list_attempts(connection: sqlite3.Connection, seq: int) -> list[Attempt]:
    """Return every attempt of a message, in order. Raises `UnknownDelivery`."""
    get_delivery(connection, seq)
    rows = connection.execute(
        "SELECT at_ns, took_ns, status, result, error, body_sha256 FROM attempts WHERE outbox_seq = ? "
        "ORDER BY seq",
        (seq,),
    )
    return [Attempt(**dict(row)) for row in rows]


def replay(tx: Transaction, seq: int, now_ns: int) -> list[int]:
    """Have a message sent once more under its id; return the numbers of all that go again.

    With the beginning of an alert goes its end, if it has one: nothing is opened that nobody closes. Raises
    `UnknownDelivery`, or `StillPending`.
    """
    delivery = get_delivery(tx, seq)
    if delivery.state == "pending":
        raise StillPending(str(seq))
    again = [seq]
    if delivery.type == FIRING:
        end = tx.one(_END, (delivery.destination, delivery.order_key, seq, FIRING, RESOLVED))
        if end is not None and end["type"] == RESOLVED and end["state"] != "pending":
            again.append(end["seq"])
    for number in again:
        tx.execute(_AGAIN, (now_ns, number))
    return again


def current(connection: sqlite3.Connection, destination: str, resolved_since_ns: int) -> list[Message]:
    """Return what a destination that forgets must hear again.

    Everything that fires there, and what it was told to be over since a moment (unix ns).
    """
    firing = connection.execute(_FIRING, (destination, RESOLVED)).fetchall()
    over = connection.execute(_RESOLVED, (destination, resolved_since_ns)).fetchall()
    goes_on = {
        group: others_fire(connection, destination, group, "")
        for group in {row["group_key"] for row in over if row["group_key"]}
    }
    ended = [
        _message(row, opening_of(connection, destination, row["order_key"], row["seq"]))
        for row in over
        if not goes_on.get(row["group_key"])
    ]
    return [_message(row) for row in firing] + ended


def _message(row: sqlite3.Row, opening: bytes | None = None) -> Message:
    return Message(
        id=row["message_id"], type=row["type"], body=row["body"], group=row["group_key"], opening=opening
    )


_END: Final = (
    "SELECT seq, type, state FROM outbox WHERE destination = ? AND order_key = ? AND seq > ? "
    "AND type IN (?, ?) ORDER BY seq LIMIT 1"
)
_AGAIN: Final = (
    "UPDATE outbox SET unsure = (state = 'delivered' OR unsure), state = 'pending', attempts = 0, fresh = 0, "
    "next_ns = ?1, replayed_ns = ?1, finished_ns = NULL WHERE seq = ?2"
)
_FIRING: Final = """
    SELECT message_id, type, body, group_key FROM outbox AS o INDEXED BY outbox_told
    WHERE destination = ?1 AND type = 'alert.firing' AND state = 'delivered' AND NOT EXISTS (
        SELECT 1 FROM outbox AS later INDEXED BY outbox_by_key WHERE later.order_key = o.order_key
        AND later.destination = o.destination AND later.type = ?2 AND later.seq > o.seq)
    ORDER BY seq
"""
_RESOLVED: Final = """
    SELECT seq, message_id, order_key, type, body, group_key FROM outbox INDEXED BY outbox_ended
    WHERE destination = ?1 AND type = 'alert.resolved' AND state = 'delivered' AND finished_ns >= ?2
    ORDER BY seq
"""
