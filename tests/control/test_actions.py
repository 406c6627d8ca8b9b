from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from control.action import Action
from control.actions import CLOSED, OPENED, TOLD, ActionConfig, Actions, actions_of, notifiers_of
from control.actor import Actor
from control.breakers.record import Breaker
from control.breakers.states import Event, State
from control.notifiers.protocol import Delivered, Message
from control.policy import Policy, Reach, Rule
from control.scope import Scope
from tests.control.support import SECRET, START_NS, STUCK, Parts, Received, Receiver, Spool, receiving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PERSON = Actor(type="person", id="ann")
BREAKER = Breaker(
    id="br_1",
    scope=Scope(session="session-1"),
    state=State.OPEN,
    action=Action.HALT,
    revision=7,
    episode=1,
    reason="doom_loop",
    message_for_model="stop",
    message_for_human="it looped",
    finding_id="f",
    finding_revision=0,
    rule="halt",
    actor=Actor(type="rule", id="halt"),
    opened_at=START_NS,
    updated_at=START_NS,
)


def config(**changes: Any) -> ActionConfig:  # noqa: ANN401 - any fields
    given: dict[str, Any] = {"name": "gate", "url": "http://127.0.0.1:9/", "secrets": (SECRET,)}
    return ActionConfig(**(given | changes))


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    yield from receiving()


class World:
    """A control plane with one action, whose messages a real receiver gets."""

    def __init__(self, folder: Path, receiver: Receiver, **changes: Any) -> None:  # noqa: ANN401 - as of config
        self.receiver = receiver
        self.config = config(url=receiver.url, **changes)
        self.hooks = notifiers_of([self.config])
        self.spool = Spool(folder / "spool.db")
        rules = (Rule(name="halt", reach=Reach.SESSION, action=Action.HALT),)
        self.parts = Parts(folder, policy=Policy(rules=rules))
        for name, hook in self.hooks.items():
            self.parts.outbox.register(name, hook.address)
        self.woken = 0
        actions = Actions([self.config], self.hooks, self.parts.outbox, self._wake)
        self.parts.breakers.hooks.on_write = actions.on_write

    def _wake(self) -> None:
        self.woken += 1

    def find(self, **changes: Any) -> None:  # noqa: ANN401 - any fields of a finding
        self.spool.add(replace(STUCK, **changes))
        self.parts.decide_all()

    def waiting(self) -> list[tuple[str, str, dict[str, Any]]]:
        with self.parts.db.reading() as connection:
            rows = connection.execute("SELECT * FROM outbox ORDER BY seq").fetchall()
        return [(row["destination"], row["type"], orjson.loads(row["body"])) for row in rows]

    def deliver(self) -> list[Received]:
        async def once() -> None:
            with self.parts.db.reading() as connection:
                rows = connection.execute("SELECT * FROM outbox ORDER BY seq").fetchall()
            for row in rows:
                hook = self.hooks[row["destination"]]
                message = Message(id=row["message_id"], type=row["type"], body=row["body"])
                assert await hook.send(message, 1_700_000_000) == Delivered(200)
            for hook in self.hooks.values():
                await hook.close()

        asyncio.run(once())
        return self.receiver.received

    def close(self) -> None:
        self.parts.close()


@pytest.fixture
def world(tmp_path: Path, receiver: Receiver) -> Iterator[World]:
    with closing(World(tmp_path, receiver)) as made:
        yield made


def test_a_trip_and_its_release_reach_the_api_signed_and_in_order(world: World) -> None:
    world.find()
    (breaker,) = world.parts.index.open_breakers()
    world.parts.breakers.reset(breaker.id, PERSON, "looked at it")
    opened, closed = world.deliver()
    assert opened.signed_with(SECRET)
    assert closed.signed_with(SECRET)
    assert [each.json["type"] for each in (opened, closed)] == [OPENED, CLOSED]
    assert opened.id != closed.id
    told = opened.json["data"]
    assert (told["event"], told["state"], told["action"]) == ("trip", "open", "halt")
    assert (told["session_id"], told["scope"]["session"]) == ("session-1", "session-1")
    assert told["message_for_model"] == breaker.message_for_model
    assert (told["breaker_id"], told["revision"], told["finding_id"]) == (
        breaker.id,
        breaker.revision,
        STUCK.id,
    )
    over = closed.json["data"]
    assert (over["event"], over["state"], over["note"], over["actor"]["id"]) == (
        "reset",
        "closed",
        "looked at it",
        "ann",
    )
    assert over["revision"] > told["revision"]
    assert world.woken == 2


