"""What facts do: thresholds of failures in a row, probes that were seen, dead calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from control.action import Action
from control.breakers.record import breaker_id
from control.breakers.settings import BreakerSettings
from control.breakers.states import Event, State
from control.breakers.thresholds import Thresholds
from control.breakers.verdict import Decision
from control.dead_calls import DeadCalls
from control.policy import Reach, Threshold
from control.scope import Asked, Scope
from tests.control.breaker_world import CALL, WIDE, World, fact

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

FIVE = Threshold(name="broken tool", failures=5)
OF_ONE = Threshold(name="broken tool", failures=5, sessions=1)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.db.close()


def feed(
    world: World,
    *kinds: str,
    threshold: Threshold = OF_ONE,
    session: str = "session-1",
    **payload: Any,  # noqa: ANN401 - JSON
) -> None:
    taker = Thresholds(world.breakers, lambda: (threshold,), world.clock)
    for kind in kinds:
        world.clock.advance(1)
        told = {"nature": "structural", "error_class": "schema"} | payload if kind == "failed" else payload
        with world.db.transaction() as tx:
            taker.take(tx, fact(world, kind, session, **told))


def test_five_failures_in_a_row_open_the_tool_of_the_service(world: World) -> None:
    feed(world, *["failed"] * 4)
    assert world.ask() is Decision.ALLOW
    feed(world, "failed")
    opened = world.stored(WIDE)
    assert (opened.state, opened.rule, opened.reason) == (State.OPEN, "broken tool", "failures_in_a_row")
    assert opened.until == world.clock() + 60 * 10**9
    assert "5 failures in a row (structural), the last one schema" in opened.message_for_human
    assert "the tool 'fetch_page' failed 5 times in a row" in world.check().message
    assert world.ask(session="another") is Decision.DENY


def fail_in(world: World, *sessions: str, threshold: Threshold = FIVE) -> None:
    for session in sessions:
        feed(world, "failed", threshold=threshold, session=session)


def test_one_session_that_loops_opens_nothing_for_all_others(world: World) -> None:
    fail_in(world, *["session-1"] * 50)
    fail_in(world, *["session-2"] * 50)
    assert (world.events(), world.ask(session="another")) == ([], Decision.ALLOW)


@pytest.mark.parametrize(
    ("failing", "threshold", "opens"),
    [
        ("11112", FIVE, False),
        ("11123", FIVE, True),
        ("1112", FIVE, False),
        ("12345", FIVE, True),
        ("1111111112222223", FIVE, True),
        ("123", Threshold(name="t", failures=3, sessions=3), True),
        ("11112", Threshold(name="t", failures=5, sessions=2), True),
        ("11111", Threshold(name="t", failures=5, sessions=1), True),
        ("1234", Threshold(name="t", failures=4, sessions=4), True),
        ("1223", Threshold(name="t", failures=4, sessions=4), False),
        ("11", Threshold(name="t", failures=2), False),
        ("12", Threshold(name="t", failures=2), True),
        ("123", Threshold(name="t", failures=3, reach=Reach.AGENT), True),
        ("111", Threshold(name="t", failures=3, reach=Reach.AGENT), False),
        ("111", Threshold(name="t", failures=3, reach=Reach.SESSION), True),
        ("1212", Threshold(name="t", failures=3, reach=Reach.SESSION), False),
        ("12121", Threshold(name="t", failures=3, reach=Reach.SESSION_TOOL), True),
    ],
)
def test_failures_of_a_wide_scope_come_from_several_sessions(
    world: World, failing: str, threshold: Threshold, *, opens: bool
) -> None:
    for number in failing[:-1]:
        fail_in(world, f"session-{number}", threshold=threshold)
    assert world.events() == []
    fail_in(world, f"session-{failing[-1]}", threshold=threshold)
    assert bool(world.events()) is opens


def test_the_last_session_that_was_missing_opens_it(world: World) -> None:
    fail_in(world, "session-1", "session-1", "session-1", "session-1", "session-2")
    assert world.ask() is Decision.ALLOW
    fail_in(world, "session-3")
    assert world.ask(session="another") is Decision.DENY
    assert "6 failures in a row (structural) of 3 sessions or more" in world.stored(WIDE).message_for_human


def test_sessions_that_are_not_known_count_as_one(world: World) -> None:
    fail_in(world, "", "", "", "", "", "session-1")
    assert world.events() == []
    fail_in(world, "session-2")
    assert world.events() == ["trip"]


def test_a_restart_forgets_no_session(world: World) -> None:
    for session in ("session-1", "session-1", "session-1", "session-2"):
        fail_in(world, session)
        world.restart()
    fail_in(world, "session-3")
    assert world.ask() is Decision.DENY


def test_a_success_and_a_long_pause_forget_the_sessions(world: World) -> None:
    fail_in(world, "session-1", "session-2")
    feed(world, "worked", threshold=FIVE)
    fail_in(world, *["session-3"] * 5)
    assert world.events() == []
    world.clock.advance(601)
    fail_in(world, *["session-1"] * 3, *["session-2"] * 3)
    assert world.events() == []


def test_a_row_keeps_no_more_sessions_than_it_needs(world: World) -> None:
    threshold = Threshold(name="t", failures=1000)
    for number in range(20):
        fail_in(world, f"s{number}", threshold=threshold)
    with world.db.reading() as connection:
        (row,) = connection.execute("SELECT failures, sessions FROM failure_rows").fetchall()
    assert tuple(row) == (20, '["s0","s1","s2"]')


def test_five_failures_in_a_row_stop_the_session_that_they_are_of(world: World) -> None:
    threshold = Threshold(name="t", reach=Reach.SESSION_TOOL)
    fail_in(world, *["session-1"] * 4, "session-2", threshold=threshold)
    assert world.events() == []
    fail_in(world, "session-1", threshold=threshold)
    assert (world.ask(), world.ask(session="session-2")) == (Decision.DENY, Decision.ALLOW)
    assert world.ask(tool="another") is Decision.ALLOW
    assert world.stored().until is None, "what is over a session waits for a person"


@pytest.mark.parametrize(
    ("reach", "failures", "sessions", "why"),
    [
        (Reach.SERVICE_TOOL, 5, 0, "sessions: must be at least 1"),
        (Reach.SERVICE_TOOL, 5, 6, "sessions: 5 failures cannot come from more sessions"),
        (Reach.SESSION_TOOL, 5, 2, "sessions: the scope 'session_tool' has one session"),
        (Reach.SESSION, 5, 3, "sessions: the scope 'session' has one session"),
    ],
)
def test_sessions_that_can_never_be_are_refused(reach: Reach, failures: int, sessions: int, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Threshold(name="t", reach=reach, failures=failures, sessions=sessions)


def test_a_success_breaks_the_row(world: World) -> None:
    feed(world, *["failed"] * 4, "worked", *["failed"] * 4)
    assert world.ask() is Decision.ALLOW


def test_failures_of_another_nature_neither_count_nor_break(world: World) -> None:
    feed(world, *["failed"] * 4)
    feed(world, *["failed"] * 9, nature="transient")
    assert world.ask() is Decision.ALLOW
    feed(world, "failed")
    assert world.ask() is Decision.DENY


def test_a_row_ends_when_nothing_was_added_for_long(world: World) -> None:
    feed(world, *["failed"] * 4)
    world.clock.advance(601)
    feed(world, *["failed"] * 4)
    assert world.ask() is Decision.ALLOW


def test_a_restart_loses_no_count(world: World) -> None:
    for _ in range(5):
        assert world.ask() is Decision.ALLOW
        feed(world, "failed")
        world.restart()
    assert world.ask() is Decision.DENY


def test_targets_are_counted_apart(world: World) -> None:
    for tool in ("a", "b", "c"):
        feed(world, "failed", "failed", tool=tool)
    assert world.events() == []


def test_it_counts_anew_after_it_opened(world: World) -> None:
    feed(world, *["failed"] * 5)
    world.act(Event.RESET, WIDE)
    feed(world, *["failed"] * 4)
    assert world.ask() is Decision.ALLOW
    feed(world, "failed")
    assert world.ask() is Decision.DENY


def test_a_threshold_in_shadow_stops_nothing(world: World) -> None:
    feed(world, *["failed"] * 9, threshold=Threshold(name="t", failures=5, sessions=1, shadow=True))
    assert (world.ask(), world.stored(WIDE).state) == (Decision.ALLOW, State.SHADOW)


def test_a_threshold_of_one_session(world: World) -> None:
    threshold = Threshold(name="t", failures=3, reach=Reach.SESSION_TOOL, action=Action.REPLAN)
    feed(world, "failed", "failed", "failed", threshold=threshold)
    assert world.check().strength is Action.REPLAN
    assert world.ask(session="another") is Decision.ALLOW


def test_facts_without_a_tool_count_nowhere(world: World) -> None:
    feed(world, *["failed"] * 9, tool=None)
    assert world.events() == []


def test_old_rows_are_forgotten(world: World) -> None:
    feed(world, "failed")
    taker = Thresholds(world.breakers, lambda: (OF_ONE,), world.clock)
    world.clock.advance(86_401)
    with world.db.transaction() as tx:
        taker.forget(tx)
        assert tx.execute("SELECT * FROM failure_rows").fetchall() == []


def seen(world: World, kind: str, **payload: Any) -> None:  # noqa: ANN401 - JSON
    with world.db.transaction() as tx:
        world.breakers.probes.take(tx, fact(world, kind, **payload))


def test_a_call_that_was_seen_to_work_closes_a_half_open_one(world: World) -> None:
    world.half_open()
    began = world.clock()
    world.clock.advance(1)
    seen(world, "worked", start_ns=began)
    assert world.stored(WIDE).state is State.CLOSED
    assert world.stored(WIDE).note == "a call was seen that worked"


def test_a_call_that_was_seen_to_fail_opens_it_again(world: World) -> None:
    world.half_open()
    world.clock.advance(1)
    seen(world, "failed", nature="transient")
    assert (world.stored(WIDE).state, world.stored(WIDE).flap_level) == (State.OPEN, 1)


def test_a_call_that_began_before_says_nothing(world: World) -> None:
    world.half_open()
    seen(world, "worked", start_ns=world.clock() - 1)
    assert world.stored(WIDE).state is State.HALF_OPEN


def test_calls_of_others_say_nothing_and_open_ones_learn_nothing(world: World) -> None:
    world.half_open()
    world.clock.advance(1)
    seen(world, "worked", tool="another")
    seen(world, "worked", service="another")
    seen(world, "changed")
    assert world.stored(WIDE).state is State.HALF_OPEN
    world.tripped(Scope(tool="open"))
    seen(world, "worked", tool="open")
    assert world.stored(Scope(tool="open")).state is State.OPEN


def test_a_seen_outcome_uses_up_the_lease_of_the_probe(tmp_path: Path) -> None:
    world = World(tmp_path, settings=BreakerSettings(successes=2))
    world.half_open()
    lease = world.breakers.grant_lease(breaker_id(WIDE), "a")
    assert lease is not None
    world.clock.advance(1)
    seen(world, "worked", start_ns=world.clock())
    assert world.stored(WIDE).state is State.HALF_OPEN
    assert world.breakers.grant_lease(breaker_id(WIDE), "b") is not None, "the first one has its outcome"
    seen(world, "worked", start_ns=world.clock())
    assert world.stored(WIDE).state is State.CLOSED
    world.db.close()


SIGNATURE = "00000000000000aa"
DEAD = Asked(service="shop", session="session-1", tool="fetch_page", args=SIGNATURE)


def learned(
    world: World,
    dead: DeadCalls,
    kind: str = "failed",
    session: str = "session-1",
    **payload: Any,  # noqa: ANN401 - JSON
) -> None:
    told = {
        "signature": SIGNATURE,
        "nature": "structural",
        "error_class": "not_found",
        "error": "no such page",
    }
    dead.take(None, fact(world, kind, session, **(told | payload)))


def test_a_dead_call_is_refused_with_its_error_until_something_changes(world: World) -> None:
    dead = world.breakers.index.dead_calls = DeadCalls()
    index = world.breakers.index
    assert not index.wants_args("session-1")
    learned(world, dead)
    assert index.wants_args("session-1")
    assert not index.wants_args("session-2")
    verdict = world.check(DEAD)
    assert (verdict.decision, verdict.strength, verdict.reason, verdict.breaker_id) == (
        Decision.DENY, Action.REPLAN, "known_dead_call", None,
    )  # fmt: skip
    assert '"no such page"' in verdict.message
    assert world.check(CALL).decision is Decision.ALLOW, "arguments are not told"
    assert (
        world.check(Asked(session="session-2", tool="fetch_page", args=SIGNATURE)).decision is Decision.ALLOW
    )
    learned(world, dead, "changed")
    assert world.check(DEAD).decision is Decision.ALLOW


def test_dead_calls_are_off_until_they_are_set(world: World) -> None:
    learned(world, DeadCalls())
    assert world.check(DEAD).decision is Decision.ALLOW
    assert not world.breakers.index.wants_args("session-1")
    world.tripped(Scope(session="x", tool="t", args=SIGNATURE))
    assert world.breakers.index.wants_args("session-1"), "a breaker names arguments"


@pytest.mark.parametrize("nature", ["transient", "unknown", ""])
def test_what_may_pass_is_not_dead(world: World, nature: str) -> None:
    dead = DeadCalls()
    learned(world, dead, nature=nature)
    assert not dead.has("session-1")


def test_a_call_whose_arguments_are_not_known_is_not_dead(world: World) -> None:
    dead = DeadCalls()
    learned(world, dead, signature=None)
    learned(world, dead, session="")
    assert not dead.has("session-1")
    assert not dead.has("")


def test_the_end_of_a_run_forgets_and_repeats_are_counted(world: World) -> None:
    dead = DeadCalls()
    for _ in range(3):
        learned(world, dead)
    call = dead.get("session-1", SIGNATURE)
    assert call is not None
    assert call.failures == 3
    learned(world, dead, "ended")
    assert dead.get("session-1", SIGNATURE) is None


def test_dead_calls_are_bounded(world: World) -> None:
    dead = DeadCalls(sessions=3)
    for number in range(5):
        learned(world, dead, session=f"s{number}")
    assert [dead.has(f"s{n}") for n in range(5)] == [False, False, True, True, True]
    learned(world, dead, session="s2")
    learned(world, dead, session="s5")
    assert [dead.has(f"s{n}") for n in range(6)] == [False, False, True, False, True, True]
    for number in range(100):
        learned(world, dead, session="s4", signature=f"{number:016x}")
    assert sum(dead.get("s4", f"{n:016x}") is not None for n in range(100)) == 64
    assert dead.get("s4", f"{99:016x}") is not None


def test_an_override_lets_a_dead_call_through(world: World) -> None:
    dead = world.breakers.index.dead_calls = DeadCalls()
    learned(world, dead)
    world.tripped(WIDE)
    world.act(Event.FORCE_CLOSE, Scope(service="shop", session="session-1", tool="fetch_page"), ttl_s=60)
    assert world.check(DEAD).decision is Decision.ALLOW
