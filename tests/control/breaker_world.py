"""Breakers over a real file, with a clock that is set, and a restart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from control.action import Action
from control.actor import Actor
from control.breakers.book import Breakers, get_breaker
from control.breakers.index import BreakerIndex
from control.breakers.record import breaker_id
from control.breakers.settings import BreakerSettings
from control.breakers.states import Event
from control.db import ControlDb
from control.facts import Fact
from control.policy import Trip
from control.scope import Asked, Scope
from detectors.notes import Notes
from tests.control.support import STUCK, ManualClock

if TYPE_CHECKING:
    from pathlib import Path

    from control.breakers.record import Breaker
    from control.breakers.verdict import Decision, Verdict
    from control.db import Transaction
    from detectors.protocol import Finding

PERSON = Actor(type="person", id="on-call")
TOOL = Scope(session="session-1", tool="fetch_page")
SESSION = Scope(session="session-1")
WIDE = Scope(service="shop", tool="fetch_page")
CALL = Asked(service="shop", session="session-1", tool="fetch_page")


class World:
    """Everything about breakers, and what their hooks said."""

    def __init__(
        self, folder: Path, escalate_after: int = 3, *, settings: BreakerSettings | None = None
    ) -> None:
        self.folder = folder
        self.settings = settings or BreakerSettings(escalate_after=escalate_after)
        self.clock = ManualClock()
        self.notes: dict[str, Notes] = {}
        self.active: int | None = None
        self.said: list[tuple[str, Any]] = []
        self.open()

    def open(self) -> None:
        self.db = ControlDb(self.folder / "control.db")
        self.breakers = Breakers(
            self.db,
            BreakerIndex(settings=self.settings),
            self.clock,
            notes=self.notes.get,
            active_sessions=lambda: self.active,
        )
        hooks = self.breakers.hooks
        hooks.on_flapping = lambda _, breaker: self.said.append(("flapping", breaker.id))
        hooks.on_capped = lambda _, breaker: self.said.append(("capped", breaker.id))
        hooks.on_still_running = self._still_running
        hooks.on_run_ended = lambda _, breaker: self.said.append(("ended", breaker.id))
        hooks.on_refused = lambda _scope, rule, why: self.said.append(("refused", (rule, why)))

    def _still_running(self, _: Transaction, breaker: Breaker, notes: Notes) -> None:
        self.said.append(("still_running", (breaker.id, notes.session_id)))

    def restart(self) -> None:
        self.db.close()
        self.open()

    def trip(
        self,
        scope: Scope = TOOL,
        action: Action = Action.DENY,
        *,
        shadow: bool = False,
        found_ns: int | None = None,
        open_s: float | None = None,
        quarantine: bool = False,
        finding: Finding = STUCK,
    ) -> Breaker | None:
        trip = Trip(rule="r", scope=scope, action=action, shadow=shadow, open_s=open_s, quarantine=quarantine)
        with self.db.transaction() as tx:
            return self.breakers.trip(tx, trip, finding, self.clock() if found_ns is None else found_ns)

    def tripped(self, scope: Scope = TOOL, action: Action = Action.DENY, **more: Any) -> Breaker:  # noqa: ANN401 - as trip
        breaker = self.trip(scope, action, **more)
        assert breaker is not None
        return breaker

    def act(self, event: Event, target: str | Scope = TOOL, **more: Any) -> Breaker:  # noqa: ANN401 - as act
        return self.breakers.act(target, event, PERSON, "because", **more)

    def check(self, asked: Asked = CALL) -> Verdict:
        return self.breakers.index.check(asked)

    def ask(self, tool: str | None = "fetch_page", session: str = "session-1") -> Decision:
        return self.check(Asked(service="shop", session=session, tool=tool)).decision

    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.breakers.tick()

    def stored(self, scope: Scope = TOOL) -> Breaker:
        with self.db.reading() as connection:
            return get_breaker(connection, breaker_id(scope))

    def half_open(self, scope: Scope = WIDE) -> Breaker:
        self.tripped(scope)
        self.wait(60)
        return self.stored(scope)

    def events(self) -> list[str]:
        with self.db.reading() as connection:
            return [
                row["event"] for row in connection.execute("SELECT event FROM breaker_events ORDER BY seq")
            ]


def fact(world: World, kind: str, session: str = "session-1", **payload: Any) -> Fact:  # noqa: ANN401 - JSON
    told = {"service": "shop", "agent": "buyer", "tool": "fetch_page", "end_ns": world.clock(), **payload}
    return Fact(seq=1, kind=kind, session_id=session, payload=told, created_ns=world.clock())
