"""Every route with every token: who is let in, through the real server.

A route that is new fails here until the table says which verb it needs.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from enum import Enum
from typing import Any, Final

import pytest

from control.verbs import AGENT, Only, Verb
from tests.api.serving import Served, routes_of, served
from tests.control.support import eventually


class Everyone(Enum):
    """Needs that are no verb."""

    NOBODY_ASKED = "no token"
    ANY_TOKEN = "any token"
    SIGNED_LINK = "a signed link"


FREE: Final = Everyone.NOBODY_ASKED
KNOWN: Final = Everyone.ANY_TOKEN
LINK: Final = Everyone.SIGNED_LINK

TABLE: Final[dict[tuple[str, str], Verb | Everyone]] = {
    ("GET", "/healthz"): FREE,
    ("GET", "/readyz"): FREE,
    ("GET", "/openapi.json"): FREE,
    ("GET", "/metrics"): Verb.READ,
    ("GET", "/v1/whoami"): KNOWN,
    ("POST", "/v1/check"): Verb.CHECK,
    ("POST", "/v1/check/batch"): Verb.CHECK,
    ("GET", "/v1/breakers"): Verb.READ,
    ("GET", "/v1/breakers/{breaker_id}"): Verb.READ,
    ("GET", "/v1/breakers/watch"): Verb.CHECK,
    ("POST", "/v1/breakers"): Verb.TRIP,
    ("POST", "/v1/breakers/{breaker_id}/trip"): Verb.TRIP,
    ("POST", "/v1/breakers/{breaker_id}/shadow"): Verb.TRIP,
    ("POST", "/v1/breakers/{breaker_id}/reset"): Verb.OVERRIDE,
    ("POST", "/v1/breakers/{breaker_id}/force_open"): Verb.OVERRIDE,
    ("POST", "/v1/breakers/{breaker_id}/force_close"): Verb.OVERRIDE,
    ("POST", "/v1/breakers/{breaker_id}/release"): Verb.OVERRIDE,
    ("POST", "/v1/breakers/{breaker_id}/leases"): Verb.CHECK,
    ("POST", "/v1/leases/{lease_id}/result"): Verb.CHECK,
    ("POST", "/v1/acks"): Verb.CHECK,
    ("GET", "/v1/clients"): Verb.READ,
    ("GET", "/v1/audit"): Verb.READ,
    ("GET", "/v1/budgets"): Verb.READ,
    ("POST", "/v1/budgets/{name}/reservations"): Verb.CHECK,
    ("POST", "/v1/reservations/{reservation_id}/commit"): Verb.CHECK,
    ("POST", "/v1/reservations/{reservation_id}/release"): Verb.CHECK,
    ("POST", "/ofrep/v1/evaluate/flags"): Verb.CHECK,
    ("POST", "/ofrep/v1/evaluate/flags/{key}"): Verb.CHECK,
    ("GET", "/v1/modes"): Verb.READ,
    ("GET", "/v1/modes/{agent}"): Verb.READ,
    ("POST", "/v1/modes/{agent}"): Verb.OVERRIDE,
    ("GET", "/v1/policy"): Verb.READ,
    ("POST", "/v1/policy/reload"): Verb.ADMIN,
    ("GET", "/v1/alerts"): Verb.READ,
    ("GET", "/v1/alerts/{alert_id}"): Verb.READ,
    ("POST", "/v1/alerts/{alert_id}/resolve"): Verb.OVERRIDE,
    ("POST", "/v1/alerts/{alert_id}/ack"): Verb.OVERRIDE,
    ("GET", "/v1/silences"): Verb.READ,
    ("GET", "/v1/silences/{silence_id}"): Verb.READ,
    ("POST", "/v1/silences"): Verb.OVERRIDE,
    ("PUT", "/v1/silences/{silence_id}"): Verb.OVERRIDE,
    ("DELETE", "/v1/silences/{silence_id}"): Verb.OVERRIDE,
    ("GET", "/v1/deliveries"): Verb.READ,
    ("GET", "/v1/deliveries/{seq}/attempts"): Verb.READ,
    ("POST", "/v1/deliveries/{seq}/replay"): Verb.OVERRIDE,
    ("GET", "/v1/destinations"): Verb.READ,
    ("POST", "/v1/destinations/{name}/test"): Verb.OVERRIDE,
    ("POST", "/v1/destinations/{name}/enable"): Verb.OVERRIDE,
    ("GET", "/v1/runs"): Verb.READ,
    ("GET", "/v1/runs/{session_id:path}"): Verb.READ,
    ("GET", "/v1/runs/{session_id:path}/handoff"): Verb.READ,
    ("GET", "/stop"): LINK,
    ("POST", "/stop"): LINK,
    ("GET", "/v1/findings"): Verb.READ,
    ("GET", "/v1/tokens"): Verb.ADMIN,
    ("POST", "/v1/tokens"): Verb.ADMIN,
    ("DELETE", "/v1/tokens/{token_id}"): Verb.ADMIN,
}
BODY: Final = {"session_id": "s", "calls": [{"session_id": "s"}]}
AN_AGENT_MAY: Final = {
    ("POST", "/v1/check"),
    ("POST", "/v1/check/batch"),
    ("POST", "/v1/breakers/{breaker_id}/leases"),
    ("POST", "/v1/leases/{lease_id}/result"),
    ("POST", "/v1/acks"),
    ("POST", "/v1/budgets/{name}/reservations"),
    ("POST", "/v1/reservations/{reservation_id}/commit"),
    ("POST", "/v1/reservations/{reservation_id}/release"),
    ("POST", "/ofrep/v1/evaluate/flags"),
    ("POST", "/ofrep/v1/evaluate/flags/{key}"),
}
"""What an agent's token may do beside looking: ask, probe, say what it has seen, reserve."""
DECIDED: Final = ("breaker_events", "alert_events", "tokens")


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("plane")) as plane:
        yield plane


