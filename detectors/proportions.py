"""How sure a share is: Wilson's score interval, in closed form, for the hot path."""

from __future__ import annotations

from math import sqrt
from typing import Final

SURE: Final = 2.576
"""Standard deviations of a two-sided 99 % interval."""


def wilson_low(hits: int, trials: int, z: float = SURE) -> float:
    """The lower bound of the share that `hits` of `trials` speak for (Wilson 1927); 0 without trials.

    >>> round(wilson_low(15, 100), 3), round(wilson_low(10, 20), 3), wilson_low(0, 0)
    (0.08, 0.25, 0.0)
    """
    if trials <= 0:
        return 0.0
    middle, half, scale = _parts(hits, trials, z)
    return max(0.0, (middle - half) / scale)


def wilson_high(hits: int, trials: int, z: float = SURE) -> float:
    """The upper bound of the same interval; 1 without trials.

    >>> round(wilson_high(15, 100), 3), round(wilson_high(0, 20), 3), wilson_high(0, 0)
    (0.263, 0.249, 1.0)
    """
    if trials <= 0:
        return 1.0
    middle, half, scale = _parts(hits, trials, z)
    return min(1.0, (middle + half) / scale)


def _parts(hits: int, trials: int, z: float) -> tuple[float, float, float]:
    share = hits / trials
    middle = share + z * z / (2 * trials)
    half = z * sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return middle, half, 1 + z * z / trials
