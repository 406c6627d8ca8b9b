"""What every OTLP receiver must do, whatever the transport: OTLP 1.11, read back from the decoded columns."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from otlp_requests import NOW_NS, TRACE_ID, Loose, logs, metrics, span, spans_of, traces
from receiver_rig import Outcome, OverGrpc, OverHttp, Rig, Transport, receivers

from collector.batch import Signal
from collector.consumer import Rejected, TooLarge, Unavailable
from collector.otlp_descriptor import message_class
from collector.otlp_values import TOO_DEEP
from collector.receivers.limits import MIB, Limits

TRANSPORTS: dict[str, Transport] = {
    "http_protobuf": OverHttp(json=False),
    "http_json": OverHttp(json=True),
    "grpc": OverGrpc(),
    "grpc_gzip": OverGrpc(grpc.Compression.Gzip),
}


@pytest.fixture(scope="module")
def running() -> Iterator[Rig]:
    with receivers(Limits(max_body_bytes=4 * MIB, max_compressed_bytes=4 * MIB)) as rig:
        yield rig


@pytest.fixture
def rig(running: Rig) -> Iterator[Rig]:
    running.reset()
    yield running
    assert running.in_flight is not None
    assert running.in_flight.held == 0


@pytest.fixture(params=list(TRANSPORTS.values()), ids=list(TRANSPORTS))
def transport(request: pytest.FixtureRequest) -> Loose:
    return request.param


def stored(rig: Rig, transport: Transport, *attributes: KeyValue) -> list[tuple[str, str]]:
    """Send one span with these attributes; return them as they were stored."""
    request = traces()
    spans_of(request)[0].attributes.extend(attributes)
    assert transport.send(rig, Signal.TRACES, request).partial is None
    items: list[tuple[str, str]] = rig.rows()[-1]["SpanAttributes"]
    return items


def test_full_success_leaves_partial_success_unset(rig: Rig, transport: Transport) -> None:
    assert transport.send(rig, Signal.TRACES, traces(3)).partial is None
    rows = rig.rows()
    assert [row["SpanId"] for row in rows] == ["0000000000000001", "0000000000000002", "0000000000000003"]
    assert rows[0]["TraceId"] == TRACE_ID.hex()
    assert rows[0]["ServiceName"] == "travel-desk"
    assert rows[0]["ScopeName"] == "travel"
    assert rows[0]["SpanKind"] == "Client"
    assert rows[0]["Duration"] == 5_000_000
    assert rows[0]["Timestamp"].value == NOW_NS


def test_requests_without_spans_succeed(rig: Rig, transport: Transport) -> None:
    no_scopes = ExportTraceServiceRequest()
    no_scopes.resource_spans.add()
    no_spans = ExportTraceServiceRequest()
    no_spans.resource_spans.add().scope_spans.add()
    for request in (ExportTraceServiceRequest(), no_scopes, no_spans):
        assert transport.send(rig, Signal.TRACES, request).partial is None
    assert rig.rows() == []


def test_a_bad_span_is_rejected_alone_and_counted(rig: Rig, transport: Transport) -> None:
    request = traces(6)
    spans = spans_of(request)
    spans[0].trace_id = b"\x00" * 16
    spans[1].trace_id = b"\x01" * 15
    spans[2].span_id = b""
    spans[3].parent_span_id = b"\x01" * 7
    partial = transport.send(rig, Signal.TRACES, request).partial
    assert partial.rejected_spans == 4
    for reason in ("2 invalid_trace_id", "1 invalid_span_id", "1 invalid_parent_span_id"):
        assert reason in partial.error_message
    assert [row["SpanId"] for row in rig.rows()] == ["0000000000000005", "0000000000000006"]
    counted = {
        labels[4]: count for labels, count in rig.counted.items() if labels[0] == "records" and labels[4]
    }
    assert counted == {"invalid_trace_id": 2, "invalid_span_id": 1, "invalid_parent_span_id": 1}


def test_a_request_of_bad_spans_only_is_a_partial_success(rig: Rig, transport: Transport) -> None:
    request = traces(2)
    for bad in spans_of(request):
        bad.span_id = b"\x00" * 8
    assert transport.send(rig, Signal.TRACES, request).partial.rejected_spans == 2
    assert rig.rows() == []


def test_the_answer_stays_small_when_everything_is_rejected(rig: Rig, transport: Transport) -> None:
    request = traces(0)
    for _ in range(100_000):
        spans_of(request).add()
    partial = transport.send(rig, Signal.TRACES, request).partial
    assert partial.rejected_spans == 100_000
    assert len(partial.error_message.encode()) <= 1024


def test_omitted_fields_have_their_defaults(rig: Rig, transport: Transport) -> None:
    request = ExportTraceServiceRequest()
    request.resource_spans.add().scope_spans.add().spans.add(trace_id=TRACE_ID, span_id=b"\x01" * 8)
    assert transport.send(rig, Signal.TRACES, request).partial is None
    row = rig.rows()[0]
    assert (row["SpanName"], row["SpanKind"], row["StatusCode"]) == ("", "Unspecified", "Unset")
    assert (row["ParentSpanId"], row["ServiceName"], row["Duration"]) == ("", "", 0)
    assert row["Timestamp"].value == NOW_NS
    assert rig.notes["zero_time"] == 1


def test_every_kind_of_value_reads_back(rig: Rig, transport: Transport) -> None:
    values = {
        "text": AnyValue(string_value="Zürich ☃"),
        "empty": AnyValue(string_value=""),
        "true": AnyValue(bool_value=True),
        "false": AnyValue(bool_value=False),
        "zero": AnyValue(int_value=0),
        "smallest": AnyValue(int_value=-(2**63)),
        "largest": AnyValue(int_value=2**63 - 1),
        "half": AnyValue(double_value=0.5),
        "one": AnyValue(double_value=1.0),
        "minus_zero": AnyValue(double_value=-0.0),
        "nan": AnyValue(double_value=math.nan),
        "infinity": AnyValue(double_value=math.inf),
        "minus_infinity": AnyValue(double_value=-math.inf),
        "bytes": AnyValue(bytes_value=b"\x00\xff\x10"),
        "no_bytes": AnyValue(bytes_value=b""),
        "unset": AnyValue(),
        "array": AnyValue(
            array_value=ArrayValue(
                values=[
                    AnyValue(string_value="a"),
                    AnyValue(int_value=2**63 - 1),
                    AnyValue(),
                    AnyValue(array_value=ArrayValue(values=[AnyValue(bool_value=True)])),
                ]
            )
        ),
        "no_array": AnyValue(array_value=ArrayValue()),
        "kvlist": AnyValue(
            kvlist_value=KeyValueList(
                values=[
                    KeyValue(key="b", value=AnyValue(double_value=2.0)),
                    KeyValue(key="a", value=AnyValue(bytes_value=b"\x01")),
                    KeyValue(key="n", value=AnyValue(double_value=math.nan)),
                ]
            )
        ),
        "no_kvlist": AnyValue(kvlist_value=KeyValueList()),
    }
    expected = {
        "text": "Zürich ☃",
        "empty": "",
        "true": "true",
        "false": "false",
        "zero": "0",
        "smallest": "-9223372036854775808",
        "largest": "9223372036854775807",
        "half": "0.5",
        "one": "1",
        "minus_zero": "-0",
        "nan": "NaN",
        "infinity": "Infinity",
        "minus_infinity": "-Infinity",
        "bytes": "AP8Q",
        "no_bytes": "",
        "unset": "",
        "array": '["a",9223372036854775807,null,[true]]',
        "no_array": "[]",
        "kvlist": '{"a":"AQ==","b":2,"n":"NaN"}',
        "no_kvlist": "{}",
    }
    attributes = [KeyValue(key=key, value=value) for key, value in values.items()]
    assert dict(stored(rig, transport, *attributes)) == expected


def test_a_key_without_a_value_is_kept(rig: Rig, transport: Transport) -> None:
    assert stored(rig, transport, KeyValue(key="bare")) == [("bare", "")]


def test_duplicate_keys_are_kept_in_order(rig: Rig, transport: Transport) -> None:
    twice = [KeyValue(key="k", value=AnyValue(string_value=text)) for text in ("first", "second")]
    assert stored(rig, transport, *twice) == [("k", "first"), ("k", "second")]


def test_ten_thousand_attributes_and_a_text_of_a_mebibyte(rig: Rig, transport: Transport) -> None:
    many = [KeyValue(key=f"k{number}", value=AnyValue(int_value=number)) for number in range(10_000)]
    long = KeyValue(key="long", value=AnyValue(string_value="x" * MIB))
    items = stored(rig, transport, *many, long)
    assert items[:10_000] == [(f"k{number}", str(number)) for number in range(10_000)]
    assert items[10_000] == ("long", "x" * MIB)


def nested(levels: int, *, as_json: bool) -> bytes:
    """Return a request of one span whose only attribute is so many kvlists inside each other."""
    if as_json:
        value = (
            '{"kvlistValue":{"values":[{"key":"k","value":' * levels + '{"stringValue":"x"}' + "}]}}" * levels
        )
        return (
            '{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"0102030405060708090a0b0c0d0e0f10",'
            f'"spanId":"0000000000000001","attributes":[{{"key":"deep","value":{value}}}]}}]}}]}}]}}'
        ).encode()
    # opentelemetry-proto's own classes cannot be built that deep.
    inner = message_class("AnyValue")(string_value="x").SerializeToString()
    for _ in range(levels):
        pairs = message_class("KeyValueList")()
        pairs.values.add(key="k").value.ParseFromString(inner)
        inner = message_class("AnyValue")(kvlist_value=pairs.SerializeToString()).SerializeToString()
    data = message_class("TracesData")()
    deep = data.resources.add().scopes.add().records.add(trace_id=TRACE_ID, span_id=b"\x01" * 8)
    deep.attributes.add(key="deep").value.ParseFromString(inner)
    body: bytes = data.SerializeToString()
    return body


def test_deep_nesting_is_cut_and_counted(rig: Rig, transport: Transport) -> None:
    body = nested(200, as_json=transport == OverHttp(json=True))
    assert transport.send_raw(rig, Signal.TRACES, body).partial is None
    ((_, text),) = rig.rows()[0]["SpanAttributes"]
    inner = json.loads(text)
    for _ in range(32):
        inner = inner["k"]
    assert inner == TOO_DEEP
    assert rig.notes == {"too_deep": 1, "zero_time": 1}


def test_a_depth_bomb_is_answered(rig: Rig, transport: Transport) -> None:
    as_json = transport == OverHttp(json=True)
    outcome = transport.send_raw(rig, Signal.TRACES, nested(3000, as_json=as_json))
    assert outcome.kind == ("malformed" if as_json else "ok")


def test_odd_times_are_stored_safely(rig: Rig, transport: Transport) -> None:
    request = traces(3)
    backwards, unstarted, future = spans_of(request)
    backwards.end_time_unix_nano = NOW_NS - 1
    unstarted.start_time_unix_nano = 0
    future.start_time_unix_nano = 2**64 - 1
    future.end_time_unix_nano = 2**64 - 1
    assert transport.send(rig, Signal.TRACES, request).partial is None
    rows = rig.rows()
    assert [row["Timestamp"].value for row in rows] == [NOW_NS, NOW_NS + 5_000_000, NOW_NS]
    assert [row["Duration"] for row in rows] == [0, 0, 0]
    assert rig.notes == {"negative_duration": 1, "zero_time": 1, "future_time": 1}


def test_the_same_span_sent_again_has_the_same_identity(rig: Rig, transport: Transport) -> None:
    for _ in range(2):
        transport.send(rig, Signal.TRACES, traces(2))
        transport.send(rig, Signal.LOGS, logs(2))
    identities = [decoded.batch.identity.to_pylist() for decoded in rig.taken if decoded.batch]
    assert identities[:2] == identities[2:]
    assert len({*identities[0], *identities[1]}) == 4


def test_log_records_need_no_ids(rig: Rig, transport: Transport) -> None:
    request = logs(2)
    request.resource_logs[0].scope_logs[0].log_records[1].trace_id = b"\x01" * 3
    partial = transport.send(rig, Signal.LOGS, request).partial
    assert partial.rejected_log_records == 1
    (row,) = rig.rows()
    assert (row["TraceId"], row["SpanId"], row["Body"], row["EventName"]) == ("", "", "tick 0", "tick")


def test_metrics_are_accepted_and_counted(rig: Rig, transport: Transport) -> None:
    assert transport.send(rig, Signal.METRICS, metrics(7)).partial is None
    assert rig.taken[0].batch is None
    assert rig.taken[0].accepted == 7


def test_back_pressure_says_when_to_try_again(rig: Rig, transport: Transport) -> None:
    rig.fault = Unavailable("the spool is full", retry_after=3.0)
    outcome = transport.send(rig, Signal.TRACES, traces())
    assert (outcome.kind, outcome.message, outcome.retry_after_s) == ("unavailable", "the spool is full", 3.0)


@pytest.mark.parametrize(
    ("fault", "kind"),
    [(Rejected("cannot be"), "malformed"), (TooLarge("too big"), "too_large"), (KeyError("bug"), "internal")],
)
def test_what_will_fail_again_is_not_to_be_tried_again(
    rig: Rig, transport: Transport, fault: Exception, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    rig.fault = fault
    outcome = transport.send(rig, Signal.TRACES, traces())
    assert (outcome.kind, outcome.retry_after_s) == (kind, None)
    assert ("bug" in outcome.message) is False
    assert bool(caplog.records) is (kind == "internal")


def test_a_message_to_the_client_is_cut_to_a_kibibyte(rig: Rig, transport: Transport) -> None:
    rig.fault = Rejected("ä" * 5000)
    assert len(transport.send(rig, Signal.TRACES, traces()).message.encode()) <= 1024


def test_a_request_over_the_limit_is_refused_for_good(rig: Rig, transport: Transport) -> None:
    request = traces()
    spans_of(request)[0].attributes.add(key="k").value.string_value = "x" * (5 * MIB)
    outcome = transport.send(rig, Signal.TRACES, request)
    assert (outcome.kind, outcome.retry_after_s) == ("too_large", None)
    assert transport.send(rig, Signal.TRACES, traces()).partial is None


def test_bytes_that_are_no_request_are_malformed(rig: Rig, transport: Transport) -> None:
    whole = traces(3).SerializeToString()
    for body in (b"\xff\xff\xff", whole[:-3], b"{", b"[]"):
        outcome = transport.send_raw(rig, Signal.TRACES, body)
        assert (outcome.kind, outcome.retry_after_s) == ("malformed", None)
    assert rig.rows() == []


def test_tokens_let_in_or_keep_out(rig: Rig, transport: Transport) -> None:
    rig.tokens = {"sender": True, "reader": False}

    def kind(token: str | None) -> str:
        outcome: Outcome = transport.send(rig, Signal.TRACES, traces(), token)
        return outcome.kind

    assert [kind(token) for token in (None, "stranger", "reader", "sender")] == [
        "unauthenticated",
        "unauthenticated",
        "forbidden",
        "ok",
    ]
    assert len(rig.rows()) == 1


def test_many_senders_at_once_lose_nothing(rig: Rig, transport: Transport) -> None:
    rig.delay_s = 0.01

    def send(number: int) -> bool:
        request = traces(0)
        spans_of(request).extend(span(number * 10 + turn) for turn in range(10))
        return transport.send(rig, Signal.TRACES, request).partial is None

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(send, range(48)))
    assert len({row["SpanId"] for row in rig.rows()}) == 480
