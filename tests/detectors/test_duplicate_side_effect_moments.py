"""At which call a doubled effect is seen, and what is none."""

from __future__ import annotations

from typing import Any

import pytest

from collector.step import Json, Outcome, ToolDefinition, ToolDefinitions
from detectors.duplicate_side_effect import DuplicateSideEffect, DuplicateSideEffectConfig
from detectors.protocol import Finding
from detectors.side_effects import undoes
from detectors.tool_policy import ToolPolicy
from detectors.tuning import Tuned
from tests.detectors.stream import Stream, first, judged

POLICY = ToolPolicy(critical=("place_order",), write=("send_mail",), read=("send_report",))
ORDER: dict[str, Json] = {"item": "book", "count": 1}


def found(stream: Stream, policy: ToolPolicy = POLICY) -> list[tuple[int, Finding]]:
    return judged(stream.steps, DuplicateSideEffect(), policy)


def told(stream: Stream, policy: ToolPolicy = POLICY) -> list[tuple[int, str, object]]:
    return [(at, one.severity.value, one.evidence["rule"]) for at, one in found(stream, policy)]


def test_a_critical_call_is_critical_the_second_time() -> None:
    stream = Stream().call("place_order", ORDER, ok="order 17").call("look", {}, ok="x")
    assert told(stream.call("place_order", ORDER, ok="order 18")) == [(3, "critical", "repeated")]


def test_a_write_is_an_alarm_the_second_time() -> None:
    assert told(Stream().times(2, "send_mail", {"to": "a"}, ok="sent")) == [(2, "warning", "repeated")]


def test_what_only_a_name_suggests_is_a_note_first_and_says_so() -> None:
    stream = Stream().times(3, "book_flight", {"id": 7}, ok="booked")
    assert told(stream, ToolPolicy()) == [(2, "info", "repeated"), (3, "warning", "repeated")]
    assert all(one.evidence["level_source"] == "inferred" for _, one in found(stream, ToolPolicy()))


def test_order_cancel_order_counts() -> None:
    stream = (
        Stream().call("place_order", ORDER, ok="order 17").call("cancel_order", {"id": 17}, ok="cancelled")
    )
    assert told(stream.call("place_order", ORDER, ok="order 18")) == [(3, "critical", "do_undo_do")]


def test_a_second_attempt_after_a_timeout_may_be_the_second_effect() -> None:
    stream = Stream().call("place_order", ORDER, error="request timed out after 30 s")
    assert told(stream.call("place_order", ORDER, ok="order 18")) == [(2, "warning", "after_timeout")]


def test_calls_of_one_message_count_and_so_do_those_of_two_agents() -> None:
    assert told(Stream().times(2, "place_order", ORDER, ok="done", attempt_id="m1")) != []
    one, other = Stream(agent="a").call("place_order", ORDER, ok="x"), Stream(agent="b")
    other.now_ns = one.now_ns
    one.steps += other.call("place_order", ORDER, ok="x").steps
    assert told(one) == [(2, "critical", "repeated")]


@pytest.mark.parametrize(
    ("first_more", "second_more"),
    [
        ({}, {"arguments": {"item": "book", "count": 2}}),
        ({"arguments": {**ORDER, "idempotency_key": "k"}}, {"arguments": {**ORDER, "idempotency_key": "k"}}),
        ({}, {"ok": "this order was already placed"}),
        ({"ok": None, "error": "invalid item"}, {}),
        ({"outcome": Outcome.DENIED}, {}),
        ({}, {"outcome": Outcome.DENIED}),
        ({}, {"after": 4000.0}),
        ({"arguments": None}, {"arguments": None}),
    ],
)
def test_these_are_no_duplicates(first_more: dict[str, object], second_more: dict[str, object]) -> None:
    stream = Stream()
    for more in (first_more, second_more):
        values = {"arguments": ORDER, "ok": "done", **more}
        stream.call("place_order", values.pop("arguments"), **values)  # type: ignore[arg-type]  # a table's values
    assert told(stream) == []


def test_a_new_key_with_the_same_arguments_is_a_new_effect() -> None:
    stream = Stream()
    for key in ("a", "b"):
        stream.call("place_order", {**ORDER, "idempotency_key": key}, ok="done")
    assert told(stream) == [(2, "critical", "repeated")]


def test_the_users_next_turn_is_a_new_intention() -> None:
    stream = Stream().call("place_order", ORDER, ok="x").user().call("place_order", ORDER, ok="x")
    assert told(stream) == []


def test_what_a_tool_says_of_itself_goes_before_its_name() -> None:
    def offered(**hints: Any) -> ToolDefinitions:  # noqa: ANN401 - fields of ToolDefinition
        return ToolDefinitions("h", {"book_flight": ToolDefinition("book_flight", **hints)}, 10)

    for hints, severities in (
        ({"read_only": True}, []),
        ({"idempotent": True}, []),
        ({"destructive": True}, ["warning"]),
    ):
        stream = (
            Stream().model(1, definitions=offered(**hints)).times(2, "book_flight", {"id": 7}, ok="booked")
        )
        assert [severity for _, severity, _ in told(stream, ToolPolicy())] == severities


def test_what_is_configured_goes_before_everything() -> None:
    assert told(Stream().times(3, "send_report", {"to": "a"}, ok="sent")) == []


def test_edits_are_no_effects() -> None:
    assert told(Stream().times(4, "write_file", {"path": "a", "text": "b"}, ok="ok"), ToolPolicy()) == []


def test_without_a_session_it_is_a_note() -> None:
    stream = Stream(session="process:web").times(2, "place_order", ORDER, ok="x")
    assert first(found(stream), "warning", "critical") is None
    assert first(found(stream), "info") == 2


@pytest.mark.parametrize(
    ("tool", "other", "is_undone"),
    [
        ("cancel_order", "create_order", True),
        ("cancelBooking", "bookFlight", False),
        ("cancel_booking", "create_booking", True),
        ("cancel", "order", True),
        ("delete_issue", "create_issue", True),
        ("delete_issue", "create_user", False),
        ("refund_charge", "charge", True),
        ("cancel_order", "cancel_order", False),
        ("list_orders", "order", False),
    ],
)
def test_counterparts_are_told_by_their_names(tool: str, other: str, *, is_undone: bool) -> None:
    assert undoes(tool, other) is is_undone


@pytest.mark.parametrize(("name", "value"), [("inferred_count", 1), ("window_s", 0.0), ("calls_kept", 0)])
def test_settings_out_of_range_are_named(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        DuplicateSideEffect(Tuned(DuplicateSideEffectConfig(**{name: value})))  # type: ignore[arg-type]  # as given
