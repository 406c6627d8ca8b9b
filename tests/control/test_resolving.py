"""When alerts are over by themselves: a table over what the notes say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from control.alerts import Alert, AlertSettings, AlertState
from control.alerts.system import BREAKER_FLAPPING, STILL_RUNNING
from control.resolving import Over, goes_on, over
from detectors.notes import Notes, Recent
from tests.control.support import START_NS, STUCK, another

SECOND_NS = 1_000_000_000
NOW = START_NS + 10 * SECOND_NS
SETTINGS = AlertSettings(quiet_calls=3, idle_s=600.0)
SIGNATURE = "00000000000000aa"
LOOP = replace(STUCK, evidence={"signature": SIGNATURE})
FLAIL = replace(STUCK, kind="flail", evidence={})


def alert(finding: Any = STUCK, **changes: Any) -> Alert:  # noqa: ANN401 - any fields
    fields: dict[str, Any] = {
        "id": f"al_{finding.id}",
        "state": AlertState.FIRING,
        "episode": 1,
        "finding": finding,
        "fired_at": START_NS,
        "updated_at": START_NS,
        "heard_at": START_NS,
        "key": "k",
    }
    return Alert(**(fields | changes))


def call(number: int, tool: str = "other", **changes: Any) -> Recent:  # noqa: ANN401 - any fields
    """A tool call after the finding."""
    at_ns = START_NS + number * SECOND_NS
    fields: dict[str, Any] = {
        "end_ns": at_ns,
        "start_ns": at_ns - 1000,
        "agent": "buyer",
        "tool": tool,
        "signature": f"{number:016x}",
        "outcome": "ok",
        "error_class": None,
        "step_id": str(number),
        "span_id": str(number),
        "number": number,
    }
    return Recent(**(fields | changes))


def notes(*recent: Recent, **changes: Any) -> Notes:  # noqa: ANN401 - any fields
    fields: dict[str, Any] = {"run_id": "run-1", "last_ns": NOW - SECOND_NS, "recent": recent}
    return Notes(session_id="session-1", **(fields | changes))


OTHERS = [call(1), call(2), call(3)]
FAILING = {"tool": "fetch_page", "outcome": "error"}
TABLE: dict[str, tuple[Alert, Notes | None, Over | None]] = {
    "nothing known": (alert(), None, None),
    "nothing happened": (alert(), notes(), None),
    "run ended": (alert(), notes(ended_ns=NOW), Over.RUN_ENDED),
    "run ended before": (alert(), notes(ended_ns=STUCK.detected_at - 1), None),
    "another run ended": (alert(), notes(ended_ns=NOW, run_id="run-2"), None),
    "a fact said so": (alert(run_ended_at=1), notes(run_id="run-2"), Over.RUN_ENDED),
    "a fact said so, it goes on": (
        alert(LOOP, run_ended_at=START_NS),
        notes(call(1, signature=SIGNATURE), run_id="run-2"),
        None,
    ),
    "a fact said so, others go on": (
        alert(LOOP, run_ended_at=START_NS),
        notes(call(1), call(2, agent="seller", signature=SIGNATURE), run_id="run-2"),
        Over.RUN_ENDED,
    ),
    "user spoke, it goes on": (
        alert(LOOP),
        notes(call(2, signature=SIGNATURE), last_user_ns=START_NS + SECOND_NS),
        None,
    ),
    "user spoke after it": (
        alert(LOOP),
        notes(call(2, signature=SIGNATURE), last_user_ns=START_NS + 3 * SECOND_NS),
        Over.USER_SPOKE,
    ),
    "user spoke": (alert(), notes(last_user_ns=NOW), Over.USER_SPOKE),
    "user spoke before": (alert(), notes(last_user_ns=STUCK.detected_at), None),
    "other calls": (alert(LOOP), notes(*OTHERS), Over.STREAK_OVER),
    "too few other calls": (alert(LOOP), notes(*OTHERS[:2]), None),
    "calls before it": (alert(LOOP), notes(*[call(-n) for n in (5, 4, 3, 2)]), None),
    "same call ok": (alert(LOOP), notes(*OTHERS, call(4, signature=SIGNATURE)), None),
    "same call by then": (
        alert(LOOP),
        notes(call(1, signature=SIGNATURE), *[call(n) for n in (2, 3, 4)]),
        Over.STREAK_OVER,
    ),
    "same tool fails": (alert(LOOP), notes(*OTHERS, call(4, **FAILING)), None),
    "same tool works": (alert(LOOP), notes(*OTHERS, call(4, tool="fetch_page")), Over.STREAK_OVER),
    "same tool, unknown arguments": (
        alert(LOOP),
        notes(*OTHERS, call(4, tool="fetch_page", signature=None)),
        None,
    ),
    "loop of unknown calls": (alert(), notes(*OTHERS, call(4, tool="fetch_page")), None),
    "flail, tool works": (
        alert(FLAIL),
        notes(*[call(n, tool="fetch_page") for n in (1, 2, 3)]),
        Over.STREAK_OVER,
    ),
    "flail, tool fails": (alert(FLAIL), notes(*OTHERS, call(4, **FAILING)), None),
    "refused repeats": (alert(LOOP), notes(*OTHERS, call(4, signature=SIGNATURE, outcome="denied")), None),
    "refused others": (alert(LOOP), notes(*[call(n, outcome="denied") for n in (1, 2, 3)]), None),
    "another agent": (alert(LOOP), notes(*[call(n, agent="seller") for n in (1, 2, 3)]), None),
    "no tool named": (alert(replace(STUCK, tool=None)), notes(*OTHERS), None),
    "idle": (alert(heard_at=NOW - 601 * SECOND_NS), notes(last_ns=NOW - 601 * SECOND_NS), Over.IDLE),
    "not idle by notes": (alert(heard_at=NOW - 601 * SECOND_NS), notes(last_ns=NOW - 599 * SECOND_NS), None),
    "idle without notes": (alert(heard_at=NOW - 601 * SECOND_NS), None, Over.IDLE),
    "a fleet's, quiet": (
        alert(replace(STUCK, session_id=""), heard_at=NOW - 601 * SECOND_NS),
        None,
        Over.IDLE,
    ),
    "a fleet's, long": (
        alert(
            replace(STUCK, session_id="", started_at=START_NS - 900 * SECOND_NS),
            heard_at=NOW - 601 * SECOND_NS,
        ),
        None,
        None,
    ),
    "a brake's": (alert(replace(STUCK, kind=BREAKER_FLAPPING), heard_at=1), notes(ended_ns=NOW), None),
    "halted, ended": (alert(replace(STUCK, kind=STILL_RUNNING)), notes(ended_ns=NOW), Over.RUN_ENDED),
    "halted, user spoke": (alert(replace(STUCK, kind=STILL_RUNNING)), notes(last_user_ns=NOW), None),
}


@pytest.mark.parametrize(("one", "known", "why"), TABLE.values(), ids=TABLE.keys())
def test_when_it_is_over(one: Alert, known: Notes | None, why: Over | None) -> None:
    assert over(one, known, NOW, SETTINGS) is why


def test_what_went_on_since_its_root_ended() -> None:
    released = alert(another(1), released_at=NOW)
    assert goes_on(alert(), notes(last_ns=0))
    assert goes_on(released, None)
    assert goes_on(released, notes(last_ns=NOW))
    assert not goes_on(released, notes(last_ns=NOW - 1))
    assert goes_on(replace(released, heard_at=NOW + 1), notes(last_ns=NOW - 1))
