"""What whoever ran the agent says with attributes of ours, and what evaluations say of steps."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from recorded import final, read_offline
from told import SECOND, Attributes, Told, batch

from collector.batch import Batch, Signal
from collector.conventions.facts import evaluation_of
from collector.reader import StepReader
from collector.redact import RedactionSettings
from collector.step import MAX_EVALUATIONS, Evaluation, Kind, Step, StepAmended, StepEvent

TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "f"}
CHAT = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "planner"}
TASK: Attributes = {
    "recloser.expected_tool": "f",
    "recloser.task.id": "task-7",
    "recloser.task.success": True,
}


def spans(*told: Told, resource: Attributes | None = None) -> Batch:
    return batch(Signal.TRACES, told, resource)


def by_kind(steps: dict[str, Step]) -> dict[Kind, Step]:
    return {step.kind: step for step in steps.values()}


@pytest.mark.parametrize(
    ("attributes", "kind"), [(TOOL, Kind.TOOL_CALL), (CHAT, Kind.MODEL_CALL), (AGENT, Kind.AGENT_RUN)]
)
@pytest.mark.parametrize("hash_only", [False, True])
def test_a_step_has_what_its_own_span_says_of_the_task(
    attributes: dict[str, str], kind: Kind, *, hash_only: bool
) -> None:
    told = batch(
        Signal.TRACES,
        [Told(span=1, attributes={**attributes, **TASK})],
        settings=RedactionSettings(hash_only=hash_only),
    )
    (step,) = read_offline([told]).values()
    assert step.kind is kind
    assert (step.expected_tool, step.task_id, step.task_success) == ("f", "task-7", True)


def test_nothing_is_said_of_a_task_where_nothing_was_told() -> None:
    (step,) = read_offline([spans(Told(span=1, attributes=TOOL))]).values()
    assert (step.expected_tool, step.task_id, step.task_success) == (None, None, None)


def test_the_task_of_a_resource_is_every_steps() -> None:
    told = spans(
        Told(span=1, attributes=AGENT),
        Told(span=2, parent=1, attributes=TOOL),
        resource={"recloser.task.id": "task-7"},
    )
    assert [step.task_id for step in read_offline([told]).values()] == ["task-7", "task-7"]


def test_an_agents_span_says_success_of_the_agent_alone() -> None:
    steps = by_kind(
        read_offline(
            [
                spans(
                    Told(
                        span=1, attributes={**AGENT, "recloser.task.success": False, "recloser.task.id": "t"}
                    ),
                    Told(span=2, parent=1, attributes=TOOL),
                )
            ]
        )
    )
    assert (steps[Kind.AGENT_RUN].task_success, steps[Kind.AGENT_RUN].task_id) == (False, "t")
    assert (steps[Kind.TOOL_CALL].task_success, steps[Kind.TOOL_CALL].task_id) == (None, "t")


def test_a_span_around_the_agent_that_ends_later_amends_the_outermost_agent() -> None:
    reader = StepReader()
    inner = {**AGENT, "gen_ai.agent.name": "helper"}
    first = reader.push(
        spans(
            Told(span=2, parent=1, at=1, lasts=5, attributes=AGENT),
            Told(span=3, parent=2, at=2, attributes=inner),
        ),
        0,
    )
    first += reader.advance(2 * SECOND)
    around = Told(span=1, name="solve", lasts=9, attributes={"recloser.task.success": True})
    later = reader.push(spans(around), 3 * SECOND) + reader.drain()
    steps = final(first)
    assert {step.agent: step.task_success for step in steps.values()} == {"planner": None, "helper": None}
    amended = [event.step for event in later if isinstance(event, StepAmended)]
    assert [(step.agent, step.task_success, step.revision) for step in amended] == [("planner", True, 1)]


RELEVANCE: Attributes = {
    "gen_ai.evaluation.name": "Relevance",
    "gen_ai.evaluation.score.value": 0.5,
    "gen_ai.evaluation.score.label": "fair",
    "gen_ai.evaluation.explanation": "It was partly about it.",
}
JUDGED = Evaluation("Relevance", 0.5, "fair")


def judgement(span: int, at: float = 3, **more: str | float) -> Batch:
    attributes: Attributes = {
        **RELEVANCE,
        **{f"gen_ai.evaluation.{key}": value for key, value in more.items()},
    }
    return batch(
        Signal.LOGS,
        [Told(span=span, event="gen_ai.evaluation.result", at=at, attributes=attributes)],
        scope="evaluator",
    )


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({}, None),
        ({"gen_ai.evaluation.score.value": "1"}, None),
        ({"gen_ai.evaluation.name": "n"}, Evaluation("n")),
        ({"gen_ai.evaluation.name": "n", "gen_ai.evaluation.score.value": "many"}, Evaluation("n")),
        ({"gen_ai.evaluation.name": "n", "gen_ai.evaluation.score.value": "nan"}, Evaluation("n")),
        ({"gen_ai.evaluation.name": "n", "gen_ai.evaluation.score.value": "-1"}, Evaluation("n", -1.0)),
        (
            {"gen_ai.evaluation.name": "n", "gen_ai.evaluation.score.label": "pass"},
            Evaluation("n", None, "pass"),
        ),
    ],
)
def test_one_evaluation(attributes: dict[str, str], expected: Evaluation | None) -> None:
    assert evaluation_of(attributes) == expected


@pytest.mark.parametrize(
    ("attributes", "kind"), [(TOOL, Kind.TOOL_CALL), (CHAT, Kind.MODEL_CALL), (AGENT, Kind.AGENT_RUN)]
)
def test_an_evaluation_among_a_spans_events_is_its_steps(attributes: dict[str, str], kind: Kind) -> None:
    told = Told(span=1, attributes=attributes, events=(("gen_ai.evaluation.result", RELEVANCE),))
    (step,) = read_offline([spans(told)]).values()
    assert (step.kind, step.evaluations) == (kind, (JUDGED,))


@pytest.mark.parametrize("attributes", [TOOL, CHAT, AGENT])
def test_a_late_evaluation_amends_the_step_whose_span_it_names(attributes: dict[str, str]) -> None:
    reader = StepReader()
    seen = reader.push(spans(Told(span=1, attributes=attributes)), 0) + reader.advance(SECOND)
    assert [step.evaluations for step in final(seen).values()] == [()]
    later = reader.push(judgement(1), 5 * SECOND) + reader.advance(6 * SECOND)
    (amended,) = later
    assert isinstance(amended, StepAmended)
    assert (amended.step.evaluations, amended.step.revision) == ((JUDGED,), 1)
    assert reader.push(judgement(1), 7 * SECOND) + reader.drain() == []


def restarted(batches: Sequence[Batch]) -> list[StepEvent]:
    """Events of a reader that is written down and read back after every batch."""
    events: list[StepEvent] = []
    reader = StepReader()
    for turn, each in enumerate(batches):
        events += reader.push(each, turn * 2 * SECOND)
        kept = reader.snapshot()
        reader = StepReader()
        reader.restore(kept)
    return events + reader.drain()


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (1, 2, 0), (2, 1, 0)])
def test_evaluations_find_their_step_in_whatever_order_they_come(order: tuple[int, ...]) -> None:
    told = [spans(Told(span=1, attributes=TOOL)), judgement(1), judgement(1, 4, name="Safety")]
    (step,) = final(restarted([told[place] for place in order])).values()
    assert set(step.evaluations) == {JUDGED, Evaluation("Safety", 0.5, "fair")}


def test_what_was_said_of_tasks_goes_through_restarts() -> None:
    told = [spans(Told(span=1, attributes={**TOOL, **TASK})), judgement(1)]
    (step,) = final(restarted(told)).values()
    assert (step.expected_tool, step.task_id, step.task_success) == ("f", "task-7", True)
    assert step.evaluations == (JUDGED,)


def test_an_evaluation_of_an_unknown_span_is_nobodys() -> None:
    steps = read_offline([spans(Told(span=1, attributes=TOOL)), judgement(2)])
    assert [step.evaluations for step in steps.values()] == [()]


def test_a_step_has_a_bounded_number_of_evaluations_the_first_ones() -> None:
    told = [judgement(1, number, name=f"n{number}") for number in range(MAX_EVALUATIONS + 3)]
    (step,) = read_offline([spans(Told(span=1, attributes=TOOL)), *told]).values()
    assert [each.name for each in step.evaluations] == [f"n{number}" for number in range(MAX_EVALUATIONS)]
