"""What happens in the outbox to news that is no news any more.

An alert that is over before its destination heard of it is none for that destination: a pager hears nothing
of it, a chat one short line. Once the firing was taken, or may have been, its end is told without fail.

Alerts that a destination counts as one incident (`group_key`) end there with the last of them, which is seen
when an end is about to be sent (`Outbox.next`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from control.notifiers.protocol import ACKNOWLEDGED, FIRING, RESOLVED, Audience

if TYPE_CHECKING:
    import sqlite3

    from control.db import Transaction

OVER: Final = "it was over before it was taken"
NEVER_TOLD: Final = "nobody there was told that it began"
SHARED: Final = "the incident goes on: another alert of it fires"


def overtake(tx: Transaction, destination: str, audience: Audience, now_ns: int) -> None:
    """Look at every end of an alert that came in since the last call, and at what waits before it."""
    rows = tx.execute(
        "SELECT seq, order_key, brief FROM outbox WHERE destination = ? AND fresh = 1 ORDER BY seq",
        (destination,),
    ).fetchall()
    for row in rows:
        _look(tx, destination, audience, row, now_ns)
        tx.execute("UPDATE outbox SET fresh = 0 WHERE seq = ?", (row["seq"],))


def _look(tx: Transaction, destination: str, audience: Audience, end: sqlite3.Row, now_ns: int) -> None:
    begin = tx.one(
        "SELECT seq, state, unsure, group_key, type FROM outbox WHERE destination = ? AND order_key = ? "
        "AND type IN (?, ?) AND seq < ? ORDER BY seq DESC LIMIT 1",
        (destination, end["order_key"], FIRING, RESOLVED, end["seq"]),
    )
    if begin is None or begin["type"] == RESOLVED:
        supersede(tx, end["seq"], NEVER_TOLD, now_ns)
        return
    tx.execute(
        "UPDATE outbox SET state = 'superseded', finished_ns = ?, last_error = ? WHERE destination = ? "
        "AND order_key = ? AND state = 'pending' AND type IN (?, ?) AND seq >= ? AND seq < ?",
        (now_ns, OVER, destination, end["order_key"], FIRING, ACKNOWLEDGED, begin["seq"], end["seq"]),
    )
    if begin["state"] != "delivered" and not begin["unsure"]:
        if audience is Audience.CHAT and end["brief"] is not None:
            tx.execute("UPDATE outbox SET body = brief, brief = NULL WHERE seq = ?", (end["seq"],))
        else:
            supersede(tx, end["seq"], OVER, now_ns)
    elif begin["group_key"]:
        tx.execute("UPDATE outbox SET group_key = ? WHERE seq = ?", (begin["group_key"], end["seq"]))


def others_fire(
    tx: Transaction | sqlite3.Connection, destination: str, group_key: str, order_key: str
) -> bool:
    """Tell whether a destination knows of another alert of the same incident that still fires."""
    found = tx.execute(
        "SELECT 1 FROM outbox AS o WHERE o.destination = ?1 AND o.group_key = ?2 AND o.group_key <> '' "
        "AND o.order_key <> ?3 "
        "AND o.type = ?4 AND (o.state = 'delivered' OR (o.state = 'pending' AND o.unsure = 1)) "
        "AND NOT EXISTS (SELECT 1 FROM outbox AS later INDEXED BY outbox_by_key "
        "WHERE later.destination = o.destination "
        "AND later.order_key = o.order_key AND later.type = ?5 AND later.seq > o.seq) LIMIT 1",
        (destination, group_key, order_key, FIRING, RESOLVED),
    )
    return found.fetchone() is not None


def supersede(tx: Transaction, seq: int, why: str, now_ns: int) -> None:
    """Put one message aside for good, saying why."""
    tx.execute(
        "UPDATE outbox SET state = 'superseded', finished_ns = ?, last_error = ? WHERE seq = ?",
        (now_ns, why, seq),
    )
