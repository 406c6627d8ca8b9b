"""Sessions that had a step lately, counted by the clock of receipt."""

from __future__ import annotations

import pytest

from api import activity
from api.activity import ActiveSessions
from collector.step import RunEnded, SessionsMerged, StepAmended, StepSeen
from tests.detectors.stream import Stream

NS = 10**9


def step(session: str) -> StepSeen:
    return StepSeen(Stream(session=session).call("read", {"p": 1}, ok="x").steps[0])


def counted(active: ActiveSessions) -> int:
    return active.state()["sessions"]


def test_a_session_counts_for_ten_minutes_after_its_last_step() -> None:
    active = ActiveSessions()
    assert active.state() == {"at_ns": 0, "sessions": 0}
    for second, session in ((0, "a"), (1, "b"), (1, "a"), (300, "c")):
        active.take(step(session), second * NS)
    assert active.state() == {"at_ns": 300 * NS, "sessions": 3}
    active.take(step("b"), 601 * NS)
    assert counted(active) == 3
    active.take(step("b"), 602 * NS)
    assert counted(active) == 2
    active.take(step("b"), 10_000 * NS)
    assert counted(active) == 1


def test_only_steps_of_known_sessions_count() -> None:
    active = ActiveSessions()
    active.take(step("process:web-1"), NS)
    active.take(StepAmended(step("a").step), NS)
    active.take(RunEnded("b", "r", NS), NS)
    assert counted(active) == 0


def test_sessions_that_turn_out_to_be_one_are_one() -> None:
    active = ActiveSessions()
    for session in ("a", "b", "c"):
        active.take(step(session), NS)
    active.take(SessionsMerged("a", "b"), NS)
    active.take(SessionsMerged("c", "d"), NS)
    active.take(SessionsMerged("x", "y"), NS)
    active.take(SessionsMerged("b", "b"), NS)
    assert counted(active) == 2


def test_a_clock_that_goes_back_forgets_nobody() -> None:
    active = ActiveSessions()
    for second, session in ((5_000, "a"), (4_000, "b"), (5_001, "c")):
        active.take(step(session), second * NS)
    assert active.state() == {"at_ns": 5_001 * NS, "sessions": 3}


def test_after_a_restart_sessions_count_from_the_end_of_their_last_step() -> None:
    active = ActiveSessions()
    active.restore(1_000 * NS, [("future", 9_000 * NS), ("old", 300 * NS), ("new", 900 * NS)])
    assert counted(active) == 2
    active.take(step("another"), 1_501 * NS)
    assert counted(active) == 2, "a clock that is ahead keeps nobody for longer"


def test_it_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activity, "SESSIONS_KEPT", 3)
    active = ActiveSessions()
    for number in range(9):
        active.take(step(f"s{number}"), NS)
    assert counted(active) == 3
