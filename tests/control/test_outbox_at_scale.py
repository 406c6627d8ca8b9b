"""What becomes of the outbox when much waits, and when an end comes while its begin is on its way."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import pytest

from control.ledger import current, list_destinations
from control.notifiers.protocol import Failed, Refused
from control.outbox import Due
from tests.control.test_outbox import FIRED, OVER, Grouped, Post, tell, turns, with_fallback

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MANY = 3_000


@pytest.fixture
def post(tmp_path: Path) -> Iterator[Post]:
    made = Post(tmp_path)
    yield made
    made.parts.close()


def steps(post: Post, ask: Callable[[sqlite3.Connection], object], monkeypatch: pytest.MonkeyPatch) -> int:
    """How much SQLite does for what is asked: thousands of instructions."""
    done = 0

    def count() -> int:
        nonlocal done
        done += 1
        return 0

    connect = sqlite3.connect

    def counted(*given: object, **more: object) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*given, **more)  # type: ignore[call-overload]
        connection.set_progress_handler(count, 1_000)
        return connection

    monkeypatch.setattr(sqlite3, "connect", counted)
    with post.parts.db.reading() as connection:
        ask(connection)
    monkeypatch.undo()
    return done


def fill(post: Post, state: str) -> None:
    """Put many beginnings of one destination into the outbox."""
    with post.parts.db.transaction() as tx:
        for number in range(MANY):
            tx.execute(
                "INSERT INTO outbox (message_id, destination, order_key, type, body, state, next_ns, "
                "created_ns, group_key) VALUES (?, 'one', ?, 'alert.firing', x'00', ?, 0, 0, 'g')",
                (f"m{number}", f"al_{number}", state),
            )


def test_the_next_message_is_found_without_looking_at_all_that_wait(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(post, "pending")
    assert steps(post, lambda _: post.parts.outbox.next("one"), monkeypatch) <= 2
    assert steps(post, lambda _: post.parts.outbox.next("two"), monkeypatch) <= 2


def test_what_is_told_again_takes_time_in_proportion_to_what_fires(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(post, "delivered")
    told: list[int] = []
    done = steps(post, lambda connection: told.append(len(current(connection, "one", 0))), monkeypatch)
    assert told == [MANY]
    assert done < MANY / 10


def test_many_ends_are_put_aside_while_one_alert_of_the_incident_goes_on(post: Post) -> None:
    post.places["one"] = Grouped()
    post.restart()
    fill(post, "delivered")
    with post.parts.db.transaction() as tx:
        for number in range(1, MANY):
            tx.execute(
                "INSERT INTO outbox (message_id, destination, order_key, type, body, state, next_ns, "
                "created_ns, group_key) VALUES (?, 'one', ?, 'alert.resolved', x'00', ?, 0, 0, 'g')",
                (f"end{number}", f"al_{number}", "pending" if number > MANY - 1_100 else "superseded"),
            )
    assert turns(post) == []
    with post.parts.db.reading() as connection:
        assert [place.pending for place in list_destinations(connection)] == [0, 0]


def test_what_was_over_when_it_was_refused_reaches_no_fallback(post: Post) -> None:
    with_fallback(post)
    tell(post, FIRED)
    due = post.parts.outbox.next("one")
    assert isinstance(due, Due)
    tell(post, OVER)
    post.parts.outbox.settle(
        "one", due, Refused("HTTP 400", 400), post.clock(), post.parts.delivery.fallbacks.copy
    )
    assert (turns(post), turns(post, "two")) == ([], [])


def test_an_end_that_comes_while_the_begin_is_handed_over_leaves_no_incident_open(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_fallback(post)
    post.places["one"].script = [Failed("connection refused")]
    tell(post, FIRED)
    post.turn()
    post.clock.advance(301)
    copy = post.parts.delivery.fallbacks.copy

    def copy_late(*given: object) -> bool:
        tell(post, OVER)  # another thread, between the look and the transaction
        return copy(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(post.parts.delivery.fallbacks, "copy", copy_late)
    assert post.parts.delivery.fallbacks.divert("one") == (0, None)
    assert turns(post, "two") == []


def test_more_than_is_handed_over_at_once_is_handed_over_all_the_same(post: Post) -> None:
    with_fallback(post)
    post.places["one"].script = [Failed("connection refused")] * 9
    keys = [f"al_{number}" for number in range(250)]
    for key in keys:
        tell(post, FIRED, key=key)
    post.turn()
    post.clock.advance(301)
    divert = post.parts.delivery.fallbacks.divert
    assert [divert("one"), divert("one"), divert("one")] == [(200, 0.0), (50, None), (0, None)]
    assert turns(post, "two") == [f"{key}-1-firing" for key in keys]
