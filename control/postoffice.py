"""What people ask of deliveries: a test, a second time, a destination in use again. All of it is audited."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from control import audit
from control.ledger import replay
from control.notifiers.protocol import TEST, Delivered
from control.outbox import write_attempt
from control.trial import try_out

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from collector.step import Json
    from control.actor import Actor
    from control.db import Transaction
    from control.delivery import Delivery
    from control.notifiers.protocol import Message, Notifier, Result
    from control.outbox import Outbox
    from control.trial import Trial


class UnknownDestination(Exception):  # noqa: N818 - the name says what is missing
    """No destination has this name."""


class PostOffice:
    """May be called from any thread that runs no event loop."""

    def __init__(
        self,
        outbox: Outbox,
        delivery: Delivery,
        now_ns: Callable[[], int],
    ) -> None:
        self._outbox = outbox
        self._delivery = delivery
        self._now_ns = now_ns
        self.notifiers = delivery.notifiers

    def test(self, name: str, actor: Actor) -> Trial:
        """Send a test now, past everything that waits. Raises `UnknownDestination`."""
        notifier = self.notifiers.get(name)
        if notifier is None:
            raise UnknownDestination(name)
        at_ns = self._now_ns()
        trial = try_out(name, notifier, lambda message: self._send(name, notifier, message), self._now_ns)
        with self._outbox.db.transaction() as tx:
            for message, result in zip(trial.messages, trial.results, strict=True):
                self._write_down(tx, name, message, result, at_ns)
            after: dict[str, Json] = {"delivered": trial.delivered, "problem": trial.problem}
            self._audit(tx, actor, "destination.test", name, after=after)
        return trial

    def replay(self, seq: int, actor: Actor, reason: str) -> list[int]:
        """Have a message sent once more; return the numbers of all that go again.

        Raises `UnknownDelivery` or `StillPending`.
        """
        with self._outbox.db.transaction() as tx:
            again = replay(tx, seq, self._now_ns())
            self._audit(tx, actor, "delivery.replay", str(seq), reason, after={"deliveries": list(again)})
            tx.after_commit(self._delivery.wake)
        return again

    def enable(self, name: str, actor: Actor, reason: str) -> None:
        """Use a destination again that is held or disabled. Raises `UnknownDestination`."""
        with self._outbox.db.transaction() as tx:
            if not self._outbox.enable(tx, name):
                raise UnknownDestination(name)
            self._audit(tx, actor, "destination.enable", name, reason, after={"state": "ok"})
            tx.after_commit(self._delivery.wake)

    def _send(self, name: str, notifier: Notifier, message: Message) -> Result:
        if self._delivery.alive:
            return self._delivery.send_now(name, message)
        return asyncio.run(send_once(notifier, message, self._now_ns()))

    def _write_down(self, tx: Transaction, name: str, message: Message, result: Result, at_ns: int) -> None:
        """Put the attempt into the ledger."""
        now = self._now_ns()
        state = "delivered" if isinstance(result, Delivered) else "dead"
        reason = result.note if isinstance(result, Delivered) else result.reason
        seq = tx.insert(
            "INSERT INTO outbox (message_id, destination, order_key, type, body, state, attempts, next_ns, "
            "created_ns, finished_ns, last_error) VALUES (?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?)",
            (message.id, name, f"test_{name}", TEST, message.body, state, at_ns, at_ns, now, reason[:500]),
        )
        write_attempt(tx, seq, message.body, result, state, at_ns, now)

    def _audit(
        self,
        tx: Transaction,
        actor: Actor,
        verb: str,
        subject: str,
        reason: str = "",
        *,
        after: Mapping[str, Json],
    ) -> None:
        audit.record(
            tx,
            at_ns=self._now_ns(),
            actor=actor,
            verb=verb,
            subject=subject,
            reason=reason,
            after=after,
        )


async def send_once(notifier: Notifier, message: Message, at_ns: int) -> Result:
    """Make one attempt with a notifier that nobody else uses now."""
    try:
        return await notifier.send(message, at_ns // 1_000_000_000)
    finally:
        await notifier.close()
