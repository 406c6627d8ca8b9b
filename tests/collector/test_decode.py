"""The columnar decoder against a slow one, on generated requests and on what real frameworks sent."""

from __future__ import annotations

import gzip
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from otlp_requests import NOW_NS, TRACE_ID, Loose, as_json, logs, span, spans_of, traces
from reference_decode import log_rows, span_rows

from collector import decode as decoder
from collector.batch import LOG_SCHEMA, SPAN_SCHEMA, Decoded, Signal
from collector.consumer import Rejected, TooLarge
from collector.decode import decode
from collector.otlp_json import transcode
from collector.otlp_values import MALFORMED, double_text
from collector.redact import Field, RedactionSettings, Redactor

CAPTURES = Path(__file__).parents[3] / "shared" / "captures"


class Blind(Redactor):
    """Redacts nothing, so that what was sent can be compared."""

    def fields(self, fields: Loose) -> dict[str, pa.StringArray]:
        return {name: field.texts for name, field in fields.items() if isinstance(field, Field)}


BLIND = Blind(RedactionSettings())


def decoded(signal: Signal, body: bytes, encoding: str = "protobuf", note: Loose = decoder.ignore) -> Decoded:
    return decode(signal, encoding, body, redactor=BLIND, now_ns=NOW_NS, note=note)


def rows(result: Decoded) -> list[dict[str, Any]]:
    """Return the rows with times as integers, ns since the epoch."""
    if result.batch is None:
        return []
    batch = result.batch.columns
    batch.validate(full=True)
    plain = batch.to_pylist()
    for row in plain:
        row["Timestamp"] = row["Timestamp"].value
        if "Events.Timestamp" in row:
            row["Events.Timestamp"] = [moment.value for moment in row["Events.Timestamp"]]
    return plain


# --- generated requests

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SCALAR = st.one_of(
    st.builds(AnyValue),
    st.builds(AnyValue, string_value=TEXT),
    st.builds(AnyValue, bool_value=st.booleans()),
    st.builds(AnyValue, int_value=st.integers(-(2**63), 2**63 - 1)),
    st.builds(AnyValue, double_value=st.integers(-(10**6), 10**6).map(lambda number: number / 64)),
    st.builds(AnyValue, bytes_value=st.binary(max_size=8)),
)
VALUE = st.recursive(
    SCALAR,
    lambda inner: st.one_of(
        st.builds(lambda items: AnyValue(array_value=ArrayValue(values=items)), st.lists(inner, max_size=3)),
        st.builds(
            lambda items: AnyValue(
                kvlist_value=KeyValueList(values=[KeyValue(key=k, value=v) for k, v in items])
            ),
            st.lists(st.tuples(TEXT, inner), max_size=3),
        ),
    ),
    max_leaves=6,
)
ATTRIBUTES = st.lists(st.builds(KeyValue, key=TEXT, value=VALUE), max_size=4)
TIME = st.one_of(st.just(0), st.integers(NOW_NS - 10**9, NOW_NS + 10**9))
TRACE = st.one_of(st.binary(min_size=16, max_size=16), st.sampled_from([b"", bytes(16), b"\x01" * 15]))
SPAN = st.one_of(st.binary(min_size=8, max_size=8), st.sampled_from([b"", bytes(8), b"\x01" * 9]))


@st.composite
def trace_requests(draw: st.DrawFn) -> ExportTraceServiceRequest:
    request = ExportTraceServiceRequest()
    for _ in range(draw(st.integers(0, 2))):
        resource = request.resource_spans.add()
        if draw(st.booleans()):
            resource.resource.attributes.extend(draw(ATTRIBUTES))
            resource.resource.attributes.add(key="service.name").value.string_value = draw(TEXT)
        for _ in range(draw(st.integers(0, 2))):
            scope = resource.scope_spans.add()
            if draw(st.booleans()):
                scope.scope.name = draw(TEXT)
                scope.scope.attributes.extend(draw(ATTRIBUTES))
            for _ in range(draw(st.integers(0, 3))):
                fill_span(draw, scope.spans.add())
    return request


