from __future__ import annotations

import json
import os
import threading
import unittest
from functools import partial
from typing import Any

from recloser_guard import Guard, Pace
from recloser_guard.backoff import Backoff
from scripted import QUIET, Clock, Stream, breaker, event, eventually, scripted, snapshot

FAST = Pace(
    first_event=0.3, silence=0.3, poll_wait=1.0, poll_pause=0.02, stream_again=30.0, refused=30.0, connect=5.0
)


def at_once(_low: float, _high: float) -> float:
    return 0.01


def guard_of(url: str, **how: Any) -> Guard:
    return Guard(url, **{"cache": None, "pace": FAST, "uniform": at_once, **how})


def is_refused(guard: Guard) -> bool:
    return guard.status().state == "refused"


class TheStream(unittest.TestCase):
    def test_a_trip_is_known_as_soon_as_it_is_told_and_acknowledged(self) -> None:
        trip, close = threading.Event(), threading.Event()

        def tell(stream: Stream) -> None:
            stream.write(snapshot(revision=4))
            stream.hold(trip)
            stream.write(event("upsert", breaker(1, 5, tool="t"), 5))
            stream.hold(close)
            stream.write(event("remove", {"id": breaker(1)["id"], "revision": 6}, 6))
            stream.hold()

        with (
            scripted(tell) as sidecar,
            guard_of(sidecar.url, client="one", pace=FAST._replace(silence=10.0)) as guard,
        ):
            assert guard.wait_ready(10)
            assert guard.check("t")
            trip.set()
            eventually(lambda: not guard.check("t"))
            eventually(lambda: any(b["revision"] == 5 for b in sidecar.bodies("POST", "/v1/acks")))
            close.set()
            eventually(lambda: guard.check("t"))
            eventually(lambda: any(b["revision"] == 6 for b in sidecar.bodies("POST", "/v1/acks")))
            assert {b["client"] for b in sidecar.bodies("POST", "/v1/acks")} == {"one"}
            assert "client=one" in sidecar.asked[0][1]
            assert guard.status().state == "live"

    def test_it_acknowledges_late_unless_it_is_asked_to(self) -> None:
        def spread(_low: float, high: float) -> float:
            return 0.01 if high < 1 else 60.0

        ask = threading.Event()

        def tell(stream: Stream) -> None:
            stream.write(snapshot(revision=4))
            stream.hold(ask)
            stream.write(event("upsert", breaker(1, 5, tool="t"), 5))
            stream.write(event("acknowledge", {"revision": 5}))
            stream.hold()

        with (
            scripted(tell) as sidecar,
            guard_of(sidecar.url, uniform=spread, pace=FAST._replace(silence=10.0)) as guard,
        ):
            assert guard.wait_ready(10)
            assert sidecar.bodies("POST", "/v1/acks") == []
            ask.set()
            eventually(lambda: any(b["revision"] == 5 for b in sidecar.bodies("POST", "/v1/acks")))

    def test_after_a_break_it_goes_on_from_the_last_event_and_compares_the_whole_list(self) -> None:
        def first(stream: Stream) -> None:
            stream.write(snapshot(revision=4))

        def second(stream: Stream) -> None:
            stream.write(event("upsert", breaker(1, 5, tool="t"), 5))
            while not stream.ended.wait(0.1):
                stream.write(event("heartbeat", {"revision": 6}))

        missed = breaker(2, 6, tool="missed")
        with scripted(first, second) as sidecar:
            listed = {
                "revision": 6,
                "breakers": [missed, breaker(1, 5, tool="t"), breaker(3, 3, "closed", tool="c")],
                "next_before": None,
            }
            sidecar.answers["GET", "/v1/breakers"] = (200, listed)
            with guard_of(sidecar.url) as guard:
                eventually(lambda: not guard.check("missed"))
                assert not guard.check("t")
                assert guard.check("c")
                watches = [headers for _, path, headers, _ in sidecar.asked if "/watch" in path]
                assert "last-event-id" not in watches[0]
                assert watches[1]["last-event-id"] == "4"
                assert guard.status().reconnects == 1

    def test_a_token_that_may_not_list_begins_anew_with_a_snapshot(self) -> None:
        def first(stream: Stream) -> None:
            stream.write(snapshot(revision=4))

        def second(stream: Stream) -> None:
            stream.write(snapshot(breaker(1, 5, tool="t")))
            while not stream.ended.wait(0.1):
                stream.write(b": heartbeat\n\n")

        with scripted(first, first, second) as sidecar:
            sidecar.answers["GET", "/v1/breakers"] = (403, {})
            with guard_of(sidecar.url) as guard:
                eventually(lambda: not guard.check("t"))
                assert guard.status().state == "live"
                watches = [headers for _, path, headers, _ in sidecar.asked if "/watch" in path]
                assert ["last-event-id" in headers for headers in watches] == [False, True, False]

    def test_a_stream_that_falls_silent_is_opened_again(self) -> None:
        def silent(stream: Stream) -> None:
            stream.write(snapshot(revision=4))
            stream.hold()

        def talking(stream: Stream) -> None:
            stream.write(event("upsert", breaker(1, 5, tool="t"), 5))
            while not stream.ended.wait(0.1):
                stream.write(b": heartbeat\n\n")

        with scripted(silent, talking) as sidecar:
            sidecar.answers["GET", "/v1/breakers"] = (304, None)
            with guard_of(sidecar.url) as guard:
                eventually(lambda: not guard.check("t"))
                assert sidecar.opened == 2

    def test_a_proxy_that_holds_the_stream_back_is_polled(self) -> None:
        state: dict[str, Any] = {"revision": 1, "breakers": []}

        def listed(_body: Any, headers: dict[str, str]) -> tuple[int, Any]:
            if headers.get("if-none-match") == f'"rev-{state["revision"]}"':
                return 304, None
            return 200, dict(state)

        with scripted(lambda stream: stream.hold()) as sidecar:
            sidecar.answers["GET", "/v1/breakers"] = listed
            with guard_of(sidecar.url) as guard:
                eventually(lambda: guard.status().state == "polling")
                assert guard.check("t").because == "closed"
                state.update(revision=2, breakers=[breaker(1, 2, tool="t")])
                eventually(lambda: not guard.check("t"))
                state.update(revision=3, breakers=[])
                eventually(lambda: guard.check("t"))
                polls = [path for _, path, _, _ in sidecar.asked if "since=" in path]
                assert "wait=1" in polls[0]
                assert sidecar.opened == 1

    def test_where_there_is_no_stream_it_polls(self) -> None:
        with scripted() as sidecar:
            sidecar.answers["GET", "/v1/breakers/watch"] = (404, {})
            sidecar.answers["GET", "/v1/breakers"] = (
                200,
                {"revision": 3, "breakers": [breaker(1, 3, tool="a")]},
            )
            with guard_of(sidecar.url) as guard:
                assert guard.wait_ready(10)
                assert not guard.check("a")
                assert "active=true" in sidecar.asked[-1][1]

    def test_a_poll_that_names_a_lower_revision_is_of_another_file(self) -> None:
        listed: dict[str, Any] = {"revision": 7, "breakers": [breaker(1, 7, tool="a")]}

        def answer(_body: Any, headers: dict[str, str]) -> tuple[int, Any]:
            asked = sidecar.asked[-1][1]
            return (
                (304, None)
                if "since=7" in asked or headers.get("if-none-match") == '"rev-7"'
                else (200, listed)
            )

        with scripted() as sidecar:
            sidecar.answers["GET", "/v1/breakers/watch"] = (404, {})
            sidecar.answers["GET", "/v1/breakers"] = answer
            with guard_of(sidecar.url) as guard:
                assert guard.wait_ready(10)
                listed.update(revision=2, breakers=[])
                sidecar.etag = '"rev-2"'
                eventually(lambda: guard.check("a"))

    def test_a_refused_token_is_no_reason_to_hammer(self) -> None:
        for status in (401, 403):
            with scripted() as sidecar:
                sidecar.answers["GET", "/v1/breakers/watch"] = (status, {})
                with (
                    self.assertLogs("recloser_guard", "ERROR") as logged,
                    guard_of(sidecar.url, token="wrong") as guard,
                ):
                    eventually(partial(is_refused, guard))
                    assert guard.check("t").because == "unreachable"
                watches = [path for _, path, _, _ in sidecar.asked if "/watch" in path]
                assert len(watches) == 1
                assert len(logged.records) == 1
                assert "wrong" not in logged.output[0]

    def test_nonsense_on_the_stream_is_counted_and_the_list_is_asked_for(self) -> None:
        def tell(stream: Stream) -> None:
            stream.write(snapshot(revision=1) + b"event: upsert\ndata: {\n\n")
            while not stream.ended.wait(0.1):
                stream.write(b": heartbeat\n\n")

        with scripted(tell) as sidecar:
            sidecar.answers["GET", "/v1/breakers"] = (
                200,
                {"revision": 2, "breakers": [breaker(1, 2, tool="t")]},
            )
            with self.assertLogs("recloser_guard", "ERROR"), guard_of(sidecar.url) as guard:
                eventually(lambda: not guard.check("t"))
                assert guard.status().defects == 1

    def test_an_answer_may_end_a_busy_sidecar_wait(self) -> None:
        with scripted() as sidecar:
            sidecar.answers["GET", "/v1/breakers/watch"] = (503, {})
            with guard_of(sidecar.url) as guard:
                eventually(lambda: guard.status().reconnects >= 3)
                assert guard.check("t").because == "unreachable"

    def test_changes_that_concern_others_are_acknowledged_too(self) -> None:
        def tell(stream: Stream) -> None:
            stream.write(snapshot(revision=4))
            while not stream.ended.wait(0.05):
                stream.write(event("heartbeat", {"revision": 9}))

        with scripted(tell) as sidecar, guard_of(sidecar.url):
            eventually(lambda: any(b["revision"] == 9 for b in sidecar.bodies("POST", "/v1/acks")))

    def test_it_closes_at_once_and_may_be_closed_twice(self) -> None:
        def tell(stream: Stream) -> None:
            stream.write(snapshot(revision=1))
            stream.hold()

        with scripted(tell) as sidecar:
            guard = Guard(sidecar.url, cache=None)
            assert guard.wait_ready(10)
            guard.close()
            assert guard._watcher is not None
            assert not guard._watcher.thread.is_alive()
            guard.close()
            assert guard.status().state == "closed"


