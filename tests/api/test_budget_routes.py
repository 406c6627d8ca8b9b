from __future__ import annotations

from typing import TYPE_CHECKING

from tests.api.examples import budget

if TYPE_CHECKING:
    import httpx

    from tests.api.conftest import Api


def reserve(api: Api, amount: float, **who: str) -> httpx.Response:
    return api.ask("POST", "/v1/budgets/calls/reservations", json={"amount": amount, **who})


def test_a_budget_is_reserved_committed_and_given_back(api: Api) -> None:
    budget(api)
    first = reserve(api, 600_000, session_id="a").json()
    spent = reserve(api, 600_000, session_id="a")
    assert (spent.status_code, spent.json()["code"]) == (409, "spent")
    assert reserve(api, 600_000, session_id="b").status_code == 201
    assert api.ask("POST", f"/v1/reservations/{first['id']}/commit", json={"actual": 5}).status_code == 204
    second = reserve(api, 600_000, session_id="a").json()
    assert api.ask("POST", f"/v1/reservations/{second['id']}/release").status_code == 204
    assert api.ask("POST", f"/v1/reservations/{second['id']}/release").status_code == 409
    shown = {b["owner"]: b for b in api.ask("GET", "/v1/budgets").json()["budgets"]}
    assert (shown["a"]["spent"], shown["a"]["reserved"], shown["b"]["reserved"]) == (5, 0, 600_000)


def test_what_is_not_there_or_not_said_is_told(api: Api) -> None:
    assert reserve(api, 1, session_id="a").status_code == 404
    budget(api)
    unsaid = reserve(api, 1, agent="buyer")
    assert (unsaid.status_code, "session" in unsaid.json()["detail"]) == (422, True)
    assert reserve(api, 0, session_id="a").status_code == 422
    assert api.ask("POST", "/v1/reservations/rs_none/commit", json={}).status_code == 404
