"""Refusals that are ignored: replan, deny, halt."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from control.action import Action
from control.breakers.index import IGNORED_GAP_S, BreakerIndex
from control.breakers.settings import BreakerSettings
from control.breakers.states import Event, State
from control.breakers.strength import strength_after
from control.breakers.verdict import Decision
from control.scope import Asked, Scope
from tests.control.breaker_world import CALL, SESSION, TOOL, WIDE, World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

R, D, H = Action.REPLAN, Action.DENY, Action.HALT


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.db.close()


def strengths(world: World, count: int, asked: Asked = CALL) -> list[Action | None]:
    return [world.check(asked).strength for _ in range(count)]


@pytest.mark.parametrize(
    ("begins", "budget", "after", "expected"),
    [
        (R, 2, 3, [R, R, D, D, D, H, H]),
        (R, 1, 1, [R, D, H, H, H, H, H]),
        (R, 0, 3, [R] * 7),
        (R, 2, 0, [R, R, D, D, D, D, D]),
        (D, 2, 3, [D, D, D, H, H, H, H]),
        (D, 2, 0, [D] * 7),
        (H, 2, 3, [H] * 7),
    ],
)
def test_the_ladder(begins: Action, budget: int, after: int, expected: list[Action]) -> None:
    settings = BreakerSettings(replan_budget=budget, escalate_after=after)
    assert [strength_after(begins, n, settings) for n in range(1, 8)] == expected


def test_replan_has_a_budget_then_it_denies_then_it_halts(world: World) -> None:
    world.tripped(TOOL, R)
    assert strengths(world, 6) == [R, R, D, D, D, H]


def test_the_same_when_every_refusal_is_settled_and_followed_by_a_restart(world: World) -> None:
    world.tripped(TOOL, R)
    told = []
    for _ in range(6):
        told += strengths(world, 1)
        world.breakers.settle()
        world.restart()
    assert told == [R, R, D, D, D, H]
    assert world.events() == ["trip", "escalate", "escalate"]
    halted = world.stored()
    assert (halted.action, halted.actor.type, halted.denied) == (H, "escalation", 6)


def test_the_text_grows_with_the_strength_and_keeps_what_is_stuck(world: World) -> None:
    world.tripped(TOOL, R)
    texts = [world.check().message for _ in range(6)]
    assert "Make a new plan" in texts[0]
    assert "Do not call it again" in texts[2]
    assert texts[5].endswith("take over.")
    assert len({text.split(". ")[0] for text in texts}) == 1


def test_a_stronger_rule_begins_a_ladder_of_its_own(world: World) -> None:
    world.tripped(TOOL, R)
    assert strengths(world, 2) == [R, R]
    world.tripped(TOOL, D)
    assert strengths(world, 4) == [D, D, D, H]


def test_a_forced_one_escalates_too(world: World) -> None:
    world.act(Event.FORCE_OPEN, TOOL)
    assert strengths(world, 4) == [D, D, D, H]
    (halted,) = world.breakers.settle()
    assert (halted.state, halted.action) == (State.FORCED_OPEN, H)


def test_calls_made_together_are_ignored_once(world: World) -> None:
    world.tripped(TOOL)
    for expected in (D, D, D, H):
        assert {v.strength for v in world.breakers.index.check_all([CALL] * 5)} == {expected}


def test_calls_made_together_but_asked_one_by_one_are_ignored_once(world: World) -> None:
    """A hook is run for each of a message's calls: the agent is not halted before it has read a refusal."""
    index = BreakerIndex(settings=world.settings, same_turn_s=0.05)
    index.clock(world.clock)
    for scope in (TOOL, WIDE):
        index.put(world.tripped(scope))
        told = []
        for _ in range(4):
            world.clock.advance(0.1)
            told.append({index.check(CALL).strength for _ in range(9)})
        assert told == [{D}, {D}, {D}, {H}]
        index.put(replace(world.act(Event.RESET, scope), state=State.CLOSED))
    looping = Asked(session="session-1", tool="fetch_page")
    index.put(world.tripped(TOOL))
    for _ in range(40):
        world.clock.advance(0.01)
        last = index.check(looping).strength
    assert last is H, "one that asks without end is halted"


def test_who_only_looks_ignores_nothing(world: World) -> None:
    world.tripped(TOOL)
    assert {world.breakers.index.peek(CALL).strength for _ in range(9)} == {D}


def test_refusals_that_a_client_counted_count(world: World) -> None:
    opened = world.tripped(TOOL)
    world.breakers.index.count_refused(opened.id, "session-1", 3)
    assert strengths(world, 1) == [H]
    world.breakers.index.count_refused("br_none", "session-1", 3)
    world.breakers.index.count_refused(opened.id, None, 0)
    assert world.breakers.index.unwritten() == {opened.id: 4}


