"""How long to wait before the next try."""

from __future__ import annotations

from typing import Callable


class Backoff:
    """1, 2, 4 … 30 seconds, each with up to half of it taken away at random; a healthy minute starts anew.

    >>> waits = Backoff(uniform=lambda low, high: high)
    >>> [waits.next() for _ in range(7)]
    [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    """

    def __init__(
        self, uniform: Callable[[float, float], float], first: float = 1.0, longest: float = 30.0
    ) -> None:
        self._uniform = uniform
        self._first = first
        self._longest = longest
        self._wait = first

    def next(self) -> float:
        """Seconds to wait before this try."""
        wait = min(self._wait, self._longest)
        self._wait = min(self._wait * 2, self._longest)
        return self._uniform(wait / 2, wait)

    def healthy(self, for_seconds: float) -> None:
        """Start anew after a connection that held for a minute."""
        if for_seconds >= 60:  # noqa: PLR2004 - what flaps faster must not hammer
            self._wait = self._first
