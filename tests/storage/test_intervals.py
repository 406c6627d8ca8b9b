"""Intervals against published figures and what must always hold."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.metrics.intervals import (
    difference_of_means,
    holm,
    newcombe,
    p_of_means,
    p_of_shares,
    wilson,
)


@st.composite
def counted(draw: st.DrawFn) -> tuple[int, int]:
    total = draw(st.integers(1, 10_000))
    return draw(st.integers(0, total)), total


# Newcombe, Statistics in Medicine 17 (1998), 873-890, table II, method 10;
# there the share of A less that of B.
@pytest.mark.parametrize(
    ("a", "b", "low", "high"),
    [
        ((56, 70), (48, 80), 0.0524, 0.3339),
        ((9, 10), (3, 10), 0.1705, 0.8090),
        ((10, 10), (0, 20), 0.6791, 1.0),
        ((10, 10), (0, 10), 0.6075, 1.0),
        ((5, 56), (0, 29), -0.0381, 0.1926),
    ],
)
def test_differences_are_those_of_the_paper(
    a: tuple[int, int], b: tuple[int, int], low: float, high: float
) -> None:
    found = newcombe(*b, *a)
    assert (round(found.low, 4), round(found.high, 4)) == (low, high)


@given(counted())
def test_a_share_is_in_its_interval(counts: tuple[int, int]) -> None:
    found = wilson(*counts)
    assert 0 <= found.low <= counts[0] / counts[1] + 1e-12
    assert counts[0] / counts[1] - 1e-12 <= found.high <= 1
    assert found.low < found.high


@given(counted(), counted())
def test_turning_sides_turns_the_difference(a: tuple[int, int], b: tuple[int, int]) -> None:
    there, back = newcombe(*a, *b), newcombe(*b, *a)
    assert math.isclose(there.low, -back.high, abs_tol=1e-12)
    assert math.isclose(p_of_shares(*a, *b), p_of_shares(*b, *a), abs_tol=1e-12)


def test_equal_sides_do_not_differ() -> None:
    assert newcombe(5, 10, 5, 10).holds(0)
    assert p_of_shares(5, 10, 5, 10) == 1.0


def test_means_differ_by_their_errors() -> None:
    a, b = (10.0, 3.0, 36), (12.0, 4.0, 64)  # errors 0.5 and 0.5: 0.7071 together
    found = difference_of_means(a, b)
    assert (round(found.low, 3), round(found.high, 3)) == (0.614, 3.386)
    assert round(p_of_means(a, b), 5) == 0.00468  # z = 2.8284
    assert p_of_means((1.0, 0.0, 5), (1.0, 0.0, 5)) == 1.0
    assert p_of_means((1.0, 0.0, 5), (2.0, 0.0, 5)) == 0.0


@pytest.mark.parametrize("counts", [(1, 0), (-1, 5), (6, 5)])
def test_what_is_no_share_is_refused(counts: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="is no share"):
        wilson(*counts)


def test_one_value_has_no_interval() -> None:
    with pytest.raises(ValueError, match="fewer than 2"):
        difference_of_means((1.0, 0.0, 1), (1.0, 0.0, 5))


@given(st.lists(st.floats(0, 1), max_size=20))
def test_holm_never_makes_chance_less_likely(ps: list[float]) -> None:
    corrected = holm(ps)
    assert all(p <= q <= 1 for p, q in zip(ps, corrected, strict=True))
    assert [q for _, q in sorted(zip(ps, corrected, strict=True))] == sorted(corrected)
