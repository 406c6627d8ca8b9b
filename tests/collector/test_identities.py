"""The bounded set of span identities."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from collector.identities import SeenIdentities

HOUR = 3600 * 10**9
batches = st.lists(st.lists(st.integers(0, 60), max_size=20), max_size=30)


def _ids(values: list[int]) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return np.array(values, dtype=np.uint64)


@given(batches)
def test_answers_like_a_set_while_nothing_is_forgotten(groups: list[list[int]]) -> None:
    seen = SeenIdentities(HOUR, capacity=1_000_000)
    model: set[int] = set()
    for group in groups:
        expected = []
        for value in group:
            expected.append(value not in model)
            model.add(value)
        ids = _ids(group)
        assert seen.fresh(ids).tolist() == expected
        seen.add(ids[seen.fresh(ids)], 0)
        assert len(seen) == len(model)


def test_forgets_what_is_past_the_horizon() -> None:
    seen = SeenIdentities(HOUR, capacity=1_000_000)
    seen.add(_ids(list(range(100))), 0)
    seen.add(_ids([1000]), 2 * HOUR)
    assert seen.fresh(_ids([5])).all()
    assert not seen.fresh(_ids([1000])).any()


def test_stays_within_its_capacity_and_forgets_the_oldest_first() -> None:
    seen = SeenIdentities(HOUR, capacity=10_000)
    for start in range(0, 100_000, 500):
        seen.add(_ids(list(range(start, start + 500))), start)
    assert len(seen) <= 10_000
    assert not seen.fresh(_ids(list(range(99_000, 100_000)))).any()
    assert seen.fresh(_ids(list(range(500)))).all()
