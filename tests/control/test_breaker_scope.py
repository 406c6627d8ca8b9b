"""Scopes, the index by shape, and precedence: against a naive reference that looks at every breaker."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.action import Action
from control.breakers.changing import blank
from control.breakers.index import BreakerIndex
from control.breakers.record import Breaker, breaker_id
from control.breakers.settings import BreakerSettings
from control.breakers.states import State
from control.breakers.verdict import Decision
from control.scope import PARTS, Asked, Scope

if TYPE_CHECKING:
    from collections.abc import Sequence

NEVER = BreakerSettings(escalate_after=0, replan_budget=0)  # no refusal makes another one stronger
VALUES = st.sampled_from([None, "a", "b"])
AGENTS = st.sampled_from([None, "a", "b", "a@1", "a@2", "b@1"])
TENANTS = st.sampled_from(["default", "default", "default", "other"])
SCOPES = st.builds(
    Scope, tenant=TENANTS, service=VALUES, agent=AGENTS, session=VALUES, run=VALUES, tool=VALUES,
    args=VALUES, model=VALUES,
)  # fmt: skip
CALLS = st.builds(
    Asked, tenant=TENANTS, service=VALUES, agent=VALUES, agent_version=st.sampled_from([None, "1", "2"]),
    session=VALUES, run=VALUES, tool=VALUES, args=VALUES, model=VALUES,
)  # fmt: skip


def test_parts_are_in_the_order_of_the_specification() -> None:
    assert PARTS == ("tenant", "service", "agent", "session", "run", "tool", "args", "model")


def test_width_counts_what_is_any() -> None:
    assert (Scope().width, Scope(session="s").width, Scope(session="s", tool="t", args="a").width) == (
        7,
        6,
        4,
    )


@given(scope=SCOPES, asked=CALLS)
def test_a_scope_covers_what_says_all_of_its_parts(scope: Scope, asked: Asked) -> None:
    agents = {asked.agent, asked.agent and asked.agent_version and f"{asked.agent}@{asked.agent_version}"}
    expected = all(
        value is None or value in (agents if part == "agent" else {getattr(asked, part)})
        for part, value in zip(PARTS, scope.key, strict=True)
    )
    assert scope.covers(asked) is bool(expected)


@given(wide=SCOPES, narrow=SCOPES, asked=CALLS)
def test_what_contains_a_scope_covers_all_that_it_covers(wide: Scope, narrow: Scope, asked: Asked) -> None:
    if wide.contains(narrow) and narrow.covers(asked):
        assert wide.covers(asked)


@given(scope=SCOPES)
def test_a_scope_contains_itself_and_a_tenant_contains_its_scopes(scope: Scope) -> None:
    assert scope.contains(scope)
    assert Scope(tenant=scope.tenant).contains(scope)


@given(scopes=st.sets(SCOPES, max_size=20))
def test_ids_are_one_a_scope(scopes: set[Scope]) -> None:
    assert len({breaker_id(scope) for scope in scopes}) == len(scopes)


def test_ids_of_the_first_scopes_stay_what_they_were() -> None:
    assert breaker_id(Scope(session="s")) == "br_f14b5a96d9cee490"
    assert breaker_id(Scope(session="s", tool="t")) == "br_618f753be92d1e45"


@pytest.mark.parametrize("part", PARTS)
def test_an_empty_part_is_no_any(part: str) -> None:
    with pytest.raises(ValueError, match=rf"^scope\.{part}: "):
        Scope(**{part: ""}).check()


BREAKERS = st.lists(
    st.tuples(SCOPES, st.sampled_from(State), st.sampled_from(Action)), max_size=12, unique_by=lambda b: b[0]
)


def made(rows: Sequence[tuple[Scope, State, Action]]) -> list[Breaker]:
    return [
        replace(blank(scope, 0), state=state, action=action, revision=number, episode=1)
        for number, (scope, state, action) in enumerate(rows, start=1)
    ]


def naive(breakers: list[Breaker], asked: Asked) -> tuple[Decision, str | None, str | None]:
    """Precedence in the words of docs/breakers.md, by looking at all of them again and again."""
    covering = [b for b in breakers if b.scope.covers(asked)]
    overrides = [b for b in covering if b.state is State.FORCED_CLOSED]

    def excepted(breaker: Breaker) -> bool:
        return breaker.state is not State.FORCED_OPEN and any(
            breaker.scope.contains(override.scope) for override in overrides
        )

    refusing = [b for b in covering if b.state in (State.OPEN, State.FORCED_OPEN) and not excepted(b)]
    if refusing:
        refusing.sort(key=lambda b: b.id)
        refusing.sort(key=lambda b: b.scope.width, reverse=True)
        refusing.sort(key=lambda b: b.state is State.FORCED_OPEN)
        refusing.sort(key=lambda b: b.action.rank)
        answer = refusing[-1]
        return Decision.HALT if answer.action is Action.HALT else Decision.DENY, answer.id, None
    probing = [b for b in covering if b.state is State.HALF_OPEN and not excepted(b)]
    if probing:
        answer = max(probing, key=lambda b: (b.action.rank, -b.scope.width, b.id))
        return Decision.DENY, answer.id, None
    helped = any(b.state in (State.OPEN, State.HALF_OPEN) and excepted(b) for b in covering)
    return Decision.ALLOW, None, "some" if helped else None


@given(rows=BREAKERS, calls=st.lists(CALLS, min_size=1, max_size=6))
@settings(max_examples=150)
def test_the_index_answers_as_the_naive_reference(
    rows: list[tuple[Scope, State, Action]], calls: list[Asked]
) -> None:
    index = BreakerIndex(settings=NEVER)
    breakers = made(rows)
    for breaker in breakers:
        index.put(breaker)
    for asked in calls:
        for verdict in (index.peek(asked), index.check_all([asked])[0]):
            decision, key, override = naive(breakers, asked)
            assert (verdict.decision, verdict.breaker_id) == (decision, key)
            assert (verdict.override is None) is (override is None)


@given(rows=BREAKERS, gone=st.sets(st.integers(0, 11)), asked=CALLS)
@settings(max_examples=100)
def test_what_closes_is_gone_from_the_index(
    rows: list[tuple[Scope, State, Action]], gone: set[int], asked: Asked
) -> None:
    index = BreakerIndex(settings=NEVER)
    breakers = made(rows)
    for breaker in breakers:
        index.put(breaker)
    kept = [b for number, b in enumerate(breakers) if number not in gone]
    for breaker in breakers:
        if breaker not in kept:
            index.put(replace(breaker, state=State.CLOSED, revision=breaker.revision + 100))
    assert index.peek(asked).breaker_id == naive(kept, asked)[1]
    assert set(index.snapshot()[1]) == {b for b in kept if b.state is not State.CLOSED}


def test_every_shape_of_a_scope_is_found() -> None:
    asked = Asked(service="v", agent="a", session="s", run="r", tool="t", args="x", model="m")
    said = {part: getattr(asked, part) for part in PARTS[1:]}
    index = BreakerIndex()
    for size in range(len(said) + 1):
        for parts in combinations(said, size):
            scope = Scope(**{part: said[part] for part in parts})
            index.put(replace(blank(scope, 0), state=State.FORCED_OPEN, episode=1, revision=1))
            assert index.peek(asked).breaker_id == breaker_id(scope)
            index.put(replace(blank(scope, 0), state=State.CLOSED, episode=1, revision=2))
            assert index.peek(asked).breaker_id is None
