"""The commands `alerts` and `silence` at a running control plane."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from control.policy import Policy, Rule
from control.verbs import Verb
from tests.api.oncall import EVIL, alerted, found, run
from tests.api.serving import Served, served

FLAIL = "al_0000000000000002"
LOOP = "al_0000000000000001"


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Served]:
    policy = Policy(rules=(Rule(name="stop", kinds=frozenset({"doom_loop"})),))
    with served(tmp_path, policy=policy) as plane:
        yield plane


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One in which nothing happens."""
    with served(tmp_path_factory.mktemp("quiet")) as plane:
        yield plane


@pytest.fixture
def fired(plane: Served, tmp_path: Path) -> Served:
    alerted(plane, tmp_path, found(1), found(2, kind="flail", detector="flail", service="bank", tool=None))
    return plane


def test_nothing_fires(quiet: Served) -> None:
    assert run(quiet, "alerts").stdout == "no alert is firing\n"
    assert run(quiet, "alerts", "--all").stdout == "there is no alert\n"
    assert run(quiet, "silence", "list").stdout == "there is no silence\n"


def test_what_fires_is_listed_newest_first_and_plain(fired: Served) -> None:
    head, first, below, second, loop = run(fired, "alerts").stdout.splitlines()
    assert head.split() == ["id", "age", "severity", "kind", "state"]
    assert first.split()[::2] == [FLAIL, "critical", "firing"]
    assert below == "  bank / buyer / chat-2, 6 calls"
    assert second.split()[0] == LOOP
    assert loop == "  shop / buyer / chat-1, fetch_page, 6 calls, breaker open (deny)"
    assert run(fired, "alerts", "--session", "chat-1").stdout.count("al_") == 1
    assert run(fired, "alerts", "--state", "resolved").stdout == "no alert is resolved\n"


def test_more_than_the_limit_is_said(fired: Served) -> None:
    result = run(fired, "alerts", "--limit", "1")
    assert result.stdout.count("al_") == 1
    assert "--limit shows more than 1" in result.stderr


def test_json_is_that_of_the_api(fired: Served) -> None:
    told = json.loads(run(fired, "alerts", "--json").stdout)
    assert told.keys() == fired.ask("GET", "/v1/alerts").json().keys()
    assert [alert["id"] for alert in told["alerts"]] == [FLAIL, LOOP]
    shown = json.loads(run(fired, "alerts", "show", LOOP, "--json").stdout)
    assert shown == fired.ask("GET", f"/v1/alerts/{LOOP}").json()


def test_an_alert_is_taken_looked_at_and_ended(fired: Served) -> None:
    ada = fired.token("ada", *Verb)
    acked = run(fired, "alerts", "ack", LOOP, "--reason", "looking at it", token=ada)
    assert (acked.exit_code, acked.stdout) == (0, f"{LOOP} is acknowledged by ada: looking at it\n")
    assert "breaker open (deny), acked by ada\n" in run(fired, "alerts", token=ada).stdout
    shown = run(fired, "alerts", "show", LOOP, token=ada).stdout
    facts = dict(line.split(maxsplit=1) for line in shown.splitlines())
    assert facts["calls"] == "6"
    assert facts["acked"].endswith("looking at it")
    assert facts["look"] == "recloser handoff chat-1"
    assert facts["stop"] == "recloser stop chat-1 --reason …"
    ended = run(fired, "alerts", "resolve", LOOP, "--reason", "url fixed", token=ada)
    assert (ended.exit_code, ended.stdout) == (0, f"{LOOP} is resolved by ada: url fixed\n")
    again = run(fired, "alerts", "ack", LOOP, "--reason", "x", token=ada)
    assert (again.exit_code, again.stdout) == (1, "")
    assert "`recloser alerts show ID` tells how it stands" in again.stderr
    assert run(fired, "alerts", token=ada).stdout.count("al_") == 1
    assert run(fired, "alerts", "--all", token=ada).stdout.count("al_") == 2
    assert "by ada" in run(fired, "alerts", "show", LOOP, token=ada).stdout


