from __future__ import annotations

from dataclasses import replace

import pytest

from control.action import Action
from control.policy import Policy, Reach, Rule, Trip, trips
from control.scope import Scope
from detectors.protocol import Severity
from tests.control.support import STUCK

SESSION = Scope(session="session-1")
TOOL = Scope(session="session-1", tool="fetch_page")


def test_nothing_trips_unless_a_rule_says_so() -> None:
    assert trips(Policy(), STUCK) == ()


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (Rule(name="r"), [(TOOL, Action.DENY, False)]),
        (Rule(name="r", reach=Reach.SESSION, action=Action.HALT), [(SESSION, Action.HALT, False)]),
        (Rule(name="r", shadow=True), [(TOOL, Action.DENY, True)]),
        (Rule(name="r", kinds=frozenset({"doom_loop", "flail"})), [(TOOL, Action.DENY, False)]),
        (Rule(name="r", kinds=frozenset({"flail"})), []),
    ],
)
def test_a_rule_trips_what_it_says(rule: Rule, expected: list[tuple[Scope, Action, bool]]) -> None:
    assert [(t.scope, t.action, t.shadow) for t in trips(Policy(rules=(rule,)), STUCK)] == expected


@pytest.mark.parametrize("least", list(Severity))
@pytest.mark.parametrize("severity", list(Severity))
def test_a_rule_needs_its_severity(severity: Severity, least: Severity) -> None:
    found = trips(Policy(rules=(Rule(name="r", min_severity=least),)), replace(STUCK, severity=severity))
    assert bool(found) == (severity.rank >= least.rank)


def test_missing_evidence_never_trips() -> None:
    policy = Policy(rules=(Rule(name="r", min_severity=Severity.INFO),))
    assert trips(policy, replace(STUCK, evidence={"missing": ["arguments"]})) == ()
    assert trips(policy, replace(STUCK, evidence={"missing": []})) != ()


def test_a_detector_in_shadow_never_trips() -> None:
    policy = Policy(rules=(Rule(name="r", min_severity=Severity.INFO),))
    assert trips(policy, replace(STUCK, evidence={"missing": [], "shadow": True})) == ()


def test_a_rule_for_a_tool_needs_a_tool_and_every_rule_a_session() -> None:
    by_tool, by_session = Rule(name="t"), Rule(name="s", reach=Reach.SESSION)
    policy = Policy(rules=(by_tool, by_session))
    assert [t.rule for t in trips(policy, replace(STUCK, tool=None))] == ["s"]
    assert trips(policy, replace(STUCK, session_id="")) == ()


def test_the_most_restrictive_rule_wins_in_a_scope() -> None:
    rules = (
        Rule(name="deny"),
        Rule(name="shadow halt", action=Action.HALT, shadow=True),
        Rule(name="halt", action=Action.HALT),
        Rule(name="deny again"),
    )
    assert trips(Policy(rules=rules), STUCK) == (
        Trip(rule="halt", scope=TOOL, action=Action.HALT, shadow=False),
    )
    assert [t.rule for t in trips(Policy(rules=rules[:2]), STUCK)] == ["deny"]


def test_a_policy_that_makes_no_sense_is_refused_by_its_key() -> None:
    with pytest.raises(ValueError, match=r"policy\.escalate_after"):
        Policy(escalate_after=-1)
    with pytest.raises(ValueError, match=r"policy\.rules: two rules are named 'r'"):
        Policy(rules=(Rule(name="r"), Rule(name="r")))


@pytest.mark.parametrize(("tool", "covered"), [("fetch_page", True), ("other", False), (None, False)])
def test_a_tool_scope_covers_only_its_tool(tool: str | None, covered: bool) -> None:  # noqa: FBT001 - a table's column
    assert TOOL.covers(tool) == covered
    assert SESSION.covers(tool)