def fill_span(draw: st.DrawFn, target: Loose) -> None:
    target.trace_id, target.span_id = draw(TRACE), draw(SPAN)
    target.parent_span_id = draw(SPAN)
    target.trace_state, target.name = draw(TEXT), draw(TEXT)
    target.kind = draw(st.integers(0, 5))
    target.start_time_unix_nano, target.end_time_unix_nano = draw(TIME), draw(TIME)
    target.attributes.extend(draw(ATTRIBUTES))
    for _ in range(draw(st.integers(0, 2))):
        target.events.add(time_unix_nano=draw(TIME), name=draw(TEXT), attributes=draw(ATTRIBUTES))
        target.links.add(trace_id=draw(TRACE), span_id=draw(SPAN), attributes=draw(ATTRIBUTES))
    if draw(st.booleans()):
        target.status.code = draw(st.integers(0, 2))
        target.status.message = draw(TEXT)


@st.composite
def log_requests(draw: st.DrawFn) -> ExportLogsServiceRequest:
    request = ExportLogsServiceRequest()
    for _ in range(draw(st.integers(0, 2))):
        resource = request.resource_logs.add(schema_url=draw(TEXT))
        resource.resource.attributes.extend(draw(ATTRIBUTES))
        scope = resource.scope_logs.add(schema_url=draw(TEXT))
        scope.scope.attributes.extend(draw(ATTRIBUTES))
        for _ in range(draw(st.integers(0, 3))):
            scope.log_records.add(
                time_unix_nano=draw(TIME),
                observed_time_unix_nano=draw(TIME),
                severity_number=draw(st.integers(0, 24)),
                severity_text=draw(TEXT),
                body=draw(VALUE),
                attributes=draw(ATTRIBUTES),
                flags=draw(st.integers(0, 2**32 - 1)),
                trace_id=draw(st.sampled_from([b"", TRACE_ID, bytes(16)])),
                span_id=draw(st.sampled_from([b"", b"\x01" * 8, bytes(8)])),
                event_name=draw(TEXT),
            )
    return request


@settings(max_examples=50, deadline=None)
@given(trace_requests())
def test_spans_are_as_the_slow_decoder_reads_them(request: ExportTraceServiceRequest) -> None:
    body = request.SerializeToString()
    sent = sum(len(scope.spans) for resource in request.resource_spans for scope in resource.scope_spans)
    result = decoded(Signal.TRACES, body)
    assert rows(result) == span_rows(body, NOW_NS)
    assert result.accepted + sum(result.rejected.values()) == sent


@settings(max_examples=50, deadline=None)
@given(log_requests())
def test_log_records_are_as_the_slow_decoder_reads_them(request: ExportLogsServiceRequest) -> None:
    body = request.SerializeToString()
    result = decoded(Signal.LOGS, body)
    assert rows(result) == log_rows(body, NOW_NS)
    assert result.rejected == {}


@settings(max_examples=50, deadline=None)
@given(trace_requests())
def test_json_decodes_to_the_same_rows_as_protobuf(request: ExportTraceServiceRequest) -> None:
    from_protobuf = decoded(Signal.TRACES, request.SerializeToString())
    from_json = decoded(Signal.TRACES, as_json(request), "json")
    assert rows(from_json) == rows(from_protobuf)
    assert from_json.rejected == from_protobuf.rejected
    if from_json.batch and from_protobuf.batch:
        assert from_json.batch.identity == from_protobuf.batch.identity


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=60), st.sampled_from(Signal), st.sampled_from(["protobuf", "json"]))
def test_rubbish_is_decoded_or_rejected(body: bytes, signal: Signal, encoding: str) -> None:
    try:
        rows(decoded(signal, body, encoding))
    except Rejected:
        return


@settings(max_examples=50, deadline=None)
@given(trace_requests(), st.data())
def test_damage_is_decoded_or_rejected(request: ExportTraceServiceRequest, data: st.DataObject) -> None:
    body = bytearray(request.SerializeToString())
    for place in data.draw(st.lists(st.integers(0, max(len(body) - 1, 0)), min_size=1, max_size=4)):
        if body:
            body[place] = data.draw(st.integers(0, 255))
    try:
        rows(decoded(Signal.TRACES, bytes(body)))
    except Rejected:
        return


# --- what real frameworks sent


def captured() -> list[Path]:
    found = sorted(path for path in CAPTURES.rglob("*") if path.suffixes and path.stem != "meta")
    return [path for path in found if "traces" in path.name or "logs" in path.name]


