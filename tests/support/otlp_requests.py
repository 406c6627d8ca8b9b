"""OTLP requests for tests: messages built with opentelemetry-proto, and their OTLP/JSON form."""

from __future__ import annotations

import base64
import json
from typing import Any, TypeAlias

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

Loose: TypeAlias = Any
"""What mypy is told nothing about: fields of generated messages, JSON values, stubs."""

NOW_NS = 1_790_000_000_000_000_000
TRACE_ID = bytes(range(1, 17))
_IDS = ("traceId", "spanId", "parentSpanId")


def traces(count: int = 1) -> ExportTraceServiceRequest:
    """Return a request of good spans in one resource and scope."""
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    resource.resource.attributes.add(key="service.name").value.string_value = "travel-desk"
    scope = resource.scope_spans.add()
    scope.scope.name = "travel"
    for number in range(count):
        scope.spans.append(span(number))
    return request


def span(number: int = 0) -> Span:
    """Return a good span; `number` makes its id."""
    return Span(
        trace_id=TRACE_ID,
        span_id=(number + 1).to_bytes(8, "big"),
        name="lookup",
        kind=Span.SPAN_KIND_CLIENT,
        start_time_unix_nano=NOW_NS,
        end_time_unix_nano=NOW_NS + 5_000_000,
    )


def spans_of(request: ExportTraceServiceRequest) -> Loose:
    """Return the spans of the request's first scope, to change them."""
    return request.resource_spans[0].scope_spans[0].spans


def logs(count: int = 1) -> ExportLogsServiceRequest:
    """Return a request of log records without ids."""
    request = ExportLogsServiceRequest()
    scope = request.resource_logs.add().scope_logs.add()
    for number in range(count):
        record = scope.log_records.add(time_unix_nano=NOW_NS + number, event_name="tick")
        record.body.string_value = f"tick {number}"
    return request


def metrics(points: int) -> ExportMetricsServiceRequest:
    """Return a request with one gauge of so many points."""
    request = ExportMetricsServiceRequest()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name="queue")
    for number in range(points):
        metric.gauge.data_points.add(time_unix_nano=NOW_NS).as_int = number
    return request


def as_json(request: Message) -> bytes:
    """Return the request as OTLP/JSON: ids in hex, enums as integers, otherwise as proto3 JSON."""
    parsed = MessageToDict(request, use_integers_for_enums=True)
    _hex_ids(parsed)
    return json.dumps(parsed).encode()


def _hex_ids(parsed: Loose) -> None:
    if isinstance(parsed, dict):
        for key, value in parsed.items():
            if key in _IDS and isinstance(value, str):
                parsed[key] = base64.b64decode(value).hex()
            else:
                _hex_ids(value)
    elif isinstance(parsed, list):
        for item in parsed:
            _hex_ids(item)
