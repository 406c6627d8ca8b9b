"""The other way to decode, kept to be measured against: upb objects, a loop, Arrow at the end.

It does what `collector.decode` does for good spans without redaction, identity or marking, so it flatters
itself.
"""

from __future__ import annotations

import base64
from typing import Any, TypeAlias

import orjson
import pyarrow as pa
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from collector.batch import ATTRIBUTES, SPAN_SCHEMA

Loose: TypeAlias = Any  # a generated message

_KINDS = ("Unspecified", "Internal", "Server", "Client", "Producer", "Consumer")
_STATUS = ("Unset", "Ok", "Error")


def decode_by_loop(body: bytes) -> pa.RecordBatch:
    """Return the spans of a request as columns of `SPAN_SCHEMA`."""
    rows: dict[str, list[Any]] = {name: [] for name in SPAN_SCHEMA.names}
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        resource_attributes = _attributes(resource.resource.attributes)
        service = next((value for key, value in resource_attributes if key == "service.name"), "")
        for scope in resource.scope_spans:
            for span in scope.spans:
                rows["Timestamp"].append(span.start_time_unix_nano)
                rows["TraceId"].append(span.trace_id.hex())
                rows["SpanId"].append(span.span_id.hex())
                rows["ParentSpanId"].append(span.parent_span_id.hex())
                rows["TraceState"].append(span.trace_state)
                rows["SpanName"].append(span.name)
                rows["SpanKind"].append(_KINDS[span.kind])
                rows["ServiceName"].append(service)
                rows["ResourceAttributes"].append(resource_attributes)
                rows["ScopeName"].append(scope.scope.name)
                rows["ScopeVersion"].append(scope.scope.version)
                rows["SpanAttributes"].append(_attributes(span.attributes))
                rows["Duration"].append(max(span.end_time_unix_nano - span.start_time_unix_nano, 0))
                rows["StatusCode"].append(_STATUS[span.status.code])
                rows["StatusMessage"].append(span.status.message)
                rows["Events.Timestamp"].append([event.time_unix_nano for event in span.events])
                rows["Events.Name"].append([event.name for event in span.events])
                rows["Events.Attributes"].append([_attributes(event.attributes) for event in span.events])
                rows["Links.TraceId"].append([link.trace_id.hex() for link in span.links])
                rows["Links.SpanId"].append([link.span_id.hex() for link in span.links])
                rows["Links.TraceState"].append([link.trace_state for link in span.links])
                rows["Links.Attributes"].append([_attributes(link.attributes) for link in span.links])
    return pa.RecordBatch.from_arrays(
        [_column(field, rows[field.name]) for field in SPAN_SCHEMA], schema=SPAN_SCHEMA
    )


def _column(field: Any, values: list[Any]) -> Any:  # noqa: ANN401 - of whatever type the field has
    if field.type == ATTRIBUTES:
        offsets = [0]
        for items in values:
            offsets.append(offsets[-1] + len(items))
        keys = pa.array([key for items in values for key, _ in items], pa.string())
        texts = pa.array([text for items in values for _, text in items], pa.string())
        build: Any = pa.MapArray.from_arrays  # its hints ask for 64-bit offsets, maps have 32-bit ones
        return build(pa.array(offsets, pa.int32()), keys, texts, type=ATTRIBUTES)
    return pa.array(values, field.type)


def _attributes(pairs: Loose) -> list[tuple[str, str]]:
    return [(pair.key, _text(pair.value)) for pair in pairs]


def _text(value: Loose) -> str:
    arm = value.WhichOneof("value")
    if arm == "string_value":
        text: str = value.string_value
        return text
    if arm is None:
        return ""
    if arm == "bytes_value":
        return base64.b64encode(value.bytes_value).decode()
    return orjson.dumps(_plain(value)).decode()


def _plain(value: Loose) -> Loose:
    arm = value.WhichOneof("value")
    if arm == "array_value":
        return [_plain(item) for item in value.array_value.values]
    if arm == "kvlist_value":
        return {pair.key: _plain(pair.value) for pair in value.kvlist_value.values}
    return getattr(value, arm) if arm else None
