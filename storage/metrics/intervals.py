"""Intervals in closed form: of a share, of the difference of two shares, of the difference of two means.

All take what was counted as independent. Calls of one session are not quite, so intervals are rather too
narrow than too wide.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from scipy.special import ndtr, ndtri

CONFIDENCE: Final = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """Where a value lies with the confidence asked for."""

    low: float
    high: float

    def holds(self, value: float) -> bool:
        """Whether the value is inside, ends included."""
        return self.low <= value <= self.high


def z_of(confidence: float = CONFIDENCE) -> float:
    """How many standard deviations a two-sided interval reaches.

    >>> round(z_of(), 4)
    1.96
    """
    return float(ndtri(0.5 + confidence / 2))


def wilson(hits: float, total: float, confidence: float = CONFIDENCE) -> Interval:
    """Wilson's score interval of a share. Raises ValueError unless 0 <= hits <= total and total > 0.

    >>> found = wilson(8, 10)
    >>> round(found.low, 4), round(found.high, 4)
    (0.4902, 0.9433)
    """
    if not (total > 0 and 0 <= hits <= total):
        raise ValueError(f"{hits} of {total} is no share")
    z2 = z_of(confidence) ** 2
    share = hits / total
    middle = (share + z2 / (2 * total)) / (1 + z2 / total)
    reach = math.sqrt(z2) / (1 + z2 / total) * math.sqrt(share * (1 - share) / total + z2 / (4 * total**2))
    return Interval(max(0.0, middle - reach), min(1.0, middle + reach))


def newcombe(
    hits_a: float, total_a: float, hits_b: float, total_b: float, confidence: float = CONFIDENCE
) -> Interval:
    """Newcombe's interval (1998, method 10) of the share of B less the share of A.

    >>> found = newcombe(48, 80, 56, 70)
    >>> round(found.low, 4), round(found.high, 4)
    (0.0524, 0.3339)
    """
    of_a, of_b = wilson(hits_a, total_a, confidence), wilson(hits_b, total_b, confidence)
    a, b = hits_a / total_a, hits_b / total_b
    return Interval(
        b - a - math.hypot(b - of_b.low, of_a.high - a),
        b - a + math.hypot(of_b.high - b, a - of_a.low),
    )


def difference_of_means(
    a: tuple[float, float, int], b: tuple[float, float, int], confidence: float = CONFIDENCE
) -> Interval:
    """The interval of the mean of B less that of A, each given by mean, standard deviation and count.

    By the normal distribution, variances unequal. Raises ValueError where a count is less than 2.
    """
    reach = z_of(confidence) * _error_of_means(a, b)
    return Interval(b[0] - a[0] - reach, b[0] - a[0] + reach)


def p_of_shares(hits_a: float, total_a: float, hits_b: float, total_b: float) -> float:
    """How likely a difference at least as large is when both shares are one; two-sided, pooled z test.

    >>> round(p_of_shares(48, 80, 56, 70), 4), p_of_shares(5, 5, 7, 7)
    (0.008, 1.0)
    """
    both = (hits_a + hits_b) / (total_a + total_b)
    error = math.sqrt(both * (1 - both) * (1 / total_a + 1 / total_b))
    return _two_sided(hits_b / total_b - hits_a / total_a, error)


def p_of_means(a: tuple[float, float, int], b: tuple[float, float, int]) -> float:
    """How likely a difference at least as large is when both means are one; two-sided z test."""
    return _two_sided(b[0] - a[0], _error_of_means(a, b))


def holm(ps: Sequence[float]) -> list[float]:
    """Holm's step-down correction for as many comparisons as there are values.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(ps)), key=lambda place: ps[place])
    corrected = [0.0] * len(ps)
    least = 0.0
    for rank, place in enumerate(order):
        least = max(least, min(1.0, (len(ps) - rank) * ps[place]))
        corrected[place] = least
    return corrected


def _error_of_means(a: tuple[float, float, int], b: tuple[float, float, int]) -> float:
    if a[2] < 2 or b[2] < 2:  # noqa: PLR2004 - one value has no spread
        raise ValueError("a mean of fewer than 2 values has no interval")
    return math.sqrt(a[1] ** 2 / a[2] + b[1] ** 2 / b[2])


def _two_sided(difference: float, error: float) -> float:
    if error == 0:
        return 1.0 if difference == 0 else 0.0
    return float(2 * ndtr(-abs(difference) / error))