def test_what_is_rolled_back_is_not_told(world: World) -> None:
    actions = Actions([world.config], world.hooks, world.parts.outbox, world._wake)
    with world.parts.db.transaction() as tx, pytest.raises(ZeroDivisionError), tx.savepoint():
        _write_and_fail(actions, tx)
    assert world.waiting() == []
    assert world.woken == 0


def _write_and_fail(actions: Actions, tx: Any) -> None:  # noqa: ANN401 - a transaction
    actions.on_write(tx, Event.TRIP, BREAKER)
    raise ZeroDivisionError


@pytest.mark.parametrize("event", list(Event))
def test_each_event_is_told_as_what_it_means_for_calls(world: World, event: Event) -> None:
    actions = Actions([world.config], world.hooks, world.parts.outbox, world._wake)
    with world.parts.db.transaction() as tx:
        actions.on_write(tx, event, BREAKER)
    told = [type_ for _, type_, _ in world.waiting()]
    assert told == ([TOLD[event]] if event in TOLD else [])


def test_what_is_only_noted_in_shadow_or_changes_nothing_is_not_told() -> None:
    assert set(Event) - set(TOLD) == {Event.SHADOW_TRIP, Event.LATCH}


@pytest.mark.parametrize(
    ("changes", "scope", "wanted"),
    [
        ({}, Scope(session="s"), True),
        ({"on": frozenset({Event.TRIP})}, Scope(session="s"), True),
        ({"on": frozenset({Event.RESET})}, Scope(session="s"), False),
        ({"actions": frozenset({Action.HALT})}, Scope(session="s"), True),
        ({"actions": frozenset({Action.DENY})}, Scope(session="s"), False),
        ({"services": ("shop*",)}, Scope(service="shop-eu", tool="t"), True),
        ({"services": ("shop*",)}, Scope(service="billing"), False),
        ({"services": ("shop*",)}, Scope(session="s"), True),  # leaves the service open: it may be this one
        ({"agents": ("buyer",)}, Scope(agent="buyer@2"), True),
        ({"agents": ("buyer",)}, Scope(agent="seller"), False),
        ({"tools": ("fetch_*",)}, Scope(session="s", tool="search"), False),
        ({"sessions": ("prod-*",)}, Scope(session="test-1"), False),
    ],
)
def test_an_api_hears_of_what_it_wants(changes: dict[str, Any], scope: Scope, wanted: bool) -> None:  # noqa: FBT001 - a table's column
    assert config(**changes).wants(Event.TRIP, replace(BREAKER, scope=scope)) is wanted


def test_settings_become_actions() -> None:
    given = {
        "name": "gate",
        "url": "https://gate.example/",
        "secrets": [SECRET],
        "timeout_s": 3.0,
        "allow_private": True,
        "on": ["trip", "reset"],
        "services": ["shop"],
        "agents": [],
        "tools": [],
        "sessions": [],
        "actions": ["halt"],
    }
    assert actions_of({"actions": [given]}) == (
        config(
            url="https://gate.example/",
            timeout_s=3.0,
            allow_private=True,
            on=frozenset({Event.TRIP, Event.RESET}),
            services=("shop",),
            actions=frozenset({Action.HALT}),
        ),
    )
    with pytest.raises(ValueError, match=r"actions\.gate\.on: there is no event 'tripped'; there are"):
        actions_of({"actions": [given | {"on": ["tripped"]}]})
    assert actions_of({}) == ()


@pytest.mark.parametrize(
    ("configs", "said"),
    [
        ([{"url": "ftp://x"}], "actions.gate.url: "),
        ([{"secrets": ("short",)}], "actions.gate.secrets"),
        ([{"secrets": ()}], "actions.gate.secrets: at least one"),
        ([{"timeout_s": 0.0}], "actions.gate.timeout_s: "),
        ([{}, {}], "actions.name: two actions are named 'gate'"),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_key(configs: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(ValueError, match=said.replace(".", r"\.")):
        notifiers_of([config(**changes) for changes in configs])


def test_an_event_that_opens_and_closes_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"actions\.gate\.on: 'latch' opens and closes nothing"):
        config(on=frozenset({Event.LATCH}))
    with pytest.raises(ValueError, match=r"actions\.name"):
        config(name="")