@pytest.mark.shared
@pytest.mark.skipif(not CAPTURES.exists(), reason="the shared captures are not beside the project")
def test_every_capture_is_decoded_whole() -> None:
    readers: dict[Signal, Callable[[bytes, int], list[dict[str, Any]]]] = {
        Signal.TRACES: span_rows,
        Signal.LOGS: log_rows,
    }
    totals: Counter[Signal] = Counter()
    for path in captured():
        body = path.read_bytes()
        if path.suffix == ".gz":
            body = gzip.decompress(body)
        signal = Signal.TRACES if "traces" in path.name else Signal.LOGS
        encoding = "json" if ".json" in path.suffixes else "protobuf"
        result = decoded(signal, body, encoding)
        assert result.rejected == {}, path
        plain = transcode(signal, body, decoder.ignore).body if encoding == "json" else body
        assert rows(result) == readers[signal](plain, NOW_NS), path
        totals[signal] += result.accepted
        assert result.batch is not None
        assert len(set(result.batch.identity.to_pylist())) == result.accepted
    assert totals[Signal.TRACES] > 1000
    assert totals[Signal.LOGS] > 100


# --- single cases


def with_bad_text(request: ExportTraceServiceRequest, marker: bytes = b"BADTEXT") -> bytes:
    """Return the request with a marker replaced by bytes that are no UTF-8."""
    return request.SerializeToString().replace(marker, b"BAD\xff\xfe\xfdT")


def test_a_span_with_text_that_is_no_utf8_is_rejected_alone() -> None:
    request = traces(5)
    spans = spans_of(request)
    spans[1].name = "BADTEXT"
    spans[2].attributes.add(key="BADTEXT").value.int_value = 1
    spans[3].events.add().attributes.add(key="k").value.string_value = "BADTEXT"
    spans[4].trace_id = b"\x01"
    result = decoded(Signal.TRACES, with_bad_text(request))
    assert result.rejected == {"invalid_utf8": 3, "invalid_trace_id": 1}
    assert [row["SpanId"] for row in rows(result)] == ["0000000000000001"]


def test_a_resource_with_text_that_is_no_utf8_rejects_its_spans() -> None:
    request = traces(2)
    request.resource_spans[0].resource.attributes.add(key="BADTEXT")
    request.resource_spans.append(traces(1).resource_spans[0])
    result = decoded(Signal.TRACES, with_bad_text(request))
    assert result.rejected == {"invalid_utf8": 2}
    assert result.accepted == 1


def test_a_scope_or_url_with_text_that_is_no_utf8() -> None:
    request = traces(2)
    request.resource_spans[0].scope_spans[0].scope.version = "BADTEXT"
    assert decoded(Signal.TRACES, with_bad_text(request)).rejected == {"invalid_utf8": 2}
    request = traces(2)
    request.resource_spans[0].schema_url = "BADTEXT"
    assert decoded(Signal.TRACES, with_bad_text(request)).accepted == 2


def test_a_log_record_with_text_that_is_no_utf8_is_rejected_alone() -> None:
    request = logs(3)
    request.resource_logs[0].scope_logs[0].log_records[1].body.string_value = "BADTEXT"
    body = request.SerializeToString().replace(b"BADTEXT", b"BAD\xff\xfe\xfdT")
    result = decoded(Signal.LOGS, body)
    assert (result.accepted, result.rejected) == (2, {"invalid_utf8": 1})


def test_bad_text_inside_an_array_becomes_a_marker() -> None:
    request = traces(1)
    value = spans_of(request)[0].attributes.add(key="k").value
    value.array_value.values.add(string_value="BADTEXT")
    notes: Counter[str] = Counter()
    result = decoded(
        Signal.TRACES, with_bad_text(request), note=lambda reason, count: notes.update({reason: count})
    )
    assert rows(result)[0]["SpanAttributes"] == [("k", MALFORMED)]
    assert notes == {"malformed_value": 1}


def test_identities_stay_the_same_over_versions() -> None:
    spans = decoded(Signal.TRACES, traces(2).SerializeToString()).batch
    records = decoded(Signal.LOGS, logs(2).SerializeToString()).batch
    assert spans is not None
    assert records is not None
    assert spans.identity.type == records.identity.type == pa.uint64()
    assert spans.identity.to_pylist() == [10439120511244274706, 2425946449244976432]
    assert records.identity.to_pylist() == [6308199051838074484, 3007060302031210263]


def test_equal_log_records_of_one_request_are_two() -> None:
    request = logs(1)
    records = request.resource_logs[0].scope_logs[0].log_records
    records.append(records[0])
    batch = decoded(Signal.LOGS, request.SerializeToString()).batch
    assert batch is not None
    assert len(set(batch.identity.to_pylist())) == 2


