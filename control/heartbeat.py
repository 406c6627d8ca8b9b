"""The dead man's switch: a message again and again; who misses it knows that alerts would not come either."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from control.notices import rfc3339
from control.notifiers.protocol import Message, Notice

if TYPE_CHECKING:
    from collections.abc import Callable

    from collector.step import Json
    from control.db import ControlDb
    from control.notifiers.protocol import Notifier
    from control.outbox import Outbox

HEARTBEAT: Final = "heartbeat"
_NS: Final = 1_000_000_000


class HeartbeatDuty:
    """Enqueues one message each `every_s` seconds, unless the one before still waits."""

    name: Final = HEARTBEAT

    def __init__(
        self,
        db: ControlDb,
        outbox: Outbox,
        destination: str,
        notifier: Notifier,
        *,
        every_s: float,
        wake: Callable[[], None],
        now_ns: Callable[[], int],
    ) -> None:
        self._db = db
        self._outbox = outbox
        self._destination = destination
        self._notifier = notifier
        self._beat_ns = int(every_s * _NS)
        self.every_s = min(1.0, every_s / 2)
        self._wake = wake
        self._now_ns = now_ns
        self._last = -1

    def turn(self) -> None:
        """Beat, when it is time; a beat has a number, so that none is sent twice."""
        now = self._now_ns()
        number = now // self._beat_ns
        if number == self._last:
            return
        self._last = number
        with self._db.transaction() as tx:
            waiting = tx.one(
                "SELECT 1 FROM outbox WHERE destination = ? AND order_key = ? AND state = 'pending'",
                (self._destination, HEARTBEAT),
            )
            if waiting is not None:
                return
            data: dict[str, Json] = {
                "alert_id": HEARTBEAT,
                "dedup_key": HEARTBEAT,
                "state": "firing",
                "kind": HEARTBEAT,
                "severity": "info",
                "summary": "Recloser is at work",
                "labels": {"kind": HEARTBEAT, "severity": "info"},
                "started_at": rfc3339(now),
                "every_s": self._beat_ns / _NS,
            }
            body = self._notifier.render(Notice(type=HEARTBEAT, at_ns=now, data=data))
            message = Message(id=f"msg_heartbeat_{number}", type=HEARTBEAT, body=body)
            self._outbox.enqueue(tx, self._destination, HEARTBEAT, message)
            tx.after_commit(self._wake)
