"""Loops in which no call repeats its neighbour: changes, remedies and runs without effect, random ids."""

from __future__ import annotations

import json
from typing import Any

import pytest

from collector.step import Kind, Outcome
from detectors.doom_loop import DoomLoop
from detectors.effects import says_failure
from detectors.protocol import Finding
from detectors.random_ids import without_random_ids
from detectors.reading import Reading
from tests.detectors.stream import Stream, first, judged

BROKEN = "build succeeded.\nERROR: heading not found"


def severities(stream: Stream, rule: str) -> list[tuple[int, str]]:
    return [(at, f.severity.value) for at, f in judged(stream.steps) if f.evidence["rule"] == rule]


def rounds(count: int, outcome: str, stream: Stream | None = None) -> Stream:
    """A check, and a change before each further one."""
    stream = stream or Stream()
    for n in range(count):
        if n:
            stream.call("edit", {"path": "a.py", "new": f"x = {n}"}, ok=f"1 edit applied: x = {n}")
        stream.call("bash", {"command": "python reproduce.py"}, ok=outcome)
    return stream


def test_a_failure_that_no_change_moves_is_a_warning_at_the_fifth_check_critical_at_the_tenth() -> None:
    found = severities(rounds(11, BROKEN), "no_effect")
    assert found == [(9, "warning"), (15, "warning"), (19, "critical")]


def test_an_outcome_that_tells_neither_failure_nor_success_gets_ten_checks() -> None:
    assert severities(rounds(12, "[1, 2, 3]"), "no_effect") == [(19, "warning")]


@pytest.mark.parametrize("outcome", ["12 passed, 0 failed", "", "All checks done", "ok"])
def test_what_passes_may_go_on_passing(outcome: str) -> None:
    assert first(judged(rounds(30, outcome).steps), "warning", "critical") is None


def test_another_outcome_and_a_users_turn_begin_anew() -> None:
    stream = rounds(4, BROKEN)
    stream.call("bash", {"command": "python reproduce.py"}, error="ImportError: a")
    rounds(4, BROKEN, stream).user()
    rounds(4, BROKEN, stream)
    assert severities(stream, "no_effect") == []


def test_changes_after_the_fact_are_no_rounds() -> None:
    stream = Stream()
    for n in range(8):
        stream.call("read_file", {"path": f"{n}.py"}, ok=f"error {n}")
        stream.call("bash", {"command": "python reproduce.py"}, ok=BROKEN)
    assert severities(stream, "no_effect") == []


def cured(count: int, *, cure: str = "same", error: str = "no canvas generated") -> Stream:
    stream = Stream()
    for n in range(count):
        size = 400 if cure == "same" else 400 + n
        stream.call("fill_rectangle", {"x": n}, error=error)
        stream.call("generate_canvas", {"width": size}, ok=f"canvas of width {size}")
    return stream


def test_an_error_that_outlives_the_same_remedy_twice_is_a_warning_at_its_third_time() -> None:
    assert severities(cured(6), "remedy") == [(5, "warning"), (9, "critical")]


@pytest.mark.parametrize(
    "stream",
    [
        cured(6, cure="another"),
        cured(6, error="503 service unavailable"),
        Stream().times(2, "fill", {"x": 1}, error="no canvas").call("generate", {}, ok="done"),
    ],
    ids=["another remedy each time", "an error that may go away", "no remedy in between"],
)
def test_what_is_no_remedy_without_effect(stream: Stream) -> None:
    assert severities(stream, "remedy") == []


def test_a_look_is_no_remedy() -> None:
    stream = Stream()
    for n in range(5):
        stream.call("fill_rectangle", {"x": n}, error="no canvas generated")
        stream.call("get_page", {}, ok="a page")
    assert severities(stream, "remedy") == []


def failing_runs(count: int, *, kind: Kind = Kind.AGENT_RUN, own_runs: bool = False) -> Stream:
    """Runs of one agent that fail, in each of which tools succeed."""
    stream = Stream()
    for n in range(count):
        if own_runs:
            stream.run = f"run-{n}"
        stream.call("write_file", {"path": f"{n}.py"}, ok=f"saved {n}")
        stream.model(kind=kind, outcome=Outcome.ERROR, error="recursion limit of 25 reached")
    return stream


