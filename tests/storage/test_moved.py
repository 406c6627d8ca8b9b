"""What a comparison says of two measured tables."""

from __future__ import annotations

import polars as pl
import pytest

from storage.metrics.catalog import BY_NAME
from storage.metrics.metric import Measured, shares
from storage.metrics.moved import Moved, moved


def share(name: str, *counts: tuple[int, int], **groups: list[str]) -> Measured:
    hits, totals = zip(*counts, strict=True) if counts else ((), ())
    if not counts:
        return Measured(BY_NAME[name], tuple(groups), pl.DataFrame())
    rows = pl.DataFrame({**groups, "hits": list(hits), "total": list(totals)})
    by = tuple(group for group in groups if group != "state")
    return Measured(BY_NAME[name], by, shares(rows))


def spread(mean: float, sd: float | None, total: int) -> Measured:
    rows = {"total": [total], "value": [mean], "p95": [mean], "mean": [mean], "sd": [sd]}
    return Measured(BY_NAME["calls_to_recovery"], (), pl.DataFrame(rows))


@pytest.mark.parametrize(
    ("name", "a", "b", "direction"),
    [
        ("recovery_rate", (10, 100), (60, 100), "better"),
        ("ure_rate", (10, 100), (60, 100), "worse"),
        ("recovery_rate", (60, 100), (10, 100), "worse"),
        ("recovery_rate", (10, 100), (12, 100), ""),
        ("recovery_rate", (0, 4), (4, 4), ""),  # too few to test
    ],
)
def test_a_share_moves_in_a_direction(
    name: str, a: tuple[int, int], b: tuple[int, int], direction: str
) -> None:
    [found] = moved([(share(name, a), share(name, b))])
    assert found.direction == direction
    assert found.difference == pytest.approx(b[0] / b[1] - a[0] / a[1])


def test_a_spread_moves_by_its_mean() -> None:
    [found] = moved([(spread(3.0, 1.0, 100), spread(2.0, 1.0, 100))])
    assert (found.a, found.b, found.direction) == (3.0, 2.0, "better")
    [found] = moved([(spread(3.0, None, 1), spread(2.0, 1.0, 100))])
    assert (found.difference, found.p, found.excludes_no_change) == (-1.0, None, None)


def test_groups_are_compared_by_name_and_what_one_side_lacks_is_not_tested() -> None:
    a = share("recovery_rate", (1, 10), (2, 20), tool=["x", "y"])
    b = share("recovery_rate", (9, 10), (3, 30), tool=["x", "z"])
    x, y, z = moved([(a, b)])
    assert [each.group for each in (x, y, z)] == [(("tool", name),) for name in "xyz"]
    assert x.direction == "better"
    assert (y.b, y.p, z.a, z.p) == (None, None, None, None)


def test_a_state_that_no_failure_came_to_is_none_of_them() -> None:
    a = share("final_states", (30, 60), (30, 60), state=["abandoned", "recovered"])
    b = share("final_states", (60, 60), state=["recovered"])
    abandoned, recovered = moved([(a, b)])
    assert (abandoned.b, abandoned.total_b, recovered.b) == (0.0, 60, 1.0)
    assert (abandoned.direction, recovered.direction) == ("moved", "moved")
    nothing = moved([(a, share("final_states"))])
    assert [each.b for each in nothing] == [None, None]


def test_many_comparisons_ask_for_more() -> None:
    borderline = (share("recovery_rate", (40, 100)), share("recovery_rate", (55, 100)))
    [alone] = moved([borderline])
    among: list[Moved] = moved([borderline, *[(borderline[0], borderline[0])] * 9])
    assert alone.significant
    assert not among[0].significant
    assert among[0].excludes_no_change is True
    assert among[0].p == alone.p
