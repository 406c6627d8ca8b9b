"""Rules that stand in the settings."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from api.config import ConfigError, PolicyRule, Settings, load, to_json
from api.controlprocess import options_from
from api.policykeys import RuleKeys, TripKeys
from api.policyrules import _DESTINATIONS, destinations_of, policy_of
from control.action import Action
from control.notifiers.catalog import KINDS
from control.policy import Hours, Policy, Reach, Rule
from tests.control.support import SECRET

if TYPE_CHECKING:
    from pathlib import Path

INLINE = """
[[policy]]
name = "night"
kinds = ["flail"]
min_severity = "warning"
services = ["shop"]
agents = ["a*"]
tools = ["t"]
sessions = ["s"]
hours = "22:00-06:00"
timezone = "Asia/Tokyo"
alert = ["chat"]
scope = "service_tool"
action = "replan"
open_s = 5
quarantine = true
shadow = true
stop = true
"""


def settings(folder: Path, text: str) -> Settings:
    path = folder / "recloser.toml"
    path.write_text(text)
    return load({}, path)


def plain(*rules: PolicyRule) -> Any:  # noqa: ANN401 - plain data
    return to_json(Settings(policy=rules))["policy"]


def test_a_rule_as_it_always_was_means_what_it_always_did() -> None:
    assert policy_of(plain(PolicyRule()), 3) == Policy(
        rules=(
            Rule(
                name="rule-1",
                kinds=frozenset({"doom_loop"}),
                reach=Reach.SESSION,
                action=Action.DENY,
            ),
        )
    )


def test_all_keys_of_a_rule_count(tmp_path: Path) -> None:
    given: Any = to_json(settings(tmp_path, INLINE))
    (rule,) = policy_of(given["policy"], 3).rules
    expected = Rule(
        name="night",
        kinds=frozenset({"flail"}),
        services=("shop",),
        agents=("a*",),
        tools=("t",),
        sessions=("s",),
        hours=Hours.of(["22:00-06:00"], "Asia/Tokyo"),
        alert=("chat",),
        reach=Reach.SERVICE_TOOL,
        action=Action.REPLAN,
        open_s=5.0,
        quarantine=True,
        shadow=True,
        stop=True,
    )
    assert rule == replace(expected, min_severity=rule.min_severity)
    assert rule.min_severity.value == "warning"


def test_rules_in_the_settings_have_the_keys_of_those_in_a_file() -> None:
    inline = set(PolicyRule.model_fields)
    assert inline == (set(RuleKeys.model_fields) | set(TripKeys.model_fields)) - {"trip", "severities"}


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (PolicyRule(alert=("pager",)), "policy.2.alert.1: there is no destination 'pager'; there are chat"),
        (PolicyRule(hours="Mon"), "policy.2.hours: 'Mon' tells no times"),
        (PolicyRule(timezone="Berlin"), "policy.2.timezone: there is no time zone 'Berlin'"),
        (PolicyRule(kinds=("flial",)), "policy.2.kinds.1: no detector finds 'flial'; did you mean 'flail'?"),
    ],
)
def test_what_makes_no_sense_is_named_by_its_key(rule: PolicyRule, said: str) -> None:
    with pytest.raises(ValueError, match=said.replace(".", r"\.").replace("?", r"\?")):
        policy_of(plain(PolicyRule(), rule), 3, ["chat"])


def test_a_policy_stands_in_one_place(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"recloser\.toml: policy_file: there is \[\[policy\]\], too"):
        settings(tmp_path, 'policy_file = "p.toml"\n[[policy]]\n')


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[policy]]\nopen_s = 0", "policy.0.open_s"),
        ("[[policy]]\nscope = 'tenant'", "policy.0.scope"),
        ("[[policy]]\ntrip = {}", "policy.0.trip"),
        ("[[actions]]\nname = 'a'\nurl = 'http://x'\nsecrets = []", "actions.0.secrets"),
        ("[[actions]]\nname = ''\nurl = 'http://x'\nsecrets = ['x']", "actions.0.name"),
    ],
)
def test_the_settings_name_what_is_wrong(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace(".", r"\.")):
        settings(tmp_path, text)


def test_destinations_are_those_of_every_section() -> None:
    assert set(_DESTINATIONS) == {kind.SECTION for kind in KINDS}
    given: Any = {"webhooks": [{"name": "a"}], "slack": [{"name": "b"}]}
    assert destinations_of(given) == {"a", "b"}


def test_policy_file_and_actions_become_options(tmp_path: Path) -> None:
    text = (
        f'policy_file = "{tmp_path}/policy.toml"\nescalate_after = 7\n'
        f'[[webhooks]]\nname = "chat"\nurl = "http://127.0.0.1/"\nsecrets = ["{SECRET}"]\n'
        f'[[actions]]\nname = "gate"\nurl = "http://127.0.0.1/"\nsecrets = ["{SECRET}"]\non = ["trip"]\n'
    )
    given = {"settings": to_json(settings(tmp_path, text)), "api_port": 1, "metrics_port": 2}
    options = options_from(given)
    assert options.policy_place is not None
    assert options.policy_place.path == tmp_path / "policy.toml"
    assert (options.policy_place.destinations, options.policy_place.escalate_after) == (("chat",), 7)
    assert [(each.name, {event.value for event in each.on}) for each in options.actions] == [
        ("gate", {"trip"})
    ]
    (tmp_path / "policy.toml").write_text("[[threshold]]\n")
    assert options.policy_place.read().policy.escalate_after == 7
    (tmp_path / "policy.toml").write_text("[breaker]\nescalate_after = 1\n")
    assert options.policy_place.read().policy.escalate_after == 1
