from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from api.ratelimit import Buckets, Kind, Limits, NoLimits, RateLimiter
from control.tokens import Token
from control.verbs import Verb

PAGER = Token.of("pager", "x" * 16, {Verb.READ})
MADE = Token(id="a", name="a", verbs=frozenset(Verb), digest=b"")


@dataclass
class Seconds:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_bucket_gives_what_it_has_and_says_when_there_is_more() -> None:
    clock = Seconds()
    bucket = Buckets(2.0, 3.0, clock)
    assert [bucket.take("a") for _ in range(4)] == [0, 0, 0, 0.5]
    assert bucket.take("b") == 0
    clock.now += 0.5
    assert (bucket.take("a"), bucket.take("a")) == (0, 0.5)
    clock.now += 1000
    assert [bucket.take("a") for _ in range(4)] == [0, 0, 0, 0.5]


def test_a_rate_of_nothing_is_no_limit() -> None:
    bucket = Buckets(0.0, 0.0, Seconds())
    assert [bucket.take("a") for _ in range(100)] == [0] * 100
    assert bucket.wait("a") == 0


def test_the_buckets_are_bounded() -> None:
    bucket = Buckets(1.0, 1.0, Seconds(), most=2)
    assert [bucket.take(key) for key in ("a", "a", "b", "c")] == [0, 1, 0, 0]
    assert bucket.take("a") == 0


@given(st.lists(st.floats(0, 3), max_size=60), st.floats(0.1, 10), st.floats(1, 10))
def test_no_more_is_given_than_the_rate_and_what_was_there(
    gaps: list[float], rate: float, size: float
) -> None:
    clock = Seconds()
    bucket = Buckets(rate, size, clock)
    granted = 0
    for gap in gaps:
        clock.now += gap
        granted += bucket.take("a") == 0
    assert granted <= size + rate * sum(gaps) + 1e-6


def test_checks_are_answered_up_to_ten_times_their_limit() -> None:
    over: list[int] = []
    limiter = RateLimiter(Limits(check_per_s=2, other_per_s=1), Seconds(), lambda: over.append(1))
    waits = [limiter.spend("a", Kind.CHECK) for _ in range(101)]
    assert waits[:100] == [0] * 100
    assert waits[100] > 0
    assert len(over) == 91
    assert [limiter.spend("a", Kind.OTHER) > 0 for _ in range(6)] == [False] * 5 + [True]
    assert limiter.spend("b", Kind.OTHER) == 0


def test_who_guesses_is_held_up_and_nobody_else_at_that_address() -> None:
    limiter = RateLimiter(Limits(failed_per_s=1, failed_burst=3), Seconds())
    assert limiter.known(PAGER, "10.0.0.1") == 0
    assert [limiter.failed("10.0.0.1") > 0 for _ in range(4)] == [False, False, False, True]
    assert limiter.known(PAGER, "10.0.0.1") == 0
    guessed = Token.of("other", "y" * 16, {Verb.READ})
    assert limiter.known(guessed, "10.0.0.1") > 0
    assert limiter.known(guessed, "10.0.0.2") == 0
    assert limiter.known(MADE, "10.0.0.1") == 0


def test_without_limits_nobody_waits() -> None:
    none = NoLimits()
    assert (none.spend("a", Kind.OTHER), none.failed("a"), none.known(PAGER, "a")) == (0, 0, 0)
