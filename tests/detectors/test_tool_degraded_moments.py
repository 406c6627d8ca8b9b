"""One tool over many sessions: when its success has fallen, and when it is back."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.step import Kind, Outcome, Step
from detectors.keys import by_tool
from detectors.protocol import Finding, Severity
from detectors.reading import Reading
from detectors.tool_degraded import ToolDegraded, ToolDegradedConfig
from detectors.tuning import Tuned
from tests.detectors.stream import SECOND_NS, START_NS


def call(number: int, *, failed: bool, sessions: int = 50) -> Step:
    start = START_NS + number * SECOND_NS
    return Step(
        step_id=f"step-{number}",
        span_id=f"span-{number}",
        kind=Kind.TOOL_CALL,
        session_id=f"session-{number % sessions}",
        service="shop",
        service_version="7",
        tool="search",
        start_ns=start,
        end_ns=start + 1,
        result=None if failed else f"{number} hits",
        error="no such column: price" if failed else None,
        outcome=Outcome.ERROR if failed else Outcome.OK,
    )


def calls(count: int, every: int | None, first: int = 0, sessions: int = 50) -> Iterator[Step]:
    """`count` calls of which every `every`th fails; None: none."""
    for n in range(first, first + count):
        yield call(n, failed=every is not None and n % every == 0, sessions=sessions)


def said(steps: Iterable[Step], tool: ToolDegraded) -> list[tuple[int, Finding]]:
    return [(n, finding) for n, step in enumerate(steps, 1) for finding in tool.observe(Reading(step))]


def test_a_tool_that_fails_every_time_is_said_at_the_twentieth() -> None:
    tool = ToolDegraded()
    assert said(calls(200, 20), tool) == []
    (at, finding), *later = said(calls(80, 1, first=200), tool)
    assert at == 20
    assert (finding.kind, finding.severity, finding.session_id) == ("tool_degraded", Severity.WARNING, "")
    assert finding.evidence["usual_success"] == 0.95
    assert "the tools that this business domain needs" in str(finding.evidence["advice"])
    assert finding.evidence["error_classes"] == {"not_found": 22}
    assert [revision.revision for _, revision in later] == [1, 2]


def test_it_recovers_and_falls_again_as_another_finding() -> None:
    tool = ToolDegraded()
    assert said(calls(200, 20), tool) == []
    first = said(calls(40, 1, first=200), tool)
    assert said(calls(100, None, first=240), tool) == []
    second = said(calls(40, 1, first=340), tool)
    assert first[0][1].id != second[0][1].id
    assert second[0][1].revision == 0


def test_what_is_learned_in_bad_times_is_no_measure() -> None:
    tool = ToolDegraded()
    assert said(calls(200, 20), tool) == []
    found = said(calls(2000, 1, first=200), tool)
    assert {finding.evidence["usual_success"] for _, finding in found} == {0.95}
    assert len({finding.id for _, finding in found}) == 1


@pytest.mark.parametrize("every", [None, 8, 6, 4, 2])
def test_a_constant_rate_is_usual_whatever_it_is(every: int | None) -> None:
    assert said(calls(3000, every), ToolDegraded()) == []


def test_one_session_that_fails_is_no_tool_that_fails() -> None:
    tool = ToolDegraded()
    assert said(calls(200, None), tool) == []
    assert said(calls(100, 1, first=200, sessions=1), tool) == []
    assert said(calls(1000, 1, first=300, sessions=4), tool) == []


def test_nothing_is_said_before_enough_is_known() -> None:
    assert said(calls(90, None), tool := ToolDegraded()) == []
    assert said(calls(60, 1, first=90), tool) == []


def test_a_floor_needs_no_history() -> None:
    tool = ToolDegraded(Tuned(ToolDegradedConfig(min_success=0.7)))
    (at, finding), *_ = said(calls(60, 1), tool)
    assert at == 20
    assert finding.evidence["threshold"] == 0.7


def test_it_goes_on_from_a_snapshot_in_bad_times() -> None:
    steps = [*calls(200, 20), *calls(100, 1, first=200), *calls(100, None, first=300)]
    whole = said(steps, ToolDegraded())
    tool, found = ToolDegraded(), list[tuple[int, Finding]]()
    for at in range(0, len(steps), 31):
        found += [(at + n, finding) for n, finding in said(steps[at : at + 31], tool)]
        state = tool.snapshot()
        tool = ToolDegraded()
        tool.restore(state)
    assert found == whole


@settings(max_examples=20)
@given(st.integers(0, 10_000))
def test_the_rate_of_production_is_quiet(seed: int) -> None:
    dice = random.Random(seed)
    steps = [call(n, failed=dice.random() < 0.15) for n in range(800)]
    assert said(steps, ToolDegraded()) == []


def test_it_is_kept_by_service_version_and_tool() -> None:
    assert by_tool.of(Reading(call(1, failed=False))) == "shop\x1f7\x1fsearch"


@pytest.mark.parametrize("setting", [{"calls": 1}, {"calls": 99}, {"margin": 1.0}, {"min_success": -0.1}])
def test_settings_out_of_range_are_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=rf"tool_degraded\.{next(iter(setting))} must be"):
        ToolDegradedConfig(**setting)
