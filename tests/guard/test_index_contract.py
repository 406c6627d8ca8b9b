"""The guard and the sidecar decide the same about the same breakers and calls."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from recloser_guard.index import Call, Index
from recloser_guard.names import name_kept as kept_here
from recloser_guard.record import breaker_from

from api.breakerview import breaker_out
from collector.naming import name_kept
from control.action import Action
from control.actor import Actor
from control.breakers.index import BreakerIndex
from control.breakers.record import Breaker, breaker_id
from control.breakers.settings import BreakerSettings
from control.breakers.states import State
from control.breakers.verdict import Decision
from control.scope import Asked, Scope

NEVER_STRONGER = BreakerSettings(escalate_after=0, replan_budget=0)


def maybe(*values: str) -> st.SearchStrategy[str | None]:
    return st.sampled_from((None, *values))


scopes = st.builds(
    Scope,
    service=maybe("shop", "desk"),
    agent=maybe("buyer", "buyer@1", "buyer@2", "seller"),
    session=maybe("s", "u"),
    run=maybe("r"),
    tool=maybe("search", "pay"),
    args=maybe("00ff00ff00ff00ff"),
    model=maybe("m"),
)
calls = st.builds(
    Asked,
    service=maybe("shop", "desk"),
    agent=maybe("buyer", "seller"),
    agent_version=maybe("1", "2"),
    session=maybe("s", "u"),
    run=maybe("r"),
    tool=maybe("search", "pay"),
    args=maybe("00ff00ff00ff00ff", "1111111111111111"),
    model=maybe("m"),
)


def made(scope: Scope, state: State, action: Action, revision: int) -> Breaker:
    return Breaker(
        id=breaker_id(scope), scope=scope, state=state, action=action, revision=revision, episode=1,
        reason="doom_loop", message_for_model=f"m{revision}", message_for_human="", finding_id="f",
        finding_revision=1, rule="r", actor=Actor(type="rule", id="r"), opened_at=0, updated_at=0,
        quarantine={"tainted_steps": ["a"], "last_clean_step": None},
    )  # fmt: skip


breakers = st.lists(st.tuples(scopes, st.sampled_from(State), st.sampled_from(Action)), max_size=12)


def shown(breaker: Breaker) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(breaker_out(breaker, 0).model_dump_json())
    return told


def as_call(asked: Asked) -> Call:
    return Call(
        asked.tenant, asked.service, asked.agent, asked.session, asked.run, asked.tool, asked.args,
        asked.model, asked.versioned_agent,
    )  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(breakers, st.lists(calls, min_size=1, max_size=6))
def test_guard_and_sidecar_decide_the_same(
    known: list[tuple[Scope, State, Action]], asked: list[Asked]
) -> None:
    there = BreakerIndex(settings=NEVER_STRONGER)
    here = Index()
    for revision, (scope, state, action) in enumerate(known, 1):
        breaker = made(scope, state, action, revision)
        there.put(breaker)
        here.put(breaker_from(shown(breaker)))
    assert here.revision == there.revision
    for one in asked:
        wanted, found = there.peek(one), here.find(as_call(one))
        if found.breaker is None:
            assert wanted.decision is Decision.ALLOW
        else:
            assert found.breaker.id == wanted.breaker_id
            if found.breaker.state == "half_open":
                assert wanted.probe == found.breaker.id
            else:
                assert found.breaker.strength == str(wanted.strength)
                assert found.breaker.message == wanted.message
                assert found.breaker.quarantine == wanted.quarantine
        assert (None if found.override is None else found.override.id) == wanted.override
        unsaid = here.find(as_call(one)._replace(args=None))
        same = (unsaid.breaker, unsaid.override) == (found.breaker, found.override)
        assert same or unsaid.ask, "what depends on arguments is asked of the sidecar"


@settings(deadline=None)
@given(st.text(max_size=400))
def test_names_are_kept_the_same_way(name: str) -> None:
    assert kept_here(name) == name_kept(name)
