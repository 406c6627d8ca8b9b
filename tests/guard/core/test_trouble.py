"""What goes wrong around a guard reaches no agent as anything but a decision."""

from __future__ import annotations

import asyncio
import inspect
import tempfile
import threading
import unittest
import uuid
from collections.abc import AsyncIterator, Generator, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

from recloser_guard import CallDenied, Guard, GuardError, RunHalted
from recloser_guard.backoff import Backoff
from recloser_guard.cache import Cache
from recloser_guard.reporter import Reporter
from recloser_guard.stream import MAX_EVENT
from recloser_guard.transport import Transport, Unreachable
from scripted import Clock, Stream, breaker, eventually, scripted, snapshot
from test_answers import guarding

DEEP = b"[" * 200_000
NONSENSE: tuple[Any, ...] = (None, [], "x", 7, {}, {"decision": None}, {"lease_id": None, "id": None})


class Answers(unittest.TestCase):
    def test_an_answer_that_makes_no_sense_is_none(self) -> None:
        shown = breaker(tool="t", args="0" * 16)
        with guarding(shown, critical=("t",)) as (guard, sidecar):
            for body in (*NONSENSE, {"decision": "allow", "revision": "x"}, {"decision": "perhaps"}):
                sidecar.answers["POST", "/v1/check"] = (200, body)
                assert guard.check("t", {"q": 1}, session="s").unreachable, body
                assert guard.check("t", {"q": 1}, session="s", critical=False), body

    def test_a_lease_that_makes_no_sense_is_none(self) -> None:
        with guarding(breaker(tool="t", state="half_open")) as (guard, sidecar):
            for body in NONSENSE:
                sidecar.answers["POST", "/v1/breakers/br_0000000000000001/leases"] = (201, body)
                decision = guard.check("t", session="s", lease=True)
                assert decision.unreachable, body
                assert decision.lease_id is None

    def test_a_reservation_that_makes_no_sense_goes_by_the_fail_mode(self) -> None:
        with guarding() as (guard, sidecar):
            for body in NONSENSE:
                sidecar.answers["POST", "/v1/budgets/b/reservations"] = (201, body)
                with guard.reserve("b", 1) as reserved:
                    assert reserved.decision is not None
                    assert reserved.decision.unreachable, body

    def test_arguments_that_nest_without_end_are_none_that_can_be_asked_about(self) -> None:
        nested: list[Any] = []
        for _ in range(100_000):
            nested = [nested]
        with guarding(ask_server=True) as (guard, _):
            assert guard.check("t", nested, session="s").unreachable
        while nested:  # else freeing it would nest as deeply
            nested = nested.pop()

    def test_names_that_are_no_texts_are_those_that_telemetry_has(self) -> None:
        session = uuid.UUID(int=7)
        with guarding(breaker(session=str(session))) as (guard, _):
            assert not guard.check("t", session=session)  # type: ignore[arg-type]
            assert guard.check("t", session=8)  # type: ignore[arg-type]

    def test_a_cache_that_nests_without_end_is_no_cache(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            url = "http://127.0.0.1:9"
            for content in (DEEP, b'{"format":1,"revision":Infinity,"breakers":[]}'):
                Cache(Path(folder), url, None).path.write_bytes(content)
                Guard(url, cache=folder).close()

    def test_a_line_without_an_end_is_not_kept(self) -> None:
        part = b"x" * 1_000_000

        class Endless:
            given = 0

            def read1(self, _: int = -1) -> bytes:
                self.given += len(part)
                assert self.given <= MAX_EVENT + 10 * len(part), "it is kept"
                return part

        class Connection:
            sock = None

        from recloser_guard.transport import Stream as Lines

        with self.assertRaises(Unreachable):
            Lines(Connection(), Endless()).line(1.0)  # type: ignore[arg-type]

    def test_a_pause_that_is_no_number_is_none(self) -> None:
        def answer(stream: Stream) -> None:
            del stream

        with scripted(answer) as sidecar:
            sidecar.answers["GET", "/x"] = (200, None)
            transport = Transport(sidecar.url, None, context=None, version="0")
            assert transport.ask("GET", "/x", timeout=5).status == 200
        from recloser_guard.transport import _raise_for

        for pause in ("\u00b2", "-1", "Wed, 21 Oct 2026 07:28:00 GMT", ""):
            with self.assertRaises(Unreachable) as raised:
                _raise_for(503, "x", pause)
            assert raised.exception.retry_after is None

    def test_no_thread_can_be_had(self) -> None:
        """As at the end of an interpreter, or in a container at its limit."""
        with Guard("http://127.0.0.1:9", cache=None) as before:
            assert before.check("t").unreachable
        with patch.object(threading.Thread, "start", side_effect=RuntimeError("can't start new thread")):
            guard = Guard("http://127.0.0.1:9", cache=None, connect_wait=30.0, critical=("d",))
            assert guard.check("t").unreachable
            assert not guard.check("d")
            assert "thread" in str(guard.status().last_error)
            guard.close()

    def test_a_guard_that_polls_closes_in_the_time_it_is_given(self) -> None:
        never = threading.Event()

        def hold(*_: Any) -> tuple[int, Any]:
            never.wait(20)
            return 200, {"breakers": [], "revision": 0}

        with scripted() as sidecar:
            sidecar.answers["GET", "/v1/breakers/watch"] = (404, {})
            sidecar.answers["GET", "/v1/breakers"] = hold
            guard = Guard(sidecar.url, cache=None, connect_wait=0.0).start()
            eventually(lambda: sidecar.bodies("GET", "/v1/breakers"))
            watcher = guard._watcher
            assert watcher is not None
            with patch.object(watcher.thread, "join") as join:
                guard.close(0.1)
            never.set()
            ((wait,), _) = join.call_args
            assert 0 <= wait <= 0.1


class Telling(unittest.TestCase):
    def test_money_may_be_a_decimal(self) -> None:
        with guarding() as (guard, sidecar):
            sidecar.answers["POST", "/v1/budgets/usd/reservations"] = (201, {"id": "rs_1"})
            sidecar.answers["POST", "/v1/reservations/rs_1/commit"] = (204, None)
            with guard.reserve("usd", Decimal("0.5")) as reserved:  # type: ignore[arg-type]
                reserved.commit(Decimal("0.25"))  # type: ignore[arg-type]
            eventually(lambda: sidecar.bodies("POST", "/v1/reservations/rs_1/commit") == [{"actual": 0.25}])
            with self.assertRaises(GuardError), guard.reserve("usd", 1) as reserved:
                reserved.commit(float("nan"))

    def test_what_cannot_be_written_holds_nothing_else_up(self) -> None:
        with guarding(breaker(tool="t")) as (guard, sidecar):
            guard.post("/v1/nonsense", {"x": object()}, 1e9)
            guard.check("t", session="s")
            eventually(lambda: any(b.get("refused") for b in sidecar.bodies("POST", "/v1/acks")))
            assert guard.status().unreported == 0

    def test_what_cannot_be_told_for_long_is_bounded(self) -> None:
        reporter = Reporter(
            Transport("http://127.0.0.1:9", None, context=None, version="0"),
            client="c", backoff=Backoff(lambda low, _: low), uniform=lambda low, _: low,
        )  # fmt: skip
        for number in range(10_050):
            reporter.denied("br", str(number))
        reporter.denied("br", "10049")
        assert reporter.unreported() == 10_001


class HalfOpen(unittest.TestCase):
    def test_who_waits_for_a_try_is_not_halted_and_ignores_nothing(self) -> None:
        clock = Clock()
        shown = breaker(tool="t", state="half_open")
        with guarding(shown, halt_after=3, clock=clock, apply_after=1e9, warn_after=1e9) as (guard, sidecar):
            sidecar.answers["POST", f"/v1/breakers/{shown['id']}/leases"] = (409, {})
            for _ in range(10):
                clock.now += 60
                assert guard.check("t", session="s").decision == "deny"
                assert guard.check("t", session="s", lease=True).decision == "deny"
            assert guard.status().unreported == 0
        assert not any(body.get("refused") for body in sidecar.bodies("POST", "/v1/acks"))

    def test_refusals_far_apart_ignore_no_wide_breaker(self) -> None:
        clock = Clock()
        wide, own = breaker(1, tool="t"), breaker(2, session="own")
        with guarding(wide, own, halt_after=3, clock=clock, apply_after=1e9, warn_after=1e9) as (guard, _):
            for _ in range(10):
                clock.now += 301
                assert guard.check("t", session="s").decision == "deny"
            told = [guard.check("x", session="own").decision for _ in range(1)]
            for _ in range(3):
                clock.now += 301
                told.append(guard.check("x", session="own").decision)
            assert told == ["deny", "deny", "halt", "halt"]


class Decorated(unittest.TestCase):
    def test_a_generator_is_asked_about_when_it_begins(self) -> None:
        with guarding(breaker(tool="bad"), cache=None) as (guard, _):

            @guard.guarded("good")
            def good(count: int) -> Generator[Any, Any, int]:
                got = yield 0
                for n in range(1, count):
                    got = yield (n, got)
                return count

            @guard.guarded("bad")
            def bad() -> Iterator[int]:
                yield 1

            @guard.guarded("bad", tell_model=True)
            def told() -> Iterator[str]:
                yield "never"

            assert inspect.isgeneratorfunction(good)
            running = good(2)
            assert next(running) == 0
            assert running.send("x") == (1, "x")
            with self.assertRaises(StopIteration) as ended:
                next(running)
            assert ended.exception.value == 2
            refused = bad()
            with self.assertRaises(CallDenied):
                next(refused)
            assert list(told()) == ["Stopped: 1"]

    def test_an_async_generator_is_asked_about_when_it_begins(self) -> None:
        closed: list[str] = []
        with guarding(breaker(tool="bad"), cache=None) as (guard, _):

            @guard.guarded("good")
            async def good() -> AsyncIterator[Any]:
                try:
                    got = yield 1
                    try:
                        yield got
                    except KeyError:
                        yield "caught"
                finally:
                    closed.append("good")

            @guard.guarded("bad")
            async def bad() -> AsyncIterator[int]:
                yield 1

            @guard.guarded("bad", tell_model=True)
            async def told() -> AsyncIterator[str]:
                yield "never"

            async def main() -> None:
                running = good()
                assert await running.__anext__() == 1
                assert await running.asend("x") == "x"  # type: ignore[attr-defined]
                assert await running.athrow(KeyError) == "caught"  # type: ignore[attr-defined]
                with self.assertRaises(StopAsyncIteration):
                    await running.__anext__()
                again = good()
                assert await again.__anext__() == 1
                await again.aclose()  # type: ignore[attr-defined]
                with self.assertRaises(CallDenied):
                    await bad().__anext__()
                assert [text async for text in told()] == ["Stopped: 1"]

            assert inspect.isasyncgenfunction(good)
            asyncio.run(main())
        assert closed == ["good", "good"]

    def test_a_probe_that_is_a_generator_ends_with_it(self) -> None:
        shown = breaker(tool="t", state="half_open")
        with guarding(shown) as (guard, sidecar):
            sidecar.answers["POST", f"/v1/breakers/{shown['id']}/leases"] = (201, {"lease_id": "ls_1"})
            sidecar.answers["POST", "/v1/leases/ls_1/result"] = (200, {})

            @guard.guarded("t")
            def fails() -> Iterator[int]:
                yield 1
                raise OSError("no")

            running = fails()
            next(running)
            assert guard.status().unreported == 0
            with self.assertRaises(OSError):
                next(running)
            eventually(lambda: sidecar.bodies("POST", "/v1/leases/ls_1/result") == [{"ok": False}])

    def test_class_and_static_methods(self) -> None:
        with guarding(breaker(tool="no")) as (guard, _):

            class Tools:
                @guard.guarded("yes")
                @classmethod
                def of_class(cls, a: int) -> tuple[str, int]:
                    return cls.__name__, a

                @guard.guarded("yes")
                @staticmethod
                def static(a: int) -> int:
                    return a

                @guard.guarded("no")
                @classmethod
                def refused(cls) -> None:
                    raise AssertionError

            assert Tools.of_class(1) == Tools().of_class(1) == ("Tools", 1)
            assert Tools.static(2) == Tools().static(2) == 2
            with self.assertRaises(CallDenied):
                Tools.refused()

    def test_a_run_that_the_decorator_names_is_cancelled_when_it_is_halted(self) -> None:
        halt = breaker(session="named", action="halt")
        trip = threading.Event()

        def tell(stream: Stream) -> None:
            stream.write(snapshot())
            trip.wait(20)
            stream.write(snapshot(halt))
            stream.hold()

        with scripted(tell) as sidecar, Guard(sidecar.url, cache=None) as guard:
            assert guard.wait_ready(10)

            @guard.guarded("t", cancel=True, session="named")
            async def work() -> None:
                trip.set()
                await asyncio.sleep(20)

            with self.assertRaises(RunHalted):
                asyncio.run(work())


if __name__ == "__main__":
    unittest.main()
