from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from control.actor import Actor
from control.breakers.states import Event
from control.scope import Scope

if TYPE_CHECKING:
    import httpx

    from control.breakers.record import Breaker
    from tests.api.conftest import Api

FLAGS = "/ofrep/v1/evaluate/flags"
CONTEXT = {"targetingKey": "chat-17", "service": "shop", "agent": "buyer"}
SOMEBODY = Actor(type="person", id="somebody")


def trip(api: Api, **scope: str) -> Breaker:
    return api.parts.control.breakers.act(Scope(**scope), Event.TRIP, SOMEBODY, "stuck")


def ask(api: Api, key: str = "", context: Any = CONTEXT, **headers: str) -> httpx.Response:  # noqa: ANN401 - JSON
    path = f"{FLAGS}/{key}" if key else FLAGS
    return api.ask("POST", path, json={"context": context}, headers=headers)


def test_a_call_that_nothing_stops_is_allowed_by_default(api: Api) -> None:
    assert ask(api, "allow.fetch_page").json() == {
        "key": "allow.fetch_page",
        "value": True,
        "reason": "DEFAULT",
        "variant": "allow",
        "metadata": {"revision": 0},
    }


def test_a_breaker_that_covers_the_context_decides(api: Api) -> None:
    breaker = trip(api, service="shop", tool="fetch_page")
    flag = ask(api, "allow.fetch_page").json()
    assert (flag["value"], flag["reason"], flag["variant"]) == (False, "TARGETING_MATCH", "deny")
    assert (flag["metadata"]["breaker_id"], flag["metadata"]["strength"]) == (breaker.id, "deny")
    assert ask(api, "allow.other").json()["value"] is True
    elsewhere = {**CONTEXT, "service": "office"}
    assert ask(api, "allow.fetch_page", elsewhere).json()["value"] is True
    assert ask(api, f"breaker.{breaker.id}", {**CONTEXT, "tool": "fetch_page"}).json()["value"] is True
    assert ask(api, f"breaker.{breaker.id}", {**elsewhere, "tool": "fetch_page"}).json()["value"] is False
    assert ask(api, f"breaker.{breaker.id}", {}).json()["value"] is True


def test_a_closed_breaker_is_off_and_an_unknown_one_no_flag(api: Api) -> None:
    breaker = trip(api, session="chat-17")
    api.parts.control.breakers.act(breaker.id, Event.RESET, SOMEBODY, "over")
    assert ask(api, f"breaker.{breaker.id}").json()["variant"] == "closed"
    for key in ("breaker.br_none", "breaker.", "allow.", "colour", "mode."):
        answer = ask(api, key)
        assert (answer.status_code, answer.json()["errorCode"], answer.json()["key"]) == (
            404,
            "FLAG_NOT_FOUND",
            key,
        )


def test_the_mode_of_an_agent_is_a_text(api: Api) -> None:
    flag = ask(api, "mode.buyer").json()
    assert (flag["value"], flag["reason"]) == ("full", "DEFAULT")
    answer = api.ask("POST", "/v1/modes/buyer", json={"mode": "minimal", "reason": "why", "ttl_s": 60})
    assert answer.status_code == 200
    flag = ask(api, "mode.buyer").json()
    assert (flag["value"], flag["reason"], flag["metadata"]) == (
        "minimal",
        "TARGETING_MATCH",
        {"cause": "person:local"},
    )


@pytest.mark.parametrize(
    ("context", "code"),
    [
        ({"service": "shop"}, "TARGETING_KEY_MISSING"),
        ({"targetingKey": 5}, "INVALID_CONTEXT"),
        ([], "PARSE_ERROR"),
    ],
)
def test_a_context_that_cannot_be_used_says_why(api: Api, context: object, code: str) -> None:
    for key in ("allow.fetch_page", ""):
        answer = ask(api, key, context)
        assert (answer.status_code, answer.json()["errorCode"]) == (400, code)


def test_a_body_that_is_no_json_is_a_parse_error(api: Api) -> None:
    for path in (FLAGS, f"{FLAGS}/allow.x"):
        answer = api.ask("POST", path, content="{", headers={"content-type": "application/json"})
        assert (answer.status_code, answer.json()["errorCode"]) == (400, "PARSE_ERROR")
        assert api.ask("POST", path, content="{}", headers={"content-type": "text/plain"}).status_code == 415


def test_all_flags_of_a_context_come_with_an_etag(api: Api) -> None:
    breaker = trip(api, session="chat-17", tool="fetch_page")
    trip(api, session="another")
    answer = ask(api)
    assert {flag["key"]: flag["value"] for flag in answer.json()["flags"]} == {
        f"breaker.{breaker.id}": True,
        "allow.fetch_page": False,
        "mode.buyer": "full",
    }
    tag = answer.headers["etag"]
    same = ask(api, **{"if-none-match": tag})
    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
    trip(api, service="shop")
    assert ask(api, **{"if-none-match": tag}).status_code == 200


def test_looking_at_all_flags_counts_no_refusal_and_asking_for_one_does(api: Api) -> None:
    breaker = trip(api, session="chat-17")
    ask(api)
    assert api.parts.index.denied(breaker.id) == 0
    ask(api, "allow.fetch_page")
    assert api.parts.index.denied(breaker.id) == 1