@pytest.fixture(scope="module")
def secrets(plane: Served) -> dict[str, str]:
    """Tokens of one verb each, and some that must open nothing."""
    made = {"everything": plane.token("everything", *Verb)}
    made |= {verb.value: plane.token(verb.value, verb) for verb in Verb}
    made["agent"] = plane.token("agent", *AGENT)
    made["revoked"] = plane.token("revoked", *Verb)
    plane.revoke("revoked")
    made["expired"] = plane.token("expired", *Verb, expires_ns=1)
    made["unknown"] = "rcl_" + "x" * 43
    return made


def at(path: str) -> str:
    return re.sub(r"\{[^}]*\}", "nothing", path)


def test_the_table_has_every_route(plane: Served) -> None:
    assert routes_of(plane.app) == set(TABLE)


@pytest.mark.parametrize(("method", "path"), sorted(TABLE))
def test_a_route_lets_only_its_verb_in(
    plane: Served, secrets: dict[str, str], method: str, path: str
) -> None:
    needed = TABLE[method, path]
    got = {}
    for name in (None, *secrets):
        token = None if name is None else secrets[name]
        answer = plane.ask(method, at(path), token, json=BODY if method in {"POST", "PUT"} else None)
        got[name] = answer.status_code
        if answer.status_code == 401:
            assert answer.headers["www-authenticate"] == "Bearer"
    let_in = {name for name, status in got.items() if status not in {401, 403}}
    nobody = {None, "revoked", "expired", "unknown"}
    if needed is FREE:
        assert let_in == set(got)
    elif needed is LINK:
        assert set(got.values()) == {403}
        return
    elif needed is KNOWN:
        assert let_in == set(got) - nobody
    else:
        assert isinstance(needed, Verb)
        holders = {needed.value, "everything"} | ({"agent"} if needed in AGENT else set())
        assert let_in == holders
    assert {got[name] for name in nobody - let_in} <= {401}
    assert {status for name, status in got.items() if name not in nobody | let_in} <= {403}
    assert max(got.values()) < 500 or path == "/readyz"


