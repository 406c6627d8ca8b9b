from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from api.auth import Authority, Caller, Denied, Token, Verb, configured_tokens
from api.build import build_auth
from api.controlprocess import ControlOptions
from api.headers import dressed
from api.ratelimit import Limits
from api.refusals import MOST, Refusals
from collector.receivers.auth import FORBIDDEN, UNAUTHENTICATED
from control.actor import Actor
from control.audit import entries, verify
from control.db import ControlDb
from control.tokenfile import TokenFile
from control.tokens import TokenBook, Wanted
from control.verbs import AGENT, Only
from tests.api.conftest import SECRETS
from tests.api.serving import Served, served
from tests.control.support import START_NS, ManualClock

ADA: Final = Actor(type="person", id="ada")
READER: Final = Token.of("reader", SECRETS[Verb.READ], {Verb.READ})


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path) as plane:
        yield plane


def test_without_tokens_the_caller_is_local() -> None:
    assert Authority().admit(None, Verb.OVERRIDE) == Caller("local")
    assert Authority().open


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "Basic abc", f"Basic {SECRETS[Verb.READ]}", "Bearer x\udcff"]
)
def test_what_is_no_known_bearer_token_is_nobody(header: str | None) -> None:
    with pytest.raises(Denied) as caught:
        Authority((READER,)).admit(header, Verb.READ)
    assert (caught.value.status, caught.value.headers) == (401, {"www-authenticate": "Bearer"})


def test_the_scheme_is_read_in_any_case() -> None:
    assert Authority((READER,)).admit(f"bearer {SECRETS[Verb.READ]}", Verb.READ).name == "reader"


def test_a_token_shows_its_secret_nowhere_and_needs_a_long_one() -> None:
    assert SECRETS[Verb.READ] not in repr(READER)
    assert SECRETS[Verb.READ] not in repr(Authority((READER,)).admit(f"Bearer {SECRETS[Verb.READ]}", None))
    with pytest.raises(ValueError, match=r"tokens\.short\.token"):
        Token.of("short", "x" * 15, {Verb.READ})


