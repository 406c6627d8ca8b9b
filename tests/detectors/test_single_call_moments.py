"""Single calls against what was offered, what worked, and what a sibling supplies."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from collector.step import Json, Outcome, ToolDefinition, ToolDefinitions
from detectors.dependency_missed import DependencyMissed, is_placeholder
from detectors.hallucinated_call import HallucinatedCall, HallucinatedCallConfig
from detectors.ids import is_id
from detectors.offers import Offer, misfit, tool_in
from detectors.parameter_drift import ParameterDrift, shape_of
from detectors.protocol import Detector
from detectors.schema_drift import SchemaDrift
from detectors.tuning import Tuned
from tests.detectors.stream import Stream, judged

CITY: Json = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
PLACE: Json = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}


def offered(version: str = "1", **schemas: Json) -> ToolDefinitions:
    tools = {name: ToolDefinition(name, parameters=schema) for name, schema in schemas.items()}
    return ToolDefinitions(version, tools, 100)


def told(stream: Stream, detector: Detector) -> list[tuple[int, str, object]]:
    return [(at, one.severity.value, one.evidence["rule"]) for at, one in judged(stream.steps, detector)]


def weather() -> Stream:
    return Stream().user(agent=None).model(1, definitions=offered(get_weather=CITY))


def test_a_tool_that_was_not_offered_is_a_note_and_twice_an_alarm() -> None:
    stream = weather().call("get_forecast", {}, error="no such tool").call("get_forecast", {}, error="no")
    assert told(stream, HallucinatedCall()) == [(1, "info", "unknown_tool"), (2, "warning", "unknown_tool")]


def test_a_tool_that_works_exists_whatever_was_recorded_of_the_offer() -> None:
    assert told(weather().times(3, "hand_off", {}, ok="done"), HallucinatedCall()) == []


@pytest.mark.parametrize(
    "tool", ["get_weather", "getWeather", "mcp__meteo__get_weather", "meteo.get_weather"]
)
def test_an_offered_tool_may_be_spelled_in_several_ways(tool: str) -> None:
    assert told(weather().times(3, tool, {"city": "Bonn"}, error="down"), HallucinatedCall()) == []


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [({"town": "Bonn"}, "unknown_parameter"), ({"city": 7}, "schema"), ({}, "schema")],
)
def test_arguments_that_break_the_offered_schema_are_seen_at_once(arguments: Json, rule: str) -> None:
    assert told(weather().call("get_weather", arguments, error="bad"), HallucinatedCall()) == [
        (1, "info", rule)
    ]


def test_a_call_that_worked_all_the_same_is_never_more_than_a_note() -> None:
    severities = {
        severity
        for _, severity, _ in told(weather().times(9, "get_weather", {}, ok="12"), HallucinatedCall())
    }
    assert severities == {"info"}


def orders(**more: Any) -> Stream:  # noqa: ANN401 - fields of Step
    stream = Stream()
    stream.user(agent=None)
    told_by_user = {"text": "where is ord_8f3k2?", **more}
    stream.steps[-1] = dataclasses.replace(stream.steps[-1], **told_by_user)
    return stream


def test_an_id_out_of_nowhere_is_seen_when_the_call_goes_wrong() -> None:
    stream = orders().call("get_order", {"order_id": "ord_77xk2"}, error="no such order")
    assert told(stream, HallucinatedCall()) == [(1, "info", "unseen_id")]


@pytest.mark.parametrize(
    "stream",
    [
        orders().call("get_order", {"order_id": "ord_8f3k2"}, error="gone"),
        orders()
        .call("list", {}, ok="ord_77xk2 open")
        .call("get_order", {"order_id": "ORD_77xk2"}, error="gone"),
        orders().call("get_order", {"order_id": "ord_77xk2"}, ok="found"),
        orders().call("list", {}, ok=None).call("get_order", {"order_id": "ord_77xk2"}, error="gone"),
        orders(text=None).call("get_order", {"order_id": "ord_77xk2"}, error="gone"),
        orders().call("make", {"id": "ord_77xk2"}, ok="made").call("get", {"id": "ord_77xk2"}, error="gone"),
        orders().call("get_order", {"order_id": "latest"}, error="gone"),
    ],
)
def test_ids_that_were_seen_or_cannot_be_judged_are_left_alone(stream: Stream) -> None:
    assert told(stream, HallucinatedCall()) == []


def test_when_too_many_ids_were_seen_nothing_is_said_of_ids() -> None:
    judge = HallucinatedCall(Tuned(HallucinatedCallConfig(ids_kept=4)))
    stream = orders().call("list", {}, ok=" ".join(f"ord_{n}a{n}bc" for n in range(9)))
    assert told(stream.call("get", {"order_id": "ord_77xk2"}, error="gone"), judge) == []


def test_a_call_as_the_earlier_definition_says_is_the_schemas_fault() -> None:
    stream = (
        Stream()
        .model(1, definitions=offered("1", get_weather=CITY))
        .call("get_weather", {"city": "Bonn"}, ok="12")
    )
    stream.session = "later"
    stream.model(1, definitions=offered("2", get_weather=PLACE)).times(
        3, "get_weather", {"city": "Bonn"}, error="bad"
    )
    assert told(stream, SchemaDrift()) == [
        (2, "info", "earlier_definition"),
        (4, "warning", "earlier_definition"),
    ]


@pytest.mark.parametrize("arguments", [{"place": "Bonn"}, {"town": "Bonn"}, None])
def test_other_calls_have_nothing_to_do_with_the_earlier_definition(arguments: Json) -> None:
    stream = (
        Stream()
        .model(1, definitions=offered("1", get_weather=CITY))
        .model(1, definitions=offered("2", get_weather=PLACE))
    )
    assert told(stream.times(4, "get_weather", arguments, error="bad"), SchemaDrift()) == []


def test_sessions_that_still_are_offered_the_earlier_definition_are_right() -> None:
    stream = Stream().model(1, definitions=offered("1", get_weather=CITY))
    stream.session = "new"
    stream.model(1, definitions=offered("2", get_weather=PLACE))
    stream.session = "s"
    assert told(stream.times(4, "get_weather", {"city": "Bonn"}, error="down"), SchemaDrift()) == []


@pytest.mark.parametrize(
    ("worked", "asked", "rule"),
    [
        (["ord_17"], "ORD-17", "spelling"),
        (["2024-03-04", "2024-03-05"], "03/04/2024", "format"),
        (["5", "7"], "5 km", "format"),
        (["ord_17a", "ord_18b"], "17", "format"),
    ],
)
def test_a_value_that_slid_away_from_what_worked_is_seen(worked: list[str], asked: str, rule: str) -> None:
    stream = Stream()
    for value in worked:
        stream.call("get", {"v": value}, ok="found")
    stream.times(2, "get", {"v": asked}, error="not found")
    at = len(worked) + 1
    assert told(stream, ParameterDrift()) == [(at, "info", rule), (at + 1, "warning", rule)]


@pytest.mark.parametrize(
    ("worked", "asked", "more"),
    [
        (["ord_17"], "ord_18", {"error": "not found"}),
        (["2024-03-04"], "03/04/2024", {"error": "not found"}),
        (["ord_17"], "ORD-17", {"ok": "found"}),
        (["ord_17"], "ORD-17", {"outcome": Outcome.DENIED}),
        (["Bonn", "Berlin"], "Köln", {"error": "not found"}),
        (["Bonn", "New York"], "a longer text with words", {"error": "not found"}),
    ],
)
def test_other_values_have_not_drifted(worked: list[str], asked: str, more: dict[str, Any]) -> None:
    stream = Stream()
    for value in worked:
        stream.call("get", {"v": value}, ok="found")
    assert told(stream.call("get", {"v": asked}, **more), ParameterDrift()) == []


def pair(first: dict[str, Any], second: dict[str, Any]) -> Stream:
    stream = Stream()
    for n, call in enumerate((first, second)):
        values = {"ok": "x", **call}
        stream.call(
            values.pop("tool", f"t{n}"),
            values.pop("arguments", {}),
            attempt_id=f"m{len(stream.steps) // 2}",
            **values,
        )
    return stream


CREATED = {"tool": "create_order", "ok": '{"id": "ord_1", "total": 12}'}


@pytest.mark.parametrize("value", ["", None, "<order_id>", "TBD", "{{order.id}}"])
def test_an_empty_argument_that_a_sibling_supplies_is_seen_whoever_ends_first(value: Json) -> None:
    needs = {"tool": "send_receipt", "arguments": {"order_id": value}}
    assert told(pair(CREATED, needs), DependencyMissed()) == [(2, "info", "empty")]
    assert told(pair(needs, CREATED), DependencyMissed()) == [(2, "info", "empty")]


def test_a_stale_argument_is_seen_when_the_call_goes_wrong() -> None:
    def needs(**more: Any) -> dict[str, Any]:  # noqa: ANN401 - fields of Step
        return {"tool": "pay", "arguments": {"cart_id": "c1"}, **more}

    def supplies(value: str) -> dict[str, Any]:
        return {"tool": "refresh", "ok": f'{{"cart_id": "{value}"}}'}

    for wrong, expected in (({"ok": None, "error": "cart expired"}, [(4, "info", "stale")]), ({}, [])):
        stream = pair(supplies("c1"), needs())
        second = pair(supplies("c2"), needs(**wrong)).steps
        stream.steps += [dataclasses.replace(s, attempt_id="m9", step_id=f"{s.step_id}b") for s in second]
        assert told(stream, DependencyMissed()) == expected


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (CREATED, {"tool": "send_receipt", "arguments": {"order_id": "ord_1"}}),
        (CREATED, {"tool": "send_receipt", "arguments": {"note": ""}}),
        (
            {"tool": "create_order", "ok": None, "error": "down"},
            {"tool": "send", "arguments": {"order_id": ""}},
        ),
        ({"tool": "create_user", "ok": '{"id": "u1"}'}, {"tool": "send", "arguments": {"order_id": ""}}),
        ({"tool": "create_order", "ok": "created"}, {"tool": "send", "arguments": {"order_id": ""}}),
    ],
)
def test_calls_that_miss_nothing_are_left_alone(first: dict[str, Any], second: dict[str, Any]) -> None:
    assert told(pair(first, second), DependencyMissed()) == []


def test_calls_one_after_the_other_are_no_siblings() -> None:
    stream = pair(CREATED, {"tool": "send", "arguments": {"order_id": ""}})
    apart = [dataclasses.replace(s, attempt_id=s.step_id) for s in stream.steps]
    stream.steps[:] = apart
    assert told(stream, DependencyMissed()) == []


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("ord_8f3k2", True),
        ("3f2b9c1e-1111-4222-8333-abcdefabcdef", True),
        ("1048576", True),
        ("ABC123456", True),
        ("readme", False),
        ("page-2", False),
        ("2024", False),
        ("deadbeef", False),
        ("x" * 200, False),
    ],
)
def test_ids_are_told_from_words(text: str, *, is_one: bool) -> None:
    assert is_id(text) is is_one


@pytest.mark.parametrize(
    ("text", "shape"),
    [("ord_8f3k2", "a_9"), ("12", "9"), ("12.5", "9.9"), ("Berlin", "Aa"), ("three short words", None)],
)
def test_a_value_has_a_shape(text: str, shape: str | None) -> None:
    assert shape_of(text) == shape


def test_a_schema_that_cannot_be_read_is_broken_by_nothing() -> None:
    assert misfit('{"type": 7}', {"a": 1}) is None
    assert misfit("[", {"a": 1}) is None
    assert misfit('{"type": "object", "properties": {}, "additionalProperties": true}', {"a": 1}) is None
    assert tool_in(Offer("h"), "x") is None


@pytest.mark.parametrize(
    "value", ["ord_8f3", "Bonn", 0, False, "a null value", "<b>bold</b> text of some length"]
)
def test_values_are_no_placeholders(value: Json) -> None:
    assert not is_placeholder(value)
