"""A clock that never goes back and never stands still, however the machine's clock is set."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class SteadyClock:
    """Unix nanoseconds by `wall_ns`, but at least `start_ns` and what has passed since by `monotonic_ns`.

    Set back, the machine's clock is left behind; set forward, it is followed. Calls from several threads
    are in one order, and none is told less than the one before.
    """

    def __init__(
        self,
        wall_ns: Callable[[], int],
        start_ns: int = 0,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._wall_ns = wall_ns
        self._monotonic_ns = monotonic_ns
        self._lock = threading.Lock()
        self._latest_ns = start_ns
        self._read_at_ns = monotonic_ns()

    def __call__(self) -> int:
        """The time."""
        with self._lock:
            read_at_ns = self._monotonic_ns()
            passed_ns, self._read_at_ns = read_at_ns - self._read_at_ns, read_at_ns
            self._latest_ns = max(self._latest_ns + passed_ns, self._wall_ns())
            return self._latest_ns
