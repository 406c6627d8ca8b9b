"""Shares with their intervals, precision and recall."""

from __future__ import annotations

from dataclasses import dataclass

from scipy.stats import binomtest


@dataclass(frozen=True, slots=True)
class Share:
    """`hits` of `total`; both are counts."""

    hits: int
    total: int

    def __post_init__(self) -> None:
        if not 0 <= self.hits <= self.total:
            raise ValueError(f"{self.hits} of {self.total} is no share")

    @property
    def value(self) -> float:
        """From 0 to 1; 0 of nothing."""
        return self.hits / self.total if self.total else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of Wilson's score; everything is possible of nothing."""
        if not self.total:
            return 0.0, 1.0
        found = binomtest(self.hits, self.total).proportion_ci(confidence_level=0.95, method="wilson")
        return float(found.low), float(found.high)

    def __str__(self) -> str:
        if not self.total:
            return "none"
        low, high = self.interval
        return f"{percent(self.value)} [{percent(low)}, {percent(high)}]"


def percent(value: float) -> str:
    """A share as a person reads it, one decimal below ten percent.

    >>> percent(0.0123), percent(0.5), percent(1.0), percent(0.0)
    ('1.2 %', '50 %', '100 %', '0 %')
    """
    hundredfold = 100 * value
    digits = 1 if 0 < hundredfold < 9.95 or 99 < hundredfold < 100 else 0  # noqa: PLR2004 - of percent
    return f"{hundredfold:.{digits}f} %"


def f_score(precision: float, recall: float) -> float:
    """The harmonic mean; 0 when both are."""
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0
