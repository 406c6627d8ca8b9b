"""Price tables, the bill that is made of them, and windows of time."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from api.prices import Prices, PricesError, read_prices
from api.taxing import bill
from api.window import WindowError, moment, window

NOW = datetime(2026, 11, 8, 12, tzinfo=UTC)


def table(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "prices.toml"
    path.write_text(text, encoding="utf-8")
    return path


def streak(model: str, calls: int, over: int, tokens: int = 0, session: str = "s") -> dict[str, Any]:
    tokens_out = tokens // 10
    told = {"model": model, "calls": calls, "over": over, "session_id": session}
    return told | {"input_tokens": tokens, "output_tokens": tokens_out}


def test_the_table_that_is_shipped_can_be_read() -> None:
    prices = read_prices()
    assert prices.models
    assert prices.call_usd is None
    assert all(0 < price.input <= price.output for price in prices.models.values())


def test_a_bill_adds_what_is_priced_and_says_what_is_not(tmp_path: Path) -> None:
    prices = read_prices(table(tmp_path, "call_usd = 0.5\n[models.m]\ninput = 2.0\noutput = 10.0\n"))
    told = bill(
        [
            streak("m-2025", 10, 7, 1_000_000),  # 2 + 1 dollars
            streak("m", 5, 2, 1_000_000, "t"),
            streak("m", 2, 0, 1_000_000, "u"),  # under the ceiling: nothing
            streak("strange", 9, 6, 1_000),
            streak("", 4, 1, 0, "v"),  # no tokens told: by the call
        ],
        prices,
        3,
    )
    assert (told.streaks, told.calls, told.over, told.sessions) == (5, 30, 16, 3)
    assert (told.usd, told.not_priced) == (6.5, 6)
    assert [(each.model, each.usd) for each in told.models] == [
        ("m-2025", 3.0),
        ("m", 3.0),
        ("", 0.5),
        ("strange", None),
    ]


def test_without_a_price_of_calls_they_are_not_priced() -> None:
    told = bill([streak("", 4, 1)], Prices(), 3)
    assert (told.usd, told.not_priced) == (None, 1)
    assert bill([], Prices(), 3).usd == 0


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[models.m]\ninput = -1\noutput = 1\n", "models.m.input"),
        ("[models.m]\ninput = 1\n", "models.m.output"),
        ("[models.m]\ninput = 1\noutput = inf\n", "models.m.output"),
        ("[model.m]\ninput = 1\n", "model: Extra inputs"),
        ("models = [", "prices.toml"),
    ],
)
def test_a_wrong_table_is_refused_with_its_key(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(PricesError, match=told):
        read_prices(table(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("90m", "2026-11-08T10:30:00+00:00"),
        ("2w", "2026-10-25T12:00:00+00:00"),
        ("2026-11-01T10:00:00+02:00", "2026-11-01T10:00:00+02:00"),
    ],
)
def test_times_are_ages_or_dates(text: str, told: str) -> None:
    assert moment(text, NOW).isoformat() == told


@pytest.mark.parametrize("text", ["", "7", "d7", "7y", "2026-13-01", "999999w"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(WindowError, match="is no time"):
        moment(text, NOW)


def test_a_window_may_end_now() -> None:
    assert window("2d..", NOW) == (moment("2d", NOW), NOW)
    for wrong in ("2026-11-02..2026-11-01", "2026-11-01"):
        with pytest.raises(WindowError, match="is no window"):
            window(wrong, NOW)
