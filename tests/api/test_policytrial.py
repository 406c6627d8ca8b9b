"""What a policy would have stopped, on steps and findings made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from api.backtesting import Place
from api.policytestview import by_destination, endings, good_runs, hit_runs
from api.policytrial import Trial
from api.stopping import Ending, Runs
from collector.step import Kind, Outcome, RunEnded, Step, Usage
from control.action import Action
from control.breakers.settings import BreakerSettings
from control.policy import Policy, Reach, Rule, Threshold
from control.scope import Scope
from detectors.protocol import Finding, Severity
from detectors.reading import Lens
from tests.control.support import START_NS, STUCK

SECOND = 10**9
HALT = Rule(name="halt", reach=Reach.SESSION, action=Action.HALT)
DENY = Rule(name="deny")
OF_SERVICE = Rule(name="wide", reach=Reach.SERVICE_TOOL, open_s=10.0)


class History:
    """Steps and findings, a second apart."""

    def __init__(self, *rules: Rule, **more: Any) -> None:  # noqa: ANN401 - fields of Policy
        self.trial = Trial(Policy(rules=rules, **more), lambda step: step.cost_usd)
        self.runs = Runs()
        self.lens = Lens()
        self.seq = 0

    def step(self, *, inside: bool = True, **more: Any) -> None:  # noqa: ANN401 - fields of Step
        told: dict[str, Any] = {
            "kind": Kind.TOOL_CALL,
            "session_id": "session-1",
            "run_id": "run-1",
            "service": "shop",
            "agent": "buyer",
            "tool": "fetch_page",
            "arguments": {"url": "u"},
            "outcome": Outcome.OK,
        }
        self.seq += 1
        at = START_NS + self.seq * SECOND
        step = Step(step_id=str(self.seq), start_ns=at, end_ns=at, engine_seq=self.seq, **(told | more))
        self.place = Place(self.seq, 0, at, inside=inside)
        self.trial.take(self.lens.read(step), self.runs.take(step), self.place)

    def model(self, **more: Any) -> None:  # noqa: ANN401 - fields of Step
        usage = Usage(input_tokens=10, output_tokens=1)
        self.step(kind=Kind.MODEL_CALL, tool=None, arguments=None, usage=usage, cost_usd=0.5, **more)

    def fail(self, **more: Any) -> None:  # noqa: ANN401 - fields of Step
        self.step(**({"outcome": Outcome.ERROR, "error": "HTTP 404: no such page"} | more))

    def find(self, finding: Finding = STUCK, *, inside: bool = True, **changes: Any) -> None:  # noqa: ANN401
        if not hasattr(self, "place") or not inside:
            self.place = Place(self.seq, 0, START_NS + self.seq * SECOND, inside=inside)
        self.trial.found(replace(finding, **changes), self.place)

    def opened(self) -> list[tuple[str, Scope, int, int]]:
        return [(o.rule, o.scope, o.refused, o.spared.tokens) for o in self.trial.openings()]


def test_a_session_that_is_ended_spares_all_that_comes_after() -> None:
    past = History(HALT)
    past.step()
    past.find()
    past.step()
    past.model()
    past.step(outcome=Outcome.DENIED)  # was refused anyway
    past.step(session_id="another", run_id="another")
    assert past.opened() == [("halt", Scope(session="session-1"), 1, 11)]
    assert past.trial.openings()[0].spared.usd == 0.5


def test_a_tool_that_is_refused_spares_its_calls_only() -> None:
    past = History(DENY)
    past.find()
    past.step()
    past.step(tool="search")
    past.model()
    assert past.opened() == [("deny", Scope(session="session-1", tool="fetch_page"), 1, 0)]


def test_arguments_narrow_a_breaker_to_one_call() -> None:
    past = History(Rule(name="args", reach=Reach.SESSION_ARGS))
    past.step()
    signature = f"{past.lens.read(_step()).call.signature:016x}"
    past.find(evidence={"signature": signature})
    past.step()
    past.step(arguments={"url": "another"})
    past.step(arguments=None)
    assert [each[2] for each in past.opened()] == [1]


def _step() -> Step:
    return Step(
        step_id="x", kind=Kind.TOOL_CALL, session_id="s", start_ns=1, end_ns=1, tool="fetch_page",
        arguments={"url": "u"},
    )  # fmt: skip


def test_a_wide_breaker_is_open_for_its_time_and_over_every_session() -> None:
    past = History(OF_SERVICE)
    past.find()
    for number in range(12):
        past.step(session_id=f"s{number}", run_id=f"r{number}")
    past.step(service="another")
    (opening,) = past.trial.openings()
    assert (opening.refused, len(opening.sessions)) == (9, 9)
    past.find()
    assert len(past.trial.openings()) == 2


def test_a_halt_spares_model_calls_where_a_deny_does_not() -> None:
    for action, tokens in ((Action.HALT, 11), (Action.DENY, 0)):
        past = History(Rule(name="r", reach=Reach.AGENT, action=action))
        past.find()
        past.model()
        assert sum(each[3] for each in past.opened()) == tokens


def test_an_open_breaker_opens_once_until_a_stronger_rule_or_a_real_one_comes() -> None:
    past = History(Rule(name="shadow", shadow=True), Rule(name="deny", min_severity=Severity.CRITICAL))
    past.find(severity=Severity.CRITICAL)
    past.find(id="g")
    assert [(each.rule, each.shadow) for each in past.trial.openings()] == [("deny", False)]
    stronger = Rule(name="halt", kinds=frozenset({"flail"}), action=Action.HALT)
    past = History(DENY, stronger)
    past.find()
    past.find(kind="flail")
    assert [each.action for each in past.trial.openings()] == [Action.DENY, Action.HALT]


def test_a_shadow_refuses_nothing_and_tells_what_it_would() -> None:
    past = History(replace(DENY, shadow=True))
    past.find()
    past.step()
    (opening,) = past.trial.openings()
    assert (opening.real, opening.refused) == (False, 1)
    assert hit_runs(past.trial.openings()) == []


def test_a_call_is_spared_by_one_breaker_only() -> None:
    past = History(HALT, DENY)
    past.find()
    past.step()
    assert sum(each.refused for each in past.trial.openings()) == 1


def test_more_than_the_cap_of_a_minute_is_noted_in_shadow() -> None:
    past = History(HALT, breakers=BreakerSettings(blast_per_minute=2))
    for number in range(4):
        past.find(id=f"f{number}", session_id=f"s{number}")
    assert [each.capped for each in past.trial.openings()] == [False, False, True, True]
    past.seq += 61
    past.step()
    past.find(id="f9", session_id="s9")
    assert not past.trial.openings()[-1].capped


def test_the_warm_up_counts_nothing_and_what_opened_in_it_goes_on() -> None:
    past = History(HALT)
    past.step(inside=False)
    past.find(inside=False)
    past.step(inside=False)
    assert past.trial.openings() == []
    assert past.trial.told() == []
    past.step()
    assert [each.refused for each in past.trial.openings()] == [1]


def test_failed_calls_in_a_row_open_a_breaker() -> None:
    past = History(thresholds=(Threshold(name="t", failures=3, sessions=1),))
    past.fail()
    past.fail(session_id="another")
    past.step()  # works again: the row is over
    past.fail()
    past.fail()
    past.fail(tool="another")
    past.fail(outcome=Outcome.DENIED)
    assert past.opened() == []
    past.fail()
    past.step()
    past.step(service="another")
    ((name, scope, refused, _),) = past.opened()
    assert (name, scope, refused) == ("t", Scope(service="shop", tool="fetch_page"), 1)


def test_failures_of_one_session_open_nothing_for_all_others() -> None:
    past = History(thresholds=(Threshold(name="t", failures=3),))
    for session in ("a", "a", "a", "a", "b"):
        past.fail(session_id=session)
    assert past.opened() == []
    past.fail(session_id="c")
    assert [scope for _, scope, _, _ in past.opened()] == [Scope(service="shop", tool="fetch_page")]


def test_a_row_to_which_nothing_was_added_for_long_begins_anew() -> None:
    past = History(thresholds=(Threshold(name="t", failures=2, sessions=1),))
    past.fail()
    past.seq += 601
    past.fail()
    assert past.opened() == []
    past.fail()
    assert len(past.opened()) == 1


def test_failures_of_another_nature_do_not_count() -> None:
    past = History(thresholds=(Threshold(name="t", failures=2, sessions=1),))
    for error in ("HTTP 404: no such page", "HTTP 503 Service Unavailable", "HTTP 404: no such page"):
        past.step(outcome=Outcome.ERROR, error=error)
    assert len(past.opened()) == 1


@pytest.mark.parametrize(
    ("rules", "who"),
    [
        ([], ["everybody"]),
        ([Rule(name="r", reach=None, alert=("a", "b"))], ["a", "b"]),
        ([Rule(name="r", reach=None, alert=())], ["nobody"]),
    ],
)
def test_alerts_are_counted_by_who_is_told(rules: list[Rule], who: list[str]) -> None:
    past = History(*rules)
    past.step()
    past.find()
    past.find(revision=1)
    past.find(id="note", severity=Severity.INFO)
    past.find(id="shadow", evidence={"shadow": True})
    assert [(name, counts[Severity.CRITICAL]) for name, counts in by_destination(past.trial.told())] == [
        (name, 1) for name in who
    ]


def test_a_warning_that_becomes_critical_is_told_to_whom_the_rules_name_then() -> None:
    chat = Rule(name="w", reach=None, severities=frozenset({Severity.WARNING}), alert=("chat",))
    past = History(chat, Rule(name="c", reach=None, alert=("pager",)))
    past.step()
    past.find(severity=Severity.WARNING)
    past.find(revision=1)
    assert [(name, counts[Severity.CRITICAL]) for name, counts in by_destination(past.trial.told())] == [
        ("chat", 1),
        ("pager", 1),
    ]
    assert past.trial.told()[0].rules == ("w", "c")


def test_good_runs_that_are_hit_are_told_apart() -> None:
    past = History(HALT)
    past.find()
    past.step(task_success=True)
    past.find(id="g", session_id="session-2")
    past.step(session_id="session-2", run_id="run-2", task_success=False)
    past.find(id="h", session_id="session-3")
    past.step(session_id="session-3", run_id="run-3")
    past.runs.end(RunEnded(run_id="run-9", session_id="session-9", at_ns=1))
    openings = past.trial.openings()
    assert endings(openings) == {Ending.GOOD: 1, Ending.NOT_GOOD: 1, Ending.NOT_RECORDED: 1}
    assert [run.run_id for _, run in good_runs(openings)] == ["run-1"]
