from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from api.app import create_app
from api.bodies import MAX_BODY_BYTES
from api.shortcut import CheckShortcut
from control.actor import Actor
from control.breakers.states import Event
from control.facts import Fact
from control.policy import CheckSettings
from control.scope import Scope
from detectors.signature import call_of
from tests.api.examples import half_open_breaker
from tests.control.support import STUCK

if TYPE_CHECKING:
    import httpx

    from tests.api.conftest import Api

SOMEBODY = Actor(type="person", id="somebody")


def stuck(api: Api) -> str:
    """Open the breaker over fetch_page in session-1 and return its id."""
    api.spool.add(STUCK)
    api.parts.decide_all()
    (breaker,) = api.parts.index.open_breakers()
    return breaker.id


def test_a_session_nobody_knows_is_allowed(api: Api) -> None:
    assert api.check(session_id="new", tool="fetch_page", arguments={"url": "x"}, agent="a", run_id="r") == {
        "decision": "allow",
        "message": "",
        "breaker_id": None,
        "revision": 0,
        "ttl_ms": 250,
        "strength": None,
        "reason": None,
        "retry_after_s": None,
        "lease_id": None,
        "override": None,
        "quarantine": None,
    }


def test_a_refused_call_is_told_why_with_200(api: Api) -> None:
    breaker_id = stuck(api)
    response = api.ask("POST", "/v1/check", json={"session_id": "session-1", "tool": "fetch_page"})
    answer = response.json()
    assert response.status_code == 200
    assert (answer["decision"], answer["breaker_id"], answer["revision"], answer["ttl_ms"]) == (
        "deny",
        breaker_id,
        1,
        0,
    )
    assert answer["message"].startswith("Stopped by Recloser: the tool 'fetch_page' was called 6 times")


def test_refusals_that_are_ignored_become_a_halt(api: Api) -> None:
    stuck(api)
    answers = [api.check(session_id="session-1", tool="fetch_page")["decision"] for _ in range(5)]
    assert answers == ["deny", "deny", "deny", "halt", "halt"]


def test_several_calls_are_answered_in_their_order(api: Api) -> None:
    stuck(api)
    calls = [{"session_id": "session-1", "tool": tool} for tool in ("other", "fetch_page", "other")]
    answer = api.ask("POST", "/v1/check/batch", json={"calls": calls}).json()
    assert [d["decision"] for d in answer["decisions"]] == ["allow", "deny", "allow"]


def test_calls_that_are_made_together_are_one_refusal(api: Api) -> None:
    stuck(api)
    calls = [{"session_id": "session-1", "tool": "fetch_page"}] * 8
    answers = [api.ask("POST", "/v1/check/batch", json={"calls": calls}).json() for _ in range(4)]
    assert [{d["decision"] for d in a["decisions"]} for a in answers] == [{"deny"}] * 3 + [{"halt"}]


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ('{"tool": "x"}', ["session_id"]),
        ('{"session_id": ""}', ["session_id"]),
        ('{"session_id": "a", "tool": 5}', ["tool"]),
        ('{"session_id": 7, "agent": []}', ["session_id", "agent"]),
        ("[]", []),
        ("", []),
        ("{", []),
        ('{"session_id": "\\ud800"}', []),
    ],
)
def test_a_wrong_request_is_told_its_fields_and_both_ways_agree(
    api: Api, body: str, fields: list[str]
) -> None:
    response = api.ask("POST", "/v1/check", content=body, headers={"content-type": "application/json"})
    problem = response.json()
    assert (response.status_code, problem["code"]) == (422, "invalid")
    assert [f["field"] for f in problem["fields"]] == fields
    assert problem["detail"]
    behind = without_shortcut(api).ask(
        "POST", "/v1/check", content=body, headers={"content-type": "application/json"}
    )
    assert behind.status_code == 422
    assert behind.json()["code"] == "invalid"


