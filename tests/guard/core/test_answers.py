from __future__ import annotations

import asyncio
import contextlib
import pickle
import tempfile
import time
import unittest
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from recloser_guard import BudgetExceeded, CallDenied, Guard, GuardError, RunHalted
from recloser_guard.moments import unix_seconds
from scripted import Clock, Scripted, Stream, breaker, event, eventually, scripted, snapshot


@contextlib.contextmanager
def guarding(*breakers: dict[str, Any], **how: Any) -> Iterator[tuple[Guard, Scripted]]:
    """A guard that has been told of these breakers, and the sidecar that told it."""

    def tell(stream: Stream) -> None:
        stream.write(snapshot(*breakers))
        stream.hold()

    with scripted(tell) as sidecar, Guard(sidecar.url, **{"cache": None, **how}) as guard:
        assert guard.wait_ready(10)
        yield guard, sidecar


class Refusals(unittest.TestCase):
    def test_an_allow_costs_nothing_and_says_closed(self) -> None:
        with guarding() as (guard, _):
            decision = guard.check("search", {"q": "x"}, session="s")
            assert decision
            assert (decision.decision, decision.because) == ("allow", "closed")
            guard.raise_for(decision)

    def test_a_denied_call_says_everything(self) -> None:
        quarantine = {"tainted_steps": ["a"], "last_clean_step": "b"}
        shown = breaker(tool="t", action="replan", message="Do it otherwise.", quarantine=quarantine)
        with guarding(shown) as (guard, _):
            with self.assertRaises(CallDenied) as raised:
                guard.raise_for(guard.check("t", session="s"))
            assert str(raised.exception) == raised.exception.message_for_model == "Do it otherwise."
            assert raised.exception.strength == "replan"
            assert raised.exception.breaker_id == shown["id"]
            assert raised.exception.quarantine == quarantine
            assert raised.exception.retry_after is None
            copied = pickle.loads(pickle.dumps(raised.exception))
            assert copied.decision == raised.exception.decision

    def test_a_halt_is_another_exception(self) -> None:
        with guarding(breaker(session="s", action="halt")) as (guard, _), self.assertRaises(RunHalted):
            guard.raise_for(guard.check("t", session="s"))

    def test_retry_after_counts_down_by_the_wall_clock(self) -> None:
        wall = Clock(float(unix_seconds("2026-01-01T00:00:00Z") or 0))
        with guarding(breaker(tool="t", until="2026-01-01T00:01:00Z"), wall=wall) as (guard, _):
            assert guard.check("t").retry_after == 60.0
            wall.now += 45
            assert guard.check("t").retry_after == 15.0
            wall.now += 45
            assert guard.check("t").retry_after == 0.0

    def test_names_are_compared_as_the_sidecar_keeps_them(self) -> None:
        with guarding(breaker(session="chat-1")) as (guard, _):
            assert not guard.check("t", session="chat\x00-1")

    def test_the_context_says_whose_call_it_is(self) -> None:
        with guarding(breaker(session="s", agent="buyer")) as (guard, _):
            assert guard.check("t")
            with guard.session("s", agent="buyer"):
                assert not guard.check("t")
                with guard.session("other"):
                    assert guard.check("t")
                assert guard.check("t", session="other")
            assert guard.check("t")

    def test_an_override_is_shown(self) -> None:
        with guarding(breaker(1, tool="t"), breaker(2, state="forced_closed", tool="t")) as (guard, _):
            decision = guard.check("t")
            assert (decision.because, decision.override) == ("override", breaker(2)["id"])

    def test_refusals_are_told_by_breaker_and_session_and_calls_of_one_turn_count_once(self) -> None:
        clock = Clock()
        with guarding(breaker(tool="t"), clock=clock) as (guard, sidecar):
            for _ in range(3):
                for _ in range(4):
                    assert not guard.check("t", session="s")
                clock.now += 1
            assert not guard.check("t", session="u")

            def told() -> dict[str, int]:
                counts: dict[str, int] = {}
                for body in sidecar.bodies("POST", "/v1/acks"):
                    for one in body.get("refused", ()):
                        counts[one["session_id"]] = counts.get(one["session_id"], 0) + one["count"]
                return counts

            eventually(lambda: told() == {"s": 3, "u": 1})
            assert guard.status().refusals == 13

    def test_what_is_ignored_for_too_long_halts_even_if_nobody_can_be_told(self) -> None:
        clock = Clock()
        with guarding(breaker(tool="t", message="No."), clock=clock, halt_after=3) as (guard, _):
            decisions = []
            for _ in range(4):
                decisions.append(guard.check("t", session="s"))
                clock.now += 1
            assert [d.decision for d in decisions] == ["deny", "deny", "halt", "halt"]
            assert decisions[2].because == "ignored"
            assert guard.check("t", session="another").decision == "deny"
            for _ in range(5):
                clock.now += 1
                assert guard.check("t").decision == "deny"  # of whom? nobody is halted on suspicion

    def test_what_cannot_be_meant_is_refused_with_its_name(self) -> None:
        for how, complaint in (
            ({"url": "tcp://x"}, "url"),
            ({"url": "http://"}, "url"),
            ({"fail_mode": {"default": "ajar"}}, "fail_mode.default"),
            ({"warn_after": 5.0, "apply_after": 1.0}, "warn_after"),
            ({"token": "a\nb"}, "token"),
        ):
            with self.assertRaises(GuardError) as raised:
                Guard(cache=None, **how)
            assert complaint in str(raised.exception)


