from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from api.policyfile import PolicyError, parse_policy, read_policy
from api.policykeys import Action as ActionKeys
from api.policykeys import BreakerKeys, FileKeys
from api.policykeys import Reach as ReachKeys
from control.action import Action
from control.breakers.settings import BreakerSettings
from control.policy import BudgetRule, Hours, Mode, ModeRule, Per, Policy, Reach, Rule, Threshold, Unit
from detectors.protocol import Severity

WHOLE = """
[[rule]]
name = "stop loops"
kinds = ["doom_loop", "flail"]
min_severity = "critical"
services = ["shop-*"]
agents = ["buyer"]
tools = ["fetch_*"]
sessions = ["prod-*"]
hours = ["Mon-Fri 08:00-18:00"]
timezone = "Europe/Berlin"
alert = ["pager", "chat"]
trip = { scope = "session", action = "halt", open_s = 30, quarantine = true, shadow = true }
stop = true

[[rule]]
kinds = ["breaker_flapping"]
severities = ["info", "warning"]
hours = "22:00-06:00"
alert = []

[[rule]]
trip = {}
shadow = true

[[threshold]]
name = "dead tool"
scope = "tool"
failures = 7
sessions = 4
nature = ["structural", "environmental"]
services = ["s"]
agents = ["a"]
tools = ["t"]
open_s = 10.5
action = "replan"
shadow = true

[[threshold]]

[[budget]]
name = "tokens of a session"
per = "agent"
unit = "tokens"
limit = 200_000
window_s = 3600
ttl_s = 60

[[mode]]
name = "small"
agent = ["buyer*", "seller"]
services = ["shop"]
tools = ["fetch_*"]
when = { kind = "tool_degraded", tools = 2 }
mode = "deterministic"
hold_s = 60

[[mode]]

[breaker]
base_open_s = 30
probes = 2

[check]
known_dead_calls = true
"""

EXPECTED = Policy(
    rules=(
        Rule(
            name="stop loops",
            kinds=frozenset({"doom_loop", "flail"}),
            services=("shop-*",),
            agents=("buyer",),
            tools=("fetch_*",),
            sessions=("prod-*",),
            hours=Hours.of(["Mon-Fri 08:00-18:00"], "Europe/Berlin"),
            alert=("pager", "chat"),
            reach=Reach.SESSION,
            action=Action.HALT,
            open_s=30.0,
            quarantine=True,
            trip_in_shadow=True,
            stop=True,
        ),
        Rule(
            name="rule-2",
            kinds=frozenset({"breaker_flapping"}),
            severities=frozenset({Severity.INFO, Severity.WARNING}),
            min_severity=Severity.WARNING,
            hours=Hours.of(["22:00-06:00"], "UTC"),
            alert=(),
            reach=None,
        ),
        Rule(name="rule-3", reach=Reach.SESSION_TOOL, action=Action.DENY, shadow=True),
    ),
    thresholds=(
        Threshold(
            name="dead tool",
            reach=Reach.TOOL,
            failures=7,
            sessions=4,
            natures=frozenset({"structural", "environmental"}),
            services=("s",),
            agents=("a",),
            tools=("t",),
            open_s=10.5,
            action=Action.REPLAN,
            shadow=True,
        ),
        Threshold(name="threshold-2", sessions=3),
    ),
    budgets=(
        BudgetRule(
            name="tokens of a session",
            per=Per.AGENT,
            unit=Unit.TOKENS,
            limit=200_000,
            window_s=3600,
            ttl_s=60,
        ),
    ),
    modes=(
        ModeRule(
            name="small",
            agents=("buyer*", "seller"),
            services=("shop",),
            tool_patterns=("fetch_*",),
            tools=2,
            mode=Mode.DETERMINISTIC,
            hold_s=60.0,
        ),
        ModeRule(name="mode-2", agents=("*",)),
    ),
    breakers=BreakerSettings(base_open_s=30.0, probes=2),
)
DESTINATIONS = ("pager", "chat")

