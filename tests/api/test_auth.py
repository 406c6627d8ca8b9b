from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from api.auth import Authority, Caller, Denied, Token, Verb
from tests.api.conftest import SECRETS

if TYPE_CHECKING:
    from fastapi import FastAPI

    from tests.api.conftest import Api

ROUTES: Final[dict[tuple[str, str], Verb | None]] = {
    ("POST", "/v1/check"): Verb.CHECK,
    ("POST", "/v1/check/batch"): Verb.CHECK,
    ("GET", "/v1/breakers"): Verb.READ,
    ("GET", "/v1/breakers/{breaker_id}"): Verb.READ,
    ("POST", "/v1/breakers/{breaker_id}/reset"): Verb.OVERRIDE,
    ("GET", "/v1/alerts"): Verb.READ,
    ("GET", "/v1/alerts/{alert_id}"): Verb.READ,
    ("POST", "/v1/alerts/{alert_id}/resolve"): Verb.OVERRIDE,
    ("GET", "/v1/findings"): Verb.READ,
    ("GET", "/metrics"): Verb.READ,
    ("GET", "/healthz"): None,
    ("GET", "/readyz"): None,
}


def routes_of(app: FastAPI) -> set[tuple[str, str]]:
    paths = app.openapi()["paths"]
    return {(method.upper(), path) for path, methods in paths.items() for method in methods}


def test_the_table_has_every_route(api: Api) -> None:
    assert routes_of(api.app) == set(ROUTES)


@pytest.mark.parametrize("presented", [None, "nobody's", *Verb])
@pytest.mark.parametrize(("method", "path"), list(ROUTES))
def test_every_route_lets_only_its_verb_in(
    guarded: Api, method: str, path: str, presented: Verb | str | None
) -> None:
    token = SECRETS[presented] if isinstance(presented, Verb) else presented
    body = {"session_id": "s", "reason": "x", "calls": [{"session_id": "s"}]} if method == "POST" else None
    response = guarded.ask(method, path, token=token, json=body)
    needed = ROUTES[method, path]
    if needed is None or presented is needed:
        assert response.status_code in {200, 404, 503}
    elif isinstance(presented, Verb):
        assert (response.status_code, response.json()["code"]) == (403, "denied")
    else:
        assert (response.status_code, response.json()["code"]) == (401, "denied")
        assert response.headers["www-authenticate"] == "Bearer"


def test_without_tokens_the_caller_is_local() -> None:
    assert Authority().admit(None, Verb.OVERRIDE) == Caller("local")
    assert Authority().open


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "Basic abc", f"Basic {SECRETS[Verb.READ]}", "Bearer x\udcff"]
)
def test_what_is_no_known_bearer_token_is_nobody(header: str | None) -> None:
    authority = Authority((Token.of("reader", SECRETS[Verb.READ], {Verb.READ}),))
    with pytest.raises(Denied) as caught:
        authority.admit(header, Verb.READ)
    assert caught.value.status == 401


def test_the_scheme_is_read_in_any_case() -> None:
    authority = Authority((Token.of("reader", SECRETS[Verb.READ], {Verb.READ}),))
    assert authority.admit(f"bearer {SECRETS[Verb.READ]}", Verb.READ).name == "reader"


def test_a_token_shows_its_secret_nowhere_and_needs_a_long_one() -> None:
    token = Token.of("reader", SECRETS[Verb.READ], {Verb.READ})
    assert SECRETS[Verb.READ] not in repr(token)
    with pytest.raises(ValueError, match=r"tokens\.short\.token"):
        Token.of("short", "x" * 15, {Verb.READ})
