"""The one way in which a breaker changes: on disk with its event and audit entry, then in memory."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from control.breakers import store
from control.breakers.hooks import tell

if TYPE_CHECKING:
    from collections.abc import Callable

    from control.breakers.hooks import Hooks
    from control.breakers.index import BreakerIndex
    from control.breakers.record import Breaker
    from control.breakers.states import Event
    from control.breakers.watching import Watches
    from control.db import Transaction

_log = logging.getLogger(__name__)


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
        tell(tx, self.hooks.on_write, event, after)
        tx.after_commit(lambda: self._committed(event, after))
        return after

    def _committed(self, event: Event, after: Breaker) -> None:
        self.index.apply(after)
        try:
            self.hooks.on_change(event, after)
        except Exception:  # noqa: BLE001 - what comes after it in this commit must be known, too
            _log.exception("change %d of breaker %s could not be counted", after.revision, after.id)
