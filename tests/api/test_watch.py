from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

import httpx
import orjson
import pytest

from api.app import create_app
from api.auth import Authority, Token
from api.watching import MAX_BEHIND, MAX_LISTENERS, PART_BYTES
from control.actor import Actor
from control.breakers.record import breaker_id
from control.breakers.states import Event
from control.scope import Scope
from control.verbs import Only, Verb
from tests.api.conftest import SECRETS
from tests.api.serving import served
from tests.api.streaming import following
from tests.control.support import STUCK, Spool, eventually

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path
    from typing import Any

    from control.breakers.record import Breaker
    from tests.api.conftest import Api

WATCH = "/v1/breakers/watch"
SOMEBODY = Actor(type="person", id="somebody")


def trip(api: Api, session: str) -> Breaker:
    return api.parts.control.breakers.act(Scope(session=session), Event.TRIP, SOMEBODY, "stuck")


def reset(api: Api, breaker: Breaker) -> Breaker:
    return api.parts.control.breakers.act(breaker.id, Event.RESET, SOMEBODY, "over")


def run(what: Coroutine[Any, Any, None]) -> None:
    asyncio.run(what)


def test_a_watcher_gets_all_that_is_then_each_change_as_lists_show_it(api: Api) -> None:
    async def watch() -> None:
        first = trip(api, "a")
        async with following(api.app, WATCH) as stream:
            snapshot = await stream.next()
            assert (snapshot.name, snapshot.id) == ("snapshot", str(first.revision))
            assert [b["id"] for b in snapshot.data["breakers"]] == [first.id]
            second = await asyncio.to_thread(trip, api, "b")
            upsert = await stream.next("upsert")
            assert upsert.id == str(second.revision)
            shown.append(upsert.data)
            await asyncio.to_thread(reset, api, first)
            remove = await stream.next("remove")
            assert remove.data == {"id": first.id, "revision": int(remove.id)}
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert stream.headers["cache-control"] == "no-store"

    shown: list[dict[str, Any]] = []
    run(watch())
    assert shown == [api.ask("GET", f"/v1/breakers/{shown[0]['id']}").json()]


def test_a_finding_that_trips_reaches_watchers_too(api: Api) -> None:
    async def watch() -> None:
        async with following(api.app, WATCH) as stream:
            await stream.next("snapshot")
            api.spool.add(STUCK)
            await asyncio.to_thread(api.parts.decide_all)
            assert (await stream.next("upsert")).data["reason"] == "doom_loop"

    run(watch())


def test_one_who_comes_back_gets_what_it_missed(api: Api) -> None:
    async def watch() -> None:
        first = trip(api, "a")
        second = trip(api, "b")
        reset(api, first)
        headers = {"last-event-id": str(first.revision)}
        async with following(api.app, WATCH, **headers) as stream:
            missed = [await stream.next() for _ in range(2)]
            assert [(event.name, event.data["id"]) for event in missed] == [
                ("upsert", second.id),
                ("remove", first.id),
            ]
            third = await asyncio.to_thread(trip, api, "c")
            assert (await stream.next()).data["id"] == third.id

    run(watch())


@pytest.mark.parametrize("last", ["999", "12"])
def test_one_who_missed_too_much_or_comes_from_elsewhere_begins_anew(api: Api, last: str) -> None:
    async def watch() -> None:
        api.parts.index.changes.begin(100)  # what came before is not kept
        trip(api, "a")
        async with following(api.app, WATCH, **{"last-event-id": last}) as stream:
            assert [(await stream.next()).name for _ in range(2)] == ["reset", "snapshot"]

    run(watch())


