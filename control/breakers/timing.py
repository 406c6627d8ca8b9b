"""How long a breaker stays open, and how it forgets. Pure; times are unix ns.

Source: Envoy's outlier ejection (base times a multiplier, capped, decaying per healthy interval).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from control.breakers.record import Breaker
    from control.breakers.settings import BreakerSettings

NS: Final = 1_000_000_000
CLOCK_SLACK_NS: Final = 5 * NS
"""What was written so much later than now was written before the clock was set back."""
_MAX_LEVEL: Final = 32


def next_level(before: Breaker | None, now_ns: int, settings: BreakerSettings) -> int:
    """Return the flap level of the next opening: one more than last time, less what was healthy since.

    A breaker that never opened begins with 0.
    """
    if before is None or before.openings == 0:
        return 0
    level = before.flap_level + 1
    if before.healthy_since is not None:
        level -= int((now_ns - before.healthy_since) / (settings.decay_s * NS))
    return min(max(0, level), _MAX_LEVEL)


def open_for_ns(open_s: float, level: int, settings: BreakerSettings) -> int:
    """Return how long it stays open.

    >>> from control.breakers.settings import BreakerSettings
    >>> [open_for_ns(60, level, BreakerSettings()) // NS for level in (0, 1, 5, 6, 30)]
    [60, 120, 1920, 3600, 3600]
    """
    return int(min(open_s * 2.0 ** min(level, _MAX_LEVEL), max(settings.cap_open_s, open_s)) * NS)


def within(seconds: float, now_ns: int) -> tuple[int, int]:
    """Return the first and the last moment of a time that ends now; what is later is of a clock set back.

    >>> within(1, 60 * NS) == (59 * NS + 1, 65 * NS)
    True
    """
    return now_ns - int(seconds * NS) + 1, now_ns + CLOCK_SLACK_NS