@pytest.mark.parametrize("tool", ["fetch_page", "other", None])
def test_the_shortcut_answers_what_the_route_answers(api: Api, tool: str | None) -> None:
    stuck(api)
    body = {"session_id": "session-1", "tool": tool, "later": 1}
    answers = [way.ask("POST", "/v1/check", json=body).json() for way in (api, without_shortcut(api))]
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    "body", [{"client": "a", "revision": 0}, {"client": "a"}, {"client": "", "revision": -1}, []]
)
def test_acknowledgements_are_taken_in_front_as_behind(api: Api, body: object) -> None:
    answers = [way.ask("POST", "/v1/acks", json=body) for way in (api, without_shortcut(api))]
    assert [(a.status_code, a.json().get("fields"), a.json().get("revision")) for a in answers[:1]] == [
        (a.status_code, a.json().get("fields"), a.json().get("revision")) for a in answers[1:]
    ]


def test_a_disk_that_takes_nothing_lets_no_probe_through(api: Api) -> None:
    key = half_open_breaker(api)
    with api.parts.db.transaction() as tx:
        tx.execute("CREATE TRIGGER full BEFORE INSERT ON leases BEGIN SELECT RAISE(ABORT, 'full'); END")
    breaker = api.parts.index.by_id(key)
    assert breaker is not None
    answer = api.check(session_id="s", service=breaker.scope.service, tool=breaker.scope.tool)
    assert (answer["decision"], answer["lease_id"]) == ("deny", None)


def test_a_body_that_is_too_large_is_refused(api: Api) -> None:
    response = api.ask(
        "POST", "/v1/check", content=b" " * (MAX_BODY_BYTES + 1), headers={"content-type": "application/json"}
    )
    assert (response.status_code, response.json()["code"]) == (413, "too_large")


def test_other_methods_are_refused(api: Api) -> None:
    assert_refused(api.ask("GET", "/v1/check"), 405, "method_not_allowed")


def test_checks_are_counted(api: Api) -> None:
    api.check(session_id="a")
    assert api.parts.registry.get_sample_value("recloser_checks_total", {"decision": "allow"}) == 1


def arguments_breaker(api: Api) -> str:
    signature = call_of("fetch_page", {"url": "x"}).signature
    scope = Scope(session="a", tool="fetch_page", args=f"{signature:016x}")
    return api.parts.control.breakers.act(scope, Event.TRIP, SOMEBODY, "stuck").id


@pytest.mark.parametrize("arguments", [{"url": "x"}, {"url": "x", "request_id": "7"}, '{"url": "x"}'])
def test_a_breaker_over_arguments_refuses_those_however_they_are_written(api: Api, arguments: object) -> None:
    key = arguments_breaker(api)
    refused = api.check(session_id="a", tool="fetch_page", arguments=arguments)
    assert (refused["decision"], refused["breaker_id"]) == ("deny", key)
    assert api.check(session_id="a", tool="fetch_page", arguments={"url": "y"})["decision"] == "allow"
    assert api.check(session_id="a", tool="fetch_page")["decision"] == "allow"


@pytest.mark.parametrize(
    ("scope", "call"),
    [
        (Scope(service="shop"), {"service": "shop"}),
        (Scope(agent="buyer"), {"agent": "buyer"}),
        (Scope(agent="buyer@2"), {"agent": "buyer", "agent_version": "2"}),
        (Scope(run="r"), {"run_id": "r"}),
        (Scope(model="m"), {"model": "m"}),
        (Scope(tool="t"), {"tool": "t"}),
    ],
    ids=str,
)
def test_each_part_of_a_call_is_looked_at(api: Api, scope: Scope, call: dict[str, str]) -> None:
    api.parts.control.breakers.act(scope, Event.TRIP, SOMEBODY, "stuck")
    assert api.check(session_id="s", **call)["decision"] == "deny"
    assert api.check(session_id="s", **dict.fromkeys(call, "other"))["decision"] == "allow"
    assert api.check(session_id="s")["decision"] == "allow"


