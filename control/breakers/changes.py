"""The last changes of breakers, for those who follow them."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from control.breakers.record import Breaker

_log = logging.getLogger(__name__)

KEPT: Final = 1024


class Change(NamedTuple):
    """One change: its revision, whose, and the breaker after it; None: it is closed and gone."""

    revision: int
    breaker_id: str
    breaker: Breaker | None


Follower: TypeAlias = Callable[[Change], None]


class Changes:
    """The last `kept` changes, and who is told of each. Safe to use from several threads."""

    def __init__(self, kept: int = KEPT) -> None:
        self._lock = threading.Lock()
        self._kept: deque[Change] = deque(maxlen=kept)
        self._before = 0
        self._newest = 0
        self._followers: dict[int, Follower] = {}
        self._next = 0

    def begin(self, revision: int) -> None:
        """Start after `revision`: what came before it is not kept."""
        with self._lock:
            self._kept.clear()
            self._before = self._newest = revision

    def add(self, change: Change) -> None:
        """Keep a change, and tell everybody, in this thread. Called in the order of revisions."""
        with self._lock:
            if len(self._kept) == self._kept.maxlen:
                self._before = self._kept[0].revision
            self._kept.append(change)
            self._newest = change.revision
            followers = list(self._followers.values())
        for follower in followers:
            try:
                follower(change)
            except Exception:  # noqa: BLE001 - one who follows must not keep the others from knowing
                _log.exception("change %d could not be told", change.revision)

    def since(self, revision: int) -> list[Change] | None:
        """Return the changes after `revision`, oldest first; None when some of them are not kept any more.

        Also None for a revision that has not been yet: it is of another file.
        """
        with self._lock:
            if not self._before <= revision <= self._newest:
                return None
            return [change for change in self._kept if change.revision > revision]

    def subscribe(self, follower: Follower) -> Callable[[], None]:
        """Tell `follower` of every change from now on, in the writer's thread; return what ends that."""
        with self._lock:
            key = self._next = self._next + 1
            self._followers[key] = follower

        def end() -> None:
            with self._lock:
                self._followers.pop(key, None)

        return end
