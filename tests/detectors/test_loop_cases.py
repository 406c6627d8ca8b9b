"""The gate: which of the labelled loops are seen in time, and which healthy runs are alarmed."""

from __future__ import annotations

from typing import Any

import pytest

from detectors.catalog import build
from detectors.engine import Engine
from detectors.protocol import Severity
from tests.detectors.case_steps import read_cases, steps_of

CASES = read_cases()
LOOPS = [case for case in CASES if case["expect"]["verdict"] == "doom_loop"]
TRAPS = [case for case in CASES if case["expect"]["verdict"] == "none"]


def first_alarm(case: dict[str, Any]) -> int | None:
    """The number of calls made when the first warning or critical finding came."""
    engine = Engine(build())
    for calls, step in steps_of(case):
        if any(finding.severity is not Severity.INFO for finding in engine.observe(step)):
            return calls
    return None


def in_time(case: dict[str, Any]) -> bool:
    at, expected = first_alarm(case), case["expect"]
    return at is not None and (expected.get("not_before") or 1) <= at <= expected["by_call"]


def test_loops_are_seen_in_time() -> None:
    missed = [case["id"] for case in LOOPS if not in_time(case)]
    assert len(LOOPS) == 26
    assert len(LOOPS) - len(missed) >= 24, missed


def test_healthy_runs_are_left_alone() -> None:
    alarmed = [case["id"] for case in TRAPS if first_alarm(case) is not None]
    assert len(TRAPS) == 39
    assert len(alarmed) <= 1, alarmed


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["id"]))
def test_every_case_is_judged_twice_alike(case: dict[str, Any]) -> None:
    def judge() -> list[Any]:
        engine = Engine(build())
        return [finding for _, step in steps_of(case) for finding in engine.observe(step)]

    assert judge() == judge()
