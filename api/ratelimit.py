"""How often a token, or an address, may ask: token buckets, bounded in number.

A brake must not answer 429 lightly: what is told to come back later comes back, and while it waits it is not
braked. So checks have room for ten times their limit before anything is refused; below that, a check over the
limit is answered as any other and only counted.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from control.tokens import Token

BURST_S: Final = 5.0
"""A bucket holds what may be asked in so many seconds."""
CHECK_ROOM: Final = 10
"""How far above its limit a check is still answered."""
_MOST: Final = 4096
_NEVER: Final = 0.0


class Kind(Enum):
    """What a request is to the limits."""

    CHECK = "check"
    """Guards live by the answer: checks, following and polling breakers, probes, budgets, flags."""
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Requests a second. 0: no limit."""

    check_per_s: float = 2000.0
    other_per_s: float = 100.0
    failed_per_s: float = 1.0
    failed_burst: float = 20.0


class Limiter(Protocol):
    """Decides how long somebody must wait: 0 to go ahead, else seconds."""

    def spend(self, key: str, kind: Kind, /) -> float:
        """Count one request of a token (its id) or, without tokens, of an address."""
        ...

    def failed(self, address: str, /) -> float:
        """Count one failed authentication."""
        ...

    def known(self, token: Token, address: str, /) -> float:
        """Tell how long a token that is right must wait because its address failed too often."""
        ...


class NoLimits:
    """Lets everyone ask as often as they like."""

    def spend(self, _key: str, _kind: Kind) -> float:
        """Let it pass."""
        return _NEVER

    def failed(self, _address: str) -> float:
        """Let it be tried again at once."""
        return _NEVER

    def known(self, _token: Token, _address: str) -> float:
        """Let it pass."""
        return _NEVER


class Buckets:
    """One bucket a key, `rate` a second into it, `size` at most; the least recently used ones go first."""

    def __init__(self, rate: float, size: float, now_s: Callable[[], float], most: int = _MOST) -> None:
        self._rate = rate
        self._size = size
        self._now_s = now_s
        self._most = most
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, key: str) -> float:
        """Take one out: 0 when it was there, else the seconds until it is, and nothing is taken."""
        if self._rate <= 0:
            return _NEVER
        now = self._now_s()
        with self._lock:
            level, since = self._levels.get(key, (self._size, now))
            level = min(self._size, level + (now - since) * self._rate)
            enough = level >= 1.0
            self._levels[key] = (level - 1.0 if enough else level, now)
            self._levels.move_to_end(key)
            if len(self._levels) > self._most:
                self._levels.popitem(last=False)
        return _NEVER if enough else (1.0 - level) / self._rate

    def wait(self, key: str) -> float:
        """Tell the seconds until one may be taken, and take none."""
        if self._rate <= 0:
            return _NEVER
        now = self._now_s()
        with self._lock:
            level, since = self._levels.get(key, (self._size, now))
        return max(_NEVER, (1.0 - level) / self._rate - (now - since))


class RateLimiter:
    """The limits in force. `over` is told of each check that is over its limit and answered all the same."""

    def __init__(
        self, limits: Limits, now_s: Callable[[], float], over: Callable[[], None] = lambda: None
    ) -> None:
        self._others = Buckets(limits.other_per_s, limits.other_per_s * BURST_S, now_s)
        self._checks = Buckets(limits.check_per_s, limits.check_per_s * BURST_S, now_s)
        most = limits.check_per_s * (CHECK_ROOM - 1)
        self._most_checks = Buckets(most, most * BURST_S, now_s)
        self._failures = Buckets(limits.failed_per_s, limits.failed_burst, now_s)
        self._seen: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._over = over

    def spend(self, key: str, kind: Kind) -> float:
        """Count one request."""
        if kind is Kind.OTHER:
            return self._others.take(key)
        if self._checks.take(key) > 0:
            self._over()
            return self._most_checks.take(key)
        return _NEVER

    def failed(self, address: str) -> float:
        """Count one failed authentication of an address."""
        return self._failures.take(address)

    def known(self, token: Token, address: str) -> float:
        """Hold up a right guess of a secret that a person chose, if its address has guessed a lot.

        A token that has been used from there before is not held up, and none that was created here: nobody
        guesses 256 random bits, and whoever shares an address with a guesser must not lose the brake.
        """
        if token.source != "config":
            return _NEVER
        pair = (token.id, address)
        if pair not in self._seen:
            wait = self._failures.wait(address)
            if wait > 0:
                return wait
            self._seen[pair] = None
            if len(self._seen) > _MOST:
                self._seen.popitem(last=False)
        return _NEVER