class Silence(unittest.TestCase):
    def test_what_is_known_stays_in_force_and_all_else_goes_by_the_fail_mode(self) -> None:
        clock = Clock()
        how = {
            "clock": clock,
            "critical": ("delete_*",),
            "fail_mode": {"default": "open", "critical": "closed", "pay": "closed"},
        }
        with guarding(breaker(session="s", action="halt"), **how) as (guard, _):
            assert guard.check("delete_all").because == "closed"
            clock.now += 119
            assert guard.status().state == "stale"
            assert guard.check("search").because == "closed"
            clock.now += 2
            assert guard.status().state == "lost"
            assert guard.status().staleness_s == 121
            allowed = guard.check("search")
            assert (allowed.decision, allowed.because, allowed.unreachable) == ("allow", "unreachable", True)
            refused = guard.check("delete_all")
            assert (refused.decision, refused.because) == ("deny", "unreachable")
            assert "`delete_all`" in refused.message_for_model
            assert not guard.check("pay")
            assert not guard.check("search", critical=True)
            assert guard.check("delete_all", critical=False)
            assert guard.check("search", session="s").halted
            status = guard.status()
            assert (status.allowed_unreachable, status.refused_unreachable) == (2, 3)

    def test_a_breaker_whose_time_is_over_is_not_held_against_calls_when_nobody_can_close_it(self) -> None:
        clock, wall = Clock(), Clock(float(unix_seconds("2026-01-01T00:00:00Z") or 0))
        how = {"clock": clock, "wall": wall}
        with guarding(
            breaker(1, tool="t", until="2026-01-01T00:01:00Z"), breaker(2, tool="h", state="half_open"), **how
        ) as (guard, _):
            wall.now += 90
            clock.now += 90
            assert not guard.check("t")  # the sidecar is still heard, and has not closed it
            clock.now += 90
            assert guard.check("t").because == "unreachable"
            assert guard.check("h").because == "unreachable"

    def test_a_sidecar_that_was_never_heard_is_unreachable_from_the_start(self) -> None:
        with Guard(
            "http://127.0.0.1:9", cache=None, connect_wait=0.2, fail_mode={"critical": "closed"}
        ) as guard:
            assert guard.check("search").because == "unreachable"
            assert not guard.check("search", critical=True)
            assert guard.status().state == "starting"

    def test_the_last_known_state_is_kept_and_its_age_counts(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            with guarding(breaker(session="s", action="halt"), cache=folder, token="secret") as (
                _,
                sidecar,
            ):
                url = sidecar.url
            (kept,) = Path(folder).iterdir()
            assert kept.stat().st_mode & 0o777 == 0o600
            assert "secret" not in kept.read_text() + kept.name
            wall = Clock(time.time() + 60)
            with Guard(url, "secret", cache=folder, connect_wait=0.1, wall=wall) as again:
                assert again.check("t", session="s").halted
                assert again.check("t", session="u").because == "closed"
                assert 59 < again.status().staleness_s < 70
            with Guard(url, "secret", cache=folder, connect_wait=0.1, wall=Clock(time.time() + 300)) as old:
                assert old.check("t", session="s").halted
                assert old.check("t", session="u").because == "unreachable"
            with Guard(url, "another", cache=folder, connect_wait=0.1) as other:
                assert other.check("t", session="s").because == "unreachable"

    def test_a_cache_that_makes_no_sense_is_no_cache(self) -> None:
        for content in ("", "[]", '{"format": 1}', '{"format": 1, "revision": 1, "breakers": [{}]}'):
            with tempfile.TemporaryDirectory() as folder:
                guard = Guard("http://127.0.0.1:9", cache=folder, connect_wait=0.0)
                assert guard._cache is not None
                guard._cache.path.write_text(content)
                with Guard("http://127.0.0.1:9", cache=folder, connect_wait=0.0) as again:
                    assert again.check("t").because == "unreachable"


class Questions(unittest.TestCase):
    ARGS = breaker(session="s", tool="t", args="00ff00ff00ff00ff")
    REFUSAL = {
        "decision": "deny", "message": "Not this one.", "breaker_id": "br_x", "revision": 5, "ttl_ms": 0,
        "strength": "replan", "reason": "known_dead_call", "retry_after_s": 2.5,
    }  # fmt: skip

    def test_only_a_call_that_a_breaker_over_arguments_may_mean_is_asked_about(self) -> None:
        with guarding(self.ARGS) as (guard, sidecar):
            sidecar.answers["POST", "/v1/check"] = (200, self.REFUSAL)
            assert guard.check("t", session="other", args={"q": 1})
            assert guard.check("t", session="s")  # arguments are not said
            assert not sidecar.bodies("POST", "/v1/check")
            decision = guard.check("t", {"q": 1}, session="s")
            assert (decision.decision, decision.because, decision.strength) == (
                "deny",
                "known_dead_call",
                "replan",
            )
            assert (decision.message_for_model, decision.retry_after) == ("Not this one.", 2.5)
            (body,) = sidecar.bodies("POST", "/v1/check")
            assert body == {"session_id": "s", "tool": "t", "arguments": {"q": 1}, "client": guard.client}

    def test_a_caller_may_ask_about_each_call(self) -> None:
        with guarding(service="shop", agent="buyer", agent_version="2", ask_server=True) as (guard, sidecar):
            sidecar.answers["POST", "/v1/check"] = (
                200,
                {**self.REFUSAL, "decision": "allow", "strength": None},
            )
            assert guard.check("t", {}, session="s").because == "closed"
            (body,) = sidecar.bodies("POST", "/v1/check")
            assert (body["service"], body["agent"], body["agent_version"]) == ("shop", "buyer", "2")
            assert guard.check("t", {}, session="s", ask_server=False)
            assert len(sidecar.bodies("POST", "/v1/check")) == 1

    def test_without_an_answer_the_fail_mode_decides(self) -> None:
        for answer in ((503, {}), (500, None), (422, {"code": "invalid"}), (401, {})):
            with guarding(self.ARGS) as (guard, sidecar):
                sidecar.answers["POST", "/v1/check"] = answer
                assert guard.check("t", {"q": 1}, session="s").because == "unreachable"
                assert not guard.check("t", {"q": 1}, session="s", critical=True)

    def test_in_a_coroutine_questions_are_asked_outside_the_loop(self) -> None:
        async def ask(guard: Guard) -> None:
            with guard.session("s"):
                assert (await guard.acheck("t", {"q": 1})).because == "known_dead_call"
                assert await guard.acheck("u", {"q": 1})

        with guarding(self.ARGS) as (guard, sidecar):
            sidecar.answers["POST", "/v1/check"] = (200, self.REFUSAL)
            asyncio.run(ask(guard))


class Probes(unittest.TestCase):
    HALF = breaker(tool="t", state="half_open", action="halt")
    LEASES = ("POST", f"/v1/breakers/{HALF['id']}/leases")

    def test_a_half_open_breaker_lends_a_try_and_hears_how_it_ended(self) -> None:
        for raises, wanted in ((False, True), (True, False)):
            with guarding(self.HALF) as (guard, sidecar):
                sidecar.answers[self.LEASES] = (201, {"lease_id": "l1", "expires_at": "2026-01-01T00:00:00Z"})
                sidecar.answers["POST", "/v1/leases/l1/result"] = (200, {})
                with contextlib.suppress(ZeroDivisionError), guard.permit("t", {}) as permit:
                    assert permit.decision is not None
                    assert permit.decision.because == "probe"
                    if raises:
                        1 / 0  # noqa: B018 - a tool that fails
                eventually(partial(sidecar.bodies, "POST", "/v1/leases/l1/result"))
                assert sidecar.bodies("POST", "/v1/leases/l1/result") == [{"ok": wanted}]

    def test_a_tool_that_returns_its_error_says_so(self) -> None:
        with guarding(self.HALF) as (guard, sidecar):
            sidecar.answers[self.LEASES] = (201, {"lease_id": "l1"})
            sidecar.answers["POST", "/v1/leases/l1/result"] = (200, {})
            with guard.permit("t") as permit:
                permit.failed()
            eventually(lambda: sidecar.bodies("POST", "/v1/leases/l1/result") == [{"ok": False}])

    def test_no_try_is_left(self) -> None:
        with guarding(self.HALF) as (guard, sidecar):
            sidecar.answers[self.LEASES] = (409, {"code": "conflict"})
            with self.assertRaises(CallDenied), guard.permit("t"):
                raise AssertionError
            assert guard.check("t").decision == "deny"  # a plain check borrows nothing
            assert len(sidecar.bodies(*self.LEASES)) == 1


class Budgets(unittest.TestCase):
    PATH = ("POST", "/v1/budgets/searches/reservations")

    def test_what_was_spent_is_committed_and_what_failed_is_released(self) -> None:
        with guarding(service="shop") as (guard, sidecar):
            sidecar.answers[self.PATH] = (201, {"id": "r1"})
            for verb in ("commit", "release"):
                sidecar.answers["POST", f"/v1/reservations/r1/{verb}"] = (204, None)
            with guard.session("s", agent="buyer"), guard.reserve("searches", 5) as reserved:
                reserved.commit(3)
            with guard.reserve("searches", 2):
                pass
            with self.assertRaises(ZeroDivisionError), guard.reserve("searches", 1):
                1 / 0  # noqa: B018 - work that fails

            async def use() -> None:
                async with guard.reserve("searches", 4):
                    pass

            asyncio.run(use())
            said = {"session_id": "s", "agent": "buyer", "service": "shop", "amount": 5}
            assert sidecar.bodies(*self.PATH)[0] == said
            committed = partial(sidecar.bodies, "POST", "/v1/reservations/r1/commit")
            eventually(lambda: committed() == [{"actual": 3}, {"actual": 2}, {"actual": 4}])
            eventually(lambda: sidecar.bodies("POST", "/v1/reservations/r1/release") == [{}])

    def test_what_is_not_left_is_not_done(self) -> None:
        with guarding() as (guard, sidecar):
            sidecar.answers[self.PATH] = (409, {"code": "spent", "detail": "1 left"})
            with self.assertRaises(BudgetExceeded) as raised, guard.reserve("searches", 5):
                raise AssertionError
            assert "`searches`" in raised.exception.message_for_model
            assert isinstance(raised.exception, CallDenied)

    def test_without_an_answer_the_fail_mode_decides(self) -> None:
        for mode in ("open", "closed"):
            with guarding(fail_mode={"default": mode}) as (guard, sidecar):
                sidecar.answers[self.PATH] = (503, {})
                if mode == "open":
                    with guard.reserve("searches", 1) as reserved:
                        assert reserved.decision is not None
                        assert reserved.decision.unreachable
                else:
                    with self.assertRaises(BudgetExceeded), guard.reserve("searches", 1):
                        raise AssertionError

    def test_what_makes_no_sense_is_an_error_of_the_caller(self) -> None:
        with guarding() as (guard, _):
            for amount in (0, -1, float("nan")):
                with self.assertRaises(GuardError):
                    guard.reserve("searches", amount)
            with self.assertRaises(GuardError) as raised, guard.reserve("no-such", 1):
                raise AssertionError
            assert "no-such" in str(raised.exception)


class Functions(unittest.TestCase):
    def test_a_function_asks_first_and_its_arguments_have_names(self) -> None:
        with guarding(breaker(tool="add", args="00ff00ff00ff00ff", session="s")) as (guard, sidecar):
            sidecar.answers["POST", "/v1/check"] = (200, {**Questions.REFUSAL, "decision": "deny"})

            @guard.guarded()
            def add(a: int, *rest: int, **more: int) -> int:
                """Add."""
                return a + sum(rest) + sum(more.values())

            assert add(1, 2, c=3) == 6
            with guard.session("s"), self.assertRaises(CallDenied):
                add(1, 2, c=3)
            (body,) = sidecar.bodies("POST", "/v1/check")
            assert body["arguments"] == {"a": 1, "rest": [2], "c": 3}
            assert (add.__name__, add.__doc__) == ("add", "Add.")

    def test_a_model_can_be_told_instead(self) -> None:
        with guarding(
            breaker(1, tool="search", message="Elsewhere."), breaker(2, session="over", action="halt")
        ) as (guard, _):

            @guard.guarded("search", tell_model=True)
            def look_up(q: str) -> str:
                return q

            @guard.guarded("search", tell_model=True)
            async def alook_up(q: str) -> str:
                return q

            assert look_up("x") == asyncio.run(alook_up("x")) == "Elsewhere."
            with guard.session("over"), self.assertRaises(RunHalted):
                look_up("x")

    def test_methods_have_no_self_among_their_arguments(self) -> None:
        seen = []
        with guarding() as (guard, _):
            ask = guard.check

            def watched(tool: Any = None, args: Any = None, **how: Any) -> Any:
                seen.append((tool, args))
                return ask(tool, args, **how)

            guard.check = watched  # type: ignore[method-assign]  # what it is asked is what is tested

            class Shop:
                @guard.guarded()
                def buy(self, what: str, how_many: int = 1) -> str:
                    return what * how_many

            assert Shop().buy("x", how_many=2) == "xx"
        assert seen == [("buy", {"what": "x", "how_many": 2})]


class Cancelling(unittest.TestCase):
    def halting(self) -> tuple[Any, Any]:
        import threading

        now = threading.Event()

        def tell(stream: Stream) -> None:
            stream.write(snapshot(revision=1))
            stream.hold(now)
            stream.write(event("upsert", breaker(1, 2, session="s", action="halt", message="Over."), 2))
            stream.hold()

        return now, tell

    def test_work_in_flight_is_cancelled_and_says_why(self) -> None:
        now, tell = self.halting()
        cleaned = []

        async def work() -> None:
            try:
                now.set()
                await asyncio.sleep(30)
            finally:
                cleaned.append(True)

        async def go(guard: Guard) -> None:
            with guard.session("s"), self.assertRaises(RunHalted) as raised:
                await guard.run(work())
            assert raised.exception.message_for_model == "Over."
            with guard.session("other"):
                assert await guard.run(asyncio.sleep(0, "done")) == "done"

        with scripted(tell) as sidecar, Guard(sidecar.url, cache=None) as guard:
            assert guard.wait_ready(10)
            asyncio.run(go(guard))
        assert cleaned == [True]

    def test_a_halted_run_is_cancelled_at_once(self) -> None:
        async def go(guard: Guard) -> None:
            task = asyncio.ensure_future(asyncio.sleep(30))
            watched = guard.cancel_on_halt(task, session="s")
            with self.assertRaises(asyncio.CancelledError):
                await task
            assert watched.halted

        with guarding(breaker(session="s", action="halt")) as (guard, _):
            asyncio.run(go(guard))

    def test_a_cancel_from_elsewhere_stays_a_cancel(self) -> None:
        async def go(guard: Guard) -> None:
            task = asyncio.ensure_future(guard.run(asyncio.sleep(30), session="s"))
            await asyncio.sleep(0)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task

        with guarding() as (guard, _):
            asyncio.run(go(guard))


if __name__ == "__main__":
    unittest.main()
