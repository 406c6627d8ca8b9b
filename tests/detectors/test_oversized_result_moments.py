"""Which results and which sets of definitions are oversized, and from when on that is an alarm."""

from __future__ import annotations

import json
from typing import Any

import pytest

from collector.step import Kind, ToolDefinition, ToolDefinitions, Usage
from detectors.oversized_result import OversizedResult, OversizedResultConfig
from detectors.protocol import Finding
from detectors.reading import Reading
from detectors.tuning import Tuned
from tests.detectors.stream import Stream


def found(stream: Stream, **config: Any) -> list[Finding]:  # noqa: ANN401 - settings of all types
    judge = OversizedResult(Tuned(OversizedResultConfig(**config)))
    return [finding for step in stream.steps for finding in judge.observe(Reading(step))]


def results(count: int, tokens: int, tool: str = "fetch") -> Stream:
    stream = Stream()
    for n in range(count):
        stream.call(tool, {"page": n}, ok="word" * tokens)
    return stream


def test_a_result_of_eight_thousand_tokens_is_a_note_and_a_smaller_one_is_not() -> None:
    (note,) = found(results(1, 8_000))
    assert (note.severity.value, note.occurrences, note.tool) == ("info", 1, "fetch")
    assert note.evidence["tokens"] == 8_000
    assert found(results(20, 7_999)) == []


def test_five_of_one_tool_that_cost_a_hundred_thousand_tokens_are_a_warning() -> None:
    severities = [(finding.occurrences, finding.severity.value) for finding in found(results(6, 20_000))]
    assert severities == [(1, "info"), (5, "warning")]
    assert [finding.severity.value for finding in found(results(7, 8_000))] == ["info"]
    assert [finding.occurrences for finding in found(results(13, 8_000))] == [1, 8, 13]


def test_each_tool_is_counted_by_itself() -> None:
    stream = results(3, 20_000)
    stream.steps += results(3, 20_000, tool="query").steps
    assert [(f.tool, f.severity.value) for f in found(stream)] == [("fetch", "info"), ("query", "info")]


def test_a_quarter_of_what_the_model_reads_is_oversized_from_two_thousand_tokens_on() -> None:
    stream = Stream().call("fetch", {}, ok="word" * 3_000)
    stream.model(11_000)
    (note,) = found(stream)
    assert (note.tool, note.evidence["share_of_input"]) == ("fetch", 0.273)
    assert note.first_span_id == "span-1"
    assert note.span_id == "span-2"
    assert found(Stream().call("fetch", {}, ok="word" * 3_000).model(13_000)) == []
    assert found(Stream().call("fetch", {}, ok="word" * 1_999).model(2_500)) == []
    assert found(Stream().call("fetch", {}, ok="word" * 3_000).model().model(3_500)) == []


def offered(tools: int, tokens: int) -> ToolDefinitions:
    named = {f"tool_{n}": ToolDefinition(f"tool_{n}") for n in range(tools)}
    return ToolDefinitions(f"{tools:016x}", named, tokens * 4)


def asked(count: int, definitions: ToolDefinitions, tokens: int | None) -> Stream:
    stream = Stream()
    for _ in range(count):
        stream._add(Kind.MODEL_CALL, 1.0, definitions=definitions, usage=Usage(input_tokens=tokens))
    return stream


def test_definitions_are_a_note_once_and_at_doublings() -> None:
    notes = found(asked(20, offered(60, 12_000), 40_000))
    assert [(note.occurrences, note.severity.value) for note in notes] == [
        (1, "info"),
        (8, "info"),
        (16, "info"),
    ]
    assert notes[0].evidence["tools"] == 60
    assert notes[0].evidence["share_of_input"] == 0.3
    assert notes[0].tool is None


def test_a_share_of_the_input_makes_definitions_large_and_other_definitions_are_another_note() -> None:
    assert len(found(asked(1, offered(10, 3_000), 10_000))) == 1
    assert found(asked(1, offered(10, 3_000), 20_000)) == []
    assert found(asked(1, offered(10, 3_000), None)) == []
    both = asked(1, offered(60, 12_000), None)
    both.steps += asked(1, offered(61, 12_000), None).steps
    assert len(found(both)) == 2


def test_all_of_it_survives_a_checkpoint() -> None:
    steps = [
        *results(6, 20_000).steps,
        *results(2, 3_000, tool="query").model(9_000).steps,
        *asked(9, offered(60, 12_000), 40_000).steps,
    ]
    whole, judge = OversizedResult(), OversizedResult()
    said: list[Finding] = []
    expected: list[Finding] = []
    for step in steps:
        expected += whole.observe(Reading(step))
        said += judge.observe(Reading(step))
        state: Any = json.loads(json.dumps(judge.snapshot()))
        judge = OversizedResult()
        judge.restore(state)
    assert said == expected
    assert {finding.evidence["rule"] for finding in said} == {"result", "definitions"}


@pytest.mark.parametrize(("name", "value"), [("tokens", 0), ("share", 0.0), ("share", 1.5), ("repeats", 0)])
def test_a_setting_out_of_range_is_named(name: str, value: float) -> None:
    out_of_range: dict[str, Any] = {name: value}
    with pytest.raises(ValueError, match=f"oversized_result.{name} must be"):
        OversizedResultConfig(**out_of_range)
