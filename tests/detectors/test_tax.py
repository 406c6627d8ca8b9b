"""The doom-loop tax, by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detectors.tax import call_price_usd, per_day, tax_of


def test_the_incident_of_the_field_report() -> None:
    tax = tax_of([50] * 1279, price_usd=0.54)
    assert (tax.calls, tax.over) == (63_950, 60_113)
    assert round(tax.usd, 2) == 32_461.02
    assert round(per_day(tax, 1279, 1279), 2) == 32_461.02
    assert round(per_day(tax, 1279, 100), 2) == 2_538.0


@pytest.mark.parametrize(("streaks", "over"), [([], 0), ([1, 2, 3], 0), ([4], 1), ([10, 3, 0], 7)])
def test_only_calls_beyond_the_ceiling_count(streaks: list[int], over: int) -> None:
    tax = tax_of(streaks, price_usd=1.0)
    assert (tax.over, tax.usd) == (over, float(over))


def test_a_price_has_two_parts() -> None:
    assert call_price_usd(1000, 500, input_usd_per_million=3.0, output_usd_per_million=15.0) == 0.0105


@given(st.lists(st.integers(0, 1000)), st.integers(0, 50))
def test_a_higher_ceiling_never_costs_more(streaks: list[int], ceiling: int) -> None:
    low, high = tax_of(streaks, 1.0, ceiling), tax_of(streaks, 1.0, ceiling + 1)
    assert high.over <= low.over <= low.calls
    assert 0.0 <= low.share <= 1.0


@pytest.mark.parametrize(("streaks", "price", "ceiling"), [([1], -1.0, 3), ([1], 1.0, -1), ([-1], 1.0, 3)])
def test_what_makes_no_sense_is_refused(streaks: list[int], price: float, ceiling: int) -> None:
    with pytest.raises(ValueError, match="0"):
        tax_of(streaks, price, ceiling)


def test_a_share_of_no_sessions_is_refused() -> None:
    with pytest.raises(ValueError, match="sessions"):
        per_day(tax_of([9], 1.0), 0, 10)
