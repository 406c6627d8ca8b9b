"""Checks, persons, rules, probes and the clock at once, each in a thread of its own."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from control import audit
from control.action import Action
from control.breakers.book import list_breakers
from control.breakers.leases import LeaseOver
from control.breakers.record import UnknownBreaker
from control.breakers.settings import BreakerSettings
from control.breakers.states import Event, IllegalTransition, State
from control.scope import Asked, Scope
from tests.control.breaker_world import World

if TYPE_CHECKING:
    from pathlib import Path

SCOPES = [
    *(Scope(session=f"s{n}") for n in range(6)),
    *(Scope(service="shop", tool=f"t{n}") for n in range(4)),
    Scope(agent="a"),
]
CALLS = [Asked(service="shop", agent="a", session=f"s{n}", tool=f"t{m}") for n in range(8) for m in range(5)]


HANDS = [Event.RESET, Event.TRIP, Event.FORCE_OPEN, Event.RELEASE, Event.FORCE_CLOSE]


class Crowd:
    """What each thread does."""

    def __init__(self, folder: Path) -> None:
        settings = BreakerSettings(base_open_s=1, blast_per_minute=0, flap_trips=1000)
        self.world = World(folder, settings=settings)
        self.leases: list[str] = []

    def ask(self) -> None:
        for number in range(3000):
            verdict = self.world.check(CALLS[number % len(CALLS)])
            if verdict.probe is not None and len(self.leases) < 50:
                lease = self.world.breakers.grant_lease(verdict.probe, "agent")
                if lease is not None:
                    self.leases.append(lease.id)

    def hold_and_reset(self) -> None:
        chance = random.Random(1)
        for _ in range(80):
            event = chance.choice(HANDS)
            ttl_s = 1.0 if event is Event.FORCE_CLOSE else None
            with suppress(UnknownBreaker, IllegalTransition):
                self.world.act(event, chance.choice(SCOPES), ttl_s=ttl_s)

    def trip(self) -> None:
        chance = random.Random(2)
        for _ in range(120):
            self.world.clock.advance(0.1)
            self.world.trip(chance.choice(SCOPES), chance.choice(list(Action)))

    def pass_time(self) -> None:
        for _ in range(60):
            self.world.wait(0.2)
            self.world.breakers.settle()
            with suppress(LeaseOver):
                if self.leases:
                    self.world.breakers.finish_lease(self.leases.pop(), ok=True)


def test_whatever_happens_at_once_memory_and_file_say_the_same(tmp_path: Path) -> None:
    crowd = Crowd(tmp_path)
    world = crowd.world
    told: list[int] = []
    world.breakers.index.subscribe(lambda change: told.append(change.revision))
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(w) for w in (crowd.ask, crowd.hold_and_reset, crowd.trip, crowd.pass_time)]:
            done.result()
    world.breakers.settle()
    revision, known = world.breakers.index.snapshot()
    assert told == list(range(1, revision + 1))
    with world.db.reading() as connection:
        stored = list_breakers(connection, session_id=None, state=None, before=None, limit=99)
        assert audit.verify(connection) == revision
    assert {replace(b, denied=0) for b in known} == {
        replace(b, denied=0) for b in stored if b.state is not State.CLOSED
    }
    world.db.close()
