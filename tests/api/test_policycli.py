"""`policy check` and `policy test`, on recorded cases and out of a store."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from case_otlp import CASE_SPACING_NS, EPOCH_NS, case_to_request
from typer.testing import CliRunner

from api.cli import app
from api.policytest import Asked, policy_test
from tests.api.test_backtest import NOW, WANTED, WINDOW, Lived
from tests.api.test_backtest import lived as lived  # noqa: PLC0414 - the fixture
from tests.detectors.case_steps import read_cases

POLICY = """
[[rule]]
name = "loops"
kinds = ["doom_loop", "flail"]
min_severity = "warning"
alert = ["pager"]
trip = { scope = "session", action = "halt" }

[[rule]]
name = "others"
alert = []

[[threshold]]
name = "dead tool"
failures = 2
nature = ["structural", "semantic", "environmental", "unknown"]
"""
ROOT = Path(__file__).parents[2]


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "policy.toml"
    path.write_text(POLICY)
    return path


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Cases as a file of OTLP JSON lines."""
    cases = {case["id"]: case for case in read_cases()}
    bodies = [
        orjson.dumps(case_to_request(cases[name], EPOCH_NS + number * CASE_SPACING_NS))
        for number, name in enumerate(WANTED)
    ]
    path = tmp_path / "recorded.jsonl"
    path.write_bytes(b"\n".join(bodies) + b"\n")
    return path


def ask(*arguments: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["policy", *map(str, arguments)])
    return done.exit_code, done.stdout, done.stderr


def test_a_file_that_is_fine_is_said_to_be(policy: Path) -> None:
    unchecked = "recloser: destinations were not checked (pager): no --config says which there are\n"
    assert ask("check", policy) == (0, f"{policy}: fine: 2 rules, 1 threshold\n", unchecked)


def test_destinations_that_were_checked_or_that_none_are_need_no_word(policy: Path, tmp_path: Path) -> None:
    config = tmp_path / "recloser.toml"
    config.write_text('[[slack]]\nname = "pager"\nurl = "https://hooks.slack.com/services/T0/B0/x"\n')
    assert ask("check", policy, "--config", config)[::2] == (0, "")
    policy.write_text(POLICY.replace('alert = ["pager"]', ""))
    assert ask("check", policy)[::2] == (0, "")


def test_a_file_that_is_not_fine_is_named_with_line_and_key(policy: Path) -> None:
    policy.write_text(POLICY.replace('"flail"', '"flial"').replace("halt", "hlt"))
    status, out, err = ask("check", policy)
    assert (status, out) == (2, "")
    assert f"{policy}:7: rule.1.trip.action: 'hlt' is not known; did you mean 'halt'?" in err


def test_destinations_are_those_of_the_settings(policy: Path, tmp_path: Path) -> None:
    settings = tmp_path / "recloser.toml"
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    settings.write_text(f'[[webhooks]]\nname = "chat"\nurl = "http://x/"\nsecrets = ["{secret}"]\n')
    status, _, err = ask("check", policy, "--config", settings)
    assert status == 2
    assert f"{policy}:6: rule.1.alert.1: there is no destination 'pager'; there are chat" in err


def test_a_policy_is_tried_on_recorded_traces(policy: Path, recorded: Path) -> None:
    status, out, err = ask("test", policy, "--from", recorded, "--format", "json")
    assert (status, err) == (0, "")
    told: Any = json.loads(out)
    assert (told["since"], told["sessions"]) == (None, len(WANTED))
    loops = {each["session"] for each in told["breakers"] if each["rule"] == "loops"}
    assert {each["action"] for each in told["breakers"] if each["rule"] == "loops"} == {"halt"}
    assert any("dl-" in session for session in loops)
    destinations = {each["destination"] for each in told["alerts"]["by_destination"]}
    assert destinations <= {"pager", "nobody"}
    assert "pager" in destinations
    by_name = {each["rule"]: each for each in told["rules"]}
    assert by_name["loops"]["breakers"] == len(loops)
    assert by_name["others"]["breakers"] == 0
    assert by_name["dead tool"]["findings"] is None


def test_the_table_says_the_same(policy: Path, recorded: Path) -> None:
    status, out, _ = ask("test", policy, "--from", recorded)
    assert status == 0
    for part in ("Alerts", "who is told", "pager", "What each rule stops", "dead tool", "Runs that would"):
        assert part in out


def test_too_many_good_runs_end_with_status_1(policy: Path, tmp_path: Path) -> None:
    case = {case["id"]: case for case in read_cases()}["dl-separate-messages"]
    body = case_to_request(case, EPOCH_NS)
    span = body["resourceSpans"][0]["scopeSpans"][0]["spans"][-1]
    span["attributes"].append({"key": "recloser.task.success", "value": {"boolValue": True}})
    (tmp_path / "good.jsonl").write_bytes(orjson.dumps(body) + b"\n")
    given = ("test", policy, "--from", tmp_path / "good.jsonl", "--format", "json")
    status, out, _ = ask(*given)
    told = json.loads(out)
    assert (status, told["runs"]["good"], len(told["good_runs"])) == (0, 1, 1)
    assert ask(*given, "--max-good-runs", 0)[0] == 1
    assert ask(*given, "--max-good-runs", 1)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--against", "soon"], "'soon' is no time"),
        (["--against", "2026-11-08..2026-11-01"], "it ends before it begins"),
        (["--from", "/nothing/there"], "/nothing/there"),
        (["--data-dir", "/nothing/there"], "nothing is stored in /nothing/there"),
        (["--prices", "/nothing/there", "--from", "README.md"], "/nothing/there"),
    ],
)
def test_what_makes_no_sense_ends_with_status_2(policy: Path, arguments: list[str], said: str) -> None:
    status, _, err = ask("test", policy, *arguments)
    assert (status, said in err) == (2, True), err


def test_a_broken_policy_is_tried_on_nothing(policy: Path, recorded: Path) -> None:
    policy.write_text("[[rule]]\nkind = 1\n")
    status, out, err = ask("test", policy, "--from", recorded)
    assert (status, out) == (2, "")
    assert "rule.1.kind: there is no such key" in err


@pytest.mark.parametrize("file", sorted((ROOT / "deploy/policy").glob("*.toml")), ids=lambda file: file.name)
def test_the_examples_are_fine(file: Path) -> None:
    status, _, err = ask("check", file)
    assert status == 0
    names = file.stem != "first-weeks"
    assert err.startswith("recloser: destinations were not checked (") is names


def test_there_are_examples() -> None:
    assert len(list((ROOT / "deploy/policy").glob("*.toml"))) >= 3


@pytest.mark.store
def test_a_policy_is_tried_on_what_is_stored(
    policy: Path,
    recorded: Path,
    lived: Lived,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = Asked(file=policy, against=WINDOW, output="json")
    assert policy_test(lived.settings, asked, NOW) == 0
    stored = json.loads(capsys.readouterr().out)
    assert (stored["since"], stored["until"]) == ("2025-01-01T00:00:00Z", "2025-01-08T00:00:00Z")
    assert policy_test(lived.settings, replace(asked, files=(recorded,)), NOW) == 0
    offline = json.loads(capsys.readouterr().out)
    assert stored["rules"] == offline["rules"]
    assert stored["alerts"]["by_destination"] == offline["alerts"]["by_destination"]
    assert policy_test(lived.settings, replace(asked, against="2025-01-06..2025-01-08"), NOW) == 0
    assert json.loads(capsys.readouterr().out)["steps"] < stored["steps"]
