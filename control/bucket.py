"""A token bucket: how many messages a second a destination is sent."""

from __future__ import annotations


class Bucket:
    """Lets `burst` through at once, then `rate` a second. Times are seconds of any steady clock.

    >>> bucket = Bucket(rate=1.0, burst=2)
    >>> [bucket.take(0.0), bucket.take(0.0), bucket.take(0.0), bucket.take(1.0)]
    [0.0, 0.0, 1.0, 0.0]
    """

    def __init__(self, rate: float, burst: int) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._tokens = float(burst)
        self._at: float | None = None

    def take(self, now: float) -> float:
        """Take a token and return 0; or take none and return the seconds until there is one."""
        if self._at is not None and now > self._at:
            self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        if self._tokens >= 1.0:
            self._tokens -= 1.0
            return 0.0
        return (1.0 - self._tokens) / self._rate
