"""The guard against a real sidecar: trips, releases, probes, escalation, budgets, restarts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from harness import OnCall
from recloser_guard import BudgetExceeded, Guard, GuardError
from scripted import eventually
from sidecar import GuardedSidecar
from telemetry import send_call

from detectors.signature import call_of


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedSidecar]:
    on_call = OnCall.start()
    served = GuardedSidecar(tmp_path_factory.mktemp("guarded"), on_call)
    try:
        served.start()
        yield served
    finally:
        served.stop()
        on_call.stop()


@pytest.fixture(scope="module")
def guard(sidecar: GuardedSidecar) -> Iterator[Guard]:
    with Guard(sidecar.url, service="guarded-agent", agent="ops_agent", cache=None, client="tested") as guard:
        assert guard.wait_ready(10)
        yield guard


def loop(sidecar: GuardedSidecar, session: str, tool: str, calls: int = 6) -> None:
    for _ in range(calls):
        send_call(sidecar.otlp, session, tool, {"q": "x"}, error="KeyError: no column named total")


def test_a_trip_by_hand_and_its_release_reach_the_guard_and_are_acknowledged(
    sidecar: GuardedSidecar, guard: Guard
) -> None:
    scope = {"session": "by-hand"}
    made = sidecar.api("POST", "/v1/breakers", {"scope": scope, "action": "halt", "reason": "tested"})
    eventually(lambda: guard.check("t", session="by-hand").halted)
    assert guard.check("t", session="another")
    sidecar.api("POST", f"/v1/breakers/{made['id']}/reset", {"reason": "tested"})
    eventually(lambda: guard.check("t", session="by-hand"))
    newest = guard.status().revision

    def acknowledged() -> bool:
        (client,) = (c for c in sidecar.api("GET", "/v1/clients")["clients"] if c["client"] == "tested")
        return bool(client["connected"] and client["revision"] == newest and client["measured"])

    eventually(acknowledged)


def test_where_no_stream_gets_through_it_polls(
    sidecar: GuardedSidecar, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recloser_guard.transport.Transport.open", lambda *_args, **_more: None)
    with Guard(sidecar.url, cache=None) as guard:
        assert guard.wait_ready(10)
        scope = {"session": "polled"}
        made = sidecar.api("POST", "/v1/breakers", {"scope": scope, "action": "halt", "reason": "tested"})
        eventually(lambda: guard.check("t", session="polled").halted)
        sidecar.api("POST", f"/v1/breakers/{made['id']}/reset", {"reason": "tested"})
        eventually(lambda: guard.check("t", session="polled"))
        assert guard.status().state == "polling"
        assert guard.status().reconnects == 0


def test_a_loop_in_telemetry_halts_the_session(sidecar: GuardedSidecar, guard: Guard) -> None:
    loop(sidecar, "stuck", "fetch_page")
    eventually(lambda: guard.check("anything", session="stuck").halted)
    decision = guard.check("anything", session="stuck")
    assert (decision.because, decision.strength) == ("doom_loop", "halt")
    assert "fetch_page" in decision.message_for_model
    assert guard.check("anything", session="healthy")


def test_what_the_guard_refused_is_no_failure_of_the_agent(sidecar: GuardedSidecar, guard: Guard) -> None:
    refusal = guard.check("anything", session="stuck").message_for_model or "Stopped by Recloser: so"
    for error in (f"CallDenied: {refusal}", refusal):
        for page in range(12):
            send_call(sidecar.otlp, "obedient", "fetch_page", {"page": page}, error=error)
    loop(sidecar, "after-it", "fetch_page")
    eventually(lambda: guard.check("anything", session="after-it").halted)
    findings = sidecar.api("GET", "/v1/findings?limit=1000")["findings"]
    assert [f["kind"] for f in findings if f["session_id"] == "obedient"] == []


def test_refusals_that_are_ignored_become_a_halt(sidecar: GuardedSidecar) -> None:
    with Guard(sidecar.url, cache=None, same_turn_s=0.0, halt_after=0) as guard:
        loop(sidecar, "ignoring", "replanned")
        eventually(lambda: not guard.check("replanned", session="ignoring"))
        assert guard.check("other", session="ignoring")
        seen = []

        def halted() -> bool:
            seen.append(guard.check("replanned", session="ignoring").strength)
            return seen[-1] == "halt"

        eventually(halted)
        assert seen[0] == "replan"


def test_a_call_is_refused_by_its_arguments_only_where_they_are_the_same(
    sidecar: GuardedSidecar, guard: Guard
) -> None:
    signature = f"{call_of('look_up', {'q': 'x'}).signature:016x}"
    scope = {"session": "one-call", "tool": "look_up", "args": signature}
    sidecar.api("POST", "/v1/breakers", {"scope": scope, "action": "deny", "reason": "tested"})
    eventually(lambda: not guard.check("look_up", {"q": "x"}, session="one-call"))
    assert guard.check("look_up", {"q": "y"}, session="one-call")
    assert guard.check("look_up", {"q": "x"}, session="another")


def test_a_call_that_is_known_to_be_dead_is_refused_when_asked_about(
    sidecar: GuardedSidecar, guard: Guard
) -> None:
    send_call(sidecar.otlp, "dead", "open_file", {"path": "/nope"}, error="FileNotFoundError: /nope")

    def dead() -> bool:
        return not guard.check("open_file", {"path": "/nope"}, session="dead", ask_server=True)

    eventually(dead)
    decision = guard.check("open_file", {"path": "/nope"}, session="dead", ask_server=True)
    assert decision.because == "known_dead_call"
    assert guard.check("open_file", {"path": "/there"}, session="dead", ask_server=True)


def test_a_shared_tool_is_tried_again_and_closed_by_a_probe_that_works(
    sidecar: GuardedSidecar, guard: Guard
) -> None:
    loop(sidecar, "first", "shared_tool")
    eventually(lambda: not guard.check("shared_tool", session="second"))
    eventually(lambda: sidecar.state_of("shared_tool") == "half_open")
    eventually(lambda: guard.check("shared_tool", session="second").because == "half_open")
    with guard.permit("shared_tool", session="second") as permit:
        assert permit.decision is not None
        assert permit.decision.because == "probe"
        assert not guard.check("shared_tool", session="third", lease=True)
    eventually(lambda: guard.check("shared_tool", session="third"))


def test_a_probe_that_fails_opens_it_again(sidecar: GuardedSidecar, guard: Guard) -> None:
    loop(sidecar, "fourth", "shared_tool")
    eventually(lambda: sidecar.state_of("shared_tool") == "half_open")
    eventually(lambda: guard.check("shared_tool", session="fifth").because == "half_open")
    with pytest.raises(ValueError, match="still"), guard.permit("shared_tool", session="fifth"):
        raise ValueError("still down")
    eventually(lambda: guard.check("shared_tool", session="fifth").because == "doom_loop")


def test_a_budget_is_reserved_committed_and_exceeded(sidecar: GuardedSidecar, guard: Guard) -> None:
    del sidecar
    with guard.reserve("searches", 2, session="spender") as reserved:
        reserved.commit(1)
    with pytest.raises(ValueError, match="failed"), guard.reserve("searches", 1, session="spender"):
        raise ValueError("failed, nothing is spent")

    def two_are_left() -> bool:
        try:
            with guard.reserve("searches", 2, session="spender"):
                return True
        except BudgetExceeded:
            return False

    eventually(two_are_left)  # what is settled in the background is settled soon
    with pytest.raises(BudgetExceeded, match="searches"), guard.reserve("searches", 2, session="spender"):
        raise AssertionError
    with pytest.raises(GuardError, match="no-such"), guard.reserve("no-such", 1, session="spender"):
        raise AssertionError


def test_nothing_is_released_by_a_restart_and_what_comes_after_it_is_heard(
    sidecar: GuardedSidecar, guard: Guard
) -> None:
    scope = {"session": "kept"}
    sidecar.api("POST", "/v1/breakers", {"scope": scope, "action": "halt", "reason": "tested"})
    eventually(lambda: guard.check("t", session="kept").halted)
    before = guard.status()
    assert sidecar.kill("control")
    eventually(lambda: guard.status().reconnects > before.reconnects)
    assert guard.check("t", session="kept").halted
    eventually(lambda: guard.status().state == "live")
    assert guard.check("t", session="kept").halted
    sidecar.await_ready()
    sidecar.api("POST", "/v1/breakers", {"scope": {"session": "later"}, "action": "halt", "reason": "tested"})
    eventually(lambda: guard.check("t", session="later").halted)
    assert guard.status().defects == 0
