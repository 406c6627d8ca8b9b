"""The gate on cases that were written without looking at the detectors."""

from __future__ import annotations

import pytest

from tests.detectors.case_steps import BLIND_CASES, read_cases
from tests.detectors.test_loop_cases import first_alarm, in_time

CASES = read_cases(BLIND_CASES)
LOOPS = {case["id"]: case for case in CASES if case["expect"]["verdict"] == "doom_loop"}
TRAPS = {case["id"]: case for case in CASES if case["expect"]["verdict"] == "none"}


def test_there_is_enough_to_judge_by() -> None:
    assert (len(LOOPS), len(TRAPS)) == (39, 58)


@pytest.mark.parametrize("name", sorted(LOOPS))
def test_a_loop_is_seen_in_time(name: str) -> None:
    assert in_time(LOOPS[name])


@pytest.mark.parametrize("name", sorted(TRAPS))
def test_a_healthy_run_is_left_alone(name: str) -> None:
    assert first_alarm(TRAPS[name]) is None
