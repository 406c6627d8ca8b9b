"""The gate on cases of two writers that were written without looking at the detectors."""

from __future__ import annotations

import pytest

from tests.detectors.case_steps import BLIND_CASES, SECOND_BLIND_CASES, read_cases
from tests.detectors.test_loop_cases import first_alarm, in_time

CASES = read_cases(BLIND_CASES)
LOOPS = {case["id"]: case for case in CASES if case["expect"]["verdict"] == "doom_loop"}
TRAPS = {case["id"]: case for case in CASES if case["expect"]["verdict"] == "none"}

SECOND = [case for case in read_cases(SECOND_BLIND_CASES) if not case.get("contested")]
STUCK = {case["id"]: case for case in SECOND if case["expect"]["verdict"] != "none"}
HEALTHY = {case["id"]: case for case in SECOND if case["expect"]["verdict"] == "none"}
OUT_OF_TIME = {"b2-rs-amplified-fleet", "b2-cs-children-respawned"}
"""Not seen in time: agents that another one starts, which steps made from calls alone do not tell. Out of
spans, which do, both are alarmed, too early."""


def test_there_is_enough_to_judge_by() -> None:
    assert (len(LOOPS), len(TRAPS)) == (39, 58)


@pytest.mark.parametrize("name", sorted(LOOPS))
def test_a_loop_is_seen_in_time(name: str) -> None:
    assert in_time(LOOPS[name])


@pytest.mark.parametrize("name", sorted(TRAPS))
def test_a_healthy_run_is_left_alone(name: str) -> None:
    assert first_alarm(TRAPS[name]) is None


def test_there_is_enough_of_the_second_kind_to_judge_by() -> None:
    assert (len(STUCK), len(HEALTHY)) == (63, 43)
    assert STUCK.keys() > OUT_OF_TIME


@pytest.mark.parametrize("name", sorted(STUCK.keys() - OUT_OF_TIME))
def test_a_stuck_run_of_the_second_kind_is_seen_in_time(name: str) -> None:
    assert in_time(STUCK[name])


@pytest.mark.parametrize("name", sorted(HEALTHY))
def test_a_healthy_run_of_the_second_kind_is_left_alone(name: str) -> None:
    assert first_alarm(HEALTHY[name]) is None