def test_refusals_say_what_to_do(fired: Served) -> None:
    unknown = run(fired, "alerts", "show", "al_0")
    assert (unknown.exit_code, unknown.stdout) == (2, "")
    assert "no alert has the id 'al_0'; `recloser alerts --all` lists" in unknown.stderr
    reader = fired.token("reader", Verb.READ, Verb.ADMIN)
    nobody = run(fired, "alerts")
    assert (nobody.exit_code, "give a token as RECLOSER_TOKEN" in nobody.stderr) == (2, True)
    denied = run(fired, "alerts", "ack", LOOP, "--reason", "x", token=reader)
    assert denied.exit_code == 2
    assert "does not allow 'override'" in denied.stderr
    assert "as RECLOSER_TOKEN" in denied.stderr
    blind = fired.token("blind", Verb.OVERRIDE)
    words = ("--match", "kind=flail", "--for", "1h", "--comment", "x")
    made = run(fired, "silence", "add", *words, token=blind)
    assert (made.exit_code, made.stdout.count("\n")) == (0, 1)
    broken = run(fired, "alerts", token=f"{reader}\nsecret")
    assert (broken.exit_code, "secret" in broken.output) == (2, False)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("alerts", "--all", "--state", "firing"), "give one of them"),
        (("alerts", "--json", "show", "al_1"), "--json belongs behind `show`"),
        (("breakers", "--url", "http://x", "show", "br_1"), "--url belongs behind `show`"),
        (("alerts", "--url", "http://127.0.0.1:1"), "http://127.0.0.1:1 does not answer"),
        (("silence", "list", "--url", "http://127.0.0.1:1"), "http://127.0.0.1:1 does not answer"),
        (("stop", "s", "--reason", "x", "--url", "http://127.0.0.1:1/"), "http://127.0.0.1:1 does not"),
        (("breakers", "--url", "no address"), "no address does not answer"),
        (("breakers", "--config", "/nowhere.toml"), "/nowhere.toml"),
        (("silence", "add", "--match", "shop", "--for", "2h", "--comment", "x"), "--match shop: write"),
        (("silence", "add", "--match", "a=b", "--for", "soon", "--comment", "x"), "--for soon: say"),
        (("silence", "add", "--match", "a=b", "--for", "9999999d", "--comment", "x"), "30 days at most"),
        (("silence", "add", "--match", "a=b", "--for", "2h", "--comment", "x"), "'a' is no label"),
        (("breakers", "trip", "--reason", "x"), "either the ID of a breaker or a scope"),
        (("breakers", "trip", "br_1", "--tool", "t", "--reason", "x"), "either the ID of a breaker"),
        (("breakers", "trip", "--args", "zz", "--reason", "x"), "scope.args"),
        (("breakers", "show", "br_1"), "`recloser breakers --all` lists"),
        (("breakers", "reset", "../alerts", "--reason", "x"), "/v1/breakers/../alerts/reset: Not Found"),
        (("silence", "end", "si_1"), "no silence has the id 'si_1'"),
        (("stop", "", "--reason", "x"), "say which one"),
    ],
)
def test_what_cannot_be_done_is_said(quiet: Served, words: tuple[str, ...], said: str) -> None:
    result = run(quiet, *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


def test_another_server_is_no_sidecar(quiet: Served) -> None:
    result = run(quiet, "alerts", "--url", f"{quiet.client.base_url}/stop?")
    assert result.exit_code == 2
    assert "is this the port of the API (4319)?" in result.stderr


def test_text_of_agents_does_nothing_to_the_terminal(plane: Served, tmp_path: Path) -> None:
    odd = found(3, session_id=EVIL, service=EVIL, tool=EVIL, summary=EVIL)
    alerted(plane, tmp_path, replace(odd, kind="flail", detector="flail"))
    listed, shown = run(plane, "alerts"), run(plane, "alerts", "show", "al_0000000000000003")
    for result in (listed, shown, run(plane, "alerts", "--json")):
        assert result.exit_code == 0
        assert "\x1b" not in result.output
        assert "\u202e" not in result.output
    assert "\\x1b[2J\\u202eevil [red]" in listed.stdout


def test_a_silence_is_made_listed_and_ended(fired: Served) -> None:
    made = run(
        fired,
        *("silence", "add", "--match", "kind=doom_loop", "--match", "service=~sh.*"),
        *("--for", "2h", "--comment", "the shop moves"),
    )
    assert made.exit_code == 0, made.stderr
    name, *_ = made.stdout.split()
    assert "kind=doom_loop  service=~sh.*\n" in made.stdout
    assert made.stdout.endswith("alerts that fire now and match it: 1\n")
    assert "silenced" in run(fired, "alerts", "--session", "chat-1").stdout
    assert "silenced" not in run(fired, "alerts", "--session", "chat-2").stdout
    head, entry, matchers, comment = run(fired, "silence", "list").stdout.splitlines()
    assert head == "id                   state   ends in  made by"
    assert (entry.split()[:2], entry.split()[-1]) == ([name, "active"], "local")
    assert (matchers, comment) == ("  kind=doom_loop  service=~sh.*", "  the shop moves")
    ended = run(fired, "silence", "end", name)
    assert (ended.exit_code, f"{name} is over" in ended.stdout) == (0, True)
    again = run(fired, "silence", "end", name)
    assert (again.exit_code, "it is over already" in again.stderr) == (1, True)
    assert run(fired, "silence", "list").stdout == "there is no silence\n"
    assert " ago " in run(fired, "silence", "list", "--all").stdout
    none = run(fired, "silence", "add", "--match", "tool=tpyo", "--for", "1h", "--comment", "x", "--json")
    assert json.loads(none.stdout)["matchers"] == [{"name": "tool", "op": "=", "value": "tpyo"}]
