"""Doom-loop tax: what the calls beyond a ceiling cost.

Calls made less calls under the ceiling, times the price, times sessions a day; from the mission's sources,
which say to "retry at most 3". Pure arithmetic; prices come from whoever asks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

CEILING: Final = 3
"""Attempts at one thing that are worth their price: the first and two more."""


@dataclass(frozen=True, slots=True)
class Tax:
    """What was paid: `calls` made, `over` of them beyond `ceiling` calls per streak, `usd` for these."""

    calls: int
    over: int
    ceiling: int
    price_usd: float

    @property
    def usd(self) -> float:
        """US dollars for the calls beyond the ceiling."""
        return self.over * self.price_usd

    @property
    def share(self) -> float:
        """Which part of the calls is beyond the ceiling; 0 when there was none."""
        return self.over / self.calls if self.calls else 0.0


def tax_of(streaks: Iterable[int], price_usd: float, ceiling: int = CEILING) -> Tax:
    """The tax on streaks, each given by its number of calls; `price_usd` is that of one call.

    Raises ValueError for a negative price, ceiling or number of calls.

    >>> tax = tax_of([50, 2, 3], price_usd=0.02)
    >>> tax.calls, tax.over, round(tax.usd, 2), round(tax.share, 3)
    (55, 47, 0.94, 0.855)
    """
    if not price_usd >= 0:
        raise ValueError(f"price_usd must be 0 or more, not {price_usd!r}")
    if ceiling < 0:
        raise ValueError(f"ceiling must be 0 or more, not {ceiling!r}")
    calls = over = 0
    for count in streaks:
        if count < 0:
            raise ValueError(f"a streak has 0 calls or more, not {count!r}")
        calls += count
        over += max(0, count - ceiling)
    return Tax(calls, over, ceiling, price_usd)


def per_day(tax: Tax, sessions: int, sessions_a_day: float) -> float:
    """US dollars a day, when `sessions` paid this tax and there are `sessions_a_day` like them.

    Raises ValueError without sessions.

    >>> per_day(tax_of([50], price_usd=0.02), sessions=1, sessions_a_day=1279)
    1202.26
    """
    if sessions <= 0:
        raise ValueError(f"sessions must be more than 0, not {sessions!r}")
    return tax.usd / sessions * sessions_a_day


def call_price_usd(
    input_tokens: int, output_tokens: int, *, input_usd_per_million: float, output_usd_per_million: float
) -> float:
    """The price of one model call.

    >>> call_price_usd(180_000, 0, input_usd_per_million=3.0, output_usd_per_million=15.0)
    0.54
    """
    return (input_tokens * input_usd_per_million + output_tokens * output_usd_per_million) / 1e6
