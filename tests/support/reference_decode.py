"""Decoding as the specification reads, one object at a time: what the columnar decoder must agree with."""

from __future__ import annotations

import base64
import json
import math
from decimal import Decimal
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from otlp_requests import Loose

KINDS = ("Unspecified", "Internal", "Server", "Client", "Producer", "Consumer")
STATUS = ("Unset", "Ok", "Error")


def span_rows(body: bytes, now_ns: int) -> list[dict[str, Any]]:
    """Return the good spans of a protobuf request as rows of SPAN_SCHEMA; times as integers."""
    rows = []
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        for scope in resource.scope_spans:
            head = _head(resource, scope)
            rows += [{**head, **_span(span, now_ns)} for span in scope.spans if _is_good(span)]
    return rows


def log_rows(body: bytes, now_ns: int) -> list[dict[str, Any]]:
    """Return the good records of a protobuf request as rows of LOG_SCHEMA; times as integers."""
    rows = []
    for resource in ExportLogsServiceRequest.FromString(body).resource_logs:
        for scope in resource.scope_logs:
            head = {
                **_head(resource, scope),
                "ResourceSchemaUrl": resource.schema_url,
                "ScopeSchemaUrl": scope.schema_url,
                "ScopeAttributes": attributes(scope.scope.attributes),
            }
            rows += [{**head, **_log(record, now_ns)} for record in scope.log_records]
    return rows


def _is_good(span: Loose) -> bool:
    return (
        len(span.trace_id) == 16
        and any(span.trace_id)
        and len(span.span_id) == 8
        and any(span.span_id)
        and len(span.parent_span_id) in (0, 8)
    )


def _head(resource: Loose, scope: Loose) -> dict[str, Any]:
    items = attributes(resource.resource.attributes)
    return {
        "ServiceName": next((text for key, text in items if key == "service.name"), ""),
        "ResourceAttributes": items,
        "ScopeName": scope.scope.name,
        "ScopeVersion": scope.scope.version,
    }


def _span(span: Loose, now_ns: int) -> dict[str, Any]:
    start, end = span.start_time_unix_nano, span.end_time_unix_nano
    return {
        "Timestamp": start or end or now_ns,
        "TraceId": span.trace_id.hex(),
        "SpanId": span.span_id.hex(),
        "ParentSpanId": span.parent_span_id.hex() if any(span.parent_span_id) else "",
        "TraceState": span.trace_state,
        "SpanName": span.name,
        "SpanKind": KINDS[span.kind] if 0 <= span.kind < len(KINDS) else KINDS[0],
        "SpanAttributes": attributes(span.attributes),
        "Duration": max(end - start, 0) if start else 0,
        "StatusCode": STATUS[span.status.code] if 0 <= span.status.code < len(STATUS) else STATUS[0],
        "StatusMessage": span.status.message,
        "Events.Timestamp": [event.time_unix_nano for event in span.events],
        "Events.Name": [event.name for event in span.events],
        "Events.Attributes": [attributes(event.attributes) for event in span.events],
        "Links.TraceId": [link.trace_id.hex() for link in span.links],
        "Links.SpanId": [link.span_id.hex() for link in span.links],
        "Links.TraceState": [link.trace_state for link in span.links],
        "Links.Attributes": [attributes(link.attributes) for link in span.links],
    }


def _log(record: Loose, now_ns: int) -> dict[str, Any]:
    return {
        "Timestamp": record.time_unix_nano or record.observed_time_unix_nano or now_ns,
        "TraceId": record.trace_id.hex() if any(record.trace_id) else "",
        "SpanId": record.span_id.hex() if any(record.span_id) else "",
        "TraceFlags": record.flags & 0xFF,
        "SeverityText": record.severity_text,
        "SeverityNumber": record.severity_number if 0 <= record.severity_number <= 24 else 0,
        "Body": text(record.body),
        "LogAttributes": attributes(record.attributes),
        "EventName": record.event_name,
    }


def attributes(pairs: Loose) -> list[tuple[str, str]]:
    """Return key and text of each pair, in order."""
    return [(pair.key, text(pair.value)) for pair in pairs]


def text(value: Loose) -> str:
    """Return an AnyValue as the collector's AsString writes it (numbers in the common range)."""
    arm = value.WhichOneof("value")
    if arm is None:
        return ""
    content = _plain(value)
    if arm in ("string_value", "bytes_value"):
        return str(content)
    if isinstance(content, str):
        return content
    if isinstance(content, float) and abs(content) >= 1e-6:
        return format(Decimal(repr(content)), "f")
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _plain(value: Loose) -> Loose:
    arm = value.WhichOneof("value")
    content: Loose = getattr(value, arm) if arm else None
    if arm == "array_value":
        return [_plain(item) for item in content.values]
    if arm == "kvlist_value":
        return {pair.key: _plain(pair.value) for pair in content.values}
    if arm == "bytes_value":
        return base64.b64encode(content).decode()
    return _number(content) if arm == "double_value" else content


def _number(content: float) -> float | str:
    if not math.isfinite(content):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(content, "NaN")
    if content.is_integer() and abs(content) < 2**53 and str(content) != "-0.0":
        return int(content)
    return content