BROKEN = [
    ("rule = 3", "1: rule: must be a list"),
    ("[rule]\nname = 'x'", "1: rule: must be a list"),
    ("[[rules]]", "1: rules: there is no such key; did you mean 'rule'?"),
    ("[[rule]]\nname = 3\nstop = true", "2: rule.1.name: must be a text"),
    ("[[rule]]", "1: rule.1: says nothing: it needs `alert`, `trip` or `stop`"),
    ("[[rule]]\nkinds = 'flail'\nstop = true", "2: rule.1.kinds: must be a list"),
    ("[[rule]]\nstop = true\nkinds = [\n  'flail',\n  3,\n]", "5: rule.1.kinds.2: must be a text"),
    (
        "[[rule]]\nstop = true\nkinds = [\n  'flail',\n  'dom_loop',\n]",
        "5: rule.1.kinds.2: no detector finds 'dom_loop'; did you mean 'doom_loop'?",
    ),
    ("[[rule]]\nstop = true\nkind = []", "3: rule.1.kind: there is no such key; did you mean 'kinds'?"),
    (
        "[[rule]]\nstop = true\nmin_severity = 'fatal'",
        "3: rule.1.min_severity: 'fatal' is not known; there are info, warning, critical",
    ),
    (
        "[[rule]]\nstop = true\nseverities = ['critcal']",
        "3: rule.1.severities.1: there is no severity 'critcal'; did you mean 'critical'?",
    ),
    (
        "[[rule]]\nstop = true\nseverities = ['info']\nmin_severity = 'info'",
        "4: rule.1.min_severity: say `severities` or `min_severity`, not both",
    ),
    (
        "[[rule]]\nalert = ['chat', 'pagr']",
        "2: rule.1.alert.2: there is no destination 'pagr'; did you mean 'pager'?",
    ),
    ("[[rule]]\nstop = true\nhours = 'Mon'", "3: rule.1.hours: 'Mon' tells no times"),
    ("[[rule]]\nstop = true\nhours = 8", "3: rule.1.hours: must be a text, or must be a list"),
    ("[[rule]]\nstop = true\ntimezone = 'Berlin'", "3: rule.1.timezone: there is no time zone 'Berlin'"),
    ("[[rule]]\nstop = 'yes'", "2: rule.1.stop: must be true or false"),
    ("[[rule]]\ntrip = 'deny'", "2: rule.1.trip: must be a table"),
    (
        "[[rule]]\ntrip = { scope = 'tenant' }",
        "2: rule.1.trip.scope: 'tenant' is not known; there are session, ",
    ),
    (
        "[[rule]]\nname = 'a'\n\n[rule.trip]\naction = 'stop'",
        "5: rule.1.trip.action: 'stop' is not known; there are replan, deny, halt",
    ),
    ("[[rule]]\ntrip = { open_s = 0 }", "2: rule.1.trip.open_s: must be greater than 0"),
    ("[[rule]]\ntrip = { open_s = inf }", "2: rule.1.trip.open_s: must be a"),
    ("[[rule]]\ntrip = { opens = 1 }", "2: rule.1.trip.opens: there is no such key; did you mean 'open_s'?"),
    (
        "[[rule]]\nname = 'a'\nstop = true\n[[rule]]\nstop = true\nname = 'a'",
        "6: rule.2.name: rule 1 has the name 'a', too",
    ),
    ("[[threshold]]\nfailures = 0", "2: threshold.1.failures: must be greater than 0"),
    ("[[threshold]]\nfailures = 5.5", "2: threshold.1.failures: must be a whole number"),
    ("[[threshold]]\nfailures = '5'", "2: threshold.1.failures: must be a whole number"),
    (
        "[[threshold]]\nnature = ['structual']",
        "2: threshold.1.nature.1: there is no nature 'structual'; did you mean 'structural'?",
    ),
    ("[[threshold]]\nsessions = 0", "2: threshold.1.sessions: must be greater than 0"),
    (
        "[[threshold]]\nscope = 'session_tool'\n\nsessions = 3",
        "4: threshold.1.sessions: the scope 'session_tool' has one session, it cannot be more",
    ),
    (
        "[[threshold]]\nfailures = 3\nsessions = 4",
        "3: threshold.1.sessions: 3 failures cannot come from more sessions than that",
    ),
    ("[[threshold]]\nnature = []", "2: threshold.1.nature: name at least one nature of errors"),
    ("[[threshold]]\nscope = 'run'", "2: threshold.1.scope: 'run' is not known"),
    ("[[budget]]\nunit = 'calls'\nlimit = 1", "1: budget.1.name: is needed"),
    ("[[budget]]\nname = ''\nunit = 'calls'\nlimit = 1", "2: budget.1.name: String should have at least 1"),
    ("[[budget]]\nname = 'a'\nunit = 'eur'\nlimit = 1", "3: budget.1.unit: 'eur' is not known"),
    ("[[budget]]\nname = 'a'\nunit = 'usd'\nlimit = -1", "4: budget.1.limit: must be greater than 0"),
    ("[[mode]]\nmode = 'full'", "2: mode.1.mode: 'full' is not known; there are minimal, deterministic"),
    ("[[mode]]\nwhen = { tools = 0 }", "2: mode.1.when.tools: must be greater than 0"),
    (
        "[[mode]]\nwhen = { kind = 'tool_degradd' }",
        "2: mode.1.when.kind: no detector finds 'tool_degradd'; did you mean 'tool_degraded'?",
    ),
    ("[breaker]\nprobez = 1", "2: breaker.probez: there is no such key; did you mean 'probes'?"),
    ("[breaker]\nprobes = 0", "2: breaker.probes: must be 1 or more, not 0"),
    ("[breaker]\nbase_open_s = 7200", "1: breaker.cap_open_s: must not be less than breaker.base_open_s"),
    ("[check]\nknown_dead_calls = 1", "2: check.known_dead_calls: must be true or false"),
    ('[[rule]]\nname = "x\n', "2: Illegal character '\\n' (column 10)"),
    ("\n\n[[rule]]\nname = \n", "4: Invalid value (column 8)"),
    ("[[rule]]\nname = [1,", "2: Invalid value (at the end)"),
    ("[breaker]\n[breaker]", "2: Cannot declare ('breaker',) twice (column 9)"),
]


