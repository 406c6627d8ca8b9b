from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.control.support import STUCK, another

if TYPE_CHECKING:
    from tests.api.conftest import Api

AL = f"al_{STUCK.id}"


def stuck(api: Api) -> str:
    api.spool.add(STUCK)
    api.parts.decide_all()
    (breaker,) = api.parts.index.open_breakers()
    return breaker.id


def test_a_breaker_is_shown_with_who_why_and_since_when(api: Api) -> None:
    breaker_id = stuck(api)
    api.check(session_id="session-1", tool="fetch_page")
    shown = api.ask("GET", f"/v1/breakers/{breaker_id}").json()
    assert shown["scope"] == {
        "tenant": "default",
        "service": None,
        "agent": None,
        "session": "session-1",
        "run": None,
        "tool": "fetch_page",
        "args": None,
        "model": None,
    }
    assert (shown["state"], shown["action"], shown["reason"], shown["denied"]) == (
        "open",
        "deny",
        "doom_loop",
        1,
    )
    assert shown["actor"] == {"type": "rule", "id": "deny"}
    assert (shown["opened_at"], shown["closed_at"]) == ("2023-11-14T22:13:20.000000Z", None)
    assert STUCK.summary in shown["message_for_human"]


def test_breakers_are_listed_by_session_and_page(api: Api) -> None:
    api.spool.add(*(another(n, session_id=f"s{n}") for n in range(3)))
    api.parts.decide_all()
    page = api.ask("GET", "/v1/breakers", params={"limit": 2}).json()
    rest = api.ask("GET", "/v1/breakers", params={"limit": 2, "before": page["next_before"]}).json()
    one = api.ask("GET", "/v1/breakers", params={"session_id": "s1", "state": "open"}).json()
    assert [[b["scope"]["session"] for b in p["breakers"]] for p in (page, rest, one)] == [
        ["s2", "s1"],
        ["s0"],
        ["s1"],
    ]
    assert (page["revision"], rest["next_before"]) == (3, None)


def test_a_list_is_unchanged_until_something_changes(api: Api) -> None:
    stuck(api)
    listed = api.ask("GET", "/v1/breakers")
    assert (listed.headers["etag"], listed.headers["cache-control"]) == (
        '"rev-1"',
        "max-age=1, stale-if-error=60",
    )
    for headers, query in (({"if-none-match": '"rev-1"'}, {}), ({}, {"since": 1})):
        same = api.ask("GET", "/v1/breakers", headers=headers, params=query)
        assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", '"rev-1"')
    api.spool.add(another(1, session_id="s1"))
    api.parts.decide_all()
    assert api.ask("GET", "/v1/breakers", headers={"if-none-match": '"rev-1"'}).status_code == 200
    assert api.ask("GET", "/v1/breakers", params={"since": 1}).status_code == 200


def test_who_knows_a_revision_that_has_not_been_gets_the_list(api: Api) -> None:
    """Their revision is of another file: nothing that they know is true."""
    stuck(api)
    assert api.ask("GET", "/v1/breakers", params={"since": 99, "wait": 30}).status_code == 200


def test_breakers_are_found_by_scope(api: Api) -> None:
    breaker_id = stuck(api)

    def found(**query: str) -> list[str]:
        answer = api.ask("GET", "/v1/breakers", params=query)
        return [breaker["id"] for breaker in answer.json()["breakers"]]

    assert found(scope="session:session-1,tool:fetch_page") == [breaker_id]
    assert found(scope="session:session-1") == []
    assert found(scope="session:session-1,tool:fetch_page,agent:buyer@2", match="covers") == [breaker_id]
    assert found(scope="session:other", match="covers") == []
    assert found(active="true") == [breaker_id]
    api.ask("POST", f"/v1/breakers/{breaker_id}/reset", json={"reason": "over"})
    assert found(active="true") == []
    assert found(scope="session:session-1,tool:fetch_page") == [breaker_id]
    for wrong in ("session", "session:", "colour:red", "session:a,session:b", "args:x"):
        assert api.ask("GET", "/v1/breakers", params={"scope": wrong}).status_code == 422


