"""Ceilings, and the exact step at which each is neared and reached."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.step import Kind, Outcome, Step
from detectors.budget import Budget, BudgetConfig
from detectors.protocol import Finding, Severity
from detectors.reading import Reading
from detectors.tuning import Tuned
from tests.detectors.stream import SECOND_NS, START_NS, Stream, first, judged


def budget(**ceilings: Any) -> Budget:  # noqa: ANN401 - settings
    off: dict[str, Any] = dict.fromkeys(
        ("failures", "perturbations", "depth", "breadth", "spawns_a_minute"), 0
    )
    return Budget(Tuned(BudgetConfig(**{**off, **ceilings})))


def failing(count: int) -> Stream:
    stream = Stream()
    for n in range(count):
        stream.call("query", {"q": n}, error=f"no such column: {n}")
    return stream


def by_step(steps: list[Step], judge: Budget) -> list[tuple[int, Finding]]:
    return [(n, finding) for n, step in enumerate(steps, 1) for finding in judge.observe(Reading(step))]


def test_failures_in_a_row_warn_at_four_fifths_and_are_critical_at_the_ceiling() -> None:
    found = judged(failing(30).steps, budget(failures=15))
    assert [(at, finding.severity) for at, finding in found] == [
        (12, "warning"),
        (15, "critical"),
        (30, "critical"),
    ]
    report = found[1][1]
    assert (report.evidence["rule"], report.evidence["hand_over"]) == ("failures", True)
    assert report.evidence["tried"] == ["query: not_found"]
    assert report.summary == "budget: 15 calls in a row failed, 15 are allowed"


def test_a_default_is_a_warning_when_it_is_reached_and_no_more() -> None:
    found = judged(failing(23).steps, Budget())
    assert [(at, finding.severity, finding.evidence["rule"]) for at, finding in found] == [
        (20, "warning", "failures"),
        (20, "warning", "perturbations"),
    ]


def test_the_same_call_again_is_no_variation() -> None:
    steps = Stream().times(30, "query", {"q": 1}, error="no such column: q").steps
    assert judged(steps, budget(perturbations=5)) == []


@pytest.mark.parametrize("healing", ["ok", "user"])
def test_what_heals_makes_the_budget_whole(healing: str) -> None:
    stream = Stream()
    for n in range(10):
        for _ in range(9):
            stream.call("query", {"q": n}, error="no such column")
        if healing == "ok":
            stream.call("query", {"q": n}, ok=f"{n} rows")
        else:
            stream.user()
    assert judged(stream.steps, budget(failures=12)) == []


def test_a_refusal_heals_nothing_and_costs_nothing() -> None:
    stream = failing(11)
    stream.times(20, "query", {"q": 1}, outcome=Outcome.DENIED)
    assert judged(stream.steps, budget(failures=15)) == []
    stream.call("query", {"q": 99}, error="no such column: 99")
    assert first(judged(stream.steps, budget(failures=15)), "warning") == 32


def test_agents_have_their_own_failures() -> None:
    one = failing(9).steps
    two = Stream(agent="other").times(9, "query", {}, error="bad").steps
    assert judged([*one, *two], budget(failures=12)) == []


def test_calls_of_one_message_are_one_failure() -> None:
    stream = Stream()
    for n in range(40):
        stream.call("query", {"q": n}, error="no such column", attempt_id=f"m{n // 8}")
    assert judged(stream.steps, budget(failures=12)) == []


def test_tokens_and_money_of_a_session_are_counted() -> None:
    stream = Stream()
    for _ in range(20):
        stream.model(500, cost=0.05)
    tokens = by_step(stream.steps, budget(tokens=10_000))
    assert [(at, finding.severity) for at, finding in tokens] == [
        (8, "warning"),
        (10, "critical"),
        (20, "critical"),
    ]
    money = by_step(stream.steps, budget(cost_usd=0.5))
    assert [at for at, _ in money][:2] == [8, 10]
    assert money[1][1].summary == "budget: US$ 0.50 of 0.50"


def test_calls_of_a_session_are_counted_over_its_agents() -> None:
    steps: list[Step] = []
    for n in range(10):
        steps += Stream(agent=f"a{n}").call("search", {"q": n}, ok=f"{n} hits").steps
    assert [at for at, _ in by_step(steps, budget(calls=5))] == [4, 5, 10]


def test_wall_time_begins_anew_when_the_user_speaks() -> None:
    stream = Stream()
    for n in range(6):
        stream.call("search", {"q": n}, ok=f"{n} hits", after=100.0)
    stream.user(after=10_000.0).call("search", {"q": 7}, ok="7 hits")
    found = judged(stream.steps, budget(wall_s=500.0))
    assert [at for at, _ in found] == [5, 6]


def run(name: str, parent: str | None, second: float = 0.0) -> Step:
    start = START_NS + int(second * SECOND_NS)
    return Step(
        step_id=f"{name}@{second}",
        kind=Kind.AGENT_RUN,
        session_id="s",
        agent=name,
        parent_agent=parent,
        start_ns=start,
        end_ns=start + 1,
        span_id=f"{name}@{second}",
    )


def test_a_chain_of_delegation_has_a_depth() -> None:
    steps = [run(f"a{n}", f"a{n - 1}" if n else None) for n in range(12)]
    assert [(at, finding.severity) for at, finding in by_step(steps, budget(depth=5))] == [
        (5, "warning"),
        (6, "critical"),
        (11, "critical"),
    ]


def test_agents_that_delegate_in_a_circle_have_no_endless_depth() -> None:
    steps = [run("a", "c"), run("b", "a"), run("c", "b"), run("d", "c")]
    assert [finding.evidence["count"] for _, finding in by_step(steps, budget(depth=3))] == [3]


def test_one_agent_has_a_breadth() -> None:
    steps = [run("main", None), *(run(f"c{n}", "main", n * 90.0) for n in range(10))]
    assert [(at, finding.severity) for at, finding in by_step(steps, budget(breadth=10))] == [
        (9, "warning"),
        (11, "critical"),
    ]


def test_runs_that_begin_within_a_minute_are_a_rate() -> None:
    fast = [run("child", "main", n * 1.0) for n in range(40)]
    slow = [run("child", "main", n * 10.0) for n in range(40)]
    assert [at for at, _ in by_step(fast, budget(spawns_a_minute=30))] == [24, 30]
    assert by_step(slow, budget(spawns_a_minute=30)) == []


def test_without_a_session_it_is_never_critical() -> None:
    stream = Stream(session="process:web-1")
    found = judged(stream.times(30, "query", {"q": 1}, error="bad").steps, budget(failures=5))
    assert {finding.severity for _, finding in found} == {Severity.WARNING}


@given(st.lists(st.booleans(), max_size=200), st.integers(2, 11))
def test_it_is_said_just_when_so_many_failed_in_a_row(outcomes: list[bool], ceiling: int) -> None:
    stream = Stream()
    longest = row = 0
    for n, works in enumerate(outcomes):
        row = 0 if works else row + 1
        longest = max(longest, row)
        stream.call("query", {"q": n}, ok=f"{n} rows" if works else None, error=None if works else "bad")
    found = judged(stream.steps, budget(failures=ceiling))
    assert any(finding.severity is Severity.CRITICAL for _, finding in found) == (longest >= ceiling)


@pytest.mark.parametrize("setting", [{"failures": -1}, {"cost_usd": float("nan")}, {"tokens": -5}])
def test_settings_out_of_range_are_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=rf"budget\.{next(iter(setting))} must be"):
        BudgetConfig(**setting)
