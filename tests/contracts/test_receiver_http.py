"""What OTLP/HTTP demands beyond what all transports share: heads, encodings, JSON rules, hostile clients."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import time
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
import zstandard
from google.rpc import code_pb2
from google.rpc.error_details_pb2 import BadRequest
from google.rpc.status_pb2 import Status
from memory import peak_kib, reset_peak_kib
from otlp_requests import NOW_NS, Loose, as_json, traces
from receiver_rig import Answer, Rig, on, parsed, post, receivers

from collector.receivers.limits import MIB, Limits

PROTOBUF = {"Content-Type": "application/x-protobuf"}
JSON = {"Content-Type": "application/json"}
HEAD = b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\n"
TRACE_ID = "0102030405060708090a0b0c0d0e0f10"


@pytest.fixture(scope="module")
def running() -> Iterator[Rig]:
    limits = Limits(
        max_body_bytes=4 * MIB,
        max_compressed_bytes=4 * MIB,
        max_in_flight_bytes=12 * MIB,
        max_drain_bytes=16 * MIB,
        read_timeout_s=0.5,
    )
    with receivers(limits) as rig:
        yield rig


@pytest.fixture
def rig(running: Rig) -> Rig:
    running.reset()
    return running


def status_of(answer: Answer) -> Status:
    return parsed(answer.body, Status(), answer.headers["content-type"])


def body() -> bytes:
    return traces().SerializeToString()


def raw_deflate(data: bytes) -> bytes:
    stream = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return stream.compress(data) + stream.flush()


# --- heads


@pytest.mark.parametrize(
    "content_type",
    ["application/x-protobuf", "application/x-protobuf; charset=utf-8", "APPLICATION/X-PROTOBUF"],
)
def test_content_types_of_protobuf(rig: Rig, content_type: str) -> None:
    assert post(rig, "/v1/traces", body(), {"Content-Type": content_type}).code == 200


@pytest.mark.parametrize(
    "content_type", ["application/json", "application/json;charset=UTF-8", "Application/JSON"]
)
def test_content_types_of_json(rig: Rig, content_type: str) -> None:
    answer = post(rig, "/v1/traces", as_json(traces()), {"Content-Type": content_type})
    assert (answer.code, answer.headers["content-type"], answer.body) == (200, "application/json", b"{}")


@pytest.mark.parametrize(
    "headers", [{}, {"Content-Type": "text/plain"}, {"Content-Type": "application/protobuf2"}]
)
def test_other_content_types_are_unsupported(rig: Rig, headers: dict[str, str]) -> None:
    answer = post(rig, "/v1/traces", body(), headers)
    assert answer.code == 415
    assert status_of(answer).code == code_pb2.INVALID_ARGUMENT


@pytest.mark.parametrize("method", ["GET", "PUT", "OPTIONS", "DELETE"])
def test_only_post_is_allowed(rig: Rig, method: str) -> None:
    answer = post(rig, "/v1/traces", None, {}, method)
    assert (answer.code, answer.headers["allow"]) == (405, "POST")
    assert status_of(answer).code == code_pb2.UNIMPLEMENTED


@pytest.mark.parametrize("path", ["/v1/traces", "/v1/traces/", "/otlp/v1/traces", "/a/b/v1/traces/?x=1"])
def test_paths_with_any_prefix(rig: Rig, path: str) -> None:
    assert post(rig, path, body(), PROTOBUF).code == 200


@pytest.mark.parametrize("path", ["/", "/v1/trace", "/v1/traces/x", "/v1/profiles", "/xv1/traces"])
def test_other_paths_are_not_found(rig: Rig, path: str) -> None:
    answer = post(rig, path, as_json(traces()), JSON)
    assert (answer.code, answer.headers["content-type"]) == (404, "application/json")
    assert status_of(answer).code == code_pb2.NOT_FOUND


# --- content encodings


@pytest.mark.parametrize(
    ("encoding", "compressed"),
    [
        ("gzip", gzip.compress(body())),
        ("GZip", gzip.compress(body())),
        ("gzip", gzip.compress(body()[:20]) + gzip.compress(body()[20:])),
        ("deflate", zlib.compress(body())),
        ("deflate", raw_deflate(body())),
        ("zstd", zstandard.compress(body())),
        ("zstd", zstandard.compress(body()[:9]) + zstandard.compress(body()[9:])),
        ("identity", body()),
    ],
    ids=["gzip", "upper case", "members", "zlib", "raw deflate", "zstd", "frames", "identity"],
)
def test_compressed_bodies(rig: Rig, encoding: str, compressed: bytes) -> None:
    answer = post(rig, "/v1/traces", compressed, {**PROTOBUF, "Content-Encoding": encoding})
    assert answer.code == 200
    assert len(rig.rows()) == 1


@pytest.mark.parametrize(
    ("encoding", "compressed"),
    [
        ("gzip", body()),
        ("gzip", gzip.compress(body())[:-9]),
        ("gzip", gzip.compress(body()) + b"rubbish"),
        ("gzip", b""),
        ("deflate", zlib.compress(body())[:-1]),
        ("deflate", zlib.compress(body()) + b"rubbish"),
        ("zstd", body()),
        ("zstd", zstandard.compress(body())[:-3]),
        ("zstd", zstandard.compress(body()) + b"rubbish"),
    ],
)
def test_damaged_bodies_are_malformed(rig: Rig, encoding: str, compressed: bytes) -> None:
    answer = post(rig, "/v1/traces", compressed, {**PROTOBUF, "Content-Encoding": encoding})
    assert answer.code == 400
    assert status_of(answer).code == code_pb2.INVALID_ARGUMENT


@pytest.mark.parametrize("encoding", ["br", "snappy", "gzip, gzip"])
def test_unknown_encodings_are_unsupported(rig: Rig, encoding: str) -> None:
    assert post(rig, "/v1/traces", body(), {**PROTOBUF, "Content-Encoding": encoding}).code == 415


def test_chunked_bodies(rig: Rig) -> None:
    whole = body()
    pieces = iter([whole[:10], whole[10:11], whole[11:]])
    assert post(rig, "/v1/traces", pieces, PROTOBUF).code == 200
    assert len(rig.rows()) == 1


# --- hostile clients


def bombs() -> dict[str, bytes]:
    zeros = bytes(64 * MIB)
    return {
        "gzip": gzip.compress(zeros, 1),
        "deflate": zlib.compress(zeros, 1),
        "zstd": zstandard.compress(zeros),
    }


def test_a_bomb_is_refused_in_bounded_memory() -> None:
    limit = 16 * MIB
    prepared = bombs()
    with receivers(Limits(max_body_bytes=limit)) as rig:
        assert post(rig, "/v1/traces", body(), PROTOBUF).code == 200
        before = reset_peak_kib()
        for encoding, bomb in prepared.items():
            answer = post(rig, "/v1/traces", bomb, {**PROTOBUF, "Content-Encoding": encoding})
            assert answer.code == 413, encoding
            assert status_of(answer).code == code_pb2.RESOURCE_EXHAUSTED
        assert peak_kib() - before < 2 * limit / 1024


def test_the_connection_can_be_used_after_errors(rig: Rig) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", rig.http_port, timeout=20)
    for data, headers, code in (
        (bytes(5 * MIB), PROTOBUF, 413),
        (b"\xff", PROTOBUF, 400),
        (body(), {"Content-Type": "text/plain"}, 415),
        (iter([bytes(MIB)] * 6), PROTOBUF, 413),
        (body(), PROTOBUF, 200),
    ):
        first = connection.sock
        assert on(connection, "/v1/traces", data, headers).code == code
        assert first is None or connection.sock is first
    connection.close()


def test_a_body_too_long_to_be_drained_closes_the_connection(rig: Rig) -> None:
    with socket.create_connection(("127.0.0.1", rig.http_port), timeout=10) as client:
        client.sendall(HEAD + b"Content-Length: 99999999999\r\n\r\n")
        answer = client.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"connection: close" in answer.lower()


def test_a_slow_body_is_given_up(rig: Rig) -> None:
    with socket.create_connection(("127.0.0.1", rig.http_port), timeout=10) as client:
        client.sendall(HEAD + b"Content-Length: 100\r\n\r\n")
        for _ in range(3):
            client.sendall(b"x")
            time.sleep(0.05)
        answer = client.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"connection: close" in answer.lower()


def test_a_client_that_goes_away_leaves_nothing_behind(rig: Rig) -> None:
    with socket.create_connection(("127.0.0.1", rig.http_port), timeout=10) as client:
        client.sendall(HEAD + b"Content-Length: 100\r\n\r\nx")
    assert post(rig, "/v1/traces", body(), PROTOBUF).code == 200
    assert rig.in_flight is not None
    for _ in range(100):
        if rig.in_flight.held == 0:
            break
        time.sleep(0.01)
    assert rig.in_flight.held == 0


def test_too_much_in_flight_is_back_pressure(rig: Rig) -> None:
    assert rig.in_flight is not None
    with rig.in_flight.request() as other:
        other.grow_to(12 * MIB - 10)
        answer = post(rig, "/v1/traces", body(), PROTOBUF)
    assert (answer.code, answer.headers["retry-after"]) == (503, "1")
    assert status_of(answer).code == code_pb2.UNAVAILABLE
    assert post(rig, "/v1/traces", body(), PROTOBUF).code == 200


def test_a_challenge_goes_with_401(rig: Rig) -> None:
    rig.tokens = {}
    answer = post(rig, "/v1/traces", body(), PROTOBUF)
    assert (answer.code, answer.headers["www-authenticate"]) == (401, 'Bearer realm="otlp"')


def test_bad_data_has_details(rig: Rig) -> None:
    for data, headers in ((b"\xff", PROTOBUF), (b"{", JSON)):
        answer = post(rig, "/v1/traces", data, headers)
        assert answer.code == 400
        detail = BadRequest()
        assert status_of(answer).details[0].Unpack(detail)
        assert detail.field_violations[0].description


# --- the rules of OTLP/JSON


def send_json(rig: Rig, *spans: Loose, **above: Loose) -> Loose:
    request = {"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}], **above}]}
    answer = post(rig, "/v1/traces", json.dumps(request), JSON)
    assert answer.code == 200, answer
    return json.loads(answer.body)


def json_span(**fields: Loose) -> dict[str, Any]:
    return {"traceId": TRACE_ID, "spanId": "00000000000000ab", "name": "n", **fields}


def test_ids_are_hex_of_either_case(rig: Rig) -> None:
    assert send_json(rig, json_span(), json_span(traceId=TRACE_ID.upper(), spanId="00000000000000AB")) == {}
    first, second = rig.rows()
    assert (
        (first["TraceId"], first["SpanId"])
        == (second["TraceId"], second["SpanId"])
        == (TRACE_ID, "00000000000000ab")
    )


def test_ids_in_base64_or_of_a_wrong_length_are_invalid(rig: Rig) -> None:
    for field, reason in (("traceId", "invalid_trace_id"), ("spanId", "invalid_span_id")):
        for value in ("AQIDBAUGBwgJCgsMDQ4PEA==", "abc", "00", 5):
            told = send_json(rig, json_span(**{field: value}), json_span())["partialSuccess"]
            assert told["rejectedSpans"] == "1"
            assert reason in told["errorMessage"]


def test_integers_are_strings_or_numbers(rig: Rig) -> None:
    attributes = [
        {"key": "text", "value": {"intValue": "-9223372036854775808"}},
        {"key": "number", "value": {"intValue": 9223372036854775807}},
        {"key": "whole", "value": {"intValue": 5.0}},
    ]
    assert (
        send_json(
            rig, json_span(startTimeUnixNano=str(NOW_NS), endTimeUnixNano=NOW_NS + 7, attributes=attributes)
        )
        == {}
    )
    row = rig.rows()[0]
    assert (row["Timestamp"].value, row["Duration"]) == (NOW_NS, 7)
    assert [value for _, value in row["SpanAttributes"]] == [
        "-9223372036854775808",
        "9223372036854775807",
        "5",
    ]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"kind": "SPAN_KIND_SERVER"}, "invalid_enum"),
        ({"status": {"code": "STATUS_CODE_ERROR"}}, "invalid_enum"),
        ({"startTimeUnixNano": "soon"}, "invalid_field"),
        ({"startTimeUnixNano": "-1"}, "invalid_field"),
        ({"name": 5}, "invalid_field"),
        ({"attributes": {}}, "malformed"),
        ({"attributes": [5]}, "malformed"),
        ({"attributes": [{"key": "k", "value": {"intValue": "9223372036854775808"}}]}, "invalid_field"),
        ({"attributes": [{"key": "k", "value": {"bytesValue": "?"}}]}, "invalid_field"),
        ({"attributes": [{"key": "k", "value": {"doubleValue": "inf"}}]}, "invalid_field"),
        ({"attributes": [{"key": "k", "value": {"boolValue": "true"}}]}, "invalid_field"),
    ],
)
def test_a_span_that_breaks_a_rule_is_rejected_alone(rig: Rig, fields: dict[str, Any], reason: str) -> None:
    told = send_json(rig, json_span(), json_span(**fields))["partialSuccess"]
    assert told["rejectedSpans"] == "1"
    assert reason in told["errorMessage"]
    assert len(rig.rows()) == 1


def test_a_span_that_is_no_object_is_rejected_alone(rig: Rig) -> None:
    assert send_json(rig, json_span(), 5, None, [])["partialSuccess"]["rejectedSpans"] == "3"


def test_a_bad_resource_rejects_the_spans_under_it(rig: Rig) -> None:
    told = send_json(rig, json_span(), json_span(), resource={"attributes": [5]})
    assert told["partialSuccess"]["rejectedSpans"] == "2"


def test_snake_case_is_not_honoured(rig: Rig) -> None:
    assert send_json(rig, json_span(trace_state="x=1", start_time_unix_nano="5")) == {}
    assert rig.rows()[0]["TraceState"] == ""
    assert rig.rows()[0]["Timestamp"].value == NOW_NS
    assert send_json(rig, {"trace_id": TRACE_ID, "span_id": "00000000000000ab"})["partialSuccess"]


def test_unknown_fields_are_ignored_at_every_level(rig: Rig) -> None:
    extra: Loose = {"novelty": {"deep": [1, {"x": None}]}}
    value = {"stringValue": "v", **extra}
    attribute = {"key": "k", "value": value, **extra}
    request = {
        "resourceSpans": [
            {
                "resource": {"attributes": [attribute], "entityRefs": [1], **extra},
                "scopeSpans": [
                    {
                        "scope": {"name": "s", **extra},
                        "spans": [
                            json_span(
                                attributes=[attribute],
                                events=[{"name": "e", "attributes": [attribute], **extra}],
                                links=[{"traceId": TRACE_ID, "spanId": "00000000000000ab", **extra}],
                                status={"code": 2, **extra},
                                flags=1025,
                                **extra,
                            )
                        ],
                        **extra,
                    }
                ],
                **extra,
            }
        ],
        **extra,
    }
    answer = post(rig, "/v1/traces", json.dumps(request), JSON)
    assert (answer.code, answer.body) == (200, b"{}")
    row = rig.rows()[0]
    assert row["SpanAttributes"] == row["ResourceAttributes"] == row["Events.Attributes"][0] == [("k", "v")]
    assert row["StatusCode"] == "Error"


def test_null_is_an_absent_field(rig: Rig) -> None:
    nothing = dict.fromkeys(
        ("parentSpanId", "traceState", "kind", "attributes", "events", "links", "status", "startTimeUnixNano")
    )
    assert send_json(rig, json_span(**nothing), resource=None, schemaUrl=None) == {}
    attributes = [
        {"key": "k", "value": None},
        {"key": "l", "value": {"stringValue": None}},
        {"key": "m", "value": {}},
    ]
    assert send_json(rig, json_span(attributes=attributes)) == {}
    assert rig.rows()[1]["SpanAttributes"] == [("k", ""), ("l", ""), ("m", "")]
    assert post(rig, "/v1/traces", '{"resourceSpans": null}', JSON).body == b"{}"


def test_half_a_surrogate_pair_does_not_lose_the_request(rig: Rig) -> None:
    cut = json_span(name="cut \ud83d", attributes=[{"key": "k", "value": {"stringValue": "\ud83d"}}])
    assert send_json(rig, cut, json_span()) == {}
    assert [row["SpanName"] for row in rig.rows()] == ["cut \ufffd", "n"]


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "5", "null", '{"resourceSpans": 5}', '{"resourceSpans": [5]}', '{"a": NaN}'),
        *('{"a": "\\ud83d", b}', "[" * 100_000, '{"a": "\\ud83d", "b": ' + "[" * 100_000, b'{"\xff": 1}'),
    ],
)
def test_what_is_no_otlp_json_is_malformed(rig: Rig, text: Loose) -> None:
    answer = post(rig, "/v1/traces", text, JSON)
    assert (answer.code, answer.headers["content-type"]) == (400, "application/json")
    assert status_of(answer).code == code_pb2.INVALID_ARGUMENT


@pytest.mark.parametrize("path", ["/v1/logs", "/v1/metrics"])
def test_an_empty_object_is_an_empty_request(rig: Rig, path: str) -> None:
    assert post(rig, path, "{}", JSON).body == b"{}"