def test_a_reset_lets_calls_through_at_once_and_says_who(api: Api) -> None:
    breaker_id = stuck(api)
    shown = api.ask("POST", f"/v1/breakers/{breaker_id}/reset", json={"reason": "the page is back"}).json()
    assert (shown["state"], shown["note"], shown["actor"]) == (
        "closed",
        "the page is back",
        {"type": "person", "id": "local"},
    )
    assert api.check(session_id="session-1", tool="fetch_page")["decision"] == "allow"
    again = api.ask("POST", f"/v1/breakers/{breaker_id}/reset", json={"reason": "again"})
    assert (again.status_code, again.json()["code"]) == (409, "conflict")
    assert "closed cannot reset" in again.json()["detail"]


def test_an_alert_is_shown_with_its_finding_and_its_deliveries(api: Api) -> None:
    breaker_id = stuck(api)
    answer = api.ask("GET", "/v1/alerts").json()
    (alert,) = answer["alerts"]
    assert (alert["id"], alert["state"], alert["breaker_ids"]) == (AL, "firing", [breaker_id])
    assert alert["finding"]["evidence"] == STUCK.evidence
    assert [(d["destination"], d["message_id"], d["state"]) for d in alert["deliveries"]] == [
        ("hook", f"msg_{STUCK.id}_1_firing", "pending")
    ]
    assert [(d["name"], d["state"], d["pending"]) for d in answer["destinations"]] == [("hook", "ok", 1)]
    assert api.ask("GET", f"/v1/alerts/{AL}").json() == alert


def test_a_disabled_destination_is_shown(api: Api) -> None:
    with api.parts.db.transaction() as tx:
        tx.execute("UPDATE destinations SET disabled_ns = ?, reason = '410 Gone'", (api.parts.clock(),))
    (place,) = api.ask("GET", "/v1/alerts").json()["destinations"]
    assert (place["state"], place["reason"], place["disabled_at"]) == (
        "disabled",
        "410 Gone",
        "2023-11-14T22:13:20.000000Z",
    )
    assert 'recloser_destination_disabled{destination="hook"} 1.0' in api.ask("GET", "/metrics").text


def test_an_alert_is_resolved_once(api: Api) -> None:
    stuck(api)
    shown = api.ask("POST", f"/v1/alerts/{AL}/resolve", json={"reason": "restarted"}).json()
    assert (shown["state"], shown["resolved_by"], shown["note"]) == ("resolved", "local", "restarted")
    assert [d["type"] for d in shown["deliveries"]] == ["alert.firing", "alert.resolved"]
    assert api.ask("POST", f"/v1/alerts/{AL}/resolve", json={"reason": "again"}).status_code == 409
    assert api.ask("GET", "/v1/alerts", params={"state": "firing"}).json()["alerts"] == []
    assert len(api.ask("GET", "/v1/alerts", params={"state": "resolved"}).json()["alerts"]) == 1


