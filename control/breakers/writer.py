"""The one way in which a breaker changes: on disk with its event and audit entry, then in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from control.breakers import store

if TYPE_CHECKING:
    from collections.abc import Callable

    from control.breakers.hooks import Hooks
    from control.breakers.index import BreakerIndex
    from control.breakers.record import Breaker
    from control.breakers.states import Event
    from control.breakers.watching import Watches
    from control.db import Transaction


class Writer:
    """Writes changes. Everything that follows from one is in the same transaction."""

    def __init__(
        self, index: BreakerIndex, hooks: Hooks, watches: Watches, now_ns: Callable[[], int]
    ) -> None:
        self.index = index
        self.hooks = hooks
        self.now_ns = now_ns
        self._watches = watches

    def write(self, tx: Transaction, event: Event, before: Breaker | None, breaker: Breaker) -> Breaker:
        """Write a change; return the breaker with its new revision."""
        after = store.write(tx, event, before, breaker)
        self._watches.take(tx, after)
        self.hooks.on_write(tx, event, after)
        tx.after_commit(lambda: self._committed(event, after))
        return after

    def _committed(self, event: Event, after: Breaker) -> None:
        self.index.apply(after)
        self.hooks.on_change(event, after)