def test_a_wide_breaker_halts_only_who_ignores_it(world: World) -> None:
    opened = world.tripped(WIDE)
    others = [Asked(service="shop", session=f"s{n}", tool="fetch_page") for n in range(50)]
    assert {world.check(asked).strength for asked in others} == {D}, "refusals of others are not ignored ones"
    assert strengths(world, 4) == [D, D, D, H]
    (halted,) = world.breakers.settle()
    assert (halted.scope, halted.action, halted.actor.type, halted.finding_id) == (
        SESSION, H, "escalation", opened.finding_id,
    )  # fmt: skip
    assert world.stored(WIDE).action is D
    world.restart()
    verdict = world.check(Asked(session="session-1", tool="another"))
    assert verdict.decision is Decision.HALT
    assert "calls of the tool 'fetch_page' were refused, and went on" in verdict.message
    assert world.check(others[0]).strength is D
    assert world.breakers.settle() == []


def test_a_session_that_a_person_lets_go_on_has_its_refusals_anew(world: World) -> None:
    world.tripped(WIDE)
    assert strengths(world, 4)[-1] is H
    world.breakers.settle()
    world.act(Event.RESET, SESSION)
    assert strengths(world, 4) == [D, D, D, H]


def test_a_session_that_is_open_already_is_made_to_halt(world: World) -> None:
    world.tripped(SESSION, D)
    world.tripped(WIDE, D)
    wide_alone = Scope(service="shop", tool="fetch_page")
    world.act(Event.FORCE_OPEN, wide_alone)  # the forced one answers
    assert strengths(world, 4) == [D, D, D, H]
    assert [b.scope for b in world.breakers.settle()] == [SESSION]
    assert world.stored(SESSION).action is H


def test_a_caller_without_a_session_never_halts_the_others(world: World) -> None:
    world.tripped(WIDE)
    nobody = Asked(service="shop", tool="fetch_page")
    assert strengths(world, 20, nobody) == [D] * 20
    assert world.breakers.settle() == []
    assert world.stored(WIDE).denied == 20


def test_refusals_of_an_earlier_opening_are_forgotten(world: World) -> None:
    world.tripped(WIDE)
    assert strengths(world, 3) == [D] * 3
    world.act(Event.RESET, WIDE)
    world.clock.advance(1)
    world.tripped(WIDE)
    assert strengths(world, 3) == [D] * 3


def test_refusals_far_apart_do_not_ignore_a_wide_breaker(world: World) -> None:
    """A long conversation meets a tool that a person holds open once a question, and obeys each time."""
    world.act(Event.FORCE_OPEN, WIDE)
    for _ in range(12):
        world.clock.advance(IGNORED_GAP_S + 1)
        assert world.check().strength is D
        assert world.breakers.settle() == []
    assert strengths(world, 3) == [D, D, H], "but one that comes back at once is"


def test_ignored_refusals_halt_no_more_sessions_than_may_be_stopped_at_once(world: World) -> None:
    world.active = 20
    opened = world.tripped(WIDE)
    calls = [Asked(service="shop", session=f"s{n}", tool="fetch_page") for n in range(12)]
    for asked in calls:
        strengths(world, 4, asked)
        world.breakers.settle()
    halted = [b for b in world.breakers.index.open_breakers() if b.action is H]
    assert len(halted) == world.settings.blast_min
    told = [what for what in world.said if what[0] == "capped"]
    assert len(told) == len(calls) - len(halted), "each is told of once"
    last = world.check(calls[-1])
    assert (last.decision, last.strength, last.breaker_id) == (Decision.DENY, D, opened.id)
    world.active = 1000
    assert len(world.breakers.settle()) == len(calls) - len(halted), "it is halted when that may be done"
    assert world.check(calls[-1]).decision is Decision.HALT


def test_what_a_person_made_a_shadow_is_not_opened_by_ignored_refusals(world: World) -> None:
    world.act(Event.SHADOW, SESSION)
    world.tripped(WIDE)
    strengths(world, 4)
    world.breakers.settle()
    assert world.stored(SESSION).state is State.SHADOW


def test_a_halt_never_says_when_to_ask_again(world: World) -> None:
    world.tripped(WIDE)
    verdicts = [world.check() for _ in range(4)]
    assert verdicts[0].retry_after_s is not None
    assert (verdicts[3].decision, verdicts[3].retry_after_s) == (Decision.HALT, None)
