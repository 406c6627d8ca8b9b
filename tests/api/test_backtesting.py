"""Two lists of findings compared, and what a trip spares, on findings and steps made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from api.backtesting import Change, Place, Said, Sayings, compare
from api.stopping import Ending, Run, Runs, Spared, Stops
from collector.step import Kind, Outcome, RunEnded, Step
from control.policy import Policy, Reach, Rule
from detectors.protocol import Finding, Severity
from tests.detectors.stream import START_NS, Stream

SECOND = 10**9
CRITICAL = Policy(rules=(Rule(name="any", reach=Reach.SESSION),))
OF_A_TOOL = Policy(rules=(Rule(name="tool", reach=Reach.SESSION_TOOL),))


def place(call: int, *, inside: bool = True) -> Place:
    return Place(seq=10 * call, call=call, at_ns=START_NS + call * SECOND, inside=inside)


def finding(**more: Any) -> Finding:  # noqa: ANN401 - fields of Finding
    told: dict[str, Any] = {
        "id": "f",
        "kind": "doom_loop",
        "severity": Severity.WARNING,
        "session_id": "s",
        "started_at": START_NS,
        "detected_at": START_NS + 9 * SECOND,
        "occurrences": 4,
        "summary": "fetch failed 4 times",
        "agent": "main",
        "tool": "fetch",
    }
    return Finding(**(told | more))


def one(call: int = 4, *, inside: bool = True, **more: Any) -> Said:  # noqa: ANN401 - fields of Finding
    sayings = Sayings()
    sayings.take(finding(**more), place(call, inside=inside))
    return sayings.all()[0]


CRIT: dict[str, Any] = {"severity": Severity.CRITICAL}
NOTE: dict[str, Any] = {"severity": Severity.INFO}


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        ([one()], [one()], None),
        ([], [one()], (Change.APPEARED,)),
        ([one()], [], (Change.VANISHED,)),
        ([one(4)], [one(3)], (Change.EARLIER,)),
        ([one(4)], [one(6)], (Change.LATER,)),
        ([one()], [one(**CRIT)], (Change.SEVERITY,)),
        ([one(4)], [one(3, **CRIT)], (Change.SEVERITY, Change.EARLIER)),
        ([one(4, **NOTE)], [one(5)], (Change.SEVERITY,)),  # a note that became an alarm was no earlier alarm
        ([one()], [one(evidence={"shadow": True})], (Change.SEVERITY,)),
        ([one()], [one(kind="flail")], (Change.KIND,)),
        ([one(id="f")], [one(id="g", kind="flail")], (Change.KIND,)),
        ([one(4, inside=False)], [one(6)], (Change.LATER,)),
        ([], [one(inside=False)], None),
        ([one(inside=False, **CRIT)], [one(inside=False)], None),
    ],
)
def test_a_finding_differs_in_what_is_different(
    before: list[Said], after: list[Said], changes: tuple[Change, ...] | None
) -> None:
    told = compare(before, after)
    assert [each.changes for each in told.differences] == ([] if changes is None else [changes])


@pytest.mark.parametrize(
    "other",
    [
        {"tool": "search"},
        {"agent": "helper"},
        {"session_id": "t"},
        {"started_at": START_NS + 10 * SECOND, "detected_at": START_NS + 12 * SECOND},
    ],
)
def test_what_has_nothing_in_common_appears_and_vanishes(other: dict[str, Any]) -> None:
    told = compare([one(4)], [one(5, id="g", **other)])
    assert [each.changes for each in told.differences] == [(Change.VANISHED,), (Change.APPEARED,)]


def test_each_finding_is_the_other_side_of_one_at_most() -> None:
    told = compare([one(id="f")], [one(4, id="g", kind="flail"), one(5, id="h", kind="flail")])
    assert [each.changes for each in told.differences] == [(Change.KIND,), (Change.APPEARED,)]
    [doom, flail] = told.kinds
    assert (doom.kind, doom.before, doom.after) == ("doom_loop", 1, 0)
    assert (flail.kind, flail.before, flail.after) == ("flail", 0, 2)
    assert (flail.changes[Change.KIND], flail.changes[Change.APPEARED]) == (1, 1)


def test_the_alarm_is_the_moment_and_the_first_word_stays() -> None:
    sayings = Sayings()
    for call, severity in ((2, Severity.INFO), (4, Severity.WARNING), (6, Severity.CRITICAL)):
        sayings.take(finding(severity=severity, occurrences=call), place(call))
    [said] = sayings.all()
    assert (said.first.call, said.moment.call) == (2, 4)
    assert (said.severity, said.occurrences) == ("critical", 6)


def steps(*kinds: str) -> list[Step]:
    """`c` a call of fetch, `o` one of other, `d` a denied one, `m` a model call of 100 tokens in and out."""
    stream = Stream()
    for kind in kinds:
        if kind == "m":
            stream.model(100, cost=0.5)
        else:
            outcome = Outcome.DENIED if kind == "d" else Outcome.ERROR
            stream.call("other" if kind == "o" else "fetch", {}, outcome=outcome)
    return stream.steps


def spared(policy: Policy, found: Finding, history: list[Step], *, counted: bool = True) -> Spared | None:
    stops, runs = Stops(policy, lambda step: step.cost_usd), Runs()
    stops.found(found, place(4))
    for step in history:
        stops.spend(step, runs.take(step), counted=counted)
    stop = stops.of("s")
    return None if stop is None else stop.spared


@pytest.mark.parametrize(
    ("policy", "found", "expected"),
    [
        (CRITICAL, finding(**CRIT), Spared(calls=3, model_calls=2, tokens=400, usd=1.0)),
        (OF_A_TOOL, finding(**CRIT), Spared(calls=2)),
        (CRITICAL, finding(), None),
        (CRITICAL, finding(**CRIT, evidence={"missing": ["result"]}), None),
        (CRITICAL, finding(**CRIT, evidence={"shadow": True}), None),
        (Policy(rules=(Rule(name="r", kinds=frozenset({"flail"})),)), finding(**CRIT), None),
        (Policy(rules=(Rule(name="r", shadow=True),)), finding(**CRIT), None),
    ],
)
def test_what_comes_after_a_trip_is_spared(policy: Policy, found: Finding, expected: Spared | None) -> None:
    assert spared(policy, found, steps("m", "c", "o", "d", "m", "c")) == expected


def test_the_warm_up_spares_nothing() -> None:
    assert spared(CRITICAL, finding(**CRIT), steps("m", "c"), counted=False) == Spared()


def test_tokens_and_money_that_nobody_told_are_not_taken_for_none() -> None:
    bare = [replace(step, kind=Kind.MODEL_CALL, cost_usd=None) for step in steps("c")]
    told = spared(CRITICAL, finding(**CRIT), bare)
    assert told is not None
    assert (told.model_calls, told.tokens_told, told.usd_told) == (1, None, None)


@pytest.mark.parametrize(
    ("outcomes", "ended", "task_success", "ending"),
    [
        (["error", "ok"], True, None, Ending.GOOD),
        (["ok"], True, None, Ending.GOOD),
        (["ok", "error"], True, None, Ending.NOT_GOOD),
        (["error", "other ok"], True, None, Ending.NOT_GOOD),
        (["error", "other ok", "ok"], True, None, Ending.GOOD),
        (["ok"], False, None, Ending.NOT_RECORDED),
        ([], True, None, Ending.NOT_RECORDED),
        (["unknown"], True, None, Ending.NOT_RECORDED),
        (["error"], False, True, Ending.GOOD),
        (["ok"], True, False, Ending.NOT_GOOD),
    ],
)
def test_how_a_run_ended(outcomes: list[str], ended: bool, task_success: bool | None, ending: Ending) -> None:  # noqa: FBT001 - a table
    stream = Stream()
    for outcome in outcomes:
        tool, _, last = outcome.rpartition(" ")
        stream.call(tool or "fetch", {}, outcome=Outcome(last))
    stream.model(task_success=task_success)
    runs = Runs()
    run = [runs.take(step) for step in stream.steps][-1]
    if ended:
        runs.end(RunEnded("s", "run-1", stream.now_ns))
    assert run.ending is ending


def test_runs_are_followed_within_bounds() -> None:
    runs = Runs(most=2)
    first = runs.take(replace(steps("c")[0], run_id="1"))
    for name in "23":
        runs.take(replace(steps("c")[0], run_id=name))
    runs.end(RunEnded("s", "1", 0))
    assert isinstance(first, Run)
    assert not first.ended
