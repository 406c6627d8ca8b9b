"""Writes the messages about an alert into the outbox, in the transaction that changes the alert."""

from __future__ import annotations

import logging
import sqlite3
from typing import TYPE_CHECKING, Protocol

from control.notices import message_id
from control.notifiers.protocol import ACKNOWLEDGED, FIRING, RESOLVED
from control.posting import Poster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from prometheus_client import Counter

    from control.alerts.record import Alert
    from control.db import Transaction
    from control.notifiers.protocol import Notice, Notifier
    from control.outbox import Outbox

_log = logging.getLogger(__name__)


class TellsOf(Protocol):
    """Writes the notice about an alert; see `control.notices.Notices`."""

    def __call__(self, tx: Transaction, alert: Alert, kind: str) -> Notice:
        """Write it for one of the kinds `alert.firing`, `alert.acknowledged`, `alert.resolved`."""
        ...


class Announcer:
    """Tells destinations of alerts. `wake` is called once the messages are on disk.

    `untold` counts notices that a notifier could not write.
    """

    def __init__(
        self,
        outbox: Outbox,
        notifiers: Mapping[str, Notifier],
        tells_of: TellsOf,
        wake: Callable[[], None],
        untold: Counter,
    ) -> None:
        self._poster = Poster(outbox, notifiers)
        self._notifiers = notifiers
        self._tells_of = tells_of
        self._wake = wake
        self._untold = untold
        self._unknown: set[str] = set()

    def firing(self, tx: Transaction, alert: Alert, *, but: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Announce that an alert fires; return the names of the destinations that will hear of it.

        `but` are those that have heard already.
        """
        wanted = self._notifiers if alert.destinations is None else alert.destinations
        return self._enqueue(tx, alert, FIRING, [name for name in wanted if name not in but])

    def acknowledged(self, tx: Transaction, alert: Alert) -> None:
        """Tell those who heard of the firing, and can make use of it, that a person has seen it."""
        self._enqueue(tx, alert, ACKNOWLEDGED, self._who_heard(alert, acknowledging=True))

    def resolved(self, tx: Transaction, alert: Alert) -> None:
        """Tell everybody who heard of the firing that it is over."""
        self._enqueue(tx, alert, RESOLVED, self._who_heard(alert, acknowledging=False))

    def _who_heard(self, alert: Alert, *, acknowledging: bool) -> list[str]:
        return [
            name
            for name in (self._notifiers if alert.told is None else alert.told)
            if name in self._notifiers
            and (not acknowledging or self._notifiers[name].capabilities.acknowledges)
        ]

    def _enqueue(self, tx: Transaction, alert: Alert, kind: str, names: Iterable[str]) -> tuple[str, ...]:
        known = [name for name in names if self._is_known(name)]
        if not known:
            return ()
        notice = self._tells_of(tx, alert, kind)
        told = tuple(name for name in known if self._tell(tx, name, alert, kind, notice))
        tx.after_commit(self._wake)
        return told

    def _tell(self, tx: Transaction, name: str, alert: Alert, kind: str, notice: Notice) -> bool:
        """Tell one destination; False when its notifier cannot write the notice; others hear of it."""
        try:
            with tx.savepoint():
                self._poster.tell(tx, name, alert.id, message_id(alert, kind), notice)
        except sqlite3.Error:
            raise
        except Exception:  # noqa: BLE001 - one notifier's defect must not keep all others from hearing
            _log.exception("the notice about %s cannot be written for %s", alert.id, name)
            tx.after_commit(self._untold.inc)
            return False
        return True

    def _is_known(self, name: str) -> bool:
        if name in self._notifiers:
            return True
        if name not in self._unknown:
            self._unknown.add(name)
            _log.error(
                "a policy names the destination %r, which is not configured: nobody is told there", name
            )
        return False
