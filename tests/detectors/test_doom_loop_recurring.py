"""Loops that go on over the changes of others: recurring calls, laps with changes in them, moving numbers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from collector.step import Json
from detectors.doom_loop import DoomLoop
from detectors.protocol import Finding
from detectors.random_ids import without_numbers
from detectors.reading import Reading
from tests.detectors.stream import Stream, first, judged

CONTACT: Json = {"object": "contact", "id": "ct_1"}
CARD = '{"id": "ct_1", "name": "Kim", "phone": "+49 30 1234"}'
BROKEN = "BUILD FAILED\nmain.c:3: error: expected ';'"


def moments(stream: Stream, rule: str) -> list[tuple[int, str]]:
    return [(at, f.severity.value) for at, f in judged(stream.steps) if f.evidence["rule"] == rule]


def between_others(
    count: int,
    *,
    apart: int = 1,
    tool: str = "crm_get",
    work: str = "calendar_slots",
    ok: str | None = None,
    error: str | None = None,
    stream: Stream | None = None,
) -> Stream:
    """One call, `apart` calls of another tool after each, every one of which may have changed something."""
    stream = stream or Stream()
    for n in range(count):
        stream.call(tool, CONTACT, ok=ok, error=error)
        for m in range(apart):
            stream.call(work, {"day": f"{n}-{m}"}, ok=f"free at {n}:{m}")
    return stream


def test_a_look_that_brings_the_same_over_other_work_is_a_warning_at_the_sixth_critical_at_the_12th() -> None:
    found = moments(between_others(12, apart=2, ok=CARD), "recurring")
    assert found == [(16, "warning"), (22, "warning"), (34, "critical")]


def test_one_call_less_is_needed_when_every_second_turn_is_this_call() -> None:
    found = moments(between_others(11, ok=CARD), "recurring")
    assert found == [(9, "warning"), (15, "warning"), (19, "critical")]


def test_a_change_that_fails_in_the_same_way_over_other_work_is_a_warning_at_the_fifth() -> None:
    stream = between_others(6, apart=3, tool="write_fix", ok=BROKEN)
    assert moments(stream, "recurring") == [(17, "warning")]
    stream = between_others(6, apart=3, tool="write_fix", error="not all lines are targeted")
    assert moments(stream, "recurring") == [(17, "warning")]


@pytest.mark.parametrize(
    "stream",
    [
        between_others(4, ok=CARD),
        between_others(5, apart=2, ok=CARD),
        between_others(12, apart=7, ok=CARD),
        between_others(12, tool="handoff", ok="critic has the word"),
        between_others(12, tool="delete_batch", ok="DELETE 5000"),
        between_others(12, tool="git_status", ok="nothing to commit, working tree clean"),
        between_others(12, tool="job_status", ok=CARD),
        between_others(12, tool="get_job", ok='{"state": "running"}'),
        between_others(12, tool="scroll_page", ok=CARD),
        between_others(12, tool="run_suite", work="edit_file", error="2 failed: test_a, test_b"),
    ],
    ids=[
        "few",
        "few of many",
        "far apart",
        "a signal",
        "a batch",
        "clean",
        "a poll",
        "pending",
        "a move",
        "after changes",
    ],
)
def test_what_may_recur(stream: Stream) -> None:
    assert moments(stream, "recurring") == []


def test_another_result_and_a_users_turn_begin_anew() -> None:
    stream = between_others(4, ok=CARD)
    stream.call("crm_get", CONTACT, ok='{"id": "ct_1", "name": "Kim Other", "phone": "+49 30 9999"}')
    between_others(4, ok=CARD, stream=stream).user(after=60)
    between_others(4, ok=CARD, stream=stream)
    assert moments(stream, "recurring") == []


def taken_back(count: int, *outcomes: str, stream: Stream | None = None) -> Stream:
    stream = stream or Stream()
    for n in range(count):
        stream.call("apply_patch", {"path": "a.toml", "flag": n % 2}, ok="applied 1 hunk")
        stream.call("bash", {"command": "cargo test"}, ok=outcomes[n % len(outcomes)])
    return stream


def test_a_change_that_is_made_and_taken_back_without_success_is_a_cycle_at_its_third_lap() -> None:
    assert moments(taken_back(8, "test a ... FAILED", "test b ... FAILED"), "cycle") == [
        (12, "warning"),
        (16, "critical"),
    ]
    assert moments(taken_back(8, "heads", "tails"), "cycle") == []


def test_who_acts_and_fails_waits_for_nothing() -> None:
    stream = Stream()
    for _ in range(4):
        stream.call("set_flag", {"on": 1}, ok="0 replacements, unchanged")
        stream.call("trigger_run", {"dag": "a"}, ok='{"state": "queued"}')
        stream.call("fetch_log", {"dag": "a"}, error="KeyError: SITE")
    assert moments(stream, "cycle") == [(9, "warning"), (12, "critical")]


def alternating(count: int, *, ok: str | None = None, error: str | None = None) -> Stream:
    stream = Stream()
    for n in range(count):
        stream.call("search", {"q": "a" if n % 2 else "b"}, ok=ok, error=error)
    return stream


def test_a_lap_of_which_all_fails_needs_half_a_lap_less() -> None:
    assert moments(alternating(7, error="no such page"), "cycle") == [(5, "warning"), (7, "critical")]
    assert moments(alternating(8, ok="a page"), "cycle") == [(6, "warning"), (8, "critical")]


def test_checking_everything_thrice_is_no_loop_until_the_fourth_time_begins() -> None:
    stream = Stream()
    for _ in range(4):
        for tool in ("run_tests", "run_lint", "run_types"):
            stream.call(tool, {}, ok="all well here")
    assert moments(stream, "cycle") == [(10, "warning")]


def test_numbers_that_move_in_an_error_do_not_hide_that_it_is_the_same() -> None:
    stream = Stream()
    for n in range(6):
        stream.call("compact_history", {}, error=f"the prompt is too long: {203118 + n} tokens")
    found = judged(stream.steps)
    assert (first(found, "warning"), first(found, "critical")) == (4, 5)


@pytest.mark.parametrize("error", ["exit {n}", "the job is still running: {n} of 40 done"])
def test_numbers_that_tell_something(error: str) -> None:
    stream = Stream()
    for n in range(8):
        stream.call("fetch_build", {}, error=error.format(n=n))
    assert first(judged(stream.steps), "warning", "critical") is None


def test_a_failure_after_a_success_is_not_that_success_again() -> None:
    stream = Stream()
    for n in range(12):
        if n % 3:
            stream.call("run_suite", {}, ok="all of it is well")
        else:
            stream.call("run_suite", {}, error=f"reconnect took too long: {n} and more")
    assert first(judged(stream.steps), "warning", "critical") is None


def test_text_without_numbers_has_none_to_mask() -> None:
    assert without_numbers("no such file or directory") is None
    assert without_numbers("7 " * 1500) is None


def revisits(pages: int, order: list[int], **answers: str) -> Stream:
    stream = Stream()
    for n in [*range(pages), *order]:
        stream.call("fetch_page", {"page": n}, ok=answers.get("ok", f"what page {n} says"))
    return stream


def test_eight_calls_in_a_row_that_bring_nothing_new_are_a_warning_in_whatever_order() -> None:
    order = [3, 8, 1, 5, 0, 2, 7, 4, 6, 1, 8, 2, 0, 5, 3, 7]
    assert moments(revisits(9, order), "nothing_new") == [(17, "warning"), (25, "critical")]
    assert moments(revisits(9, order[:7]), "nothing_new") == []
    assert moments(revisits(9, [*order[:7], 9, *order[7:14]]), "nothing_new") == []
    assert moments(revisits(9, order, ok="ok"), "nothing_new") == []


def test_calls_of_one_message_are_one_revisit() -> None:
    stream = Stream()
    for lap in range(3):
        for n in range(9):
            stream.call("fetch_page", {"page": n}, ok=f"what page {n} says", attempt_id=f"m{lap}")
    assert moments(stream, "nothing_new") == []


def test_a_die_may_fall_as_it_fell_before() -> None:
    stream = Stream()
    for n in range(40):
        stream.call("roll", {"sides": 3}, ok=f"you rolled {(n * n) % 3}")
    assert first(judged(stream.steps), "warning", "critical") is None


def test_it_survives_a_checkpoint() -> None:
    steps = taken_back(8, "a FAILED", "b FAILED", stream=between_others(9, ok=CARD)).steps
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
    assert {finding.evidence["rule"] for finding in found} == {"recurring", "cycle"}
