"""At which call baselines and peers alarm, on runs whose calls are counted by hand."""

from __future__ import annotations

import pytest

from evaluation.baselines import BASELINES, changes_state, template
from evaluation.calls import Call, events, first_alarm
from evaluation.peers import PEERS
from evaluation.shared import Case

RULES = {name.split(":")[0]: entry for name, entry in {**BASELINES, **PEERS}.items()}


def ok(tool: str = "t", result: str = "r", **more: object) -> Case:
    return {"tool": tool, "args": more.pop("args", {}), "ok": True, "error": None, "result": result, **more}


def bad(tool: str = "t", error: str = "boom", **more: object) -> Case:
    return {"tool": tool, "args": more.pop("args", {}), "ok": False, "error": error, "result": None, **more}


TURN: Case = {"event": "user_turn"}


RUNS: dict[str, list[Case]] = {
    "twelve equal calls, equal results": [ok()] * 12,
    "twelve equal calls, other results": [ok(result=f"r{i}") for i in range(12)],
    "twelve equal failures": [bad()] * 12,
    "other arguments, the same error with other numbers": [
        bad(error=f"no row {i}", args={"n": f"v{i}"}) for i in range(12)
    ],
    "other arguments, other errors": [bad(error=f"{'x' * (i + 1)}", args={"n": f"v{i}"}) for i in range(12)],
    "A B A B": [ok("a"), ok("b")] * 6,
    "an edit before each equal run": [
        call for i in range(7) for call in (ok("write_file", args={"n": f"v{i}"}), ok("test"))
    ],
    "a number, its text, a float": [ok(args={"n": n}) for n in (16, "16", 16.0)],
    "a user's turn before the third": [ok(), ok(), TURN, ok(), ok()],
    "three in one message": [ok(message="m")] * 3,
    "keys in turned order": [ok(args={"a": 1, "b": 2}), ok(args={"b": 2, "a": 1})] * 3,
}  # fmt: skip

ALARMS: dict[str, dict[str, int | None]] = {
    "twelve equal calls, equal results": {
        "A": 3, "B": 5, "C10": 3, "D": None, "E10": None, "E10x4": None, "C10m": 3, "C10m or E10x4": 3,
        "OpenHands V0": 4, "OpenHands SDK": 4, "gemini-cli": 5, "opencode, kilocode": None, "cline SDK": 3,
        "Roo-Code": 4, "goose": None, "crush": 10, "qwen-code default": 5, "qwen-code all": 5, "openclaw": 10,
        "browser-use": 5, "crewAI": 2, "loopguardian": 3, "snagtrace": 3, "agentlens-cli": None,
    },
    "twelve equal calls, other results": {
        "A": 3, "B": 5, "C10": None, "C10m": None, "OpenHands SDK": None, "gemini-cli": 5, "crush": None,
        "openclaw": None, "snagtrace": 3,
    },
    "twelve equal failures": {
        "D": 3, "E10": 3, "E10x4": 4, "C10 or E10": 3, "OpenHands V0": 3, "OpenHands SDK": 3, "goose": 3,
        "loopguardian": 2, "agentlens-cli": 3,
    },
    "other arguments, the same error with other numbers": {
        "A": None, "B": None, "C10": None, "D": 3, "E10": 3, "E10x4": 4, "OpenHands SDK": None,
        "goose": None,
        "qwen-code all": 8, "loopguardian": None, "agentlens-cli": 3,
    },
    "other arguments, other errors": {"D": 3, "E10": None, "goose": None, "agentlens-cli": None},
    "A B A B": {
        "A": None, "B": 9, "C10": 5, "OpenHands V0": 6, "OpenHands SDK": 6, "gemini-cli": 10,
        "cline SDK": None,
        "crush": None, "qwen-code default": None, "qwen-code all": 6, "openclaw": 10, "browser-use": 9,
        "crewAI": None, "snagtrace": 5,
    },
    "an edit before each equal run": {"C10": 6, "C10m": 10, "C10m or E10x4": 10, "B": 10},
    "a number, its text, a float": {"A": 3, "C10": 3, "cline SDK": None, "crewAI": None},
    "a user's turn before the third": {"A": 3, "cline SDK": None, "crewAI": 2, "browser-use": None},
    "three in one message": {"opencode, kilocode": 3},
    "keys in turned order": {"gemini-cli": None, "cline SDK": 3, "A": 3},
}  # fmt: skip


@pytest.mark.parametrize(
    ("run", "rule", "at"), [(run, rule, at) for run, alarms in ALARMS.items() for rule, at in alarms.items()]
)
def test_a_rule_alarms_at_its_call(run: str, rule: str, at: int | None) -> None:
    assert first_alarm(list(events({"id": run, "calls": RUNS[run]})), RULES[rule]) == at


def test_every_rule_is_tried() -> None:
    assert {rule for alarms in ALARMS.values() for rule in alarms} | {"C10 or E10x4"} == set(RULES)


def test_agents_are_watched_apart() -> None:
    calls = [ok(agent="a"), ok(agent="b")] * 3
    assert first_alarm(list(events({"id": "x", "calls": calls})), RULES["A"]) == 5


def test_calls_of_a_message_are_a_batch_of_their_agent() -> None:
    calls = [ok(message="m"), ok(agent="b"), ok(message="m"), ok(), ok()]
    seen = [event for event in events({"id": "x", "calls": calls}) if isinstance(event, Call)]
    assert [(call.batch, call.ends_batch) for call in seen] == [
        (1, False),
        (1, True),
        (1, True),
        (2, True),
        (3, True),
    ]


def test_errors_are_one_template_without_their_values() -> None:
    first = template("No such file: '/tmp/a.txt' (line 12)")
    assert first == template('no such file:  "b c"  (line 7)')
    assert first != template("No such column: 'x' (line 12)")


@pytest.mark.parametrize(
    ("call", "changes"),
    [
        (ok("write_file"), True),
        (ok("update_reservation_flights"), True),
        (ok("get_user_details"), False),
        (ok("bash", args={"command": "sed -i s/a/b/ f.py"}), True),
        (ok("bash", args={"command": "echo x > f"}), True),
        (ok("bash", args={"command": "ls 2>/dev/null"}), False),
        (ok("bash", args={"command": "python reproduce.py 2>&1"}), False),
        (ok("bash", args={"command": "git checkout -- f"}), True),
        (bad("write_file"), False),
    ],
)
def test_words_tell_what_changes_something(call: Case, changes: bool) -> None:  # noqa: FBT001 - a row's value
    (event,) = events({"id": "x", "calls": [call]})
    assert isinstance(event, Call)
    assert changes_state(event) is changes
