"""The commands `breakers` and `stop` at a running control plane."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from api.listing import Entry, print_facts, print_list
from control.verbs import Verb
from tests.api.oncall import EVIL, alerted, found, run
from tests.api.serving import Served, served


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path) as plane:
        yield plane


def state(plane: Served, breaker_id: str) -> tuple[str, str]:
    told = plane.ask("GET", f"/v1/breakers/{breaker_id}").json()
    return told["state"], told["action"]


def tripped(plane: Served, *words: str) -> str:
    result = run(plane, "breakers", "trip", *words, "--reason", "stuck", "--json")
    assert result.exit_code == 0, result.stderr
    return str(json.loads(result.stdout)["id"])


def test_a_scope_is_tripped_listed_and_reset(plane: Served) -> None:
    assert run(plane, "breakers").stdout == "nothing is stopped: no breaker is open\n"
    words = ("--session", "chat-17", "--tool", "fetch_page", "--action", "halt", "--for", "30m")
    made = run(plane, "breakers", "trip", *words, "--reason", "stuck")
    assert made.exit_code == 0, made.stderr
    name = made.stdout.split()[0]
    assert made.stdout.startswith(f"{name} over session chat-17, tool fetch_page is open (halt) until ")
    head, entry, scope, why = run(plane, "breakers").stdout.splitlines()
    assert head.split() == ["id", "state", "strength", "since", "until", "denied"]
    assert entry.split()[:3] == [name, "open", "halt"]
    assert (scope, why) == ("  session chat-17, tool fetch_page", "  manual, by person local: stuck")
    assert run(plane, "breakers", "--session", "other").stdout.startswith("nothing is stopped")
    shown = run(plane, "breakers", "show", name).stdout
    assert f"recloser breakers reset {name} --reason …" in shown
    assert json.loads(run(plane, "breakers", "show", name, "--json").stdout)["id"] == name
    closed = run(plane, "breakers", "reset", name, "--reason", "url fixed")
    assert closed.stdout == f"{name} over session chat-17, tool fetch_page is closed\n"
    assert run(plane, "breakers").stdout.startswith("nothing is stopped")
    assert run(plane, "breakers", "--all").stdout.count("br_") == 1
    again = run(plane, "breakers", "reset", name, "--reason", "x")
    assert again.exit_code == 1
    assert "it lets calls through already; `recloser breakers show ID`" in again.stderr


def test_a_breaker_is_held_and_let_go(plane: Served) -> None:
    name = tripped(plane, "--session", "s", "--action", "replan")
    for words, wanted in (
        (("trip", name, "--action", "deny"), ("open", "deny")),
        (("force-open", name, "--action", "halt", "--for", "1h"), ("forced_open", "halt")),
        (("force-close", name, "--for", "30m"), ("forced_closed", "halt")),
        (("release", name), ("open", "deny")),
        (("shadow", name, "--for", "1d"), ("shadow", "deny")),
    ):
        result = run(plane, "breakers", *words, "--reason", "by hand")
        assert result.exit_code == 0, result.stderr
        assert state(plane, name) == wanted
    assert run(plane, "breakers", "force-close", name, "--reason", "without an end").exit_code == 2


def test_holds_can_be_made_over_a_scope(plane: Served) -> None:
    held = run(plane, "breakers", "force-open", "--tool", "t", "--reason", "x").stdout
    assert "over tool t is forced_open (deny)" in held
    let = run(plane, "breakers", "force-close", "--agent", "a@2", "--for", "5m", "--reason", "x").stdout
    assert "over agent a@2 is forced_closed until " in let


def test_a_session_is_stopped_once(plane: Served, tmp_path: Path) -> None:
    alerted(plane, tmp_path, found(1))
    first = run(plane, "stop", "chat-1", "--reason", "stuck")
    assert (first.exit_code, first.stderr) == (0, "")
    name = first.stdout.split("halted: ")[1].split()[0]
    assert state(plane, name) == ("open", "halt")
    assert "6 calls, breaker open (halt)\n" in run(plane, "alerts").stdout
    again = run(plane, "stop", "chat-1", "--reason", "stuck")
    assert (again.exit_code, again.stdout) == (0, f"session chat-1 is halted already: {name} (open)\n")
    run(plane, "breakers", "force-close", name, "--for", "5m", "--reason", "a person watches")
    held = run(plane, "stop", "chat-1", "--reason", "stuck")
    assert (held.exit_code, held.stdout) == (1, "")
    assert held.stderr.startswith(f"recloser: NOT stopped: {name} over session chat-1 is forced_closed")
    assert f"recloser breakers force-open {name} --action halt --reason …" in held.stderr


def test_a_session_that_nobody_has_seen_is_stopped_with_a_word(plane: Served) -> None:
    odd = 'a,b:c/%2C "d'
    result = run(plane, "stop", odd, "--reason", "stuck", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["scope"]["session"] == odd
    assert "is it spelled as the agent sends it?" in result.stderr
    assert "is halted already" in run(plane, "stop", odd, "--reason", "stuck").stdout


def test_whoever_may_only_trip_stops_sessions_and_resets_none(plane: Served) -> None:
    plane.token("boss", *Verb)
    guard = plane.token("guard", Verb.TRIP)
    stopped = run(plane, "stop", "chat-1", "--reason", "x", token=guard)
    assert (stopped.exit_code, stopped.stderr) == (0, "")
    name = stopped.stdout.split("halted: ")[1].split()[0]
    again = run(plane, "stop", "chat-1", "--reason", "x", token=guard)
    assert (again.exit_code, "it refuses calls already" in again.stderr) == (1, True)
    denied = run(plane, "breakers", "reset", name, "--reason", "x", token=guard)
    assert (denied.exit_code, "does not allow 'override'" in denied.stderr) == (2, True)
    wide = run(plane, "breakers", "trip", "--tool", "t", "--reason", "x", token=guard)
    assert (wide.exit_code, "as RECLOSER_TOKEN" in wide.stderr) == (2, True)


def test_names_do_nothing_to_the_terminal(plane: Served) -> None:
    name = tripped(plane, "--tool", EVIL)
    for words in ((), ("show", name), ("--json",)):
        result = run(plane, "breakers", *words)
        assert "evil [red]" in result.stdout
        assert "\x1b" not in result.stdout
        assert "\u202e" not in result.stdout


@pytest.mark.parametrize("terminal", [True, False])
def test_lists_fit_a_terminal_and_are_one_line_elsewhere(*, terminal: bool) -> None:
    out = io.StringIO()
    console = Console(file=out, width=80, force_terminal=terminal, color_system=None, soft_wrap=not terminal)
    session = "s" * 200
    entry = Entry(
        cells=("br_0ebae43d8b505f54", "forced_closed", "replan", "23h59m", "23h59m", "1234"),
        lines=(f"session {session}, tool 工具", "why"),
    )
    print_list(("id", "state", "strength", "since", "until", "denied"), [entry, entry], console)
    print_facts([("id", "br_1"), ("nothing", ""), ("covers", session)], console)
    lines = out.getvalue().splitlines()
    if terminal:
        assert max(map(len, lines)) <= 80
        assert sum(line.count("s") for line in lines if "ss" in line) >= 600
    else:
        assert len(lines) == 1 + 2 * 3 + 2
        assert sum(session in line for line in lines) == 3
