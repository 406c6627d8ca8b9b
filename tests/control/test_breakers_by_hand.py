"""What persons do with breakers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from control.action import Action
from control.actor import Actor
from control.breakers.byhand import ForbiddenActor
from control.breakers.leases import LeaseOver
from control.breakers.record import StaleRevision, UnknownBreaker, breaker_id
from control.breakers.states import Event, IllegalTransition, State
from control.breakers.verdict import Decision
from control.scope import Scope
from tests.control.breaker_world import PERSON, SESSION, TOOL, WIDE, World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NS = 1_000_000_000


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.db.close()


def test_a_trip_by_hand_makes_the_breaker_and_says_who_and_why(world: World) -> None:
    opened = world.act(Event.TRIP, SESSION, action=Action.HALT)
    assert (opened.state, opened.action, opened.actor, opened.note) == (
        State.OPEN, Action.HALT, PERSON, "because",
    )  # fmt: skip
    assert (opened.reason, opened.by_hand, opened.episode, opened.until) == ("manual", True, 1, None)
    assert opened.message_for_human == "Run halted by hand: because"
    verdict = world.check()
    assert (verdict.decision, verdict.reason) == (Decision.HALT, "manual")
    assert "a person stopped this run" in verdict.message
    assert "because" not in verdict.message, "what persons write is for persons"


def test_a_trip_by_hand_of_an_open_one_makes_it_stronger_or_is_refused(world: World) -> None:
    first = world.tripped(TOOL)
    with pytest.raises(IllegalTransition):
        world.act(Event.TRIP)
    halted = world.act(Event.TRIP, first.id, action=Action.HALT)
    assert (halted.action, halted.episode, halted.by_hand) == (Action.HALT, 1, True)
    assert world.ask() is Decision.HALT
    assert world.events() == ["trip", "escalate"]


def test_a_trip_by_hand_may_have_an_end(world: World) -> None:
    world.act(Event.TRIP, TOOL, ttl_s=10)
    world.act(Event.TRIP, WIDE, ttl_s=10)
    world.wait(9)
    assert {world.stored(TOOL).state, world.stored(WIDE).state} == {State.OPEN}
    world.wait(1)
    assert (world.stored(TOOL).state, world.stored(WIDE).state) == (State.CLOSED, State.HALF_OPEN)


def test_a_whole_tenant_may_be_stopped_by_hand(world: World) -> None:
    world.act(Event.FORCE_OPEN, Scope(), action=Action.HALT)
    assert world.ask(tool="anything", session="any") is Decision.HALT


def test_forced_open_stays_whatever_happens(world: World) -> None:
    held = world.act(Event.FORCE_OPEN, WIDE)
    assert (held.state, held.until, held.reason, held.episode) == (State.FORCED_OPEN, None, "forced", 1)
    world.wait(30 * 86_400)
    assert world.trip(WIDE) is None
    assert world.breakers.expire(world.clock() + 1, 9) == []
    with pytest.raises(IllegalTransition):
        world.act(Event.RESET, WIDE)
    assert world.ask() is Decision.DENY
    assert world.act(Event.RELEASE, WIDE).state is State.CLOSED
    assert world.ask() is Decision.ALLOW


def test_forced_closed_needs_an_end_and_is_shown_while_it_helps(world: World) -> None:
    with pytest.raises(ValueError, match=r"^ttl_s: "):
        world.act(Event.FORCE_CLOSE)
    world.tripped(WIDE)
    held = world.act(
        Event.FORCE_CLOSE, Scope(session="session-1", service="shop", tool="fetch_page"), ttl_s=60
    )
    verdict = world.check()
    assert (verdict.decision, verdict.override, verdict.breaker_id) == (Decision.ALLOW, held.id, None)
    assert (held.forced_until, held.until) == (world.clock() + 60 * NS,) * 2
    assert world.ask(session="session-2") is Decision.DENY, "an exception of one session"


def test_an_exception_ends_at_its_end_although_nobody_can_write_that_down(world: World) -> None:
    """The control loop may be held up by a full disk: what was let through for a minute is not for ever."""
    own = Scope(session="another")
    world.tripped(WIDE)
    world.act(Event.FORCE_CLOSE, Scope(service="shop", session="session-1", tool="fetch_page"), ttl_s=60)
    world.tripped(own, Action.HALT)
    world.act(Event.FORCE_CLOSE, own, ttl_s=60)
    assert world.ask() is Decision.ALLOW
    assert world.ask(tool=None, session="another") is Decision.ALLOW
    world.clock.advance(60)
    assert world.ask() is Decision.DENY
    assert world.ask(tool=None, session="another") is Decision.HALT, "it was open before the hold"


def test_what_was_open_before_a_hold_is_open_after_it(world: World) -> None:
    world.tripped(SESSION, Action.HALT)
    message = world.check().message
    world.act(Event.FORCE_CLOSE, SESSION, ttl_s=60)
    assert world.ask() is Decision.ALLOW
    world.restart()
    world.wait(60)
    again = world.stored(SESSION)
    assert (again.state, again.action, again.until, again.forced_until) == (
        State.OPEN,
        Action.HALT,
        None,
        None,
    )
    assert (world.check().message, world.ask()) == (message, Decision.HALT)
    assert world.events() == ["trip", "force_close", "resume"]


def test_a_hold_of_a_half_open_one_ends_with_another_try(world: World) -> None:
    world.half_open()
    world.act(Event.FORCE_OPEN, WIDE)
    assert world.act(Event.RELEASE, WIDE).state is State.OPEN
    world.breakers.tick()
    assert world.stored(WIDE).state is State.HALF_OPEN


def test_a_hold_of_a_half_open_one_ends_its_probes(world: World) -> None:
    """Their outcome means nothing any more, and they keep nobody from trying when the hold is over."""
    half_open = world.half_open()
    lease = world.breakers.grant_lease(half_open.id, "one")
    assert lease is not None
    world.act(Event.FORCE_OPEN, WIDE)
    world.act(Event.RELEASE, WIDE)
    world.wait(0)
    assert world.stored(WIDE).state is State.HALF_OPEN
    with pytest.raises(LeaseOver):
        world.breakers.finish_lease(lease.id, ok=True)
    assert world.breakers.grant_lease(half_open.id, "another") is not None


def test_one_hold_after_another_goes_back_to_what_was_before_the_first(world: World) -> None:
    world.tripped(SESSION, Action.HALT)
    world.act(Event.FORCE_CLOSE, SESSION, ttl_s=60)
    assert world.act(Event.FORCE_OPEN, SESSION, action=Action.DENY).action is Action.DENY
    assert world.ask() is Decision.DENY
    released = world.act(Event.RELEASE, SESSION)
    assert (released.state, released.action) == (State.OPEN, Action.HALT)
    assert world.check().message.endswith("take over.")


def test_a_hold_is_no_weaker_than_what_it_holds_unless_the_person_says_so(world: World) -> None:
    world.tripped(SESSION, Action.HALT)
    assert world.act(Event.FORCE_OPEN, SESSION).action is Action.HALT
    assert world.act(Event.FORCE_OPEN, WIDE).action is Action.DENY


def test_a_hold_may_be_renewed_and_ends_by_itself(world: World) -> None:
    world.act(Event.FORCE_OPEN, WIDE, ttl_s=60)
    world.wait(50)
    world.act(Event.FORCE_OPEN, WIDE, ttl_s=60)
    world.wait(50)
    assert world.stored(WIDE).state is State.FORCED_OPEN
    world.wait(10)
    ended = world.stored(WIDE)
    assert (ended.state, ended.actor.type) == (State.CLOSED, "system")
    assert world.events() == ["force_open", "force_open", "expire"]


def test_a_trip_during_forced_closed_is_not_done(world: World) -> None:
    world.act(Event.FORCE_CLOSE, TOOL, ttl_s=60)
    assert world.trip(TOOL) is None
    world.wait(60)
    assert world.stored().state is State.CLOSED
    world.clock.advance(1)
    assert world.tripped(TOOL).state is State.OPEN


def test_a_person_s_shadow_holds_against_rules(world: World) -> None:
    world.tripped(TOOL)
    shadow = world.act(Event.SHADOW, TOOL, ttl_s=60)
    assert (shadow.state, world.ask()) == (State.SHADOW, Decision.ALLOW)
    world.clock.advance(1)
    assert world.trip(TOOL) is None
    world.wait(59)
    assert world.stored().state is State.CLOSED
    world.clock.advance(1)
    assert world.tripped(TOOL).state is State.OPEN


def test_what_is_under_way_ends_when_a_person_takes_over(world: World) -> None:
    lease = world.breakers.grant_lease(world.half_open().id, "a")
    assert lease is not None
    world.act(Event.RESET, WIDE)
    world.clock.advance(1)
    world.tripped(WIDE)
    world.wait(120)
    assert world.stored(WIDE).state is State.HALF_OPEN
    assert world.breakers.grant_lease(breaker_id(WIDE), "b") is not None


@pytest.mark.parametrize(
    ("event", "changes", "key"),
    [
        (Event.RESET, {"ttl_s": 5.0}, "ttl_s"),
        (Event.RELEASE, {"ttl_s": 5.0}, "ttl_s"),
        (Event.RESET, {"action": Action.HALT}, "action"),
        (Event.FORCE_CLOSE, {"ttl_s": 5.0, "action": Action.HALT}, "action"),
        (Event.SHADOW, {"action": Action.HALT}, "action"),
        (Event.FORCE_OPEN, {"ttl_s": 0.0}, "ttl_s"),
        (Event.FORCE_OPEN, {"ttl_s": -1.0}, "ttl_s"),
        (Event.FORCE_OPEN, {"ttl_s": float("nan")}, "ttl_s"),
        (Event.FORCE_OPEN, {"ttl_s": float("inf")}, "ttl_s"),
        (Event.FORCE_OPEN, {"ttl_s": 31 * 86_400.0}, "ttl_s"),
        (Event.COOL_DOWN, {}, "event"),
        (Event.PROBE_OK, {}, "event"),
        (Event.EXPIRE, {}, "event"),
        (Event.ESCALATE, {}, "event"),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_key(
    world: World, event: Event, changes: dict[str, Any], key: str
) -> None:
    world.tripped(TOOL)
    with pytest.raises(ValueError, match=rf"^{key}: "):
        world.act(event, TOOL, **changes)
    assert world.events() == ["trip"]


@pytest.mark.parametrize("reason", ["", "   ", "x" * 2001])
def test_a_reason_must_be_given(world: World, reason: str) -> None:
    with pytest.raises(ValueError, match=r"^reason: "):
        world.breakers.act(TOOL, Event.TRIP, PERSON, reason)


@pytest.mark.parametrize("kind", ["rule", "escalation", "system"])
@pytest.mark.parametrize(
    "event",
    [Event.TRIP, Event.RESET, Event.FORCE_OPEN, Event.FORCE_CLOSE, Event.RELEASE, Event.SHADOW],
)
def test_rules_and_detectors_cannot_do_what_persons_do(world: World, kind: str, event: Event) -> None:
    ttl_s = 5.0 if event is Event.FORCE_CLOSE else None
    with pytest.raises(ForbiddenActor, match=f"{event.value} is for persons, not for {kind} x"):
        world.breakers.act(TOOL, event, Actor(type=kind, id="x"), "because", ttl_s=ttl_s)
    assert world.events() == []


def test_a_stale_revision_changes_nothing(world: World) -> None:
    opened = world.tripped(TOOL)
    with pytest.raises(StaleRevision, match=f"at revision {opened.revision}, not 0") as raised:
        world.act(Event.RESET, TOOL, if_match=0)
    assert (raised.value.given, raised.value.current) == (0, opened.revision)
    assert world.act(Event.RESET, TOOL, if_match=opened.revision).state is State.CLOSED
    assert world.act(Event.TRIP, SESSION, if_match=0).state is State.OPEN
    with pytest.raises(StaleRevision):
        world.act(Event.FORCE_OPEN, SESSION, if_match=0)


@pytest.mark.parametrize("event", [Event.RESET, Event.RELEASE])
@pytest.mark.parametrize("target", [TOOL, "br_none"])
def test_what_is_not_there_cannot_be_closed(world: World, event: Event, target: str | Scope) -> None:
    with pytest.raises(UnknownBreaker):
        world.act(event, target)


def test_an_unknown_id_is_no_scope_and_an_empty_part_no_any(world: World) -> None:
    with pytest.raises(UnknownBreaker):
        world.act(Event.TRIP, "br_none")
    with pytest.raises(ValueError, match=r"^scope\.tool: "):
        world.act(Event.TRIP, Scope(session="s", tool=""))
