from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from api import followers
from api.followers import FORGET_S, STALE_S, Followers
from control.actor import Actor
from control.breakers.states import Event
from control.scope import Scope
from tests.control.support import ManualClock

if TYPE_CHECKING:
    from tests.api.conftest import Api

SOMEBODY = Actor(type="person", id="somebody")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_a_delay_runs_from_commit_to_acknowledgement_less_what_was_held_back(clock: ManualClock) -> None:
    told: list[float] = []
    book = Followers(clock, told.append)
    book.connected("local", "a", 0)
    book.committed(1)
    clock.advance(0.25)
    book.committed(2)
    clock.advance(0.5)
    book.acknowledged("local", "a", 2, held_s=0.25)
    (client,) = book.all(2)
    assert sorted(told) == [0.25, 0.5]
    assert (client.revision, client.behind, client.measured, client.p99_s) == (2, 0, 2, 0.5)


def test_what_was_there_before_a_client_came_is_no_delay(clock: ManualClock) -> None:
    book = Followers(clock)
    book.committed(1)
    clock.advance(60)
    book.connected("local", "a", 0)
    book.acknowledged("local", "a", 1)
    (client,) = book.all(1)
    assert (client.measured, client.p50_s, client.behind) == (0, None, 0)


def test_an_acknowledgement_of_something_old_takes_nothing_back(clock: ManualClock) -> None:
    book = Followers(clock)
    book.acknowledged("local", "a", 7)
    book.acknowledged("local", "a", 3)
    assert book.all(7)[0].revision == 7


def test_a_client_that_does_not_follow_is_stale_after_a_while(clock: ManualClock) -> None:
    book = Followers(clock)
    book.connected("local", "slow", 0)
    book.connected("local", "quick", 0)
    book.committed(1)
    book.acknowledged("local", "quick", 1)
    assert book.stale(1) == 0
    clock.advance(STALE_S + 1)
    assert [(c.name, c.stale, c.behind) for c in book.all(1)] == [("slow", True, 1), ("quick", False, 0)]
    assert [book.have()(revision) for revision in (0, 1, 2)] == [2, 1, 0]


def test_clients_that_are_gone_are_forgotten_and_never_too_many(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followers, "MAX_CLIENTS", 2)
    book = Followers(clock)
    for name in ("a", "b", "c"):
        clock.advance(1)
        book.acknowledged("local", name, 1)
    assert [c.name for c in book.all(1)] == ["b", "c"]
    book.connected("local", "c", 1)
    clock.advance(FORGET_S + 1)
    assert [c.name for c in book.all(1)] == ["c"]


def test_one_that_is_connected_is_not_forgotten_for_others(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Acknowledgements under ever new names must not have a trip answered before all know of it."""
    monkeypatch.setattr(followers, "MAX_CLIENTS", 3)
    book = Followers(clock)
    book.connected("local", "follows", 0)
    book.connected("local", "was here", 0)
    for number in range(20):
        clock.advance(1)
        book.acknowledged("other", str(number), 1)
    assert book.acknowledged_by(1, Scope(tool="t")) == (0, 2)
    book.left("local", "was here")
    for number in range(20):
        book.acknowledged("other", str(number), 1)
    assert sorted(c.name for c in book.all(1)) == ["18", "19", "follows"]


def test_names_are_those_of_a_token(clock: ManualClock) -> None:
    book = Followers(clock)
    book.acknowledged("one", "a", 1)
    book.acknowledged("two", "a", 2)
    assert [(c.caller, c.revision) for c in book.all(2)] == [("one", 1), ("two", 2)]


def test_the_api_shows_clients_and_audit_how_many_know(api: Api) -> None:
    breaker = api.parts.control.breakers.act(Scope(session="a"), Event.TRIP, SOMEBODY, "stuck")
    for name, revision in (("one", breaker.revision), ("two", 0), ("three", breaker.revision + 5)):
        answer = api.ask("POST", "/v1/acks", json={"client": name, "revision": revision})
        assert answer.json() == {"revision": breaker.revision}
    listed = api.ask("GET", "/v1/clients").json()
    assert [(c["client"], c["behind"], c["connected"]) for c in listed["clients"]] == [
        ("two", breaker.revision, False),
        ("one", 0, False),
        ("three", 0, False),
    ]
    (entry,) = api.ask("GET", "/v1/audit").json()["entries"]
    assert (entry["verb"], entry["subject"], entry["acknowledged_by"]) == ("breaker.trip", breaker.id, 2)


def test_what_a_client_refused_by_itself_counts_towards_the_halt(api: Api) -> None:
    breaker = api.parts.control.breakers.act(Scope(session="a"), Event.TRIP, SOMEBODY, "stuck")
    refused = [{"breaker_id": breaker.id, "session_id": "a", "count": 3}]
    api.ask("POST", "/v1/acks", json={"client": "one", "revision": 1, "refused": refused})
    assert api.ask("GET", f"/v1/breakers/{breaker.id}").json()["denied"] == 3
    assert api.check(session_id="a")["decision"] == "halt"


def test_those_who_must_acknowledge_follow_and_are_told_of_it(clock: ManualClock) -> None:
    book = Followers(clock)
    everything, mine = Scope(tool="t"), Scope(session="mine")
    book.connected("local", "all", 0)
    book.connected("other", "some", 0, lambda scope: scope.session in (None, "mine"))
    book.acknowledged("local", "polls", 1)
    assert book.acknowledged_by(1, everything) == (0, 2)
    assert book.acknowledged_by(1, Scope(session="another")) == (0, 1)
    book.acknowledged("local", "all", 1)
    assert book.acknowledged_by(1, mine) == (1, 2)
    book.acknowledged("other", "some", 1)
    book.left("local", "all")
    assert book.acknowledged_by(1, mine) == (1, 1)
