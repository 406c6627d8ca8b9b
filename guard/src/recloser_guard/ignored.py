"""How often refusals go unheeded: what the sidecar is told of, and the brake of last resort here."""

from __future__ import annotations

import threading
from typing import NamedTuple

from recloser_guard.record import Breaker

_MAX_KEPT = 10_000
GAP_S = 300.0
"""Who heeds a wide breaker for so long and then meets it again has not ignored it: the sidecar counts so."""


class _Seen(NamedTuple):
    episode: int
    times: int
    at: float


class Ignored:
    """Counts refusals by breaker and session, or run where no session is named.

    Calls that a model makes together are refused within `same_turn_s` seconds and count once: one message
    was sent before anything was refused.
    """

    def __init__(self, same_turn_s: float) -> None:
        self._same_turn_s = same_turn_s
        self._lock = threading.Lock()
        self._seen: dict[tuple[str, str | None], _Seen] = {}

    def refused(self, breaker: Breaker, owner: str | None, now: float) -> tuple[int, bool]:
        """Note a refusal; return how many of this episode there are, and whether it counts as a new one."""
        key = (breaker.id, owner)
        with self._lock:
            seen = self._seen.get(key)
            heeded = seen is not None and not breaker.of_one_run and now - seen.at > GAP_S
            if seen is None or heeded or seen.episode != breaker.episode:
                if len(self._seen) >= _MAX_KEPT:
                    self._seen.pop(next(iter(self._seen)))
                self._seen[key] = _Seen(breaker.episode, 1, now)
                return 1, True
            fresh = now - seen.at >= self._same_turn_s
            count = seen.times + fresh
            self._seen[key] = _Seen(seen.episode, count, now if fresh else seen.at)
            return count, fresh

    def forked(self) -> None:
        """In a child process: the lock may be held by a thread that does not exist there."""
        self._lock = threading.Lock()
