"""After a halt: the run ends, or people hear that it goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from control import audit
from control.action import Action
from control.breakers.states import Event
from control.scope import Scope
from detectors.notes import Notes
from tests.control.breaker_world import SESSION, TOOL, WIDE, World
from tests.control.support import another

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NS = 1_000_000_000


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.db.close()


def steps(world: World, began_s: float, **more: int) -> None:
    """The session's last step began so many seconds from now."""
    at = world.clock() + int(began_s * NS)
    times = {"last_start_ns": at, "last_ns": at} | more
    world.notes["session-1"] = Notes(session_id="session-1", **times)  # type: ignore[arg-type]  # times only


def look(world: World, after_s: float = 0) -> str | None:
    world.clock.advance(after_s)
    world.breakers.watches.turn()
    with world.db.reading() as connection:
        row = connection.execute("SELECT state FROM watches").fetchone()
    return None if row is None else str(row["state"])


def test_a_run_that_goes_on_is_told_once_and_audited(world: World) -> None:
    halted = world.tripped(SESSION, Action.HALT)
    steps(world, 9)
    assert look(world, 9) == "watching", "within the grace time"
    steps(world, 2)
    assert look(world, 2) == "still_running"
    steps(world, 5)
    assert look(world, 5) == "still_running"
    assert world.said == [("still_running", (halted.id, "session-1"))]
    with world.db.reading() as connection:
        last = audit.entries(connection, since=0, limit=99)[-1]
    assert (last.verb, last.subject, last.actor.id) == ("run.still_running", halted.id, "watch")


def test_it_is_told_after_a_restart_too(world: World) -> None:
    world.tripped(SESSION, Action.HALT)
    world.restart()
    steps(world, 11)
    assert look(world, 11) == "still_running"
    world.restart()
    assert look(world, 1) == "still_running"
    assert len(world.said) == 1


def test_a_run_that_ends_is_not_told(world: World) -> None:
    world.tripped(SESSION, Action.HALT)
    steps(world, 2, ended_ns=world.clock() + 3 * NS)
    assert look(world, 3) == "ended"
    assert world.said == []


def test_an_end_before_the_halt_is_none(world: World) -> None:
    steps(world, -5, ended_ns=world.clock() - NS)
    world.tripped(SESSION, Action.HALT)
    assert look(world, 1) == "watching"


@pytest.mark.parametrize("known", [True, False])
def test_silence_is_an_end(world: World, *, known: bool) -> None:
    world.tripped(SESSION, Action.HALT)
    if known:
        steps(world, 5)
    assert look(world, 60) == "watching"
    assert look(world, 6) == "ended"
    assert world.said == []


def test_steps_that_a_brake_refused_are_no_going_on(world: World) -> None:
    world.tripped(SESSION, Action.HALT)
    steps(world, -1, last_ns=world.clock() + 30 * NS)  # it only runs into the brake
    assert look(world, 30) == "watching"


def test_the_end_of_one_that_went_on_is_told(world: World) -> None:
    halted = world.tripped(SESSION, Action.HALT)
    steps(world, 20)
    look(world, 20)
    assert look(world, 61) == "ended"
    assert world.said[-1] == ("ended", halted.id)


def test_a_reset_ends_the_watch(world: World) -> None:
    halted = world.tripped(SESSION, Action.HALT)
    steps(world, 20)
    look(world, 20)
    world.act(Event.RESET, SESSION)
    assert look(world) is None
    assert world.said[-1] == ("ended", halted.id)


def test_a_new_halt_is_watched_anew(world: World) -> None:
    world.tripped(SESSION, Action.HALT)
    look(world, 70)
    world.act(Event.RESET, SESSION)
    world.clock.advance(1)
    world.tripped(SESSION, Action.HALT)
    assert look(world) == "watching"


@pytest.mark.parametrize("scope", [WIDE, Scope(agent="buyer")])
def test_only_halts_of_one_run_are_watched(world: World, scope: Scope) -> None:
    world.tripped(scope, Action.HALT)
    assert look(world) is None


def test_a_run_is_watched_by_the_session_of_its_finding(world: World) -> None:
    world.tripped(Scope(run="r"), Action.HALT, finding=another(3, session_id="session-1"))
    steps(world, 11)
    assert look(world, 11) == "still_running"


def test_a_deny_is_not_watched_until_it_became_a_halt(world: World) -> None:
    world.tripped(SESSION, Action.DENY)
    assert look(world) is None
    for _ in range(4):
        world.ask()
    world.breakers.settle()
    assert look(world) == "watching"


def test_a_halt_of_one_tool_is_watched_from_when_the_agent_was_told(world: World) -> None:
    world.tripped(TOOL, Action.HALT)
    assert look(world) is None
    steps(world, 20)
    world.clock.advance(20)
    world.ask()
    world.breakers.settle()
    assert look(world) == "watching"
    steps(world, 11)
    assert look(world, 11) == "still_running"


def test_a_hold_that_lets_it_through_ends_the_watch_and_its_end_begins_another(world: World) -> None:
    world.tripped(SESSION, Action.HALT)
    world.act(Event.FORCE_CLOSE, SESSION, ttl_s=30)
    steps(world, 20)
    assert look(world, 20) is None
    world.wait(10)
    assert look(world) == "watching"
    assert world.said == []


def test_a_run_that_comes_back_after_its_end_is_watched_again(world: World) -> None:
    world.tripped(SESSION, Action.HALT)
    assert look(world, 61) == "ended"
    world.ask()
    world.breakers.settle()
    assert look(world) == "watching"
    steps(world, 11)
    assert look(world, 11) == "still_running"