def test_findings_are_listed_at_their_newest_revision(api: Api) -> None:
    api.spool.add(STUCK, another(1, session_id="s1", kind="flail"), replace(STUCK, revision=1, occurrences=9))
    api.parts.decide_all()
    page = api.ask("GET", "/v1/findings", params={"limit": 1}).json()
    rest = api.ask("GET", "/v1/findings", params={"before": page["next_before"]}).json()
    assert [f["session_id"] for f in page["findings"]] == ["s1"]
    assert [(f["revision"], f["occurrences"]) for f in rest["findings"]] == [(1, 9)]
    assert [
        len(api.ask("GET", "/v1/findings", params=p).json()["findings"])
        for p in ({"kind": "flail"}, {"session_id": "session-1"}, {"kind": "cascade"})
    ] == [1, 1, 0]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "field"),
    [
        ("GET", "/v1/breakers/br_none", None, 404, None),
        ("POST", "/v1/breakers/br_none/reset", {"reason": "x"}, 404, None),
        ("POST", "/v1/breakers/br_none/reset", {}, 422, "reason"),
        ("POST", "/v1/breakers/br_none/reset", {"reason": ""}, 422, "reason"),
        ("GET", "/v1/alerts/al_none", None, 404, None),
        ("POST", "/v1/alerts/al_none/resolve", {"reason": "x"}, 404, None),
        ("POST", "/v1/alerts/al_none/resolve", {"reason": 1}, 422, "reason"),
        ("GET", "/v1/breakers?limit=0", None, 422, "limit"),
        ("GET", "/v1/breakers?state=ajar", None, 422, "state"),
        ("GET", "/v1/alerts?before=x", None, 422, "before"),
        ("GET", "/v1/findings?limit=5000", None, 422, "limit"),
        ("GET", "/v1/findings?before=99999999999999999999", None, 422, "before"),
        ("POST", "/v1/check/batch", {"calls": []}, 422, "calls"),
        ("POST", "/v1/check/batch", {"calls": [{"session_id": "a"}, {}]}, 422, "calls.1.session_id"),
        ("GET", "/v1/nothing", None, 404, None),
        ("DELETE", "/v1/breakers", None, 405, None),
    ],
)
def test_refusals_are_json_that_names_the_field(
    api: Api, *, method: str, path: str, body: object, status: int, field: str | None
) -> None:
    response = api.ask(method, path, json=body)
    problem = response.json()
    assert response.status_code == status
    assert set(problem) == {"code", "detail", "fields"}
    assert [f["field"] for f in problem["fields"]] == ([] if field is None else [field])


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", None])
def test_a_page_of_another_site_cannot_reset_a_breaker(api: Api, content_type: str | None) -> None:
    breaker_id = stuck(api)
    headers = {} if content_type is None else {"content-type": content_type}
    response = api.ask(
        "POST", f"/v1/breakers/{breaker_id}/reset", content=b'{"reason": "x"}', headers=headers
    )
    assert (response.status_code, response.json()["code"]) == (415, "unsupported_media_type")
    assert api.check(session_id="session-1", tool="fetch_page")["decision"] == "deny"


def test_a_defect_is_500_without_its_inside(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.routes.findings.list_findings", lambda *_args, **_more: 1 / 0)
    response = api.ask("GET", "/v1/findings")
    assert response.status_code == 500
    assert response.json() == {
        "code": "internal",
        "detail": "an unexpected error; the log has it",
        "fields": [],
    }


def test_the_process_says_that_it_lives_and_what_it_waits_for(api: Api) -> None:
    assert api.ask("GET", "/healthz").json() == {"status": "ok"}
    waiting = api.ask("GET", "/readyz")
    assert (waiting.status_code, waiting.json()["status"]) == (503, "waiting")
    api.parts.control.step()
    ready = api.ask("GET", "/readyz")
    assert (ready.status_code, ready.json()) == (200, {"status": "ready", "waiting_for": {}, "degraded": {}})


def test_metrics_are_those_of_all_processes(api: Api) -> None:
    stuck(api)
    text = api.ask("GET", "/metrics").text
    for line in (
        'recloser_alerts_total{event="fire"} 1.0',
        'recloser_outbox_pending{destination="hook"} 1.0',
        "recloser_breakers_open 1.0",
        "other_process_up 1",
    ):
        assert line in text.splitlines()


def test_a_field_that_there_is_not_is_said_to_be_none(api: Api) -> None:
    answer = api.ask("POST", "/v1/breakers", json={"scope": {"session_id": "s"}, "reason": "x"})
    assert answer.status_code == 422
    assert answer.json()["detail"] == "scope.session_id: there is no such field"
