from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.api.examples import half_open_breaker, open_breaker

if TYPE_CHECKING:
    import httpx

    from tests.api.conftest import Api


def asked(api: Api, breaker_id: str) -> dict[str, Any]:
    scope = api.ask("GET", f"/v1/breakers/{breaker_id}").json()["scope"]
    answer: dict[str, Any] = api.check(session_id="s", service=scope["service"], tool=scope["tool"])
    return answer


def result(api: Api, lease_id: str, *, ok: bool) -> httpx.Response:
    return api.ask("POST", f"/v1/leases/{lease_id}/result", json={"ok": ok})


def test_a_check_gets_the_one_probe_and_its_outcome_closes_the_breaker(api: Api) -> None:
    breaker_id = half_open_breaker(api)
    first, second = asked(api, breaker_id), asked(api, breaker_id)
    assert (first["decision"], first["breaker_id"]) == ("allow", breaker_id)
    assert first["lease_id"]
    assert (second["decision"], second["lease_id"]) == ("deny", None)
    assert second["retry_after_s"] > 0
    assert result(api, first["lease_id"], ok=True).json()["state"] == "closed"
    assert asked(api, breaker_id)["decision"] == "allow"


def test_a_probe_that_fails_opens_it_again(api: Api) -> None:
    breaker_id = half_open_breaker(api)
    lease = api.ask("POST", f"/v1/breakers/{breaker_id}/leases", json={"client": "buyer-1"})
    assert lease.status_code == 201
    assert api.ask("POST", f"/v1/breakers/{breaker_id}/leases", json={}).status_code == 409
    shown = result(api, lease.json()["lease_id"], ok=False).json()
    assert (shown["state"], shown["until"] is not None) == ("open", True)
    assert result(api, lease.json()["lease_id"], ok=True).status_code == 409


def test_calls_that_are_made_together_share_the_probes(api: Api) -> None:
    breaker_id = half_open_breaker(api)
    scope = api.ask("GET", f"/v1/breakers/{breaker_id}").json()["scope"]
    calls = [{"session_id": "s", "service": scope["service"], "tool": scope["tool"]}] * 3
    answer = api.ask("POST", "/v1/check/batch", json={"calls": calls}).json()
    assert [d["decision"] for d in answer["decisions"]] == ["allow", "deny", "deny"]


def test_there_are_no_probes_of_what_is_open_or_unknown(api: Api) -> None:
    assert api.ask("POST", f"/v1/breakers/{open_breaker(api)}/leases", json={}).status_code == 409
    assert api.ask("POST", "/v1/breakers/br_none/leases", json={}).status_code == 404
    assert result(api, "ls_none", ok=True).status_code == 404
