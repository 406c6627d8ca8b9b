from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from api.app import create_app
from api.policycompile import Compiler
from api.policyfile import parse_policy
from api.policyview import keys_of
from api.reload import PolicyKeeper, PolicyPlace
from control.policy import ModeRule, Policy
from detectors.protocol import Severity
from tests.api.conftest import SECRETS
from tests.api.test_policyfile import WHOLE
from tests.control.support import another

if TYPE_CHECKING:
    from pathlib import Path

    from tests.api.conftest import Api

TEXT = '[[rule]]\nname = "one"\nkinds = ["flail"]\ntrip = { action = "halt" }\n[breaker]\nprobes = 3\n'


@pytest.fixture
def filed(api: Api, tmp_path: Path) -> Api:
    """The app under a policy file."""
    (tmp_path / "policy.toml").write_text(TEXT)
    parts = api.parts
    place = PolicyPlace(path=tmp_path / "policy.toml", destinations=("hook",))
    keeper = PolicyKeeper(parts.control.policies, place, parts.db, parts.metrics, parts.clock)
    services = replace(api.services, policy=keeper, asides={"policy": keeper.aside})
    return replace(api, app=create_app(services), services=services)


def test_the_policy_of_the_settings_is_shown(api: Api) -> None:
    shown = api.ask("GET", "/v1/policy").json()
    assert (shown["file"], shown["sha256"], shown["loaded_at"], shown["trouble"]) == (None, None, None, [])
    (rule,) = shown["policy"]["rule"]
    assert (rule["name"], rule["trip"]["action"], rule["min_severity"]) == ("deny", "deny", "critical")


def test_the_policy_of_a_file_is_shown_with_where_it_is_from(filed: Api, tmp_path: Path) -> None:
    shown = filed.ask("GET", "/v1/policy").json()
    assert shown["file"] == str(tmp_path / "policy.toml")
    assert (len(shown["sha256"]), shown["loaded_at"]) == (64, "2023-11-14T22:13:20.000000Z")
    assert shown["policy"]["rule"][0]["kinds"] == ["flail"]
    assert shown["policy"]["breaker"]["probes"] == 3


