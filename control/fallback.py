"""A destination that stands in for another: what is urgent goes there when the first has failed for long.

The message stays with the first as well, which gets it when it is back and the alert still fires. What
follows is told to whichever of them was told of the beginning (`control/posting.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from control.notifiers.protocol import RESOLVED
from control.posting import message_of, notice_from_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from control.db import Transaction
    from control.notifiers.protocol import Notifier
    from control.outbox import Outbox

_NS: Final = 1_000_000_000
_AT_ONCE: Final = 200
_ENDED: Final = (
    "SELECT 1 FROM outbox WHERE destination = ? AND order_key = ? AND type = ? AND seq > ? LIMIT 1"
)
_WAITING: Final = """
    SELECT seq, created_ns FROM outbox INDEXED BY outbox_to_divert
    WHERE destination = ? AND state = 'pending' AND notice IS NOT NULL ORDER BY seq LIMIT ?
"""


class Fallbacks:
    """Copies messages to the destinations that stand in. Called by the first destination's worker."""

    def __init__(self, outbox: Outbox, notifiers: Mapping[str, Notifier], now_ns: Callable[[], int]) -> None:
        self._outbox = outbox
        self._notifiers = notifiers
        self._now_ns = now_ns

    def divert(self, name: str) -> tuple[int, float | None]:
        """Copy what has waited for too long; return how many, and the seconds until there may be more."""
        fallback = self._notifiers[name].capabilities.fallback
        if not fallback:
            return 0, None
        self._outbox.put_aside_overtaken(name, self._notifiers[name].capabilities.audience)
        now = self._now_ns()
        after = int(self._notifiers[name].capabilities.fallback_after_s * _NS)
        with self._outbox.db.reading() as connection:
            place = connection.execute(
                "SELECT failing_since_ns, disabled_ns FROM destinations WHERE name = ?", (name,)
            ).fetchone()
            rows = connection.execute(_WAITING, (name, _AT_ONCE)).fetchall()
        if not rows:
            return 0, None
        since = None if place is None else place["failing_since_ns"]
        all_due = place is not None and place["disabled_ns"] is not None
        due_at = [
            now if all_due else min(row["created_ns"], row["created_ns"] if since is None else since) + after
            for row in rows
        ]
        due = [row["seq"] for row, at in zip(rows, due_at, strict=True) if at <= now]
        copied = 0
        if due:
            with self._outbox.db.transaction() as tx:
                copied = sum([self.copy(tx, seq) for seq in due])
        if len(due) == _AT_ONCE:
            return copied, 0.0
        later = [at for at in due_at if at > now]
        return copied, (min(later) - now) / _NS if later else None

    def copy(self, tx: Transaction, seq: int) -> bool:
        """Give a beginning to the destination that stands in, once; tell whether it will hear of it so.

        Not when the end is known: it was enqueued without one for whoever stands in, who would never close.
        """
        row = tx.one(
            "SELECT message_id, destination, order_key, type, notice FROM outbox WHERE seq = ?", (seq,)
        )
        if row is None or row["notice"] is None:
            return False
        tx.execute("UPDATE outbox SET notice = NULL WHERE seq = ?", (seq,))
        if tx.one(_ENDED, (row["destination"], row["order_key"], RESOLVED, seq)) is not None:
            return False
        fallback = self._notifiers[row["destination"]].capabilities.fallback
        if not fallback:
            return False
        notice = notice_from_json(row["notice"])
        message = message_of(self._notifiers[fallback], row["message_id"], notice)
        return self._outbox.enqueue(tx, fallback, row["order_key"], message, fallback_of=row["destination"])