def test_a_whole_file_says_what_it_says() -> None:
    policy = parse_policy(WHOLE, "policy.toml", DESTINATIONS)
    for field in fields(Policy):
        if field.name != "check":
            assert getattr(policy, field.name) == getattr(EXPECTED, field.name)
    assert policy.check.known_dead_calls


def test_an_empty_file_is_the_policy_that_stops_nothing() -> None:
    assert parse_policy("# nothing yet\n", "policy.toml") == Policy()


@pytest.mark.parametrize(("text", "said"), BROKEN, ids=[said for _, said in BROKEN])
def test_what_is_wrong_is_named_by_file_line_and_key(text: str, said: str) -> None:
    with pytest.raises(PolicyError) as caught:
        parse_policy(text, "policy.toml", DESTINATIONS)
    told = str(caught.value).splitlines()
    assert any(line.startswith(f"policy.toml:{said}") for line in told), told
    assert len(told) == 1, told


@pytest.mark.parametrize(("text", "said"), BROKEN, ids=[said for _, said in BROKEN])
def test_lines_are_right_wherever_the_mistake_stands(text: str, said: str) -> None:
    before = "# a comment\r\n# [[rule]]\r\n\r\n"
    with pytest.raises(PolicyError) as caught:
        parse_policy(before + text.replace("\n", "\r\n"), "policy.toml", DESTINATIONS)
    line, _, rest = said.partition(":")
    told = str(caught.value).splitlines()
    assert any(each.startswith(f"policy.toml:{int(line) + 3}:{rest}"[:40]) for each in told), told