def test_tokens_of_the_configuration_differ() -> None:
    def given(name: str, token: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - settings
        return {
            "name": name,
            "token": token,
            "scopes": ["read"],
            "services": [],
            "agents": [],
            "sessions": [],
            **more,
        }

    first, second = configured_tokens([given("", "a" * 16), given("b", "b" * 16)])
    assert (first.name, second.name, second.source) == ("token-1", "b", "config")
    for again, key in ((given("b", "c" * 16), "name"), (given("c", "b" * 16), "token")):
        with pytest.raises(ValueError, match=rf"tokens\.2\.{key}: another token has the same"):
            configured_tokens([given("b", "b" * 16), again])
    with pytest.raises(ValueError, match=r"tokens\.a\.scopes: ingest cannot be restricted"):
        configured_tokens([given("a", "a" * 16, scopes=["ingest"], services=["shop"])])


def test_a_caller_stands_until_the_token_ends(tmp_path: Path) -> None:
    clock = ManualClock()
    with closing(ControlDb(tmp_path / "control.db")) as db:
        book = TokenBook(db, clock)
        authority = Authority(book=book, now_ns=clock)
        local = authority.admit(None, Verb.ADMIN)
        assert authority.stands(local)
        _, boss = book.create(Wanted(name="boss", verbs=frozenset(Verb)), ADA)
        assert not authority.stands(local)
        bot, secret = book.create(Wanted(name="bot", verbs=AGENT, expires_ns=START_NS + 9), ADA)
        caller = authority.admit(f"Bearer {secret}", Verb.CHECK)
        assert authority.stands(caller)
        clock.now += 9
        assert not authority.stands(caller)
        with pytest.raises(Denied):
            authority.admit(f"Bearer {secret}", Verb.CHECK)
        clock.now -= 9
        book.revoke(bot.id, ADA)
        assert not authority.stands(caller)
        assert authority.admit(f"Bearer {boss}", None).name == "boss"


def test_what_needs_more_than_the_route_does_says_so() -> None:
    caller = Caller("bot", AGENT, Only(sessions=("s-*",)))
    with pytest.raises(Denied, match="'bot' does not allow 'override': this scope is wide"):
        caller.need(Verb.OVERRIDE, "this scope is wide")
    caller.confirm(service=None, agent=None, session="s-1")
    with pytest.raises(Denied, match=r"restricted: sessions s-\*"):
        caller.confirm(service=None, agent=None, session="t-1")


def test_the_first_token_shuts_the_door_behind_whoever_made_it(plane: Served) -> None:
    assert plane.ask("GET", "/v1/whoami").json()["name"] == "local"
    assert not plane.ask("GET", "/v1/whoami").json()["tokens_needed"]
    assert plane.ask("GET", "/v1/alerts", headers={"host": "evil.example"}).status_code == 421
    refused = plane.ask("POST", "/v1/tokens", json={"name": "bot", "verbs": ["check"]})
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    made = plane.ask("POST", "/v1/tokens", json={"name": "boss", "verbs": ["admin", "read"]}).json()
    assert made["token"]["created_by"] == "local"
    assert plane.ask("GET", "/v1/whoami").status_code == 401
    assert plane.ask("POST", "/v1/check", json={"session_id": "s"}).status_code == 401
    me = plane.ask("GET", "/v1/whoami", made["secret"]).json()
    assert (me["name"], me["verbs"], me["tokens_needed"]) == ("boss", ["read", "admin"], True)
    assert plane.ask("GET", "/v1/alerts", made["secret"], {"host": "any.example"}).status_code == 200


def test_tokens_are_made_listed_and_revoked(plane: Served) -> None:
    boss = plane.token("boss", Verb.ADMIN)
    wanted = {"name": "bot", "verbs": ["check"], "expires_in_s": 60, "services": ["shop-*"]}
    made = plane.ask("POST", "/v1/tokens", boss, json=wanted)
    assert (made.status_code, made.headers["cache-control"]) == (201, "no-store")
    bot = made.json()
    assert plane.ask("GET", "/v1/whoami", bot["secret"]).json()["only"]["services"] == ["shop-*"]
    listed = plane.ask("GET", "/v1/tokens", boss)
    assert [(t["name"], t["state"]) for t in listed.json()["tokens"]] == [("boss", "valid"), ("bot", "valid")]
    assert bot["secret"] not in listed.text
    assert boss not in listed.text
    for _ in range(2):
        ended = plane.ask("DELETE", f"/v1/tokens/{bot['token']['id']}", boss)
        assert (ended.status_code, ended.json()["state"], ended.json()["revoked_by"]) == (
            200,
            "revoked",
            "boss",
        )
    assert plane.ask("GET", "/v1/whoami", bot["secret"]).status_code == 401
    assert plane.ask("DELETE", "/v1/tokens/nothing", boss).status_code == 404
    (first, _) = listed.json()["tokens"]
    last = plane.ask("DELETE", f"/v1/tokens/{first['id']}", boss)
    assert (last.status_code, last.json()["code"]) == (409, "conflict")
    for wrong in ({"name": "", "verbs": ["read"]}, {"name": "x", "verbs": ["operate"]}, {"name": "x"}):
        assert plane.ask("POST", "/v1/tokens", boss, json=wrong).status_code == 422


def test_a_stream_tells_nothing_more_once_its_token_is_revoked(plane: Served) -> None:
    boss = plane.token("boss", *Verb)
    bot = plane.token("bot", *AGENT)
    trip = {"scope": {"session": "s"}, "do": "trip", "reason": "it loops"}
    headers = {"authorization": f"Bearer {bot}"}
    with plane.client.stream("GET", "/v1/breakers/watch", headers=headers) as stream:
        told = stream.iter_text()
        begun = ""
        while "snapshot" not in begun or not begun.endswith("\n\n"):
            begun += next(told)
        plane.revoke("bot")
        assert plane.ask("POST", "/v1/breakers", boss, json=trip).status_code == 200
        assert "".join(told) == ""


def test_too_many_requests_are_told_when_to_come_back_and_checks_are_answered(tmp_path: Path) -> None:
    limits = Limits(check_per_s=0.2, other_per_s=0.2, failed_per_s=0.5, failed_burst=2)
    with served(tmp_path, limits) as plane:
        boss = plane.token("boss", Verb.READ, Verb.CHECK, Verb.ADMIN)
        assert plane.ask("GET", "/v1/alerts", boss).status_code == 200
        refused = plane.ask("GET", "/v1/alerts", boss)
        assert (refused.status_code, refused.json()["code"]) == (429, "too_many_requests")
        assert 1 <= int(refused.headers["retry-after"]) <= 5
        answers = [plane.ask("POST", "/v1/check", boss, json={"session_id": "s"}) for _ in range(12)]
        assert [answer.status_code for answer in answers] == [200] * 10 + [429] * 2
        polls = [plane.ask("GET", "/v1/breakers", boss).status_code for _ in range(2)]
        assert polls == [429, 429]
        value = plane.process.services.registry.get_sample_value
        assert value("recloser_checks_over_limit_total") == 13
        assert [plane.ask("GET", "/v1/alerts", "unknown").status_code for _ in range(3)] == [401, 401, 429]
        assert value("recloser_api_refused_total", {"status": "401"}) == 2
        assert value("recloser_api_refused_total", {"status": "429"}) == 6


def test_refusals_are_audited_together(tmp_path: Path) -> None:
    clock = ManualClock()
    with closing(ControlDb(tmp_path / "control.db")) as db:
        refusals = Refusals(db, clock)
        for _ in range(3):
            refusals(Denied(403, "no", "bot"), {"method": "GET", "path": "/v1/tokens"})
        refusals(Denied(401, "who"), {"method": "GET", "path": "/v1/tokens"})
        refusals.turn()
        assert audited(db) == []
        clock.advance(60)
        refusals.turn()
        refusals.turn()
        assert audited(db) == [
            ("bot", "GET /v1/tokens", {"count": 3, "status": 403}),
            ("unknown", "GET /v1/tokens", {"count": 1, "status": 401}),
        ]
        for number in range(MOST + 7):
            refusals(Denied(401, "who"), {"method": "GET", "path": f"/{number}"})
        refusals.flush()
        assert len(audited(db)) == 2 + MOST + 1
        assert audited(db)[-1] == ("others", "others", {"count": 7, "status": 401})
        with db.reading() as connection:
            assert verify(connection) == 2 + MOST + 1


def test_a_refusal_at_a_route_with_an_id_is_audited_by_the_route(plane: Served) -> None:
    plane.token("boss", Verb.ADMIN)
    bot = plane.token("bot", Verb.CHECK)
    for number in range(3):
        assert plane.ask("GET", f"/v1/breakers/{number}", bot).status_code == 403
    plane.ask("POST", "/v1/check", json={"session_id": "s"})
    plane.process._refusals.flush()
    assert audited(plane.process.services.control.db)[-2:] == [
        ("bot", "GET /v1/breakers/{breaker_id}", {"count": 3, "status": 403}),
        ("unknown", "POST /v1/check", {"count": 1, "status": 401}),
    ]


def test_tokens_of_the_database_let_it_listen_to_others(tmp_path: Path) -> None:
    options = partial(
        ControlOptions,
        spool_path=tmp_path / "spool.db",
        control_path=tmp_path / "control.db",
        host="0.0.0.0",
    )
    with pytest.raises(ValueError, match="set tokens"):
        options()
    with closing(ControlDb(tmp_path / "control.db")) as db:
        TokenBook(db, ManualClock()).create(Wanted(name="boss", verbs=frozenset({Verb.ADMIN})), ADA)
    options()


def test_receivers_follow_the_tokens(tmp_path: Path) -> None:
    clock = ManualClock()
    file = TokenFile(tmp_path / "control.db")
    auth = build_auth(file, clock)
    assert (auth(None), auth("anything")) == (None, None)
    with closing(ControlDb(tmp_path / "control.db")) as db:
        book = TokenBook(db, clock)
        _, boss = book.create(Wanted(name="boss", verbs=frozenset({Verb.ADMIN})), ADA)
        bot, secret = book.create(Wanted(name="bot", verbs=AGENT, expires_ns=START_NS + 9), ADA)
        file.look()
        assert [auth(given) for given in (None, "", "x\udcff", boss, secret)] == [
            UNAUTHENTICATED,
            UNAUTHENTICATED,
            UNAUTHENTICATED,
            FORBIDDEN,
            None,
        ]
        assert list(file.last_used()) == ["bot"]
        clock.now += 9
        assert auth(secret) == UNAUTHENTICATED
        clock.now -= 9
        book.revoke(bot.id, ADA)
        file.look()
        assert auth(secret) == UNAUTHENTICATED
    file.stop()


def test_every_answer_has_the_headers_and_none_lets_another_origin_in(plane: Served) -> None:
    boss = plane.token("boss", *Verb)
    asked: list[tuple[str, str, dict[str, Any]]] = [
        ("GET", "/healthz", {}),
        ("GET", "/nothing", {}),
        ("GET", "/stop", {}),
        ("GET", "/v1/alerts", {}),
        ("GET", "/v1/alerts", {"token": boss}),
        ("PUT", "/v1/alerts", {"token": boss}),
        ("POST", "/v1/check", {"token": boss, "json": {"session_id": "s"}}),
        ("POST", "/v1/check", {"json": {"session_id": "s"}}),
        ("GET", "/metrics", {"token": boss}),
        ("GET", "/openapi.json", {}),
        *(("OPTIONS", path, {}) for path in ("/v1/check", "/v1/alerts", "/nothing")),
    ]
    for method, path, request in asked:
        preflight = {"origin": "https://evil.example", "access-control-request-method": "POST"}
        answer = plane.ask(method, path, headers=preflight, **request)
        assert_safe(answer)
        if method == "OPTIONS":
            assert answer.status_code in {404, 405}


@pytest.mark.parametrize(
    "sent",
    [
        {"origin": "https://evil.example"},
        {"origin": "http://127.0.0.1:3000"},
        {"origin": "null", "sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_without_tokens_a_page_of_another_origin_changes_nothing(plane: Served, sent: dict[str, str]) -> None:
    trip = {"scope": {"session": "s"}, "do": "trip", "reason": "it loops"}
    refused = plane.ask("POST", "/v1/breakers", headers=sent, json=trip)
    assert (refused.status_code, refused.json()["code"]) == (403, "denied")
    assert_safe(refused)
    assert plane.ask("GET", "/v1/breakers", headers=sent).json()["breakers"] == []


@pytest.mark.parametrize("site", [None, "same-origin", "none"])
def test_without_tokens_pages_of_ours_are_served(plane: Served, site: str | None) -> None:
    trip = {"scope": {"session": "s"}, "do": "trip", "reason": "it loops"}
    origin = str(plane.client.base_url).rstrip("/")
    for number, where in enumerate((origin, "null")):
        headers = {"origin": where} | ({} if site is None else {"sec-fetch-site": site})
        body = trip | {"scope": {"session": str(number)}}
        assert plane.ask("POST", "/v1/breakers", headers=headers, json=body).status_code == 200


@pytest.mark.parametrize(
    ("given", "policy", "cache"),
    [
        ([], "default-src 'none'; frame-ancestors 'none'", "no-store"),
        ([(b"Cache-Control", b"max-age=1")], "default-src 'none'; frame-ancestors 'none'", "max-age=1"),
        ([(b"content-type", b"text/html; charset=utf-8")], "form-action 'self'", "no-store"),
        ([(b"content-security-policy", b"default-src 'self'")], "default-src 'self'", "no-store"),
    ],
)
def test_what_a_route_says_is_left(given: list[tuple[bytes, bytes]], policy: str, cache: str) -> None:
    headers = httpx.Headers(dressed(given))
    assert policy in headers["content-security-policy"]
    assert headers.get_list("cache-control") == [cache]
    assert len(headers.get_list("content-security-policy")) == 1


def assert_safe(answer: httpx.Response) -> None:
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["cache-control"]
    assert [name for name in answer.headers if name.startswith("access-control-")] == []


def audited(db: ControlDb) -> list[tuple[str, str, object]]:
    with db.reading() as connection:
        found = entries(connection, since=0, limit=10_000)
    return [(e.actor.id, e.subject, dict(e.extra)) for e in found if e.verb == "authorization.refuse"]
