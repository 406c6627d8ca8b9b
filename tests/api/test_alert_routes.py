"""Alerts, silences and the stop page over HTTP."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from api.alertparts import alert_settings
from control.action import Action
from control.breakers.states import State
from control.stop_link import LIFETIME_S
from tests.control.support import STUCK, another

if TYPE_CHECKING:
    import httpx

    from tests.api.conftest import Api

SHOP = {"name": "service", "op": "=", "value": "shop"}


def find(api: Api, *findings: Any) -> None:  # noqa: ANN401 - findings
    api.spool.add(*findings)
    api.parts.decide_all()


def silence(api: Api, **changes: Any) -> httpx.Response:  # noqa: ANN401 - any fields
    body = {"matchers": [SHOP], "ends_at": "2023-11-15T00:00:00Z", "comment": "moving", **changes}
    return api.ask("POST", "/v1/silences", json=body)


def ids(api: Api, query: str) -> list[str]:
    return [alert["id"] for alert in api.ask("GET", f"/v1/alerts?{query}").json()["alerts"]]


def test_alerts_are_listed_by_what_they_are(api: Api) -> None:
    other = another(1, kind="flail", detector="flail", session_id="s2", service="bank")
    find(api, STUCK, other)
    assert silence(api).status_code == 201
    stuck, flail = f"al_{STUCK.id}", f"al_{other.id}"
    assert ids(api, "kind=flail") == [flail]
    assert ids(api, "severity=critical&state=firing") == [flail, stuck]
    assert ids(api, "severity=warning") == ids(api, "state=pending") == []
    assert ids(api, "silenced=true") == [stuck]
    assert ids(api, "silenced=false") == [flail]
    assert api.ask("GET", "/v1/alerts?state=odd").status_code == 422
    shown = api.ask("GET", f"/v1/alerts/{stuck}").json()
    assert shown["labels"]["tool"] == "fetch_page"
    assert (shown["announced"], len(shown["silenced_by"]), shown["destinations"]) == (True, 1, None)


def test_an_alert_is_acknowledged_and_resolved_by_name(api: Api) -> None:
    find(api, STUCK)
    path = f"/v1/alerts/al_{STUCK.id}"
    seen = api.ask("POST", f"{path}/ack", json={"reason": "on it"}).json()
    assert (seen["state"], seen["acknowledged_by"], seen["acknowledgement"]) == ("firing", "local", "on it")
    assert api.ask("POST", f"{path}/resolve", json={"reason": "done"}).json()["state"] == "resolved"
    assert api.ask("POST", f"{path}/ack", json={"reason": "on it"}).status_code == 409
    assert api.ask("POST", f"{path}/ack", json={}).status_code == 422
    assert api.ask("POST", "/v1/alerts/al_0/ack", json={"reason": "x"}).status_code == 404
    with api.parts.db.reading() as connection:
        verbs = [row[0] for row in connection.execute("SELECT payload ->> 'verb' FROM audit ORDER BY seq")]
    assert [verb for verb in verbs if verb.startswith("alert.")] == ["alert.acknowledge", "alert.resolve"]


def test_a_silence_is_made_changed_and_ended(api: Api) -> None:
    made = silence(api, matchers=[SHOP, {"name": "kind", "op": "=~", "value": "doom_.*"}]).json()
    assert (made["state"], made["created_by"], made["starts_at"]) == (
        "active",
        "local",
        "2023-11-14T22:13:20.000000Z",
    )
    path = f"/v1/silences/{made['id']}"
    later = {
        "matchers": [SHOP],
        "starts_at": "2023-11-15T01:00:00+01:00",
        "ends_at": "2023-11-16T00:00:00Z",
        "comment": "x",
    }
    changed = api.ask("PUT", path, json=later).json()
    assert (changed["id"], changed["state"], changed["starts_at"]) == (
        made["id"],
        "pending",
        "2023-11-15T00:00:00.000000Z",
    )
    assert api.ask("GET", path).json() == changed
    assert [one["id"] for one in api.ask("GET", "/v1/silences").json()["silences"]] == [made["id"]]
    assert api.ask("DELETE", path).json()["state"] == "over"
    assert api.ask("GET", "/v1/silences").json()["silences"] == []
    assert len(api.ask("GET", "/v1/silences?over=true").json()["silences"]) == 1
    assert api.ask("DELETE", path).status_code == api.ask("PUT", path, json=later).status_code == 409
    for method in ("GET", "DELETE"):
        assert api.ask(method, "/v1/silences/si_0").status_code == 404


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"matchers": []}, "matchers"),
        ({"matchers": [{"name": "color", "value": "red"}]}, "name: 'color' is no label"),
        ({"matchers": [{"name": "kind", "op": "=~", "value": "(a+)+"}]}, "repeated groups"),
        ({"matchers": [{"name": "kind", "op": "!=", "value": "x"}]}, "at least one must not match"),
        ({"ends_at": "2023-11-14T00:00:00Z"}, "ends_at"),
        ({"ends_at": "2024-11-14T00:00:00Z"}, "30 days"),
        ({"ends_at": "2023-11-15T00:00:00"}, "ends_at"),
        ({"ends_at": "9999-12-31T23:59:59Z"}, "30 days"),
        ({"starts_at": "0001-01-01T00:00:00Z", "ends_at": "0001-01-02T00:00:00Z"}, "ends_at"),
        ({"comment": ""}, "comment"),
    ],
)
def test_a_silence_that_makes_no_sense_says_so(api: Api, changes: dict[str, Any], problem: str) -> None:
    answer = silence(api, **changes)
    assert answer.status_code == 422
    assert problem in answer.json()["detail"]


def link(api: Api, session: str = "session-1") -> str:
    return api.services.stop_links.of(session).removeprefix("http://recloser")


def test_looking_at_the_stop_page_stops_nobody(api: Api) -> None:
    answer = api.ask("GET", link(api, "<script>alert(1)</script>"))
    assert answer.status_code == 200
    assert "&lt;script&gt;alert(1)" in answer.text
    assert "<script" not in answer.text
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert re.search(r"style-src 'sha256-[\w+/=]+'", policy)
    assert answer.headers["cache-control"] == "no-store"
    assert api.parts.index.open_breakers() == []


def test_the_button_halts_the_session_once(api: Api) -> None:
    path = link(api)
    answer = api.ask("POST", path)
    assert (answer.status_code, "is halted" in answer.text) == (200, True)
    (breaker,) = api.parts.index.open_breakers()
    assert (breaker.scope.session, breaker.scope.tool) == ("session-1", None)
    assert (breaker.state, breaker.action, breaker.actor.id) == (State.OPEN, Action.HALT, "link")
    for method in ("GET", "POST"):
        again = api.ask(method, path).text
        assert "already" in again
        assert "<button" not in again
    assert len(api.parts.index.open_breakers()) == 1


def test_a_session_that_is_only_refused_is_halted_by_the_link(api: Api) -> None:
    find(api, replace(STUCK, tool=None))
    api.ask("POST", "/v1/breakers", json={"scope": {"session": "session-1"}, "action": "deny", "reason": "x"})
    assert api.ask("POST", link(api)).status_code == 200
    (breaker,) = (b for b in api.parts.index.open_breakers() if b.scope.tool is None)
    assert breaker.action is Action.HALT


def test_a_made_up_and_an_old_link_say_so_and_are_audited(api: Api) -> None:
    good = link(api)
    for method in ("GET", "POST"):
        assert api.ask(method, good[:-4] + "0000").status_code == 403
        assert api.ask(method, "/stop").status_code == 403
    api.parts.clock.advance(LIFETIME_S + 1)
    for method in ("GET", "POST"):
        answer = api.ask(method, good)
        assert (answer.status_code, "too old" in answer.text) == (410, True)
    assert api.parts.index.open_breakers() == []
    with api.parts.db.reading() as connection:
        rows = connection.execute(
            "SELECT payload ->> 'reason', payload ->> '$.extra.count' FROM audit ORDER BY seq"
        ).fetchall()
    assert [tuple(row) for row in rows] == [("the link is not one of ours", 1), ("the link has expired", 4)]


def test_a_stop_link_needs_no_token(guarded: Api) -> None:
    assert guarded.ask("POST", link(guarded)).status_code == 200


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"heartbeat_s": 60.0, "heartbeat_to": "nobody"}, "alerts.heartbeat_to: no destination"),
        ({"heartbeat_s": 60.0}, "alerts.heartbeat_to: name the destination"),
        ({"public_url": "recloser.example"}, "alerts.public_url"),
    ],
)
def test_settings_of_alerts_that_make_no_sense_are_named(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        alert_settings(given, ("hook",), "127.0.0.1", 4319)


@pytest.mark.parametrize(
    ("host", "port", "url"),
    [
        ("127.0.0.1", 4319, "http://127.0.0.1:4319"),
        ("0.0.0.0", 4319, "http://127.0.0.1:4319"),
        ("::1", 4319, "http://[::1]:4319"),
        ("127.0.0.1", 0, ""),
    ],
)
def test_links_lead_to_this_machine_unless_told_otherwise(host: str, port: int, url: str) -> None:
    assert alert_settings({}, (), host, port).public_url == url
    told = alert_settings({"public_url": "https://r.example"}, (), host, port)
    assert told.public_url == "https://r.example"
