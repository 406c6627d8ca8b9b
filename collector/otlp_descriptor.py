"""OTLP messages under their own wire numbers, but without recursion: an array or kvlist value is `bytes`.

Two families of messages over one set of leaf messages:

* whole (`TracesData`, `LogsData`): what `ptars` turns into Arrow columns in one go; a span is a struct.
* envelope (`TracesEnvelope`, `LogsEnvelope`): the same wire, but each span or log record is `bytes`, so
  that one bad record can be told from its neighbours.

`AnyValue` recurses through `ArrayValue` and `KeyValueList`; columns cannot. Both stay bytes until something
asks for their text, level by level, with a bound on depth.

Source of the numbers: opentelemetry-proto 1.11 (trace, logs, metrics, common, resource).
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final, Protocol

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message
from ptars import HandlerPool

_PACKAGE: Final = "recloser.otlp"
_FILE: Final = "recloser/otlp.proto"
_Field = descriptor_pb2.FieldDescriptorProto

# One field: "name = number: type", where a type is a scalar, a message of this table, or either of
# them with a leading `*` (repeated) or `|` (an arm of the message's only oneof).
_ATTRIBUTES: Final = "*KeyValue"
_MESSAGES: Final[dict[str, dict[str, tuple[int, str]]]] = {
    "AnyValue": {
        "string_value": (1, "|string"),
        "bool_value": (2, "|bool"),
        "int_value": (3, "|int64"),
        "double_value": (4, "|double"),
        "array_value": (5, "|bytes"),
        "kvlist_value": (6, "|bytes"),
        "bytes_value": (7, "|bytes"),
    },
    "KeyValue": {"key": (1, "string"), "value": (2, "AnyValue")},
    "ArrayValue": {"values": (1, "*AnyValue")},
    "KeyValueList": {"values": (1, _ATTRIBUTES)},
    "Resource": {"attributes": (1, _ATTRIBUTES)},
    "Scope": {"name": (1, "string"), "version": (2, "string"), "attributes": (3, _ATTRIBUTES)},
    "Event": {"time_unix_nano": (1, "fixed64"), "name": (2, "string"), "attributes": (3, _ATTRIBUTES)},
    "Link": {
        "trace_id": (1, "bytes"),
        "span_id": (2, "bytes"),
        "trace_state": (3, "string"),
        "attributes": (4, _ATTRIBUTES),
    },
    "Status": {"message": (2, "string"), "code": (3, "int32")},
    "Span": {
        "trace_id": (1, "bytes"),
        "span_id": (2, "bytes"),
        "trace_state": (3, "string"),
        "parent_span_id": (4, "bytes"),
        "name": (5, "string"),
        "kind": (6, "int32"),
        "start_time_unix_nano": (7, "fixed64"),
        "end_time_unix_nano": (8, "fixed64"),
        "attributes": (9, _ATTRIBUTES),
        "events": (11, "*Event"),
        "links": (13, "*Link"),
        "status": (15, "Status"),
    },
    "LogRecord": {
        "time_unix_nano": (1, "fixed64"),
        "severity_number": (2, "int32"),
        "severity_text": (3, "string"),
        "body": (5, "AnyValue"),
        "attributes": (6, _ATTRIBUTES),
        "flags": (8, "fixed32"),
        "trace_id": (9, "bytes"),
        "span_id": (10, "bytes"),
        "observed_time_unix_nano": (11, "fixed64"),
        "event_name": (12, "string"),
    },
    "ScopeSpans": {"scope": (1, "Scope"), "records": (2, "*Span"), "schema_url": (3, "string")},
    "ResourceSpans": {"resource": (1, "Resource"), "scopes": (2, "*ScopeSpans"), "schema_url": (3, "string")},
    "TracesData": {"resources": (1, "*ResourceSpans")},
    "ScopeLogs": {"scope": (1, "Scope"), "records": (2, "*LogRecord"), "schema_url": (3, "string")},
    "ResourceLogs": {"resource": (1, "Resource"), "scopes": (2, "*ScopeLogs"), "schema_url": (3, "string")},
    "LogsData": {"resources": (1, "*ResourceLogs")},
    # Spans, log records and metrics sit under the same numbers, so one envelope fits all three signals.
    "ScopeEnvelope": {"scope": (1, "bytes"), "records": (2, "*bytes"), "schema_url": (3, "bytes")},
    "ResourceEnvelope": {
        "resource": (1, "bytes"),
        "scopes": (2, "*ScopeEnvelope"),
        "schema_url": (3, "bytes"),
    },
    "Envelope": {"resources": (1, "*ResourceEnvelope")},
    "Points": {"data_points": (1, "*bytes")},
    "Metric": {
        "gauge": (5, "Points"),
        "sum": (7, "Points"),
        "histogram": (9, "Points"),
        "exponential_histogram": (10, "Points"),
        "summary": (11, "Points"),
    },
}


class ColumnHandler(Protocol):
    """The part of a `ptars` handler that is used here."""

    def list_to_record_batch(self, payloads: list[bytes]) -> pa.RecordBatch:
        """Decode messages into rows; ValueError for the whole list when one of them is malformed."""
        ...


@cache
def columns_of(message: str) -> ColumnHandler:
    """Return the Arrow decoder of one message of the table above, by name."""
    handler: ColumnHandler = _handlers().get_for_message(
        _pool().FindMessageTypeByName(f"{_PACKAGE}.{message}")
    )
    return handler


@cache
def message_class(message: str) -> type[Any]:
    """Return the Python class of one message of the table above, by name.

    `Any`, because the classes exist only at run time.
    """
    found: type[Message] = message_factory.GetMessageClass(
        _pool().FindMessageTypeByName(f"{_PACKAGE}.{message}")
    )
    return found


@cache
def _handlers() -> HandlerPool:
    return HandlerPool([_pool().FindFileByName(_FILE)])


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    file = descriptor_pb2.FileDescriptorProto(name=_FILE, package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field_name, (number, spelled) in fields.items():
            message.field.append(_field(field_name, number, spelled))
        if any(field.HasField("oneof_index") for field in message.field):
            message.oneof_decl.add(name="value")
    # A pool of its own: the public one may hold opentelemetry-proto, and one process may hold both.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


def _field(name: str, number: int, spelled: str) -> descriptor_pb2.FieldDescriptorProto:
    kind = spelled.lstrip("*|")
    field = _Field(name=name, number=number, label=_Field.LABEL_OPTIONAL)
    if spelled.startswith("*"):
        field.label = _Field.LABEL_REPEATED
    if spelled.startswith("|"):
        field.oneof_index = 0
    if kind in _MESSAGES:
        field.type = _Field.TYPE_MESSAGE
        field.type_name = f".{_PACKAGE}.{kind}"
    else:
        field.type = _Field.Type.Value(f"TYPE_{kind.upper()}")
    return field