def test_a_reload_puts_the_file_in_force_and_is_audited(filed: Api, tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(TEXT.replace("one", "two"))
    answer = filed.ask("POST", "/v1/policy/reload", json={"reason": "renamed"})
    assert (answer.status_code, answer.json()["policy"]["rule"][0]["name"]) == (200, "two")
    assert [rule.name for rule in filed.parts.control.policies.current.rules] == ["two"]
    with filed.parts.db.reading() as connection:
        (last,) = connection.execute("SELECT payload FROM audit ORDER BY seq DESC LIMIT 1").fetchone()
    assert '"reason":"renamed"' in last
    assert '"id":"local"' in last


def test_a_reload_needs_no_body(filed: Api) -> None:
    assert filed.ask("POST", "/v1/policy/reload").status_code == 200


def test_a_broken_file_is_refused_and_shown_as_degraded(filed: Api, tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(TEXT + "[[rule]]\nalert = ['nobody']\n")
    answer = filed.ask("POST", "/v1/policy/reload")
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_policy")
    said = "policy.toml:8: rule.2.alert.1: there is no destination 'nobody'; there are hook"
    assert said in answer.json()["detail"]
    assert said in filed.ask("GET", "/v1/policy").json()["trouble"][0]
    ready = filed.ask("GET", "/readyz").json()
    assert said in ready["degraded"]["policy"]
    assert [rule.name for rule in filed.parts.control.policies.current.rules] == ["one"]


def test_a_policy_of_the_settings_is_not_reloaded(api: Api) -> None:
    answer = api.ask("POST", "/v1/policy/reload")
    assert answer.status_code == 409
    assert "policy_file is not set" in answer.json()["detail"]


@pytest.mark.parametrize("body", [{"reason": 3}, {"why": "x"}, []])
def test_a_reload_with_a_body_that_makes_no_sense_is_refused(filed: Api, body: Any) -> None:  # noqa: ANN401 - JSON
    assert filed.ask("POST", "/v1/policy/reload", json=body).status_code == 422


def test_what_is_shown_of_a_policy_is_that_policy() -> None:
    policy = parse_policy(WHOLE, "p", ("pager", "chat"))
    again = Compiler(None).policy(keys_of(policy))
    assert again == policy
    assert Compiler(None).policy(keys_of(Policy())) == Policy()


def degrade(api: Api, *tools: str) -> None:
    rules = (ModeRule(name="small", agents=("buy*",), tools=2),)
    policies = api.parts.control.policies
    policies.swap(replace(policies.current, modes=rules), policies.source)
    with api.parts.db.transaction() as tx:
        for number, tool in enumerate(tools):
            finding = another(number, kind="tool_degraded", severity=Severity.WARNING, tool=tool)
            api.services.modes.take(tx, finding, api.parts.clock())
    api.services.modes.turn()


def test_degraded_tools_show_in_modes(api: Api) -> None:
    assert api.ask("GET", "/v1/modes").json() == {"rules": [], "by_hand": [], "degraded": []}
    degrade(api, "search", "fetch")
    shown = api.ask("GET", "/v1/modes").json()
    assert shown["rules"] == [
        {
            "rule": "small",
            "mode": "minimal",
            "agents": ["buy*"],
            "services": ["shop"],
            "tools": ["fetch", "search"],
            "since": "2023-11-14T22:13:20.000000Z",
        }
    ]
    assert [each["tool"] for each in shown["degraded"]] == ["fetch", "search"]
    assert api.ask("GET", "/v1/modes/buyer").json() == {
        "agent": "buyer",
        "mode": "minimal",
        "cause": "rule:small",
        "until": None,
    }
    assert api.ask("GET", "/v1/modes/buyer", params={"service": "other"}).json()["mode"] == "full"


def test_a_mode_is_set_by_hand_and_handed_back(api: Api) -> None:
    body = {"mode": "deterministic", "reason": "down", "ttl_s": 60}
    told = api.ask("POST", "/v1/modes/buyer", json=body).json()
    assert told == {
        "agent": "buyer",
        "mode": "deterministic",
        "cause": "person:local",
        "until": "2023-11-14T22:14:20.000000Z",
    }
    (hand,) = api.ask("GET", "/v1/modes").json()["by_hand"]
    assert (hand["reason"], hand["set_by"]) == ("down", "local")
    assert api.ask("POST", "/v1/modes/buyer", json={"mode": "auto", "reason": "up"}).json()["mode"] == "full"
    assert api.ask("GET", "/v1/modes").json()["by_hand"] == []


@pytest.mark.parametrize(
    "body",
    [
        {"mode": "tiny", "reason": "x"},
        {"mode": "minimal"},
        {"mode": "minimal", "reason": ""},
        {"mode": "minimal", "reason": "x", "ttl_s": 0},
        {"mode": "minimal", "reason": "x", "ttl_s": 1e12},
        {"mode": "minimal", "reason": "x", "for": 3},
    ],
)
def test_a_mode_that_makes_no_sense_is_refused(api: Api, body: dict[str, Any]) -> None:
    assert api.ask("POST", "/v1/modes/buyer", json=body).status_code == 422


@pytest.mark.parametrize(
    ("method", "path", "verb"),
    [
        ("GET", "/v1/policy", "read"),
        ("POST", "/v1/policy/reload", "admin"),
        ("GET", "/v1/modes", "read"),
        ("GET", "/v1/modes/buyer", "read"),
        ("POST", "/v1/modes/buyer", "override"),
    ],
)
def test_each_route_needs_its_verb(guarded: Api, method: str, path: str, verb: str) -> None:
    for given, secret in SECRETS.items():
        status = guarded.ask(method, path, token=secret).status_code
        assert (status == 403) == (given.value != verb), given
    assert guarded.ask(method, path).status_code == 401
