from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.retry import RetryPolicy


@settings(deadline=None)
@given(failures=st.integers(1, 10_000), part=st.floats(0, 1, exclude_max=True))
def test_a_delay_is_a_part_of_a_bound_that_grows_to_its_cap(failures: int, part: float) -> None:
    policy = RetryPolicy()
    bound = policy.delay_s(failures, lambda: 1.0)
    assert 5.0 <= bound <= policy.cap_s
    assert bound <= policy.delay_s(failures + 1, lambda: 1.0)
    assert policy.delay_s(failures, lambda: part) == pytest.approx(part * bound)


@pytest.mark.parametrize(("asked", "delay"), [(None, 5.0), (1.0, 5.0), (600.0, 600.0), (1e9, 86_400.0)])
def test_what_a_destination_asks_for_is_a_lower_bound_with_a_limit(asked: float | None, delay: float) -> None:
    assert RetryPolicy().delay_s(1, lambda: 1.0, asked) == delay


@pytest.mark.parametrize("key", ["first_s", "cap_s", "max_retry_after_s", "give_up_after_s", "factor"])
def test_a_policy_that_makes_no_sense_is_refused_by_its_key(key: str) -> None:
    with pytest.raises(ValueError, match=rf"delivery\.{key}"):
        RetryPolicy(**{key: 0.0})