class Waiting(unittest.TestCase):
    def test_pauses_grow_and_are_spread_and_begin_anew_after_a_healthy_minute(self) -> None:
        low: list[float] = []

        def longest(least: float, most: float) -> float:
            low.append(least)
            return most

        waits = Backoff(longest)
        assert [waits.next() for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]
        assert low == [0.5, 1, 2, 4, 8, 15, 15]
        waits.healthy(59.0)
        assert waits.next() == 30
        waits.healthy(60.0)
        assert waits.next() == 1

    def test_it_warns_once_that_nothing_is_heard(self) -> None:
        clock = Clock()

        def tell(stream: Stream) -> None:
            stream.write(snapshot(revision=1))
            stream.hold()

        with scripted(tell) as sidecar, guard_of(sidecar.url, clock=clock, pace=Pace()) as guard:
            assert guard.wait_ready(10)
            with self.assertLogs("recloser_guard", "WARNING") as logged:
                clock.now += 31
                guard._health.tick()
                guard._health.tick()
            assert len(logged.records) == 1
            assert "for 31 s" in logged.output[0]


@unittest.skipUnless(hasattr(os, "fork"), "no fork here")
class Forks(unittest.TestCase):
    def test_a_child_listens_by_itself(self) -> None:
        def tell(stream: Stream) -> None:
            stream.write(snapshot(breaker(1, 5, tool="t")))
            stream.hold()

        with scripted(tell) as sidecar, guard_of(sidecar.url, pace=Pace()) as guard:
            assert not guard.check("t")
            read, write = os.pipe()
            child = os.fork()
            if not child:
                try:
                    first = guard.check("t").decision
                    alive = guard._watcher is not None and guard._watcher.thread.is_alive()
                    os.write(write, json.dumps([first, alive, guard.client.rsplit(":", 1)[1]]).encode())
                finally:
                    os._exit(0)
            os.close(write)
            with os.fdopen(read) as answer:
                assert json.load(answer) == ["deny", True, str(child)]
            os.waitpid(child, 0)
            assert sidecar.opened == 2
            assert not guard.check("t")