def test_a_log_record_without_times_takes_its_event_timestamp() -> None:
    request = logs(2)
    for record in request.resource_logs[0].scope_logs[0].log_records:
        record.time_unix_nano = 0
    first, second = request.resource_logs[0].scope_logs[0].log_records
    first.attributes.add(key="event.timestamp").value.string_value = "2026-09-21T13:46:40.250Z"
    second.attributes.add(key="event.timestamp").value.string_value = "yesterday"
    assert [row["Timestamp"] for row in rows(decoded(Signal.LOGS, request.SerializeToString()))] == [
        1_789_998_400_250_000_000,
        NOW_NS,
    ]


def test_a_request_spans_ninety_days_at_most() -> None:
    request = traces(120)
    for number, each in enumerate(spans_of(request)):
        each.start_time_unix_nano = NOW_NS - number * 86_400 * 10**9
    notes: Counter[str] = Counter()
    result = decoded(
        Signal.TRACES, request.SerializeToString(), note=lambda reason, count: notes.update({reason: count})
    )
    stored = np.array([row["Timestamp"] for row in rows(result)])
    assert len(np.unique(stored // (86_400 * 10**9))) == 90
    assert notes["too_many_days"] == 30


def test_a_resource_repeated_too_often_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "MAX_BROADCAST_BYTES", 100_000)
    request = traces(100)
    request.resource_spans[0].resource.attributes.add(key="k").value.string_value = "x" * 2000
    with pytest.raises(TooLarge):
        decoded(Signal.TRACES, request.SerializeToString())


def test_rows_of_agents_are_marked_and_others_are_not() -> None:
    request = traces(7)
    spans = spans_of(request)
    for key in (
        "http.route",
        "user_agent.original",
        "url.path",
        "db.query.text",
        "server.address",
        "thread.name",
    ):
        spans[0].attributes.add(key=key).value.string_value = "x"
    spans[1].attributes.add(key="gen_ai.tool.name").value.string_value = "search"
    spans[2].attributes.add(key="openinference.span.kind").value.string_value = "TOOL"
    spans[3].name = "execute_tool search"
    spans[4].events.add(name="gen_ai.choice")
    spans[5].attributes.add(key="session.id").value.string_value = "s"
    spans[6].events.add(name="e").attributes.add(key="llm.token_count.prompt").value.int_value = 1
    batch = decoded(Signal.TRACES, request.SerializeToString()).batch
    assert batch is not None
    assert batch.agent_rows.type == pa.uint32()
    assert batch.agent_rows.to_pylist() == [1, 2, 3, 4, 5, 6]
    request.resource_spans[0].scope_spans[0].scope.name = "openinference.instrumentation.langchain"
    batch = decoded(Signal.TRACES, request.SerializeToString()).batch
    assert batch is not None
    assert batch.agent_rows.to_pylist() == list(range(7))


def test_schemas_are_exactly_those_of_the_store() -> None:
    spans = decoded(Signal.TRACES, traces(1).SerializeToString()).batch
    records = decoded(Signal.LOGS, logs(1).SerializeToString()).batch
    assert spans is not None
    assert records is not None
    assert spans.columns.schema == SPAN_SCHEMA
    assert records.columns.schema == LOG_SCHEMA


def test_an_unknown_encoding_is_rejected() -> None:
    with pytest.raises(Rejected):
        decoded(Signal.TRACES, b"", "xml")


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1.0, "1"),
        (0.1, "0.1"),
        (-2.5, "-2.5"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (1.5e300, "1.5e+300"),
        (1e-6, "0.000001"),
        (1e-7, "1e-7"),
        (1.5e-9, "1.5e-9"),
        (5e-324, "5e-324"),
        (-0.0, "-0"),
        (0.0, "0"),
    ],
)
def test_doubles_are_worded_as_go_words_them(number: float, text: str) -> None:
    assert double_text(number) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_doubles_read_back_exactly(number: float) -> None:
    assert struct.pack("d", float(double_text(number))) == struct.pack("d", number)


def test_spans_of_several_resources_keep_their_own_resource() -> None:
    request = traces(1)
    other = request.resource_spans.add()
    other.resource.attributes.add(key="service.name").value.string_value = "other"
    other.scope_spans.add()
    other.scope_spans.add().spans.append(span(7))
    services = [row["ServiceName"] for row in rows(decoded(Signal.TRACES, request.SerializeToString()))]
    assert services == ["travel-desk", "other"]
