from __future__ import annotations

import pytest

from evaluation.markdown import calls, table
from evaluation.stats import Share, f_score, percent


@pytest.mark.parametrize(
    ("hits", "total", "low", "high"),
    [  # Wilson's formula by hand: (p + z²/2n ± z·sqrt(p(1-p)/n + z²/4n²)) / (1 + z²/n), z = 1.959964
        (0, 10, 0.0, 0.2775),
        (10, 10, 0.7225, 1.0),
        (5, 10, 0.2366, 0.7634),
        (1, 100, 0.0018, 0.0545),
    ],
)
def test_a_share_knows_its_interval(hits: int, total: int, low: float, high: float) -> None:
    assert Share(hits, total).interval == pytest.approx((low, high), abs=5e-5)


def test_of_nothing_everything_is_possible() -> None:
    assert Share(0, 0).interval == (0.0, 1.0)
    assert str(Share(0, 0)) == "none"


@pytest.mark.parametrize(("hits", "total"), [(-1, 3), (4, 3)])
def test_what_is_no_share_is_refused(hits: int, total: int) -> None:
    with pytest.raises(ValueError, match="is no share"):
        Share(hits, total)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0 %"), (0.0123, "1.2 %"), (0.0996, "10 %"), (0.5, "50 %"), (0.9934, "99.3 %"), (1.0, "100 %")],
)
def test_percent_has_decimals_where_they_tell(value: float, text: str) -> None:
    assert percent(value) == text


def test_the_f_score_is_the_harmonic_mean() -> None:
    assert f_score(0.5, 1.0) == pytest.approx(2 / 3)
    assert f_score(0.0, 0.0) == 0.0


def test_tables_have_a_cell_for_everything() -> None:
    assert table(("a", "b"), [(1, None), (Share(1, 1).hits, "x")]).splitlines() == [
        "| a | b |",
        "| --- | --- |",
        "| 1 |  |",
        "| 1 | x |",
    ]
    assert [calls(None), calls(2.0), calls(2.5)] == ["none", "2", "2.5"]
