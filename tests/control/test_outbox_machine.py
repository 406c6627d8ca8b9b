"""Every order of firing, resolving, failing, crashing and coming back keeps what the outbox promises.

Three receivers: a pager whose answers are drawn, the pager that stands in for it, and a chat. A turn of a
worker can be cut off by a crash between any two of its steps.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from control.db import ControlDb
from control.fallback import Fallbacks
from control.notifiers.protocol import (
    ACKNOWLEDGED,
    FIRING,
    RESOLVED,
    Audience,
    Capabilities,
    Delivered,
    Failed,
    Gone,
    Message,
    Notice,
    Refused,
    Result,
)
from control.outbox import NotYet, Outbox
from control.posting import Poster
from control.retry import RetryPolicy
from tests.control.support import ManualClock

KEYS: Final = ("al_1", "al_2", "al_3")
ANSWERS: Final[dict[str, tuple[Result, bool]]] = {
    "taken": (Delivered(200), True),
    "taken, no answer": (Failed("no answer", unsure=True), True),
    "lost, no answer": (Failed("no answer", unsure=True), False),
    "down": (Failed("connection refused"), False),
    "busy": (Failed("HTTP 429", 429, retry_after=40.0), False),
    "does not like it": (Failed("HTTP 422", 422, about_message=True), False),
    "refuses it": (Refused("HTTP 400", 400), False),
    "gone": (Gone("410", 410), False),
}
CRASHES: Final = ("none", "before begin", "after begin", "after sending")


@dataclass
class Place:
    """A receiver: what it was sent, and what it took, as (type, key, episode, brief)."""

    capabilities: Capabilities
    address: str = "here"
    sent: list[tuple[str, str, int, bool]] = field(default_factory=list)
    taken: list[tuple[str, str, int, bool]] = field(default_factory=list)
    begun: set[tuple[str, int]] = field(default_factory=set)

    def render(self, notice: Notice) -> bytes:
        told = [notice.type, notice.data["key"], notice.data["episode"], notice.brief]
        return json.dumps(told).encode()

    async def send(self, message: Message, at_s: int) -> Result:
        raise NotImplementedError

    async def close(self) -> None:
        """Hold nothing."""

    def receive(self, message: Message, *, taken: bool) -> None:
        kind, key, episode, brief = json.loads(message.body)
        self.sent.append((kind, key, episode, brief))
        if taken:
            self.taken.append((kind, key, episode, brief))

    def last(self, key: str) -> tuple[str, int] | None:
        return next(((k, e) for k, of, e, brief in reversed(self.taken) if of == key and not brief), None)


class OutboxMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
        self.clock = ManualClock()
        self.places = {
            "pager": Place(
                Capabilities(
                    audience=Audience.PAGER,
                    acknowledges=True,
                    closes=True,
                    fallback="second",
                    fallback_after_s=60,
                )
            ),
            "second": Place(Capabilities(audience=Audience.PAGER, closes=True)),
            "chat": Place(Capabilities(audience=Audience.CHAT)),
        }
        self.episodes = dict.fromkeys(KEYS, 0)
        self.firing: set[str] = set()
        self.over: dict[tuple[str, int], dict[str, int]] = {}
        self.refused: set[tuple[str, str, int]] = set()
        self.open()

    def open(self) -> None:
        self.db = ControlDb(self.folder / "control.db")
        retry = RetryPolicy(give_up_after_s=10**7)
        self.outbox = Outbox(self.db, retry, now_ns=self.clock, random=lambda: 1.0)
        self.poster = Poster(self.outbox, self.places)
        self.fallbacks = Fallbacks(self.outbox, self.places, self.clock)
        for name, place in self.places.items():
            self.outbox.register(name, place.address)

    @initialize()
    def begin_empty(self) -> None:
        """Nothing is known."""

    @rule()
    def crash(self) -> None:
        self.db.close()
        self.open()

    @rule(seconds=st.sampled_from([1.0, 6.0, 61.0, 3600.0]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(key=st.sampled_from(KEYS))
    def fire(self, key: str) -> None:
        if key not in self.firing:
            self.firing.add(key)
            self.episodes[key] += 1
            self.tell(key, FIRING)

    @rule(key=st.sampled_from(KEYS))
    def acknowledge(self, key: str) -> None:
        if key in self.firing:
            self.tell(key, ACKNOWLEDGED)

    @rule(key=st.sampled_from(KEYS))
    def resolve(self, key: str) -> None:
        if key in self.firing:
            self.firing.discard(key)
            self.over[key, self.episodes[key]] = {name: len(p.sent) for name, p in self.places.items()}
            self.tell(key, RESOLVED)

    def tell(self, key: str, kind: str) -> None:
        episode = self.episodes[key]
        notice = Notice(type=kind, at_ns=self.clock(), data={"key": key, "episode": episode})
        with self.db.transaction() as tx:
            for name in ("pager", "chat"):
                if kind != ACKNOWLEDGED or self.places[name].capabilities.acknowledges:
                    self.poster.tell(tx, name, key, f"msg_{key}_{episode}_{kind}", notice)

    @rule(crash=st.sampled_from(CRASHES))
    def pager_takes(self, crash: str) -> None:
        self.turn("pager", "taken", crash)

    @rule(answer=st.sampled_from(sorted(ANSWERS)), crash=st.sampled_from(CRASHES))
    def pager_turn(self, answer: str, crash: str) -> None:
        self.turn("pager", answer, crash)

    @rule(
        name=st.sampled_from(["second", "chat"]),
        answer=st.sampled_from(["taken", "taken, no answer", "down"]),
        crash=st.sampled_from(CRASHES),
    )
    def other_turn(self, name: str, answer: str, crash: str) -> None:
        self.turn(name, answer, crash)

    def turn(self, name: str, answer: str, crash: str = "none") -> bool:
        place = self.places[name]
        self.fallbacks.divert(name)
        due = self.outbox.next(name, place.capabilities.audience)
        if isinstance(due, NotYet):
            return False
        if crash == "before begin":
            self.crash()
            return True
        self.outbox.begin(due)
        kind, key, episode, _ = json.loads(due.message.body)
        if kind == FIRING:
            place.begun.add((key, episode))
        if crash == "after begin":
            self.crash()
            return True
        result, taken = ANSWERS[answer]
        at_ns = self.clock()
        place.receive(due.message, taken=taken)
        if crash == "after sending":
            self.crash()
            return True
        self.outbox.settle(name, due, result, at_ns, self.fallbacks.copy)
        if isinstance(result, Refused):
            self.refused.add((kind, key, episode))
        return True

    @invariant()
    def nothing_begins_after_its_end(self) -> None:
        for (key, episode), counts in self.over.items():
            for name, place in self.places.items():
                later = place.sent[counts[name] :]
                assert (FIRING, key, episode, False) not in later, (name, place.sent)

    @invariant()
    def no_pager_hears_the_end_of_what_was_never_on_its_way_there(self) -> None:
        for name in ("pager", "second"):
            place = self.places[name]
            for kind, key, episode, brief in place.sent:
                assert not brief
                assert kind == FIRING or (key, episode) in place.begun, (name, place.sent)

    @invariant()
    def the_order_of_each_alert_is_kept(self) -> None:
        for place in self.places.values():
            for key in KEYS:
                told = [
                    (e, [FIRING, ACKNOWLEDGED, RESOLVED].index(k)) for k, of, e, _ in place.sent if of == key
                ]
                assert told == sorted(told), place.sent

    def teardown(self) -> None:
        try:
            self.drain()
            self.check_all_is_told()
        finally:
            self.db.close()
            shutil.rmtree(self.folder)

    def drain(self) -> None:
        for _ in range(300):
            with self.db.transaction() as tx:
                self.outbox.enable(tx, "pager")
            turns = [self.turn(name, "taken") for name in self.places]
            if not any(turns):
                with self.db.reading() as connection:
                    if not connection.execute("SELECT 1 FROM outbox WHERE state = 'pending'").fetchone():
                        return
            self.clock.advance(20_000)
        raise AssertionError("the outbox never became empty")

    def check_all_is_told(self) -> None:
        self.nothing_begins_after_its_end()
        self.no_pager_hears_the_end_of_what_was_never_on_its_way_there()
        self.the_order_of_each_alert_is_kept()
        for key in KEYS:
            for name, place in self.places.items():
                last = place.last(key)
                if key in self.firing:
                    refused = (FIRING, key, self.episodes[key]) in self.refused
                    if name == "chat" or (name == "pager" and not refused):
                        assert last is not None
                        assert last[1] == self.episodes[key], (name, key, place.taken)
                        assert last[0] in (FIRING, ACKNOWLEDGED)
                elif last is not None and not any((RESOLVED, key, n) in self.refused for n in range(99)):
                    assert last[0] == RESOLVED, (name, key, place.taken)


OutboxMachine.TestCase.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
test_the_outbox_keeps_its_promises = OutboxMachine.TestCase