@pytest.mark.parametrize("name", ["x" * 300, "chat\x07-17"])
@pytest.mark.parametrize("part", ["session", "service", "tool", "run", "model", "agent"])
def test_a_breaker_by_hand_stops_calls_whose_names_are_kept_otherwise(api: Api, part: str, name: str) -> None:
    body = {"scope": {part: name}, "reason": "stuck"}
    assert api.ask("POST", "/v1/breakers", json=body).status_code == 200
    said = {"session": "session_id", "run": "run_id"}.get(part, part)
    assert api.check(**{"session_id": "s", said: name})["decision"] == "deny"


def test_a_breaker_by_hand_over_a_version_stops_its_calls_whatever_their_names(api: Api) -> None:
    agent, version = "a" * 300, "2" * 300
    body = {"scope": {"agent": f"{agent}@{version}"}, "reason": "stuck"}
    assert api.ask("POST", "/v1/breakers", json=body).status_code == 200
    assert api.check(session_id="s", agent=agent, agent_version=version)["decision"] == "deny"
    assert api.check(session_id="s", agent=agent, agent_version="1")["decision"] == "allow"


def test_arguments_that_nest_without_end_are_unknown_ones(api: Api) -> None:
    arguments_breaker(api)
    deep = "[" * 100_000
    for way in (api, without_shortcut(api)):
        answer = way.ask(
            "POST", "/v1/check", json={"session_id": "a", "tool": "fetch_page", "arguments": deep}
        )
        assert (answer.status_code, answer.json()["decision"]) == (200, "allow")


def test_a_call_that_is_known_to_be_dead_is_refused_where_the_policy_says_so(api: Api) -> None:
    call = {"session_id": "s", "tool": "fetch_page", "arguments": {"url": "x"}}
    signature = f"{call_of('fetch_page', {'url': 'x'}).signature:016x}"
    told = {
        "service": "shop", "tool": "fetch_page", "signature": signature, "nature": "structural",
        "error_class": "not_found", "error": "404 no such page",
    }  # fmt: skip
    api.services.dead_calls.take(None, Fact(1, "failed", "s", told, 0))
    assert api.check(**call)["decision"] == "allow"
    holder = api.parts.control.policies
    holder.current = replace(holder.current, check=CheckSettings(known_dead_calls=True))
    refused = api.check(**call)
    assert (refused["decision"], refused["strength"], refused["reason"], refused["breaker_id"]) == (
        "deny",
        "replan",
        "known_dead_call",
        None,
    )
    assert "404 no such page" in refused["message"]
    assert api.check(**{**call, "arguments": {"url": "y"}})["decision"] == "allow"
    api.services.dead_calls.take(None, Fact(2, "changed", "s", {}, 0))
    assert api.check(**call)["decision"] == "allow"


def assert_refused(response: httpx.Response, status: int, code: str) -> None:
    assert (response.status_code, response.json()["code"]) == (status, code)


def without_shortcut(api: Api) -> Api:
    app = create_app(api.services)
    app.user_middleware = [layer for layer in app.user_middleware if str(layer.cls) != str(CheckShortcut)]
    return replace(api, app=app)


def test_what_a_person_lets_through_is_not_refused_as_dead(api: Api) -> None:
    call = {"session_id": "s", "tool": "fetch_page", "arguments": {"url": "x"}}
    signature = f"{call_of('fetch_page', {'url': 'x'}).signature:016x}"
    told = {"service": "shop", "tool": "fetch_page", "signature": signature, "nature": "structural"}
    api.services.dead_calls.take(None, Fact(1, "failed", "s", told, 0))
    holder = api.parts.control.policies
    holder.current = replace(holder.current, check=CheckSettings(known_dead_calls=True))
    assert api.check(**call)["reason"] == "known_dead_call"
    act = api.parts.control.breakers.act
    act(Scope(tool="fetch_page"), Event.TRIP, SOMEBODY, "down")
    act(Scope(session="s", tool="fetch_page"), Event.FORCE_CLOSE, SOMEBODY, "I watch it", ttl_s=60)
    allowed = api.check(**call)
    assert (allowed["decision"], allowed["override"] is not None) == ("allow", True)
