from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from collector.clock import SteadyClock


@given(
    start=st.integers(0, 10**18),
    readings=st.lists(st.tuples(st.integers(0, 10**18), st.integers(0, 10**9)), min_size=1),
)
def test_it_goes_on_at_least_as_fast_as_time_and_never_behind_the_wall(
    start: int, readings: list[tuple[int, int]]
) -> None:
    wall_ns = monotonic_ns = 0
    clock = SteadyClock(lambda: wall_ns, start, lambda: monotonic_ns)
    before = start
    for wall_ns, passed in readings:
        monotonic_ns += passed
        now = clock()
        assert now >= before + passed
        assert now >= wall_ns
        assert now in (before + passed, wall_ns)
        before = now
