"""What a span may hold and nobody expects: it becomes steps that checkpoint and store can keep."""

from __future__ import annotations

import orjson
import pytest
from otlp_requests import Loose, spans_of, traces

from collector.batch import Signal
from collector.conventions.values import MAX_LEVELS, parse
from collector.decode import decode
from collector.naming import KEPT, MAX_NAME
from collector.reader import StepReader
from collector.redact import RedactionSettings, Redactor
from collector.step import Step, StepSeen
from storage.rows import step_rows

LATER = 10**18  # ns
ODD = {
    "half a surrogate pair": '{"text": "cut \\ud83d"}',
    "half a surrogate pair in a name": '{"\\ud83d": 1}',
    "an integer over 64 bits": "{'n': " + "9" * 40 + "}",
    "many levels of JSON": '{"a":' * 1000 + "1" + "}" * 1000,
    "many levels of Python": "{'a':" * 90 + "(1,)" + "}" * 90,
    "levels without end": "[" * 5000,
}


def read(request: Loose) -> list[Step]:
    """Steps out of a request, as a checkpoint and the store would keep them."""
    decoded = decode(
        Signal.TRACES,
        "protobuf",
        request.SerializeToString(),
        redactor=Redactor(RedactionSettings()),
        now_ns=0,
        note=lambda _reason, _count: None,
    )
    assert decoded.batch is not None
    reader = StepReader()
    steps = [
        e.step for e in [*reader.push(decoded.batch, 0), *reader.advance(LATER)] if isinstance(e, StepSeen)
    ]
    orjson.dumps(reader.snapshot(), default=bytes.decode)
    step_rows(steps)
    return steps


def span(**attributes: str) -> Loose:
    request = traces()
    for key, value in attributes.items():
        spans_of(request)[0].attributes.add(key=f"gen_ai.{key.replace('__', '.')}").value.string_value = value
    return request


@pytest.mark.parametrize("arguments", ODD.values(), ids=ODD)
def test_a_call_with_odd_arguments_can_be_kept(arguments: str) -> None:
    (step,) = read(span(operation__name="execute_tool", tool__name="t", tool__call__arguments=arguments))
    assert step.arguments is not None


@pytest.mark.parametrize("count", ["-7", "99999999999999999999999", "1e300", "nan", "inf"])
def test_a_count_that_is_none_is_unknown(count: str) -> None:
    (step,) = read(span(operation__name="chat", request__model="m", usage__input_tokens=count))
    assert step.usage.input_tokens is None


def test_levels_are_read_to_a_bound() -> None:
    within = "[" * MAX_LEVELS + "]" * MAX_LEVELS
    assert isinstance(parse(within), list)
    assert parse(f"[{within}]") == f"[{within}]"


@pytest.mark.parametrize("length", [257, 5_000, 60_000])
def test_names_without_end_are_kept_short_and_told_apart(length: int) -> None:
    names = ["x" * length, "x" * (length - 1) + "y"]
    steps = [
        step
        for name in names
        for step in read(
            span(
                operation__name="execute_tool",
                tool__name=name,
                tool__call__id=name,
                agent__name=name,
                conversation__id=name,
            )
        )
    ]
    for told in zip(
        *((s.session_id, s.tool or "", s.agent or "", s.call_id or "") for s in steps), strict=True
    ):
        assert len(set(told)) == len(names)
        assert all(len(name) <= MAX_NAME and name.startswith("x" * KEPT) for name in told)


def test_a_process_without_end_makes_a_session_of_bounded_length() -> None:
    request = span(operation__name="execute_tool", tool__name="t")
    request.resource_spans[0].resource.attributes.add(key="service.instance.id").value.string_value = (
        "i" * 5_000
    )
    (step,) = read(request)
    assert step.session_id.startswith("process:travel-desk/iii")
    assert len(step.session_id) <= MAX_NAME


def test_control_characters_are_no_part_of_a_name() -> None:
    (odd,) = read(
        span(operation__name="execute_tool", tool__name="t\x00", conversation__id="chat\x00-\n1\x85")
    )
    assert (odd.session_id, odd.tool) == ("chat-1", "t")