def test_everything_that_is_wrong_is_told_at_once_in_the_order_of_the_file() -> None:
    text = "[[rule]]\nalert = ['x']\nkinds = ['y']\n[[rule]]\nalert = ['pager', 'z']\n[breaker]\nprobes = 0\n"
    with pytest.raises(PolicyError) as caught:
        parse_policy(text, "p", DESTINATIONS)
    assert [line.split(": ")[:2] for line in str(caught.value).splitlines()] == [
        ["p:2", "rule.1.alert.1"],
        ["p:3", "rule.1.kinds.1"],
        ["p:5", "rule.2.alert.2"],
        ["p:7", "breaker.probes"],
    ]


def test_without_known_destinations_any_name_will_do() -> None:
    assert parse_policy("[[rule]]\nalert = ['x']", "p").rules[0].alert == ("x",)


def test_a_file_is_read_with_its_hash(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_bytes(b"\xef\xbb\xbf[check]\r\nknown_dead_calls = true\r\n")
    read = read_policy(path)
    assert read.policy.check.known_dead_calls
    assert read.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (None, "No such file"),
        (b"\n\n\xff\xfe", ":3: is not UTF-8"),
        (b"#" * ((1 << 20) + 1), "1048576 bytes at most"),
        (b"a = " + b"[" * 100_000, "p.toml:"),
    ],
    ids=["missing", "no text", "too large", "too deep"],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, raw: bytes | None, said: str) -> None:
    path = tmp_path / "p.toml"
    if raw is not None:
        path.write_bytes(raw)
    with pytest.raises(PolicyError) as caught:
        read_policy(path)
    assert str(path) in str(caught.value)
    assert said in str(caught.value)


@given(st.text(alphabet="[]{}=\"'#,.\n abrule1", max_size=60))
def test_no_text_ends_in_anything_but_a_policy_or_its_errors(text: str) -> None:
    try:
        parse_policy(text, "p")
    except PolicyError as error:
        for line in str(error).splitlines():
            assert line.startswith("p:")
            assert 1 <= int(line.split(":")[1]) <= text.count("\n") + 1


def test_keys_know_all_reaches_actions_and_breaker_settings() -> None:
    assert set(get_args(ReachKeys)) == {each.value for each in Reach}
    assert set(get_args(ActionKeys)) == {each.value for each in Action}
    assert BreakerSettings(**BreakerKeys().model_dump()) == BreakerSettings()
    assert set(FileKeys.model_fields) == {"rule", "threshold", "budget", "mode", "breaker", "check"}


DOCS = (Path(__file__).parents[2] / "docs/policy.md").read_text()


def tables(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    yield model
    for field in model.model_fields.values():
        for inner in (field.annotation, *get_args(field.annotation)):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                yield from tables(inner)


@pytest.mark.parametrize("model", list(tables(FileKeys)), ids=lambda model: model.__name__)
def test_every_key_is_documented(model: type[BaseModel]) -> None:
    prefix = {"BreakerKeys": "breaker.", "CheckKeys": "check."}.get(model.__name__, "")
    names = set(model.model_fields) if model is not FileKeys else set()
    assert {name for name in names if f"`{prefix}{name}`" not in DOCS and f"{name} = " not in DOCS} == set()


def test_what_the_documentation_shows_is_a_policy() -> None:
    blocks = re.findall(r"```toml\n(.*?)```", DOCS, re.DOTALL)
    policies = [block for block in blocks if "[[actions]]" not in block]
    assert policies
    for block in policies:
        assert parse_policy(block, "docs").rules


def test_every_example_is_named_in_the_documentation() -> None:
    for path in (Path(__file__).parents[2] / "deploy/policy").glob("*.toml"):
        assert f"`deploy/policy/{path.name}`" in DOCS


def test_what_has_no_end_is_not_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.toml"
    os.mkfifo(pipe)
    device = tmp_path / "device.toml"
    device.symlink_to("/dev/zero")
    loop = tmp_path / "loop.toml"
    loop.symlink_to(loop)
    for path, said in (
        (pipe, "is no regular file"),
        (device, "is no regular file"),
        (tmp_path, "directory"),
        (loop, "symbolic links"),
    ):
        with pytest.raises(PolicyError, match=said):
            read_policy(path)
