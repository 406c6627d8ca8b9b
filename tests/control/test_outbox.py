from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from control import delivery
from control.ledger import (
    StillPending,
    UnknownDelivery,
    list_attempts,
    list_deliveries,
    list_destinations,
    replay,
)
from control.notifiers.protocol import (
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
from control.outbox import Due, Settled
from control.posting import Poster
from control.retry import RetryPolicy
from tests.control.support import ManualClock, Parts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

DAY_S = 86_400.0
UNBOUNDED = Capabilities(audience=Audience.PAGER, rate_per_s=1e9, burst=10**9)


@dataclass
class Scripted:
    """A destination that answers by a script, then takes everything. It keeps what was sent to it."""

    script: list[Result | Exception] = field(default_factory=list)
    sent: list[tuple[str, int]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    address: str = "here"
    capabilities: Capabilities = UNBOUNDED

    def render(self, notice: Notice) -> bytes:
        return f"{notice.type}{' brief' if notice.brief else ''}".encode()

    async def send(self, message: Message, at_s: int) -> Result:
        self.sent.append((message.id, at_s))
        self.bodies.append(message.body)
        result = self.script.pop(0) if self.script else Delivered(200)
        if isinstance(result, Exception):
            raise result
        return result

    async def close(self) -> None:
        """Hold nothing."""


class Grouped(Scripted):
    """All alerts are one incident."""

    def group(self, body: bytes) -> str:
        return f"all of {len(body) > 0}"


@dataclass
class Forgetful(Scripted):
    """Forgets what it was told."""

    refresh_s: float = 60.0
    resolved_for_s: float = 600.0
    told: list[list[str]] = field(default_factory=list)
    answer: Result = field(default_factory=lambda: Delivered(200))

    async def refresh(self, messages: Sequence[Message], at_s: int) -> Result:
        assert at_s > 0
        self.told.append([message.id for message in messages])
        return self.answer


class Post:
    """An outbox with one or two scripted destinations and a clock that is set."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = ManualClock()
        self.places: dict[str, Scripted] = {"one": Scripted(), "two": Scripted()}
        self.retry = RetryPolicy()
        self.parts = self._open()

    def _open(self) -> Parts:
        return Parts(self.folder, notifiers=self.places, clock=self.clock, retry=self.retry)

    def restart(self) -> None:
        self.parts.close()
        self.parts = self._open()

    def put(self, message_id: str, key: str = "al_1", destination: str = "one") -> bool:
        with self.parts.db.transaction() as tx:
            message = Message(id=message_id, type="alert.firing", body=b"{}")
            return self.parts.outbox.enqueue(tx, destination, key, message)

    def turn(self, destination: str = "one") -> float | None:
        return asyncio.run(self.parts.delivery.attempt_next(destination))

    def sent(self, destination: str = "one") -> list[str]:
        return [message_id for message_id, _ in self.places[destination].sent]

    def state(self, message_id: str, destination: str | None = None) -> str:
        with self.parts.db.reading() as connection:
            for key in ("al_1", "al_2"):
                for delivery in list_deliveries(connection, key):
                    if delivery.message_id == message_id and destination in (None, delivery.destination):
                        return delivery.state
        raise KeyError(message_id)


@pytest.fixture
def post(tmp_path: Path) -> Iterator[Post]:
    made = Post(tmp_path)
    yield made
    made.parts.close()


def test_an_empty_outbox_has_nothing_to_wait_for(post: Post) -> None:
    assert post.turn() is None


def test_a_message_is_delivered_once(post: Post) -> None:
    assert post.put("m1")
    assert post.turn() == 0.0
    assert post.turn() is None
    assert (post.sent(), post.state("m1")) == (["m1"], "delivered")


def test_the_same_message_is_not_taken_twice(post: Post) -> None:
    assert [post.put("m1"), post.put("m1"), post.put("m1", destination="two")] == [True, False, True]
    post.turn()
    assert post.put("m1") is False
    assert post.turn() is None


def test_a_failing_destination_is_tried_again_with_growing_pauses(post: Post) -> None:
    post.places["one"].script = [Failed("down")] * 4
    post.put("m1")
    pauses = []
    for _ in range(4):
        assert post.turn() == 0.0
        pause = post.turn()
        assert pause is not None
        pauses.append(pause)
        post.clock.advance(pause)
    assert pauses == [5.0, 15.0, 45.0, 135.0]
    assert post.turn() == 0.0
    assert (post.sent(), post.state("m1")) == (["m1"] * 5, "delivered")


def test_what_a_destination_asks_for_is_waited_for(post: Post) -> None:
    post.places["one"].script = [Failed("busy", 429, retry_after=600.0)]
    post.put("m1")
    post.turn()
    assert post.turn() == 600.0


def test_pauses_and_pending_messages_survive_a_restart(post: Post) -> None:
    post.places["one"].script = [Failed("busy", 503, retry_after=60.0)]
    post.put("m1")
    post.turn()
    post.restart()
    assert post.turn() == 60.0
    post.clock.advance(60)
    assert post.turn() == 0.0
    assert post.sent() == ["m1", "m1"]


def test_a_destination_in_trouble_gets_everything_in_order_afterwards(post: Post) -> None:
    post.places["one"].script = [Failed("down")]
    for number in range(4):
        post.put(f"m{number}", key=f"al_{number % 2}")
    post.turn()
    assert post.turn() == 5.0
    post.clock.advance(5)
    while post.turn() == 0.0:
        pass
    assert post.sent() == ["m0", "m0", "m1", "m2", "m3"]


def test_a_message_that_is_not_liked_steps_aside_but_its_alert_stays_in_order(post: Post) -> None:
    post.places["one"].script = [Failed("what?", 400, about_message=True)]
    for message_id, key in (("a1", "al_1"), ("a2", "al_1"), ("b1", "al_2")):
        post.put(message_id, key)
    assert [post.turn(), post.turn()] == [0.0, 0.0]
    assert post.turn() == 5.0
    assert post.sent() == ["a1", "b1"]
    post.clock.advance(5)
    while post.turn() == 0.0:
        pass
    assert post.sent() == ["a1", "b1", "a1", "a2"]


def test_one_destination_in_trouble_holds_up_no_other(post: Post) -> None:
    post.places["one"].script = [Failed("down")] * 9
    for destination in ("one", "two"):
        post.put("m1", destination=destination)
        post.turn(destination)
    assert post.sent("two") == ["m1"]
    assert post.turn("two") is None


def test_a_destination_that_is_gone_gets_nothing_more_until_it_moves(
    post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    post.places["one"].script = [Gone("410 Gone", 410)]
    post.put("m1")
    post.put("m2")
    assert post.turn() == 0.0
    assert post.turn() is None
    post.restart()
    assert post.turn() is None
    assert post.sent() == ["m1"]
    assert [r.getMessage() for r in caplog.records if "disabled" in r.getMessage()] == [
        "one is disabled: 410 Gone; nothing is sent until its address changes"
    ]
    with post.parts.db.reading() as connection:
        one, two = list_destinations(connection)
    assert (one.disabled_ns, one.pending, two.disabled_ns) == (post.clock(), 2, None)
    post.places["one"].address = "there"
    post.restart()
    while post.turn() == 0.0:
        pass
    assert post.sent() == ["m1", "m1", "m2"]


def test_a_message_is_given_up_when_it_waited_for_too_long(post: Post) -> None:
    post.places["one"].script = [Failed("down")] * 2
    post.put("m1")
    post.turn()
    post.clock.advance(4 * DAY_S)
    assert post.turn() == 0.0
    assert post.state("m1") == "dead"


def test_messages_nobody_tries_any_more_are_given_up_too(post: Post) -> None:
    post.put("m1", destination="removed")
    assert post.parts.outbox.expire() == 0
    post.clock.advance(4 * DAY_S)
    assert post.parts.outbox.expire() == 1
    assert post.state("m1") == "dead"


def test_a_defect_of_a_notifier_loses_no_message(post: Post, caplog: pytest.LogCaptureFixture) -> None:
    post.places["one"].script = [RuntimeError("bug")]
    post.put("m1")
    post.turn()
    assert post.turn() == 5.0
    assert "failed unexpectedly" in caplog.text
    post.clock.advance(5)
    post.turn()
    assert post.state("m1") == "delivered"


def test_every_attempt_is_in_the_ledger(post: Post) -> None:
    post.places["one"].script = [Failed("down"), Failed("HTTP 500", 500)]
    post.put("m1")
    for _ in range(3):
        post.turn()
        post.clock.advance(60)
    with post.parts.db.reading() as connection:
        rows = connection.execute("SELECT status, result, error FROM attempts ORDER BY seq").fetchall()
    assert [tuple(row) for row in rows] == [
        (None, "retry", "down"),
        (500, "retry", "HTTP 500"),
        (200, "delivered", ""),
    ]


def test_a_ledger_that_cannot_be_written_pages_nobody_at_every_turn(
    post: Post, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(delivery, "_TROUBLE_PAUSE_S", 0.002)
    post.parts.delivery.start()

    def full(*_: object) -> Settled:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(post.parts.outbox, "settle", full)
    post.put("msg_1")
    with caplog.at_level(logging.ERROR):
        post.parts.delivery.wake()
        deadline = time.monotonic() + 10
        while len(caplog.records) < 4 and time.monotonic() < deadline:
            time.sleep(0.005)
            post.parts.delivery.wake()
    pauses = [record.args[1] for record in caplog.records if isinstance(record.args, tuple)]
    assert pauses[:4] == [0.002, 0.004, 0.008, 0.016]
    monkeypatch.undo()
    while post.state("msg_1") != "delivered" and time.monotonic() < deadline:
        time.sleep(0.005)
    post.parts.delivery.stop()
    assert post.state("msg_1") == "delivered"


FIRED = "alert.firing"
OVER = "alert.resolved"


def tell(
    post: Post, kind: str, episode: int = 1, key: str = "al_1", names: tuple[str, ...] = ("one",)
) -> None:
    """Put a notice into the outbox as alerting does."""
    notice = Notice(type=kind, at_ns=post.clock(), data={"alert_id": key})
    with post.parts.db.transaction() as tx:
        for name in names:
            poster = Poster(post.parts.outbox, post.places)
            poster.tell(tx, name, key, f"{key}-{episode}-{kind.rpartition('.')[2]}", notice)


def turns(post: Post, destination: str = "one") -> list[str]:
    """Make turns until nothing is due; return what was sent in them."""
    before = len(post.sent(destination))
    while post.turn(destination) == 0.0:
        pass
    return post.sent(destination)[before:]


def test_what_was_over_before_it_was_taken_reaches_no_pager(post: Post) -> None:
    post.places["one"].script = [Failed("connection refused")]
    tell(post, FIRED)
    post.turn()
    tell(post, OVER)
    post.clock.advance(3600)
    assert turns(post) == []
    assert [post.state("al_1-1-firing"), post.state("al_1-1-resolved")] == ["superseded", "superseded"]


def test_a_chat_gets_one_short_line_of_what_is_over(post: Post) -> None:
    post.places["one"].capabilities = Capabilities(audience=Audience.CHAT)
    tell(post, FIRED)
    tell(post, OVER)
    assert turns(post) == ["al_1-1-resolved"]
    assert post.places["one"].bodies == [b"alert.resolved brief"]


@pytest.mark.parametrize("answer", [Failed("no answer", unsure=True), Failed("HTTP 502", 502, unsure=True)])
def test_what_may_have_been_taken_is_ended(post: Post, answer: Result) -> None:
    post.places["one"].script = [answer]
    tell(post, FIRED)
    post.turn()
    tell(post, OVER)
    post.clock.advance(3600)
    assert turns(post) == ["al_1-1-resolved"]
    assert post.state("al_1-1-firing") == "superseded"


def test_what_may_have_been_sent_when_it_was_killed_is_ended(post: Post) -> None:
    tell(post, FIRED)
    due = post.parts.outbox.next("one")
    assert isinstance(due, Due)
    post.parts.outbox.begin(due)
    post.restart()
    tell(post, OVER)
    assert turns(post) == ["al_1-1-resolved"]


def test_after_an_outage_live_alerts_page_once_and_finished_ones_do_not(post: Post) -> None:
    post.places["one"].script = [Failed("connection refused")] * 9
    tell(post, FIRED, key="al_1")
    tell(post, FIRED, key="al_2")
    for _ in range(9):
        post.turn()
        post.clock.advance(400)
    tell(post, OVER, key="al_1")
    tell(post, FIRED, episode=2, key="al_1")
    tell(post, OVER, episode=2, key="al_1")
    post.clock.advance(3 * 3600)
    assert turns(post) == ["al_2-1-firing"]


def test_a_second_episode_goes_after_the_end_of_the_first(post: Post) -> None:
    tell(post, FIRED)
    turns(post)
    tell(post, OVER)
    tell(post, FIRED, episode=2)
    assert turns(post) == ["al_1-1-resolved", "al_1-2-firing"]


def test_the_end_of_a_refused_message_is_not_told(post: Post) -> None:
    post.places["one"].script = [Refused("HTTP 400", 400)]
    tell(post, FIRED)
    turns(post)
    tell(post, OVER)
    assert turns(post) == []
    assert (post.state("al_1-1-firing"), post.state("al_1-1-resolved")) == ("dead", "superseded")
    assert post.parts.registry.get_sample_value("recloser_outbox_expired_total") == 1
    with post.parts.db.reading() as connection:
        assert [place.given_up for place in list_destinations(connection)] == [1, 0]


def with_fallback(post: Post) -> None:
    post.places["one"].capabilities = replace(
        post.places["one"].capabilities, fallback="two", fallback_after_s=300
    )


def test_the_fallback_stands_in_once_the_first_has_failed_for_long(post: Post) -> None:
    with_fallback(post)
    post.places["one"].script = [Failed("connection refused")] * 99
    tell(post, FIRED)
    post.turn()
    assert turns(post, "two") == []
    post.clock.advance(301)
    post.turn()
    assert turns(post, "two") == ["al_1-1-firing"]
    tell(post, FIRED, key="al_2")
    post.turn()
    assert turns(post, "two") == ["al_2-1-firing"]
    tell(post, OVER)
    assert turns(post, "two") == ["al_1-1-resolved"]
    assert post.state("al_1-1-firing", "one") == "pending"


def test_both_are_told_the_end_when_both_were_told_the_begin(post: Post) -> None:
    with_fallback(post)
    post.places["one"].script = [Failed("connection refused")]
    tell(post, FIRED)
    post.turn()
    post.clock.advance(301)
    assert (turns(post), turns(post, "two")) == (["al_1-1-firing"], ["al_1-1-firing"])
    tell(post, OVER)
    assert (turns(post), turns(post, "two")) == (["al_1-1-resolved"], ["al_1-1-resolved"])


@pytest.mark.parametrize("answer", [Gone("410", 410), Refused("HTTP 400", 400)])
def test_the_fallback_stands_in_at_once_for_what_will_never_be_taken(post: Post, answer: Result) -> None:
    with_fallback(post)
    post.places["one"].script = [answer]
    tell(post, FIRED)
    turns(post)
    assert turns(post, "two") == ["al_1-1-firing"]
    tell(post, OVER)
    turns(post)
    assert turns(post, "two") == ["al_1-1-resolved"]


def test_a_fallback_that_is_told_anyway_is_told_once(post: Post) -> None:
    with_fallback(post)
    post.places["one"].script = [Failed("connection refused")]
    tell(post, FIRED, names=("one", "two"))
    post.turn()
    post.clock.advance(301)
    post.turn()
    assert turns(post, "two") == ["al_1-1-firing"]
    tell(post, OVER, names=("one", "two"))
    turns(post)
    assert turns(post, "two") == ["al_1-1-resolved"]


def test_an_incident_of_several_alerts_ends_with_the_last(post: Post) -> None:
    post.places["one"] = Grouped()
    post.restart()
    tell(post, FIRED, key="al_1")
    tell(post, FIRED, key="al_2")
    turns(post)
    tell(post, OVER, key="al_1")
    assert turns(post) == []
    tell(post, OVER, key="al_2")
    assert turns(post) == ["al_2-1-resolved"]


def test_no_more_messages_a_second_than_a_destination_bears(post: Post) -> None:
    post.places["one"].capabilities = replace(post.places["one"].capabilities, rate_per_s=1.0, burst=2)
    post.restart()
    for number in range(4):
        post.put(f"m{number}", key=f"al_{number}")
    assert turns(post) == ["m0", "m1"]
    assert post.turn() == 1.0
    post.clock.advance(1)
    assert turns(post) == ["m2"]


def test_a_message_can_be_sent_once_more_and_its_end_goes_with_it(post: Post) -> None:
    tell(post, FIRED)
    turns(post)
    tell(post, OVER)
    turns(post)
    with post.parts.db.transaction() as tx:
        first = list_deliveries(tx, "al_1")[0].seq
        assert len(replay(tx, first, post.clock())) == 2
        with pytest.raises(StillPending):
            replay(tx, first, post.clock())
        with pytest.raises(UnknownDelivery):
            replay(tx, 999, post.clock())
    assert turns(post) == ["al_1-1-firing", "al_1-1-resolved"]
    with post.parts.db.reading() as connection:
        assert [a.result for a in list_attempts(connection, first)] == ["delivered", "delivered"]


def test_a_destination_that_was_down_for_long_is_soon_seen_when_it_is_back(post: Post) -> None:
    post.places["one"].script = [Failed("connection refused")] * 12
    tell(post, FIRED)
    for _ in range(12):
        post.turn()
        pause = post.turn()
        assert pause is not None
        post.clock.advance(pause)
        assert pause <= 300
    assert turns(post) == ["al_1-1-firing"]


def test_a_destination_that_forgets_is_told_again_what_fires_and_what_is_over(post: Post) -> None:
    forgetful = Forgetful()
    post.places["one"] = forgetful
    post.restart()
    tell(post, FIRED, key="al_1")
    tell(post, FIRED, key="al_2")
    turns(post)
    forgetful.told = []
    post.clock.advance(60)
    assert post.turn() == 60.0
    assert forgetful.told == [["al_1-1-firing", "al_2-1-firing"]]
    tell(post, OVER, key="al_1")
    turns(post)
    post.clock.advance(60)
    post.turn()
    assert forgetful.told[-1] == ["al_2-1-firing", "al_1-1-resolved"]
    post.clock.advance(601)
    post.turn()
    assert forgetful.told[-1] == ["al_2-1-firing"]
    forgetful.answer = Failed("connection refused")
    post.clock.advance(60)
    post.turn()
    tell(post, FIRED, key="al_3")
    assert post.turn() == 5.0


def test_a_clock_that_was_ahead_puts_off_nothing_when_it_is_set_back(post: Post) -> None:
    post.clock.advance(30 * DAY_S)
    post.places["one"].script = [Failed("HTTP 400", 400, about_message=True), Failed("HTTP 429", 429, DAY_S)]
    for name in ("a", "b", "c"):
        post.put(name, key=f"al_{name}")
    post.turn()
    post.turn()
    post.clock.advance(-30 * DAY_S)
    assert (post.turn() or 0) > DAY_S
    assert post.parts.outbox.expire() == 0
    for _ in range(3):
        post.turn()
    assert sorted(post.sent()) == ["a", "a", "b", "b", "c"]
    assert post.turn() is None


def test_pauses_that_were_asked_for_stay_when_the_clock_is_right(post: Post) -> None:
    post.places["one"].script = [Failed("HTTP 429", 429, DAY_S)]
    post.put("a")
    post.turn()
    post.clock.advance(1)
    post.parts.outbox.expire()
    assert (post.turn() or 0) > DAY_S - 10