def test_an_agent_can_change_nothing(plane: Served, secrets: dict[str, str]) -> None:
    before = decided(plane)
    changes = {(method, path) for method, path in TABLE if method != "GET"}
    assert len(changes) > len(AN_AGENT_MAY)
    let_in = {
        (method, path)
        for method, path in changes
        if plane.ask(method, at(path), secrets["agent"], json=BODY).status_code != 403
    }
    assert let_in == AN_AGENT_MAY
    assert decided(plane) == before


def test_a_restricted_token_is_let_in_only_where_the_restriction_is_compared(plane: Served) -> None:
    token = plane.token("restricted", Verb.READ, Verb.CHECK, only=Only(services=("shop-*",)))
    ours = {"session_id": "s", "service": "shop-eu"}
    theirs = {"session_id": "s", "service": "bank"}
    for path, body in (("/v1/check", lambda call: call), ("/v1/check/batch", lambda call: {"calls": [call]})):
        assert plane.ask("POST", path, token, json=body(ours)).status_code == 200
        for call in (theirs, {"session_id": "s"}):
            refused = plane.ask("POST", path, token, json=body(call))
            assert (refused.status_code, refused.json()["code"]) == (403, "denied")
            assert "restricted: services shop-*" in refused.json()["detail"]
    assert plane.ask("GET", "/v1/findings", token).status_code == 403
    assert plane.ask("GET", "/v1/whoami", token).json()["only"]["services"] == ["shop-*"]


def test_what_trips_cannot_close_and_stops_no_more_than_one_run(
    plane: Served, secrets: dict[str, str]
) -> None:
    one = {"session": "run-away", "tool": "fetch_page"}
    many = {"service": "shop"}
    trip = {"do": "trip", "reason": "it loops"}

    def change(token: str, what: str, **body: object) -> int:
        path = f"/v1/breakers/{what}" if what else "/v1/breakers"
        return plane.ask("POST", path, secrets[token], json={"reason": "why", **body}).status_code

    assert change("trip", "", scope=many, **trip) == 403
    opened = plane.ask("POST", "/v1/breakers", secrets["trip"], json={"scope": one, **trip})
    assert opened.status_code == 200, opened.text
    breaker = opened.json()["id"]
    assert change("trip", "", scope=one, do="shadow") == 403
    for what in ("shadow", "reset", "force_close", "force_open", "release"):
        assert change("trip", f"{breaker}/{what}", ttl_s=60) == 403
    assert plane.ask("GET", f"/v1/breakers/{breaker}", secrets["read"]).json()["state"] == "open"
    assert change("override", f"{breaker}/reset") == 200
    assert change("trip", f"{breaker}/shadow", ttl_s=60) == 200
    assert change("everything", "", scope=many, **trip) == 200
    wide = plane.ask("GET", "/v1/breakers?state=open", secrets["read"]).json()["breakers"]
    assert [change("override", f"{each['id']}/force_close", ttl_s=60) for each in wide] == [200]


def decided(plane: Served) -> list[int]:
    path = plane.process.services.control.db.path
    with closing(sqlite3.connect(path)) as connection:
        return [connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in DECIDED]


def test_a_restricted_token_has_no_session_of_others_halted(plane: Served, secrets: dict[str, str]) -> None:
    """Refusals that a guard reports escalate; what it says of sessions not its own counts nothing."""
    token = plane.token("mine-only", Verb.CHECK, only=Only(sessions=("mine-*",)))
    wide = {"scope": {"tool": "shared"}, "reason": "down", "do": "force_open"}
    breaker = plane.ask("POST", "/v1/breakers", secrets["everything"], json=wide).json()["id"]

    def strength(session: str) -> str:
        call = {"session_id": session, "tool": "shared"}
        return str(plane.ask("POST", "/v1/check", secrets["check"], json=call).json()["decision"])

    for session in ("theirs-1", "mine-1", None):
        refused = [{"breaker_id": breaker, "session_id": session, "count": 9}]
        ack = {"client": "x", "revision": 1, "refused": refused}
        assert plane.ask("POST", "/v1/acks", token, json=ack).status_code == 200
    assert (strength("theirs-1"), strength("mine-1")) == ("deny", "halt")
    assert plane.ask("GET", f"/v1/breakers/{breaker}", secrets["read"]).json()["denied"] == 11


