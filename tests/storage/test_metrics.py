"""Every metric on a handful of rows, its value worked out by hand beside them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from collector.step import (
    Evaluation,
    Kind,
    Outcome,
    SessionsMerged,
    ToolDefinition,
    ToolDefinitions,
    Usage,
)
from detectors.recovery import Response
from storage.client import StoreClient
from storage.metrics.catalog import METRICS
from storage.metrics.definitions import DefinitionsFound, changes, find
from storage.metrics.overview import Overview, overview
from storage.metrics.selection import DAY_NS, DIMENSIONS, Selection
from storage.metrics.streaks import streaks
from storage.rows import DefinitionRow, tool_definition_rows
from storage.writer import Writer
from tests.storage.story import SECOND_NS, START_NS, Story

pytestmark = pytest.mark.store


@pytest.fixture
def story(store: StoreClient) -> Story:
    return Story(store)


def counts(rows: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in (*names, "hits", "total")) for row in rows]


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_without_its_input_a_metric_has_no_rows(story: Story, metric: Any) -> None:  # noqa: ANN401 - a Metric
    assert story.measured(metric.name, *DIMENSIONS) == []


def test_execution_success_counts_known_outcomes_that_no_brake_refused(story: Story) -> None:
    for outcome in ("ok", "ok", "ok", "error", "soft_error", "denied", "unknown"):
        story.call("t", outcome)
    [row] = story.measured("execution_success")
    assert (row["hits"], row["total"], row["value"]) == (3, 5, 0.6)
    assert round(row["low"], 4) == 0.2307  # Wilson, 3 of 5
    assert round(row["high"], 4) == 0.8824


def test_first_calls_are_those_after_no_failure(story: Story) -> None:
    # read: ok, error | error, ok are answers to failures, the last ok is a first call again; write: error.
    for tool, outcome in (("read", "ok"), ("read", "error"), ("write", "error"), ("read", "error")):
        story.call(tool, outcome)
    story.call("read", "ok")
    story.call("read", "ok")
    rows = story.measured("first_call_success", "tool")
    assert counts(rows, "tool") == [("read", 2, 3), ("write", 0, 1)]


def test_only_errors_of_class_schema_are_of_parameters(story: Story) -> None:
    story.call("t", "ok")
    story.call("t", "error", error="Invalid arguments: missing required parameter 'path'")
    story.call("t", "error", error="connect ECONNREFUSED 127.0.0.1:80")
    story.call("t", "denied")
    assert counts(story.measured("parameter_pass_rate")) == [(2, 3)]


def test_the_right_tool_is_told_by_expectation_else_by_evaluation(story: Story) -> None:
    story.call("a", expected_tool="a")
    story.call("b", expected_tool="a", evaluations=(Evaluation("tool_selection", None, "pass"),))
    story.call("a", evaluations=(Evaluation("fluency", 0.1, None), Evaluation("ToolCallAccuracy", 0.7, None)))
    story.call("a", evaluations=(Evaluation("tool selection", None, "Incorrect"),))
    story.call("a", evaluations=(Evaluation("fluency", 0.9, None),))
    story.model(evaluations=(Evaluation("tool_choice", 0.2, None),))
    assert counts(story.measured("selection_accuracy")) == [(2, 5)]


def definitions(*names: str, of: str = "00000000000000d1", chars: int = 400) -> ToolDefinitions:
    return ToolDefinitions(of, {name: ToolDefinition(name, hash=f"{name:0>16}") for name in names}, chars)


def test_hallucinations_are_counted_among_calls_with_a_known_offer(story: Story) -> None:
    story.call("before")
    story.model(definitions=definitions("a"))
    for tool in ("a", "a", "a"):
        story.call(tool)
    wrong = story.call("nowhere", "error")
    other = story.call("a", agent="other")
    story.finding("hallucinated_call", wrong, 1, evidence={"shadow": True})
    story.finding("hallucinated_call", other, 1)
    story.finding("doom_loop", wrong, 1)
    assert counts(story.measured("hallucination_rate")) == [(1, 4)]


def test_what_was_offered_last_parts_calls_by_its_number(story: Story) -> None:
    story.model(offered_tools=tuple(f"t{n}" for n in range(3)))
    story.call("a", expected_tool="a")
    story.call("a", "error", error="Invalid arguments: missing required parameter 'path'")
    story.model(offered_tools=tuple(f"t{n}" for n in range(20)))
    story.call("a", expected_tool="b")
    story.model(offered_tools=tuple(f"t{n}" for n in range(100)))
    story.call("a", "unknown")
    rows = story.measured("by_offered_tools")
    assert counts(rows, "offered_tools", "measure") == [
        ("1-11", "execution_success", 1, 2),
        ("1-11", "parameter_pass_rate", 1, 2),
        ("1-11", "selection_accuracy", 1, 1),
        ("12-20", "execution_success", 1, 1),
        ("12-20", "parameter_pass_rate", 1, 1),
        ("12-20", "selection_accuracy", 0, 1),
    ]


def test_recovery_rate_is_of_failures_in_their_newest_revision(story: Story) -> None:
    story.failure(recovered=True)
    first = story.failure(recovered=False)
    story.failures.append(replace(first, recovered=True, revision=1))
    story.failure(recovered=False, error_class="auth")
    story.failure(recovered=False, error_class="auth")
    assert counts(story.measured("recovery_rate", "error_class"), "error_class") == [
        ("auth", 0, 2),
        ("unavailable", 2, 2),
    ]


def test_ures_are_of_failures_that_were_fed_back(story: Story) -> None:
    for fed_back, ure in ((True, True), (True, False), (True, False), (False, False)):
        story.failure(fed_back=fed_back, ure=ure)
    assert counts(story.measured("ure_rate")) == [(1, 3)]


def test_failures_cascade_when_a_finding_or_the_row_says_so(story: Story) -> None:
    root, named, flagged = story.failure(), story.failure(), story.failure(cascaded=True)
    story.failure()
    step = story.call("t")
    told = {"root_step_id": root.step_id, "dependents": [named.step_id, flagged.step_id, "elsewhere"]}
    story.finding("cascade", step, 3, evidence=told)
    assert counts(story.measured("cascade_share")) == [(2, 4)]


def test_adherence_leaves_out_what_cannot_be_told(story: Story) -> None:
    for followed in (True, False, False, None):
        story.failure(followed=followed)
    assert counts(story.measured("adherence")) == [(1, 3)]


def test_lift_is_the_difference_of_two_recovery_rates(story: Story) -> None:
    for followed, recovered in ((True, True), (True, True), (True, True), (True, False)):
        story.failure(followed=followed, recovered=recovered)
    assert story.measured("lift") == []  # nothing to compare with
    for recovered in (True, False, False, False, False):
        story.failure(followed=False, recovered=recovered)
    [row] = story.measured("lift")
    assert (row["followed_value"], row["ignored_value"], round(row["value"], 6)) == (0.75, 0.2, 0.55)
    # Newcombe of 1/5 and 3/4, by Wilson (0.0362, 0.6245) and (0.3006, 0.9544)
    assert (round(row["low"], 3), round(row["high"], 3)) == (-0.068, 0.812)


@pytest.mark.parametrize(
    ("name", "column", "values", "told"),
    [
        ("calls_to_recovery", "calls_to_recovery", (1, 1, 2, 5), (1.5, 2.25, 1.893)),
        (
            "seconds_to_recovery",
            "ns_to_recovery",
            (SECOND_NS, 3 * SECOND_NS, 4 * SECOND_NS),
            (3, 2.667, 1.528),
        ),
    ],
)
def test_spreads_are_of_recovered_failures(
    story: Story, name: str, column: str, values: tuple[int, ...], told: tuple[float, ...]
) -> None:
    for value in values:
        story.failure(**{column: value})
    story.failure(recovered=False, **{column: None})
    [row] = story.measured(name)
    assert row["total"] == len(values)
    assert (row["value"], round(row["mean"], 3), round(row["sd"], 3)) == told


def test_first_responses_have_what_a_streak_cost(story: Story) -> None:
    retry = {"first_response": Response.RETRY, "cost_usd": None}
    story.failure(**retry, recovered=False, calls_spent=4, tokens_spent=400)
    story.failure(**retry, recovered=True, calls_spent=3, tokens_spent=300, earlier=1)  # inside the first
    story.failure(**retry, recovered=True, calls_spent=2, tokens_spent=None)
    story.failure(
        first_response=Response.REPLAN, recovered=True, calls_spent=1, tokens_spent=50, cost_usd=0.5
    )
    replan, retried = story.measured("first_responses")
    assert (replan["state"], replan["value"], replan["usd_each"]) == ("replan", 0.25, 0.5)
    assert (retried["hits"], retried["total"], round(retried["recovered"], 3)) == (3, 4, 0.667)
    assert (retried["calls_each"], retried["tokens_each"], retried["usd_each"]) == (3, 200, None)


def test_final_states_are_shares_of_their_group(story: Story) -> None:
    story.failure(tool="a", response=Response.RECOVERED)
    story.failure(tool="a", response=Response.ABANDONED)
    story.failure(tool="b", response=Response.ESCALATE)
    rows = story.measured("final_states", "tool")
    assert counts(rows, "tool", "state") == [
        ("a", "abandoned", 1, 2),
        ("a", "recovered", 1, 2),
        ("b", "escalate", 1, 1),
    ]


def test_a_task_ends_well_as_told_else_by_its_last_failed_operation(story: Story) -> None:
    def session(name: str, *calls: tuple[str, str], success: bool | None = None, task: str = "") -> None:
        for tool, outcome in calls:
            story.call(tool, outcome, session_id=f"{story.service}-{name}", task_id=task or None)
        if success is not None:
            story.run(session_id=f"{story.service}-{name}", task_id=task, task_success=success)

    session("never failed", ("a", "ok"))
    session("came right", ("a", "error"), ("a", "ok"))
    session("only another came right", ("a", "error"), ("b", "ok"))
    session("the last came right", ("a", "error"), ("b", "error"), ("b", "ok"))
    session("told as failed", ("a", "error"), ("a", "ok"), success=False, task="x")
    session("told as done", ("a", "error"), success=True, task="y")
    assert counts(story.measured("end_to_end_recovery")) == [(3, 5)]


def test_sessions_that_were_merged_are_one(story: Story, store: StoreClient) -> None:
    old, new = f"{story.service}-old", f"{story.service}-new"
    story.call("a", "error", session_id=old)
    story.call("a", "ok", session_id=new)
    Writer(store).insert_session_merges([SessionsMerged(old, new)], story.service)
    assert counts(story.measured("end_to_end_recovery")) == [(1, 1)]


def test_confused_tools_are_told_by_expectation_or_by_a_switch_that_helped(story: Story) -> None:
    story.call("find", expected_tool="search")
    story.call("find", "error", expected_tool="search")
    story.call("search", expected_tool="search")
    story.call("grep", "error")
    story.call("search")  # a switch that helped
    story.call("grep", "error")
    story.call("search", "error")  # one that did not
    story.call("search", "error")
    rows = story.measured("confused_tools")
    assert [(row["intended"], row["called"], row["told_by"], row["hits"]) for row in rows] == [
        ("search", "find", "expected_tool", 2),
        ("search", "grep", "switched", 1),
    ]


def test_pass_k_is_unbiased_over_tasks(story: Story) -> None:
    for task, results in {"x": (True, True, False), "y": (True,), "z": (False, False)}.items():
        for trial, success in enumerate(results):
            session = f"{story.service}-{task}{trial}"
            story.call("t", session_id=session, task_id=task)
            story.run(session_id=session, task_id=task, task_success=success)
    story.run(session_id=f"{story.service}-w", task_id="w")  # nobody says how it ended
    rows = [(row["k"], row["total"], round(row["value"], 4)) for row in story.measured("pass_k")]
    # k=1: (2/3 + 1 + 0) / 3; k=2: (C(2,2)/C(3,2) + 0) / 2; k=3: x alone, C(2,3) = 0
    assert rows == [(1, 3, 0.5556), (2, 2, 0.1667), (3, 1, 0.0)]


def test_definitions_take_a_quarter_of_a_token_a_character(story: Story) -> None:
    story.model(1000, definitions=definitions("a", chars=400))  # 100 tokens
    story.model(50, definitions=definitions("a", chars=400))  # not more than the whole
    story.model(5000)
    [row] = story.measured("definitions_token_share")
    assert (row["hits"], row["total"], round(row["value"], 4)) == (150, 1050, 0.1429)
    assert "low" not in row


def test_results_are_carried_by_every_later_model_call(story: Story) -> None:
    story.model(100)  # nothing yet
    story.call("t", result="x" * 40)  # 10 tokens
    story.model(100)
    story.call("t", result="x" * 400)  # 110 with the one before
    story.model(100)  # all of it
    story.model(700, agent="without results")
    [row] = story.measured("results_token_share")
    assert (row["hits"], row["total"]) == (110, 300)


def waste(story: Story) -> None:
    story.model(100, 10)
    failed = story.call("a", "error")
    story.failure(step_id=failed.step_id, recovered=False, earlier=0)
    story.model(200, 20)
    healed = story.call("a", "error")
    story.failure(step_id=healed.step_id, recovered=True, earlier=0)
    for tokens in (1000, 2000, 4000):
        story.model(tokens)
        looping = story.call("poll")
    story.finding("doom_loop", looping, 3, started_at=story.steps[5].start_ns)


def test_wasted_calls_are_lost_failures_and_repeats(story: Story) -> None:
    waste(story)  # of 5 calls: the failure that never recovered, and two repeats of poll
    assert counts(story.measured("wasted_calls")) == [(3, 5)]


def test_wasted_tokens_are_those_that_asked_for_wasted_calls(story: Story) -> None:
    waste(story)
    [row] = story.measured("wasted_tokens")
    assert (row["hits"], row["total"]) == (110 + 2000 + 4000, 330 + 7000)


def test_groups_come_by_every_column_that_a_metric_knows(story: Story) -> None:
    story.model(model="m-1")
    story.call("t", "ok", service_version="2")
    [row] = story.measured("execution_success", *DIMENSIONS)
    assert (row["tool"], row["operation"], row["agent"], row["model"]) == ("t", "t", "a", "m-1")
    assert (row["service"], row["service_version"]) == (story.service, "2")
    assert row["day"].isoformat() == "2025-11-01"
    assert "error_class" not in row


def test_a_selection_takes_a_version_a_tool_or_definitions(story: Story) -> None:
    story.model(definitions=definitions("t", of="00000000000000d7"))
    for step in (story.call("t"), story.call("u", "error", service_version="2"), story.call("t", "error")):
        if step.outcome is not Outcome.OK:
            version = step.service_version
            story.failure(step_id=step.step_id, tool=step.tool, service_version=version, recovered=False)
    for more, calls, failures in (
        ({"service_version": "2"}, (0, 1), (0, 1)),
        ({"tool": "t"}, (1, 2), (0, 1)),
        ({"definitions": ("00000000000000d7",)}, (1, 3), (0, 2)),
        ({"since_ns": START_NS + 3 * SECOND_NS}, (0, 1), None),
    ):
        assert counts(story.measured("execution_success", **more)) == [calls]
        if failures is not None:
            assert counts(story.measured("recovery_rate", **more)) == [failures]
    assert story.measured("execution_success", definitions=("none",)) == []
    assert story.measured("end_to_end_recovery", tool="u")[0]["total"] == 1


def test_a_step_outside_the_window_is_not_counted(story: Story) -> None:
    story.call("t", start_ns=START_NS - 1)
    story.call("t", "error", start_ns=START_NS + 3600 * SECOND_NS)
    assert story.measured("execution_success") == []


def looped(story: Story) -> None:
    for number in range(6):
        story.model(100, 10, model="m-1")
        step = story.call("fetch", "ok" if number == 5 else "error")
        if number == 3:
            story.finding("doom_loop", step, 4, started_at=story.steps[1].start_ns)
            story.finding("retry_storm", step, 3, started_at=story.steps[1].start_ns)
    story.write()


def test_a_streak_is_counted_to_its_end_and_once(story: Story, store: StoreClient) -> None:
    looped(story)  # five failures, the finding was said at the fourth; the tokens of the fourth and fifth
    within = Selection(since_ns=START_NS, until_ns=START_NS + 3600 * SECOND_NS, service=story.service)
    [row] = streaks(store, within, 3).to_dicts()
    assert (row["tool"], row["model"], row["calls"], row["over"]) == ("fetch", "m-1", 5, 2)
    assert (row["input_tokens"], row["output_tokens"]) == (200, 20)
    assert streaks(store, within, 5)["over"].to_list() == [0]


def test_calls_that_succeed_in_a_loop_are_a_streak_as_long_as_the_finding_counts(
    story: Story, store: StoreClient
) -> None:
    for tokens in (1, 10, 100, 1000, 10_000):
        story.model(tokens)
        step = story.call("poll")
    story.finding("doom_loop", step, 5, started_at=story.steps[1].start_ns)
    story.write()
    within = Selection(since_ns=START_NS, until_ns=START_NS + 3600 * SECOND_NS, service=story.service)
    [row] = streaks(store, within, 3).to_dicts()
    assert (row["calls"], row["over"], row["input_tokens"]) == (5, 2, 11_000)


def test_compactions_that_fail_on_and_on_are_a_streak(story: Story, store: StoreClient) -> None:
    for number in range(7):
        usage = Usage(input_tokens=1000, output_tokens=0)
        step = story.add(Kind.COMPACTION, outcome=Outcome.ERROR, usage=usage)
        if number == 4:
            story.finding("doom_loop", step, 5, tool=None)
    story.write()
    within = Selection(since_ns=START_NS, until_ns=START_NS + 3600 * SECOND_NS, service=story.service)
    [row] = streaks(store, within).to_dicts()
    assert (row["tool"], row["calls"], row["over"], row["input_tokens"]) == ("", 7, 4, 4000)


def test_an_overview_counts_what_there_is(story: Story, store: StoreClient) -> None:
    story.model(100, 5, cost_usd=0.25)
    story.call("t")
    story.call("t", "soft_error", session_id=f"{story.service}-other")
    story.write()
    within = Selection(since_ns=START_NS, until_ns=START_NS + 3600 * SECOND_NS, service=story.service)
    assert overview(store, within) == Overview(
        sessions=2, calls=2, failed=1, model_calls=1, tokens=105, cost_usd=0.25, services=1
    )


def test_a_definition_that_is_another_than_before_is_a_change(story: Story, store: StoreClient) -> None:
    def offered(at_ns: int, version: str, of: str, **tools: ToolDefinition) -> None:
        rows = [DefinitionRow(story.service, version, of, tool, at_ns) for tool in tools.values()]
        Writer(store).insert_packed(
            "tool_definitions", tool_definition_rows(rows), f"{story.service}{at_ns}{of}"
        )

    first = ToolDefinition("fetch", "gets a page", {"type": "object"}, hash=f"{story.service}-a")
    other = replace(first, description="gets any page", hash=f"{story.service}-b")
    new = ToolDefinition("search", "looks", hash=f"{story.service}-c")
    offered(START_NS - DAY_NS, "1", f"{story.service}-1", fetch=first)
    offered(START_NS + 5, "2", f"{story.service}-2", fetch=other, search=new)
    offered(START_NS + 9, "2", f"{story.service}-3", fetch=first)  # back again is nothing new
    within = Selection(since_ns=START_NS, until_ns=START_NS + DAY_NS, service=story.service)
    [change] = changes(store, within)
    assert (change.tool, change.service_version, change.at_ns) == ("fetch", "2", START_NS + 5)
    assert (change.before, change.after) == (first.hash, other.hash)
    assert change.changed == ("description",)
    assert changes(store, replace(within, until_ns=START_NS + 5)) == []
    assert find(store, f"{story.service}-2") == [DefinitionsFound((f"{story.service}-2",), None)]
    assert find(store, first.hash) == [
        DefinitionsFound((f"{story.service}-1", f"{story.service}-3"), "fetch")
    ]
    assert find(store, "no such") == []