class Reports(unittest.TestCase):
    def test_what_could_not_be_told_is_told_later(self) -> None:
        broken = [True]

        def acks(_body: Any, _headers: Any) -> tuple[int, Any]:
            return (503, {}) if broken[0] else (200, dict(QUIET))

        def tell(stream: Stream) -> None:
            stream.write(snapshot(breaker(1, 5, tool="t")))
            stream.hold()

        with scripted(tell) as sidecar, guard_of(sidecar.url, pace=Pace()) as guard:
            sidecar.answers["POST", "/v1/acks"] = acks
            assert not guard.check("t", session="s")
            eventually(lambda: len(sidecar.bodies("POST", "/v1/acks")) >= 2)
            assert guard.status().unreported <= 1
            broken[0] = False
            eventually(lambda: guard.status().unreported == 0)
            told = [b for b in sidecar.bodies("POST", "/v1/acks") if "refused" in b]
            assert told[-1]["refused"] == [{"breaker_id": breaker(1)["id"], "session_id": "s", "count": 1}]

    def test_what_is_untold_is_told_at_the_close(self) -> None:
        def tell(stream: Stream) -> None:
            stream.write(snapshot(breaker(1, 5, tool="t")))
            stream.hold()

        with scripted(tell) as sidecar:
            with guard_of(sidecar.url, pace=Pace()) as guard:
                assert not guard.check("t", session="s")
            assert any("refused" in body for body in sidecar.bodies("POST", "/v1/acks"))


if __name__ == "__main__":
    unittest.main()