def test_a_slow_watcher_is_not_waited_for_and_begins_anew(api: Api) -> None:
    async def watch() -> None:
        async with following(api.app, WATCH) as slow, following(api.app, WATCH) as quick:
            await slow.next("snapshot")
            await quick.next("snapshot")
            slow.reading.clear()
            breaker = trip(api, "a")
            await quick.next("upsert")
            for _ in range(MAX_BEHIND // 2 + 1):
                reset(api, breaker)
                trip(api, "a")
                await asyncio.sleep(0)
                await quick.next("upsert")
            slow.reading.set()
            await slow.next("reset")
            snapshot = await slow.next("snapshot")
            assert [b["id"] for b in snapshot.data["breakers"]] == [breaker.id]
            later = await asyncio.to_thread(trip, api, "b")
            assert (await slow.next()).data["id"] == later.id

    run(watch())
    assert api.parts.registry.get_sample_value("recloser_watch_resets_total") == 1


def test_a_snapshot_is_written_once_for_all_who_want_it(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    breaker = trip(api, "a")
    hub = api.services.following.hub
    written: list[str] = []

    def noting(one: Breaker) -> bytes:
        written.append(one.id)
        return b"{}"

    monkeypatch.setattr(hub, "_write", noting)

    async def watch() -> None:
        for _ in range(3):
            async with following(api.app, WATCH) as stream:
                await stream.next("snapshot")

    run(watch())
    assert written == [breaker.id]


def test_heartbeats_come_as_comment_and_event(api: Api) -> None:
    api.services.following.hub.heartbeat_s = 0.02

    async def watch() -> None:
        async with following(api.app, WATCH) as stream:
            assert (await stream.next("heartbeat")).data == {"revision": 0}
            await stream.next("heartbeat")
            assert ": heartbeat\n\n" in stream.text

    run(watch())


def test_streams_end_when_the_process_does_and_nobody_new_is_let_in(api: Api) -> None:
    async def watch() -> None:
        async with following(api.app, WATCH) as stream:
            await stream.next("snapshot")
            api.services.following.hub.end()
            await stream.end()
        async with following(api.app, WATCH) as late:
            await late.end()
            assert late.status == 503

    run(watch())


def test_there_is_room_for_so_many(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.watching.MAX_LISTENERS", 1)
    assert MAX_LISTENERS > 1

    async def watch() -> None:
        async with following(api.app, WATCH) as one:
            await one.next("snapshot")
            async with following(api.app, WATCH) as other:
                await other.end()
                assert other.status == 503
        async with following(api.app, WATCH) as again:
            await again.next("snapshot")

    run(watch())


def test_a_client_that_goes_away_is_let_go(api: Api) -> None:
    async def watch() -> None:
        async with following(api.app, f"{WATCH}?client=buyer-1") as stream:
            await stream.next("snapshot")
            (client,) = api.services.following.followers.all(0)
            assert (client.name, client.connected) == ("buyer-1", True)
            assert api.services.following.hub.watchers == 1
        assert api.services.following.hub.watchers == 0
        (client,) = api.services.following.followers.all(0)
        assert not client.connected

    run(watch())


def test_a_stream_ends_with_the_token_that_opened_it(guarded: Api) -> None:
    guarded.services.following.hub.heartbeat_s = 0.02

    async def watch() -> None:
        bearer = {"authorization": f"Bearer {SECRETS[next(v for v in SECRETS if v == 'check')]}"}
        async with following(guarded.app, WATCH, **bearer) as stream:
            await stream.next("snapshot")
            guarded.services.authority.book = type(guarded.services.authority)(()).book
            await stream.end()

    run(watch())


def test_a_poll_comes_back_as_soon_as_something_changes(api: Api) -> None:
    async def poll() -> None:
        path = "/v1/breakers?active=true&since=0&wait=30"
        async with following(api.app, path) as waiting:
            for _ in range(5):
                await asyncio.sleep(0)
            assert not waiting.status
            breaker = await asyncio.to_thread(trip, api, "a")
            await waiting.end()
            assert (waiting.status, waiting.headers["etag"]) == (200, f'"rev-{breaker.revision}"')
            assert breaker.id in waiting.text

    run(poll())


def test_a_poll_of_one_who_goes_away_holds_nothing(api: Api) -> None:
    async def poll() -> None:
        async with following(api.app, "/v1/breakers?since=0&wait=60"):
            for _ in range(20):
                await asyncio.sleep(0)
        assert api.services.following.hub.polls == 0

    run(poll())


def test_changes_that_nobody_follows_are_not_kept(api: Api) -> None:
    for number in range(3):
        trip(api, str(number))
    eventually(lambda: api.services.following.hub.waiting == 0)


def test_what_is_written_once_says_what_is_so_now(api: Api) -> None:
    opened = api.parts.control.breakers.act(Scope(session="a"), Event.TRIP, SOMEBODY, "stuck")
    write = api.services.following.hub._write
    first = write(opened)
    assert write(opened) is first, "many may want it at the same time"
    api.check(session_id="a")
    assert orjson.loads(write(opened))["denied"] == 1
    again = api.parts.control.breakers.act(opened.id, Event.FORCE_OPEN, SOMEBODY, "stuck")
    assert orjson.loads(write(again))["state"] == "forced_open"


def test_restricted_tokens_are_told_of_what_may_concern_them(api: Api) -> None:
    shop = Scope(service="shop", tool="pay")
    office = Scope(service="office", tool="pay")
    anywhere = Scope(tool="pay")
    for scope in (shop, office, anywhere):
        api.parts.control.breakers.act(scope, Event.TRIP, SOMEBODY, "stuck")
    secret = "secret of a shop's agent"
    only = Only(services=("shop",))
    token = Token.of("agent", secret, {Verb.CHECK, Verb.READ}, only)
    object.__setattr__(api.services, "authority", Authority((token,)))
    api.app = create_app(api.services)
    wanted = {breaker_id(shop), breaker_id(anywhere)}
    listed = api.ask("GET", "/v1/breakers?active=true", token=secret).json()["breakers"]
    assert {breaker["id"] for breaker in listed} == wanted
    assert api.ask("GET", f"/v1/breakers/{breaker_id(office)}", token=secret).status_code == 404

    async def watch() -> None:
        bearer = {"authorization": f"Bearer {secret}"}
        async with following(api.app, WATCH, **bearer) as stream:
            snapshot = await stream.next("snapshot")
            assert {breaker["id"] for breaker in snapshot.data["breakers"]} == wanted
            for scope, do in ((office, Event.RESET), (office, Event.TRIP), (shop, Event.RESET)):
                await asyncio.to_thread(
                    api.parts.control.breakers.act, breaker_id(scope), do, SOMEBODY, "again"
                )
            assert (await stream.next("remove")).data["id"] == breaker_id(office)  # an id tells nothing
            assert (await stream.next()).data["id"] == breaker_id(shop)

    run(watch())


def test_a_long_list_for_one_who_is_restricted_is_made_part_by_part(api: Api) -> None:
    for number in range(120):
        trip(api, f"{'mine' if number % 3 else 'theirs'}-{number}")
    hub = api.services.following.hub

    async def watch() -> None:
        events = hub.follow(None, lambda scope: (scope.session or "").startswith("mine"))
        async with aclosing(events) as told:
            parts = [await anext(told)]
            while not parts[-1].endswith(b"]}\n\n"):
                parts.append(await anext(told))
        assert len(parts) > 2
        assert max(map(len, parts)) < 2 * PART_BYTES
        (data,) = [line for line in b"".join(parts).split(b"\n") if line.startswith(b"data: ")]
        sessions = {each["scope"]["session"] for each in orjson.loads(data[6:])["breakers"]}
        assert sessions == {f"mine-{number}" for number in range(120) if number % 3}

    run(watch())


def test_a_stream_over_the_wire_tells_and_ends_with_the_server(tmp_path: Path) -> None:
    Spool(tmp_path / "spool.db")
    with served(tmp_path) as plane, plane.client.stream("GET", WATCH) as answer:
        events = (
            line for line in answer.iter_lines() if line.startswith("event: ") and line != "event: heartbeat"
        )
        assert next(events) == "event: snapshot"
        body = {"scope": {"session": "a"}, "reason": "stuck"}
        with httpx.Client(base_url=plane.client.base_url) as another:
            assert another.post("/v1/breakers", json=body).status_code == 200
        assert next(events) == "event: upsert"
        plane.process.services.following.hub.end()
        assert list(events) == []  # it ended whole, no error
