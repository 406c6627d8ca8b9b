from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from api.idempotency import KEEP_S
from control.scope import PARTS
from tests.api.conftest import SECRETS

if TYPE_CHECKING:
    import httpx

    from control.verbs import Verb
    from tests.api.conftest import Api

SESSION = {"session": "chat-17"}
NOTHING: dict[str, None] = {part: None for part in PARTS if part != "tenant"}
TOOL = {"service": "shop", "tool": "fetch_page"}


def change(api: Api, verb: str, breaker_id: str, **body: Any) -> httpx.Response:  # noqa: ANN401 - JSON
    return api.ask("POST", f"/v1/breakers/{breaker_id}/{verb}", json={"reason": "why", **body})


def trip(api: Api, scope: Any = SESSION, token: str | None = None, **body: Any) -> httpx.Response:  # noqa: ANN401 - JSON
    return api.ask("POST", "/v1/breakers", token=token, json={"scope": scope, "reason": "stuck", **body})


def secret(verb: str) -> str:
    wanted: Verb = next(each for each in SECRETS if each.value == verb)
    return SECRETS[wanted]


def test_a_person_stops_a_session_and_lets_it_go_on(api: Api) -> None:
    opened = trip(api, action="halt").json()
    assert (opened["state"], opened["action"], opened["scope"]["session"]) == ("open", "halt", "chat-17")
    assert opened["actor"] == {"type": "person", "id": "local"}
    refused = api.check(session_id="chat-17", tool="any")
    assert (refused["decision"], refused["strength"], refused["breaker_id"]) == (
        "halt",
        "halt",
        opened["id"],
    )
    assert change(api, "reset", opened["id"]).json()["state"] == "closed"
    assert api.check(session_id="chat-17", tool="any")["decision"] == "allow"


def test_what_is_held_open_is_not_reset_but_released(api: Api) -> None:
    key = trip(api).json()["id"]
    held = change(api, "force_open", key, ttl_s=60).json()
    assert (held["state"], held["forced_until"]) == ("forced_open", "2023-11-14T22:14:20.000000Z")
    assert (change(api, "reset", key).status_code, change(api, "reset", key).json()["code"]) == (
        409,
        "conflict",
    )
    assert change(api, "release", key).json()["state"] == "open"  # as before
    assert change(api, "release", key).status_code == 409


def test_an_exception_lets_calls_through_and_is_named(api: Api) -> None:
    wide = trip(api, TOOL).json()["id"]
    narrow = trip(api, {"session": "chat-17", **TOOL}, do="force_close", ttl_s=900).json()
    call = {"session_id": "chat-17", **TOOL}
    allowed = api.check(**call)
    assert (allowed["decision"], allowed["override"]) == ("allow", narrow["id"])
    assert api.check(**{**call, "session_id": "other"})["breaker_id"] == wide
    api.parts.clock.advance(901)
    api.parts.control.breakers.tick()
    assert api.check(**call)["decision"] != "allow"


def test_an_exception_needs_an_end(api: Api) -> None:
    key = trip(api).json()["id"]
    answer = change(api, "force_close", key)
    assert (answer.status_code, answer.json()["fields"][0]["field"]) == (422, "ttl_s")


def test_shadow_stops_nothing(api: Api) -> None:
    key = trip(api).json()["id"]
    assert change(api, "shadow", key).json()["state"] == "shadow"
    assert api.check(session_id="chat-17", tool="any")["decision"] == "allow"


@pytest.mark.parametrize(
    ("scope", "field"),
    [
        ({"session": ""}, "scope.session"),
        ({"sesion": "a"}, "scope.sesion"),
        ({"args": "xyz"}, "scope.args"),
        ({"session": None, "tool": 5}, "scope.tool"),
        ({"tenant": None}, "scope.tenant"),
    ],
)
def test_a_scope_that_makes_no_sense_names_its_part(api: Api, scope: Any, field: str) -> None:  # noqa: ANN401 - JSON
    answer = trip(api, scope)
    assert (answer.status_code, [f["field"] for f in answer.json()["fields"]]) == (422, [field])


@pytest.mark.parametrize("scope", [{}, {"session": None}, NOTHING])
@pytest.mark.parametrize("do", ["trip", "shadow", "force_open", "force_close"])
def test_a_scope_that_names_nothing_stops_nobody(api: Api, scope: Any, do: str) -> None:  # noqa: ANN401 - JSON
    answer = trip(api, scope, do=do, ttl_s=60)
    assert (answer.status_code, [f["field"] for f in answer.json()["fields"]]) == (422, ["scope"])
    assert answer.json()["detail"].startswith("scope: it names no part, so it would cover every agent")
    assert api.check(session_id="chat-17", tool="any")["decision"] == "allow"


def test_a_tenant_that_is_spelled_out_is_stopped_as_a_whole(api: Api) -> None:
    answer = trip(api, {"tenant": "default", **NOTHING})
    assert answer.status_code == 200
    assert api.check(session_id="chat-17", tool="any")["decision"] != "allow"


def test_what_was_changed_meanwhile_is_not_changed_again(api: Api) -> None:
    key = trip(api).json()["id"]
    tag = api.ask("GET", f"/v1/breakers/{key}").headers["etag"]
    path, body = f"/v1/breakers/{key}/reset", {"reason": "over"}
    assert api.ask("POST", path, json=body, headers={"if-match": tag}).status_code == 200
    trip(api)
    stale = api.ask("POST", path, json=body, headers={"if-match": tag})
    assert (stale.status_code, stale.json()["code"]) == (412, "stale")
    assert api.ask("POST", path, json=body, headers={"if-match": "nonsense"}).status_code == 422
    assert api.ask("POST", path, json=body, headers={"if-match": "*"}).status_code == 200


