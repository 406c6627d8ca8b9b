"""Many sessions of one agent, and the one that uses far more than all others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.step import Kind, Outcome, Step, Usage
from detectors.learned_budget import LearnedBudget, LearnedBudgetConfig
from detectors.protocol import Finding, Severity
from detectors.reading import Reading
from tests.detectors.stream import SECOND_NS, START_NS

HOUR = 3600.0


def model(session: int, at: float, tokens: int, *, failed: bool = False) -> Step:
    start = START_NS + int(at * SECOND_NS)
    return Step(
        step_id=f"{session}@{at}",
        span_id=f"{session}@{at}",
        kind=Kind.MODEL_CALL,
        session_id=f"session-{session}",
        service="shop",
        agent="buyer",
        start_ns=start,
        end_ns=start + SECOND_NS,
        usage=Usage(input_tokens=tokens, output_tokens=0),
        outcome=Outcome.ERROR if failed else Outcome.OK,
        error="overloaded" if failed else None,
    )


def healthy(count: int, *, failed: bool = False) -> Iterator[Step]:
    """Sessions of ten calls and 10,000 to 12,000 tokens, one an hour."""
    for session in range(count):
        for n in range(10):
            yield model(session, session * HOUR + n, 1_000 + 2 * session % 200, failed=failed and n == 9)


def said(steps: Iterable[Step], judge: LearnedBudget) -> list[tuple[int, Finding]]:
    return [(n, finding) for n, step in enumerate(steps, 1) for finding in judge.observe(Reading(step))]


def test_three_times_the_healthy_quantile_is_said_once_and_at_doublings() -> None:
    judge = LearnedBudget()
    assert said(healthy(60), judge) == []
    found = said((model(99, 61 * HOUR + n, 1_000) for n in range(100)), judge)
    assert [at for at, _ in found] == [34, 67]
    finding = found[0][1]
    assert (finding.kind, finding.severity, finding.session_id) == ("budget", Severity.WARNING, "session-99")
    assert finding.evidence["usual_tokens"] == 11_140
    assert finding.evidence["learned_sessions"] == 60


def test_nothing_is_said_while_too_few_are_known() -> None:
    judge = LearnedBudget()
    assert said(healthy(49), judge) == []
    assert said((model(99, 61 * HOUR + n, 100_000) for n in range(100)), judge) == []


def test_sessions_that_end_in_failure_teach_nothing() -> None:
    judge = LearnedBudget()
    assert said(healthy(200, failed=True), judge) == []
    assert said((model(999, 201 * HOUR + n, 100_000) for n in range(100)), judge) == []


def test_a_session_that_was_said_teaches_nothing() -> None:
    judge = LearnedBudget()
    said(healthy(60), judge)
    for n in range(100):
        assert said([model(1_000 + n, (100 + n) * HOUR + second, 50_000) for second in range(2)], judge)


def test_sessions_beside_each_other_are_kept_apart() -> None:
    judge = LearnedBudget()
    said(healthy(60), judge)
    steps = [model(100 + session, 61 * HOUR + n, 1_000) for n in range(20) for session in range(30)]
    assert said(steps, judge) == []


def test_it_goes_on_from_a_snapshot() -> None:
    steps = [*healthy(60), *(model(99, 61 * HOUR + n, 1_000) for n in range(100))]
    whole = said(steps, LearnedBudget())
    judge, found = LearnedBudget(), list[tuple[int, Finding]]()
    for at in range(0, len(steps), 17):
        found += [(at + n, finding) for n, finding in said(steps[at : at + 17], judge)]
        state = judge.snapshot()
        judge = LearnedBudget()
        judge.restore(state)
    assert found == whole


@settings(max_examples=20)
@given(st.lists(st.integers(100, 1_000), min_size=1, max_size=300))
def test_sessions_within_twice_the_smallest_are_never_said(tokens: list[int]) -> None:
    steps = [model(n, n * HOUR, 1_000 + used) for n, used in enumerate(tokens)]
    assert said(steps, LearnedBudget()) == []


@pytest.mark.parametrize("setting", [{"factor": 0.9}, {"quantile": 1.0}, {"learned": 1}, {"idle_s": 0.0}])
def test_settings_out_of_range_are_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=rf"learned_budget\.{next(iter(setting))} must be"):
        LearnedBudgetConfig(**setting)