def test_a_token_of_the_same_name_is_not_given_the_answers_of_the_one_before(plane: Served) -> None:
    body = {"scope": {"session": "asked-twice"}, "reason": "it loops"}
    replayed = []
    for _ in range(2):
        token = plane.token("again", Verb.TRIP)
        answers = [
            plane.ask("POST", "/v1/breakers", token, {"idempotency-key": "one"}, json=body) for _ in range(2)
        ]
        replayed += ["idempotency-replayed" in answer.headers for answer in answers]
        plane.revoke("again")
    assert replayed[:3] == [False, True, False]


def test_what_a_restricted_token_names_is_compared_everywhere(plane: Served, secrets: dict[str, str]) -> None:
    verbs = (Verb.READ, Verb.CHECK, Verb.TRIP, Verb.OVERRIDE)
    token = plane.token("shop-only", *verbs, only=Only(services=("shop-*",)))
    theirs = {"scope": {"service": "bank", "tool": "pay"}, "reason": "down", "do": "force_open"}
    breaker = plane.ask("POST", "/v1/breakers", secrets["everything"], json=theirs).json()["id"]
    calls = {"session_id": "s", "service": "bank", "tool": "pay"}
    context = {"context": {"targetingKey": "s", "service": "bank"}}
    why = {"reason": "why"}
    refused: tuple[tuple[str, dict[str, Any]], ...] = (
        ("/v1/check", calls),
        ("/v1/check/batch", {"calls": [calls]}),
        ("/ofrep/v1/evaluate/flags/allow.pay", context),
        ("/ofrep/v1/evaluate/flags", context),
        ("/v1/budgets/any/reservations", {"service": "bank", "session_id": "s", "amount": 1}),
        ("/v1/breakers", {**theirs, "scope": {"service": "bank", "session": "s"}}),
        ("/v1/breakers", {**theirs, "scope": {"session": "s"}}),
        (f"/v1/breakers/{breaker}/release", why),
        (f"/v1/breakers/{breaker}/force_close", {**why, "ttl_s": 60}),
    )
    for path, body in refused:
        assert plane.ask("POST", path, token, json=body).status_code == 403, path
    lease = plane.ask("POST", f"/v1/breakers/{breaker}/leases", token, json={})
    assert (lease.status_code, lease.json()["code"]) == (404, "not_found")
    ack = {"client": "x", "revision": 1, "refused": [{"breaker_id": breaker, "session_id": "s", "count": 9}]}
    assert plane.ask("POST", "/v1/acks", token, json=ack).status_code == 200
    assert plane.ask("GET", f"/v1/breakers/{breaker}", token).status_code == 404
    shown = plane.ask("GET", f"/v1/breakers/{breaker}", secrets["read"]).json()
    assert (shown["state"], shown["denied"]) == ("forced_open", 0)


def test_who_waited_with_a_token_that_ended_meanwhile_is_told_nothing(
    plane: Served, secrets: dict[str, str]
) -> None:
    token = plane.token("waits", Verb.READ)
    listed = plane.ask("GET", "/v1/breakers?active=true", token)
    since, hub = listed.json()["revision"], plane.process.services.following.hub
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(plane.ask, "GET", f"/v1/breakers?active=true&wait=30&since={since}", token)
        eventually(lambda: hub.polls == 1)
        plane.revoke("waits")
        body = {"scope": {"session": "meanwhile"}, "reason": "why"}
        assert plane.ask("POST", "/v1/breakers", secrets["trip"], json=body).status_code == 200
        assert waiting.result(30).status_code == 401