def keyed(api: Api, path: str, body: Any, key: str = "k-1", token: str | None = None) -> httpx.Response:  # noqa: ANN401 - JSON
    return api.ask("POST", path, token=token, json=body, headers={"idempotency-key": key})


def events(api: Api) -> int:
    with api.parts.db.reading() as connection:
        return int(connection.execute("SELECT count(*) FROM breaker_events").fetchone()[0])


def test_a_change_asked_twice_under_one_key_is_made_once(api: Api) -> None:
    body = {"scope": SESSION, "reason": "stuck"}
    first, again = (keyed(api, "/v1/breakers", body) for _ in range(2))
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert events(api) == 1


def test_a_key_is_for_one_request_only(api: Api) -> None:
    key = keyed(api, "/v1/breakers", {"scope": SESSION, "reason": "stuck"}).json()["id"]
    for path, body in (
        ("/v1/breakers", {"scope": SESSION, "reason": "another"}),
        (f"/v1/breakers/{key}/reset", {"reason": "stuck"}),
    ):
        answer = keyed(api, path, body)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
    assert events(api) == 1


def test_a_key_is_forgotten_after_a_day_and_a_refusal_at_once(api: Api) -> None:
    key = trip(api).json()["id"]
    path, body = f"/v1/breakers/{key}/release", {"reason": "why"}
    assert keyed(api, path, body).status_code == 409
    change(api, "force_open", key)
    assert keyed(api, path, body).status_code == 200
    api.parts.clock.advance(KEEP_S + 1)
    assert keyed(api, path, body).status_code == 409


def test_an_answer_is_kept_in_the_transaction_of_its_change(api: Api) -> None:
    with api.parts.db.transaction() as tx:
        tx.execute("CREATE TRIGGER full BEFORE INSERT ON idempotency BEGIN SELECT RAISE(ABORT, 'full'); END")
    assert keyed(api, "/v1/breakers", {"scope": SESSION, "reason": "stuck"}).status_code == 503
    assert events(api) == 0
    assert api.check(session_id="chat-17", tool="any")["decision"] == "allow"


def test_keys_of_two_callers_are_two(guarded: Api) -> None:
    body = {"scope": SESSION, "reason": "stuck"}
    assert keyed(guarded, "/v1/breakers", body, token=secret("trip")).status_code == 200
    other = {"reason": "over"}
    key = guarded.parts.index.open_breakers()[0].id
    assert keyed(guarded, f"/v1/breakers/{key}/reset", other, token=secret("override")).status_code == 200


@pytest.mark.parametrize(
    ("scope", "do", "verb", "status"),
    [
        (SESSION, "trip", "trip", 200),
        (SESSION, "shadow", "trip", 200),
        ({"run": "r"}, "trip", "trip", 200),
        (SESSION, "force_open", "trip", 403),
        (SESSION, "force_close", "trip", 403),
        (TOOL, "trip", "trip", 403),
        ({"tenant": "default"}, "trip", "trip", 403),
        (SESSION, "trip", "check", 403),
    ],
)
def test_wide_scopes_and_holds_need_override(
    guarded: Api, scope: dict[str, str], do: str, verb: str, status: int
) -> None:
    answer = trip(guarded, scope, token=secret(verb), do=do, ttl_s=60)
    assert answer.status_code == status, answer.text


def test_an_agent_cannot_let_itself_go(guarded: Api) -> None:
    key = trip(guarded, token=secret("trip")).json()["id"]
    for verb in ("reset", "release", "force_close", "force_open"):
        for token in ("check", "read", "ingest", "trip"):
            answer = guarded.ask(
                "POST",
                f"/v1/breakers/{key}/{verb}",
                token=secret(token),
                json={"reason": "let me go", "ttl_s": 60},
            )
            assert answer.status_code == 403


def test_who_stops_calls_may_wait_until_all_who_follow_know(api: Api) -> None:
    followers, index = api.services.following.followers, api.parts.control.breakers.index
    assert "followers" not in trip(api).json()
    alone = trip(api, {"session": "alone"}, wait_acks_s=5).json()
    assert (alone["state"], alone["acknowledged_by"], alone["followers"]) == ("open", 0, 0)
    followers.connected("local", "quick", 0)
    index.subscribe(lambda change: followers.acknowledged("local", "quick", change.revision))
    known = trip(api, {"session": "known"}, wait_acks_s=5).json()
    assert (known["acknowledged_by"], known["followers"]) == (1, 1)
    followers.connected("local", "never", 0)
    held = change(api, "force_open", known["id"], wait_acks_s=0.02).json()
    assert (held["state"], held["acknowledged_by"], held["followers"]) == ("forced_open", 1, 2)


@pytest.mark.parametrize("seconds", [-1, 5.1])
def test_the_wait_for_acknowledgements_is_short(api: Api, seconds: float) -> None:
    assert trip(api, wait_acks_s=seconds).status_code == 422


def test_what_is_asked_again_waits_again_and_is_answered_with_its_key(api: Api) -> None:
    followers = api.services.following.followers
    followers.connected("local", "slow", 0)
    body = {"scope": SESSION, "reason": "stuck", "wait_acks_s": 0.01}
    first = api.ask("POST", "/v1/breakers", json=body, headers={"idempotency-key": "k"})
    followers.acknowledged("local", "slow", first.json()["revision"])
    second = api.ask("POST", "/v1/breakers", json=body, headers={"idempotency-key": "k"})
    assert [answer.json()["acknowledged_by"] for answer in (first, second)] == [0, 1]
    assert second.headers["idempotency-replayed"] == "true"
