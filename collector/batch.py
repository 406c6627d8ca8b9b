"""Columns of a decoded request: exactly those of the collector's clickhouse exporter.

So a batch goes from the decoder to ClickHouse without becoming Python objects.

Attribute values are strings, as the exporter writes them: a string as it is; an int, double or bool as
JSON; bytes as base64; an array or kvlist as JSON. Ids are lower-case hex. Everything that reads steps
out of spans works on this form, so what is read live and what is read back from the store is the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa

ATTRIBUTES: Final = pa.map_(pa.string(), pa.string())
TIMESTAMP: Final = pa.timestamp("ns", tz="UTC")


class Signal(StrEnum):
    """What a request carries."""

    TRACES = "traces"
    LOGS = "logs"
    METRICS = "metrics"


_SPAN_FIELDS: Final[list[pa.Field[Any]]] = [
    pa.field("Timestamp", TIMESTAMP),
    pa.field("TraceId", pa.string()),
    pa.field("SpanId", pa.string()),
    pa.field("ParentSpanId", pa.string()),
    pa.field("TraceState", pa.string()),
    pa.field("SpanName", pa.string()),
    pa.field("SpanKind", pa.string()),  # Internal Server Client Producer Consumer Unspecified
    pa.field("ServiceName", pa.string()),
    pa.field("ResourceAttributes", ATTRIBUTES),
    pa.field("ScopeName", pa.string()),
    pa.field("ScopeVersion", pa.string()),
    pa.field("SpanAttributes", ATTRIBUTES),
    pa.field("Duration", pa.uint64()),  # ns
    pa.field("StatusCode", pa.string()),  # Unset Ok Error
    pa.field("StatusMessage", pa.string()),
    pa.field("Events.Timestamp", pa.list_(TIMESTAMP)),
    pa.field("Events.Name", pa.list_(pa.string())),
    pa.field("Events.Attributes", pa.list_(ATTRIBUTES)),
    pa.field("Links.TraceId", pa.list_(pa.string())),
    pa.field("Links.SpanId", pa.list_(pa.string())),
    pa.field("Links.TraceState", pa.list_(pa.string())),
    pa.field("Links.Attributes", pa.list_(ATTRIBUTES)),
]
SPAN_SCHEMA: Final = pa.schema(_SPAN_FIELDS)

_LOG_FIELDS: Final[list[pa.Field[Any]]] = [
    pa.field("Timestamp", TIMESTAMP),  # timeUnixNano, else observedTimeUnixNano
    pa.field("TraceId", pa.string()),
    pa.field("SpanId", pa.string()),
    pa.field("TraceFlags", pa.uint8()),
    pa.field("SeverityText", pa.string()),
    pa.field("SeverityNumber", pa.uint8()),
    pa.field("ServiceName", pa.string()),
    pa.field("Body", pa.string()),
    pa.field("ResourceSchemaUrl", pa.string()),
    pa.field("ResourceAttributes", ATTRIBUTES),
    pa.field("ScopeSchemaUrl", pa.string()),
    pa.field("ScopeName", pa.string()),
    pa.field("ScopeVersion", pa.string()),
    pa.field("ScopeAttributes", ATTRIBUTES),
    pa.field("LogAttributes", ATTRIBUTES),
    pa.field("EventName", pa.string()),
]
LOG_SCHEMA: Final = pa.schema(_LOG_FIELDS)


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of one signal (`columns` has SPAN_SCHEMA or LOG_SCHEMA), redacted.

    `identity` is one 64-bit integer a row (a NumPy uint64 array as an Arrow column): a hash of trace and
    span id for spans, of the whole record for logs. Equal identity means the same span sent again.
    `agent_rows` are the positions of the rows that a convention may have something to say about; all
    others are stored and cost nothing more.
    """

    signal: Signal
    columns: pa.RecordBatch
    identity: pa.UInt64Array
    agent_rows: pa.UInt32Array


@dataclass(frozen=True, slots=True)
class Decoded:
    """What became of one request: the good rows, and how many were rejected for which reason.

    `rejected` maps a reason (`invalid_trace_id`, `invalid_span_id`, `invalid_utf8`, ...) to a count of
    spans, log records or data points; `message` is what the client is told (1 KiB at most, empty when
    nothing was rejected). `accepted` counts rows of the request that were taken.
    """

    batch: Batch | None
    accepted: int
    rejected: dict[str, int]
    message: str = ""