@pytest.mark.parametrize("own_runs", [False, True])
def test_runs_that_fail_one_after_the_other_are_a_loop_at_the_fourth(own_runs: bool) -> None:  # noqa: FBT001 - a table of cases
    found = judged(failing_runs(6, own_runs=own_runs).steps)
    assert first(found, "critical") == 4
    assert [finding.tool for _, finding in found] == [None] * len(found)


def test_a_compaction_that_fails_between_successful_work_is_a_loop_at_the_fourth() -> None:
    assert first(judged(failing_runs(6, kind=Kind.COMPACTION).steps), "critical") == 4


def test_a_run_that_succeeds_ends_it_and_so_does_a_users_turn() -> None:
    stream = failing_runs(3)
    stream.model(kind=Kind.AGENT_RUN, outcome=Outcome.OK)
    stream.steps += failing_runs(3).steps
    assert first(judged(stream.steps), "warning", "critical") is None
    stream = failing_runs(3).user(after=60)
    stream.steps += failing_runs(3).steps
    assert first(judged(stream.steps), "warning", "critical") is None


def test_runs_at_the_same_time_are_one_attempt() -> None:
    stream = Stream()
    for n in range(8):
        stream.model(
            kind=Kind.AGENT_RUN, outcome=Outcome.ERROR, error="quota", start_ns=stream.now_ns - n * 10**9
        )
    assert judged(stream.steps) == []


TOKENS = ("mGnpfp9AYN", "yfVuXYxjkW", "K8sLfem89z", "NeYaLxRgJM", "Uw8AuPKyjC", "p5uwqfCgzz")


def test_random_ids_in_an_error_do_not_hide_that_it_is_the_same() -> None:
    stream = Stream()
    for token in TOKENS:
        stream.call("read_file", {"path": "a.toml"}, error=f"No such file: 'a.toml' (call tc_{token})")
    assert first(judged(stream.steps), "critical") == 4


def test_random_ids_in_a_result_cost_one_more_call() -> None:
    stream = Stream()
    for token in TOKENS:
        stream.call("get_state", {}, ok=f'{{"state": "idle", "queue": "empty", "trace": "{token}"}}')
    assert first(judged(stream.steps), "critical") == 6


def test_a_new_job_each_time_is_worked_on_in_between() -> None:
    stream = Stream()
    for token in TOKENS * 2:
        stream.call("get_job", {}, ok=f'{{"job": "{token}", "queue": "main", "priority": "low"}}')
        stream.call("run_job", {"job": token}, ok=f"ran {token}")
    assert first(judged(stream.steps), "warning", "critical") is None


@pytest.mark.parametrize(
    "text",
    [
        "FAILED test_module12 in getUserById of ubuntu2204",
        "module7.py: error TS2322 in lineNumber45",
        "qX9Zk27LmP",  # nothing else is left
        "x" * 3000,
    ],
)
def test_names_are_not_random(text: str) -> None:
    assert without_random_ids(text) is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Traceback (most recent call last):\nValueError: 3", True),
        ("2 failed, 10 passed", True),
        ("Tests: 0 failed, 10 passed", False),
        ("no errors found", False),
        ("expected 3, got 4", True),
        ("x = 4", None),
    ],
)
def test_what_an_outcome_tells(text: str, told: bool | None) -> None:  # noqa: FBT001 - a table of cases
    assert says_failure(text) is told


def test_all_of_it_survives_a_checkpoint() -> None:
    steps = [*rounds(9, BROKEN).steps, *cured(4).steps, *failing_runs(4).steps]
    whole, judge = DoomLoop(), DoomLoop()
    expected: list[Finding] = []
    found: list[Finding] = []
    for step in steps:
        expected += whole.observe(Reading(step))
        found += judge.observe(Reading(step))
        state: Any = json.loads(json.dumps(judge.snapshot()))
        judge = DoomLoop()
        judge.restore(state)
    assert found == expected
    assert {finding.evidence["rule"] for finding in found} >= {"no_effect", "remedy", "repeat"}
