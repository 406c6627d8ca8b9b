"""At which compaction or model call a context that refills itself is said, and when it is not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from collector.step import Kind, Outcome
from detectors.context_spiral import ContextSpiral, ContextSpiralConfig
from detectors.protocol import Finding
from detectors.reading import Reading
from detectors.tuning import Tuned
from tests.detectors.stream import Stream

TRACEBACK = "Traceback (most recent call last):\nKeyError: 'user_id'"


def said(stream: Stream, **config: Any) -> list[tuple[int, str, str]]:  # noqa: ANN401 - settings of all types
    """Rule and severity, with the number (from 1) of the compaction or model call that completed it."""
    judge = ContextSpiral(Tuned(ContextSpiralConfig(**config)))
    found: list[tuple[int, str, str]] = []
    number = 0
    for step in stream.steps:
        number += step.kind is not Kind.TOOL_CALL
        found += [
            (number, str(finding.evidence["rule"]), finding.severity.value)
            for finding in judge.observe(Reading(step))
        ]
    return found


def compactions(count: int, *, work: int, tokens: int | None = None, **more: Any) -> Stream:  # noqa: ANN401 - fields of Step
    stream = Stream()
    for n in range(count):
        stream.model(tokens)
        for m in range(work):
            stream.call("read_file", {"path": f"{n}/{m}.py"}, ok=f"{n} {m}")
        stream.model(kind=Kind.COMPACTION, **more)
    return stream


def test_compactions_with_nothing_in_between_are_a_warning_at_the_third_and_critical_at_the_6th() -> None:
    assert said(compactions(7, work=2)) == [(6, "compactions", "warning"), (12, "compactions", "critical")]


def test_work_and_a_users_turn_end_a_row_of_compactions() -> None:
    assert said(compactions(20, work=3)) == []
    stream = compactions(2, work=0).user()
    stream.steps += compactions(2, work=0).steps
    assert said(stream) == []


def test_compactions_that_fail_are_no_matter_of_this_detector() -> None:
    assert said(compactions(20, work=0, outcome=Outcome.ERROR, error="too long")) == []


def shrinking(sizes: list[tuple[int, int]], work: int = 5) -> Stream:
    stream = Stream()
    for before, after in sizes:
        stream.model(before)
        for m in range(work):
            stream.call("read_file", {"path": f"{before}/{m}"}, ok=f"{m}")
        stream.model(300, model="small")
        stream.model(kind=Kind.COMPACTION).model(after)
    return stream


def test_a_context_that_no_compaction_shortens_is_a_warning_at_the_second_and_critical_at_the_4th() -> None:
    stream = shrinking([(100_000, 95_000)] * 5)
    assert said(stream) == [(8, "unshrunk", "warning"), (16, "unshrunk", "critical")]


@pytest.mark.parametrize("after", [30_000, 89_000])
def test_a_context_that_a_compaction_shortens_is_none(after: int) -> None:
    assert said(shrinking([(100_000, after)] * 6)) == []


def test_one_that_shortens_it_begins_anew() -> None:
    assert said(shrinking([(100_000, 95_000), (100_000, 20_000)] * 3)) == []


def test_without_token_counts_nothing_is_said_of_the_length() -> None:
    assert said(compactions(6, work=5)) == []


def filled(families: list[str], *, good: int = 2) -> Stream:
    """Compactions, each after four calls that failed in one way and some that did not."""
    stream = Stream()
    for n, error in enumerate(families):
        for m in range(4):
            stream.call("bash", {"command": f"python {n}_{m}.py"}, error=error)
        for m in range(good):
            stream.call("read_file", {"path": f"{n}/{m}"}, ok="x")
        stream.model(kind=Kind.COMPACTION)
    return stream


def test_a_context_that_one_error_fills_again_is_a_warning_at_the_second_compaction() -> None:
    found = said(filled([TRACEBACK] * 4, good=3))
    assert found == [(2, "relapses", "warning"), (4, "relapses", "critical")]


def test_other_errors_or_mostly_successes_are_no_relapse() -> None:
    assert said(filled([TRACEBACK, "no such file"] * 3, good=3)) == []
    assert said(filled([TRACEBACK] * 4, good=5)) == []


def growing(errors: int, tokens: list[int], *, ok_at: int = -1) -> Stream:
    stream = Stream()
    stream.model(tokens[0])
    for n in range(errors):
        if n == ok_at:
            stream.call("read_file", {"path": "a"}, ok="x")
        stream.call("bash", {"command": f"python {n}.py"}, error=TRACEBACK)
        stream.model(tokens[min(n + 1, len(tokens) - 1)])
    return stream


def test_a_context_that_grows_by_half_while_one_error_repeats_is_a_warning_at_the_sixth() -> None:
    tokens = [20_000 + 3_000 * n for n in range(20)]
    assert said(growing(13, tokens)) == [
        (7, "errors", "warning"),
        (9, "errors", "warning"),
        (13, "errors", "critical"),
    ]


def test_errors_without_growth_and_growth_without_errors_are_no_spiral() -> None:
    assert said(growing(20, [20_000])) == []
    assert said(growing(20, [200 + 10 * n for n in range(30)])) == []
    assert said(growing(10, [20_000 + 3_000 * n for n in range(20)], ok_at=5)) == []


def test_the_evidence_has_the_lengths_and_the_session_counts() -> None:
    stream = shrinking([(100_000, 95_000)] * 4)
    judge = ContextSpiral()
    found: list[Finding] = [finding for step in stream.steps for finding in judge.observe(Reading(step))]
    evidence = found[0].evidence
    assert (evidence["tokens_before"], evidence["tokens_after"]) == (100_000, 95_000)
    assert evidence["missing"] == []
    assert found[-1].severity.value == "critical"
    stream = Stream(session="process:web-1")
    stream.steps += compactions(12, work=0).steps
    for step in stream.steps:
        object.__setattr__(step, "session_id", "process:web-1")
    assert {severity for _, _, severity in said(stream)} == {"warning"}


def test_all_of_it_survives_a_checkpoint() -> None:
    steps = [
        *growing(9, [20_000 + 3_000 * n for n in range(20)]).steps,
        *filled([TRACEBACK] * 3).steps,
        *shrinking([(100_000, 95_000)] * 3, work=0).steps,
    ]
    whole, judge = ContextSpiral(), ContextSpiral()
    found: list[Finding] = []
    expected: list[Finding] = []
    for step in steps:
        expected += whole.observe(Reading(step))
        found += judge.observe(Reading(step))
        state: Any = json.loads(json.dumps(judge.snapshot()))
        judge = ContextSpiral()
        judge.restore(state)
    assert found == expected
    assert {finding.evidence["rule"] for finding in found} >= {
        "errors",
        "relapses",
        "unshrunk",
        "compactions",
    }


@pytest.mark.parametrize(
    ("name", "value"), [("compactions", 1), ("relapses", 1), ("work", 0), ("shrink", 0.0), ("growth", -1.0)]
)
def test_a_setting_out_of_range_is_named(name: str, value: float) -> None:
    out_of_range: dict[str, Any] = {name: value}
    with pytest.raises(ValueError, match=f"context_spiral.{name} must be"):
        ContextSpiralConfig(**out_of_range)
