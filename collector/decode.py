"""OTLP request bodies in, columns out: one pass from protobuf bytes to Arrow, no object for a span.

`ptars` turns the whole request into nested columns; what follows flattens them with offsets, words the
attribute values, broadcasts resource and scope, redacts, and marks which rows an agent may have sent.
Why this way and what it costs: `docs/decisions/0001-columnar-decode-with-ptars.md`.

What is repaired rather than refused is counted through `note`:

======================  ==============================================================================
`future_time`           a time past 2149, where ClickHouse's dates end: now is taken
`zero_time`             a span without a start, a log record without any time: end, else now
`negative_duration`     an end before the start: duration 0
`too_many_days`         more than 90 calendar days in one request: the oldest move to the 90th
`too_deep`              arrays and kvlists nested deeper than 32
`malformed_value`       an array or kvlist that is no valid message
======================  ==============================================================================

What is refused, alone and counted by reason: `invalid_trace_id`, `invalid_span_id`,
`invalid_parent_span_id` (ids of a wrong length, or zero; a parent may be empty or zero), `invalid_utf8`,
`malformed`, and from JSON also `invalid_enum` and `invalid_field`. Duplicate attribute keys are kept in
order: readers of a map see the first. An AnyValue with several arms on the wire, which no encoder writes,
reads as its string, int, bool, double, array, kvlist or bytes arm, the first that is there.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import DecodeError

from collector.agent_markers import is_agent_key, is_agent_name, is_agent_scope, is_agent_service
from collector.arrow_types import Binaries, Column, Lists, Message, Strings, Structs, column
from collector.batch import LOG_SCHEMA, SPAN_SCHEMA, TIMESTAMP, Batch, Decoded, Signal
from collector.consumer import Rejected, TooLarge
from collector.otlp_columns import (
    Attributes,
    Bools,
    Int64s,
    Uint64s,
    all_zero,
    any_of_row,
    fixed_words,
    hex_text,
    is_in,
    labels,
    lengths,
    mixed,
    numbers,
    or_empty,
    rows_of,
)
from collector.otlp_descriptor import columns_of, message_class
from collector.otlp_json import transcode
from collector.otlp_values import Note, texts
from collector.redact import Field, Redactor

MAX_DAYS: Final = 90
"""Calendar days in one batch; ClickHouse refuses an insert into more than 100 partitions."""

MAX_BROADCAST_BYTES: Final = 256 * 1024 * 1024
"""How large resource and scope attributes may grow when they are repeated for each row."""

_LAST_NS: Final = 5_662_310_400_000_000_000  # 2149-06-06, the end of ClickHouse's Date
_DAY_NS: Final = 86_400_000_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TRACE_ID_BYTES: Final = 16
_SPAN_ID_BYTES: Final = 8
_MAX_SEVERITY: Final = 24
_MESSAGE_CHARS: Final = 512
_KINDS: Final = ("Unspecified", "Internal", "Server", "Client", "Producer", "Consumer")
_STATUS: Final = ("Unset", "Ok", "Error")
_WHOLE: Final = {Signal.TRACES: "TracesData", Signal.LOGS: "LogsData"}
_RECORD: Final = {Signal.TRACES: "Span", Signal.LOGS: "LogRecord"}
_NOUN: Final = {Signal.TRACES: "spans", Signal.LOGS: "log records", Signal.METRICS: "data points"}


def ignore(_reason: str, _count: int) -> None:
    """Count nothing: the `note` of callers that do not care what was repaired."""


def decode(
    signal: Signal, encoding: str, body: bytes, *, redactor: Redactor, now_ns: int, note: Note = ignore
) -> Decoded:
    """Decode and redact one request body.

    `encoding` is `"protobuf"` or `"json"`; `now_ns` (since the epoch) stands in for times that are missing
    or absurd. Pure and thread-safe. Raises `Rejected` when nothing of the body can be read, `TooLarge` when
    resource attributes repeated for each row would exceed `MAX_BROADCAST_BYTES`.
    """
    rejected: Counter[str] = Counter()
    if encoding == "json":
        transcoded = transcode(signal, body, note)
        body = transcoded.body
        rejected.update(transcoded.rejected)
    elif encoding != "protobuf":
        raise Rejected(f"unknown encoding {encoding!r}")
    if signal is Signal.METRICS:
        points = _count_points(body)
        return Decoded(None, points, dict(rejected), _message(signal, rejected))
    request = _read(signal, body, rejected)
    build = _spans if signal is Signal.TRACES else _logs
    batch = build(request, redactor, now_ns, note, rejected)
    return Decoded(batch, batch.columns.num_rows if batch else 0, dict(rejected), _message(signal, rejected))


@dataclass(frozen=True, slots=True)
class _Request:
    """One decoded request: rows per resource, per scope and per record, and who belongs to whom."""

    body: bytes
    resources: Structs
    scopes: Structs
    records: Structs
    scope_resource: Int64s
    record_scope: Int64s


def _read(signal: Signal, body: bytes, rejected: Counter[str]) -> _Request:
    try:
        rows = columns_of(_WHOLE[signal]).list_to_record_batch([body])
    except ValueError:
        body = _without_bad_records(signal, body, rejected)
        try:
            rows = columns_of(_WHOLE[signal]).list_to_record_batch([body])
        except ValueError as error:
            raise Rejected(f"malformed protobuf: {error}") from error
    resource_lists: Lists = rows.column(0)
    resources = resource_lists.values
    scope_lists = resources.field("scopes")
    scopes = scope_lists.values
    record_lists = scopes.field("records")
    records = record_lists.values
    return _Request(body, resources, scopes, records, rows_of(scope_lists), rows_of(record_lists))


def _keep(request: _Request, good: Bools) -> _Request:
    if good.all():
        return request
    records = request.records.filter(column(good))
    return _Request(
        request.body,
        request.resources,
        request.scopes,
        records,
        request.scope_resource,
        request.record_scope[good],
    )


# --- traces


def _spans(
    request: _Request, redactor: Redactor, now_ns: int, note: Note, rejected: Counter[str]
) -> Batch | None:
    request = _keep(request, _good_spans(request.records, rejected))
    if len(request.records) == 0:
        return None
    field = request.records.field
    own = Attributes.of(field("attributes"), note)
    head = _Head.of(request, note)
    events = _Nested.of(field("events"), note)
    links = _Nested.of(field("links"), note)
    message, code = field("status").flatten()
    cleaned = redactor.fields(
        {
            "name": Field(field("name")),
            "state": Field(field("trace_state")),
            "message": Field(or_empty(message), sentence=True),
            "event.name": Field(events.field("name")),
            "link.state": Field(links.field("trace_state")),
            **own.fields("own"),
            **head.fields(),
            **events.attributes.fields("event"),
            **links.attributes.fields("link"),
        }
    )
    own = own.redacted("own", cleaned)
    shared = head.shared(request, cleaned)
    start, duration = _span_times(
        numbers(field("start_time_unix_nano")), numbers(field("end_time_unix_nano")), now_ns, note
    )
    columns = {
        "Timestamp": _timestamps(start),
        "TraceId": hex_text(field("trace_id")),
        "SpanId": hex_text(field("span_id")),
        "ParentSpanId": _id_text(field("parent_span_id")),
        "TraceState": cleaned["state"],
        "SpanName": cleaned["name"],
        "SpanKind": labels(field("kind"), _KINDS),
        "SpanAttributes": own.column(),
        "Duration": column(duration),
        "StatusCode": labels(pc.fill_null(code, 0), _STATUS),
        "StatusMessage": cleaned["message"],
        "Events.Timestamp": events.column(_event_times(events.field("time_unix_nano"))),
        "Events.Name": events.column(cleaned["event.name"]),
        "Events.Attributes": events.column(events.attributes.redacted("event", cleaned).column()),
        "Links.TraceId": links.column(hex_text(links.field("trace_id"))),
        "Links.SpanId": links.column(hex_text(links.field("span_id"))),
        "Links.TraceState": links.column(cleaned["link.state"]),
        "Links.Attributes": links.column(links.attributes.redacted("link", cleaned).column()),
        **shared,
    }
    marked = (
        own.rows_with(is_agent_key)
        | is_in(shared["ScopeName"], is_agent_scope)
        | is_in(cleaned["name"], is_agent_name)
        | events.rows_where(
            is_in(cleaned["event.name"], is_agent_name) | events.attributes.rows_with(is_agent_key)
        )
    )
    trace = fixed_words(field("trace_id"), 2)
    identity = mixed(trace[:, 0], trace[:, 1], fixed_words(field("span_id"), 1)[:, 0])
    return _batch(Signal.TRACES, columns, SPAN_SCHEMA, identity, marked)


def _good_spans(spans: Structs, rejected: Counter[str]) -> Bools:
    good = np.ones(len(spans), np.bool_)
    parent = lengths(spans.field("parent_span_id"))
    checks = (
        ("invalid_trace_id", _is_id(spans.field("trace_id"), _TRACE_ID_BYTES)),
        ("invalid_span_id", _is_id(spans.field("span_id"), _SPAN_ID_BYTES)),
        ("invalid_parent_span_id", (parent == 0) | (parent == _SPAN_ID_BYTES)),
    )
    for reason, passed in checks:
        good = _refuse(reason, passed, good, rejected)
    return good


def _is_id(ids: Binaries, size: int) -> Bools:
    return cast("Bools", (lengths(ids) == size) & ~all_zero(ids))


def _refuse(reason: str, passed: Bools, good: Bools, rejected: Counter[str]) -> Bools:
    newly_bad = int(np.count_nonzero(good & ~passed))
    if newly_bad:
        rejected[reason] += newly_bad
    return good & passed


def _span_times(start: Uint64s, end: Uint64s, now_ns: int, note: Note) -> tuple[Int64s, Uint64s]:
    """Return start (ns since the epoch, safe to store) and duration (ns)."""
    backwards = (end < start) & (end != 0)
    duration = np.where(end > start, end - start, np.uint64(0))
    missing = start == 0
    duration[missing] = 0
    begun = np.where(missing, end, start)
    _count(note, "negative_duration", backwards)
    _count(note, "zero_time", missing)
    return _storable(begun, now_ns, note), duration


@dataclass(frozen=True, slots=True)
class _Nested:
    """Events or links: a list a span, flattened, with the attributes of each."""

    lists: Lists
    attributes: Attributes

    @classmethod
    def of(cls, lists: Lists, note: Note) -> _Nested:
        items = lists.values
        return cls(lists, Attributes.of(items.field("attributes"), note))

    def field(self, name: str) -> Column:
        return self.lists.values.field(name)

    def column(self, values: Column) -> Column:
        return pa.ListArray.from_arrays(self.lists.offsets, values, type=pa.list_(values.type))

    def rows_where(self, flags: Bools) -> Bools:
        return any_of_row(flags, numbers(self.lists.offsets))


def _event_times(times: Column) -> Column:
    return _timestamps(np.minimum(numbers(times), np.uint64(_LAST_NS)).astype(np.int64))


# --- logs


def _logs(
    request: _Request, redactor: Redactor, now_ns: int, note: Note, rejected: Counter[str]
) -> Batch | None:
    good = _good_logs(request.records, rejected)
    identity = _log_identity(request.body)[good]
    request = _keep(request, good)
    if len(request.records) == 0:
        return None
    field = request.records.field
    own = Attributes.of(field("attributes"), note)
    head = _Head.of(request, note)
    times = _log_times(request.records, own, now_ns, note)
    cleaned = redactor.fields(
        {
            "event": Field(field("event_name")),
            "severity": Field(field("severity_text")),
            "body": Field(texts(field("body"), note), sentence=True),
            **own.fields("own"),
            **head.fields(),
        }
    )
    own = own.redacted("own", cleaned)
    shared = head.shared(request, cleaned)
    columns = {
        "Timestamp": _timestamps(times),
        "TraceId": _id_text(field("trace_id")),
        "SpanId": _id_text(field("span_id")),
        "TraceFlags": column((numbers(field("flags")) & 0xFF).astype(np.uint8)),
        "SeverityText": cleaned["severity"],
        "SeverityNumber": column(_severity(numbers(field("severity_number")))),
        "Body": cleaned["body"],
        "LogAttributes": own.column(),
        "EventName": cleaned["event"],
        **shared,
    }
    marked = (
        own.rows_with(is_agent_key)
        | is_in(shared["ScopeName"], is_agent_scope)
        | is_in(cleaned["event"], is_agent_name)
        | is_in(shared["ServiceName"], is_agent_service)
    )
    return _batch(Signal.LOGS, columns, LOG_SCHEMA, identity, marked)


def _good_logs(records: Structs, rejected: Counter[str]) -> Bools:
    good = np.ones(len(records), np.bool_)
    for reason, name, size in (
        ("invalid_trace_id", "trace_id", _TRACE_ID_BYTES),
        ("invalid_span_id", "span_id", _SPAN_ID_BYTES),
    ):
        stated = lengths(records.field(name))
        good = _refuse(reason, (stated == 0) | (stated == size), good, rejected)
    return good


def _severity(stated: npt.NDArray[np.int32]) -> npt.NDArray[np.uint8]:
    return np.where((stated >= 0) & (stated <= _MAX_SEVERITY), stated, 0).astype(np.uint8)


def _log_times(records: Structs, own: Attributes, now_ns: int, note: Note) -> Int64s:
    stated: Uint64s = numbers(records.field("time_unix_nano"))
    observed: Uint64s = numbers(records.field("observed_time_unix_nano"))
    times: Uint64s = np.where(stated == 0, observed, stated)
    for row in np.flatnonzero(times == 0).tolist():
        times[row] = _event_time(own, row)
    _count(note, "zero_time", times == 0)
    return _storable(times, now_ns, note)


def _event_time(own: Attributes, row: int) -> int:
    """Return what the attribute `event.timestamp` says in ns, or 0; some agents say it only there."""
    first, last = own.offsets[row].as_py(), own.offsets[row + 1].as_py()
    for item in range(first, last):
        if own.keys[item].as_py() == "event.timestamp":
            return _moment_ns(own.values[item].as_py())
    return 0


def _moment_ns(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return 0
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max((moment - _EPOCH) // timedelta(microseconds=1), 0) * 1000


def _log_identity(body: bytes) -> Uint64s:
    """Return a hash of each record: its bytes, those of its scope and resource, its turn among equals.

    The turn keeps two equal records of one request apart; a request that is sent again has the same turns.
    """
    hashes: list[int] = []
    seen: Counter[bytes] = Counter()
    for resource in _envelope(body).resources:
        for scope in resource.scopes:
            shared = hashlib.blake2b(resource.resource, digest_size=8)
            shared.update(scope.scope)
            for record in scope.records:
                whole = shared.copy()
                whole.update(record)
                digest = whole.digest()
                hashes.append((int.from_bytes(digest, "little") + seen[digest]) % 2**64)
                seen[digest] += 1
    return mixed(np.array(hashes, np.uint64))


# --- what spans and log records share


@dataclass(frozen=True, slots=True)
class _Head:
    """Resources and scopes of a request, one row each, before they are repeated for their records."""

    resource: Attributes
    resource_schema_url: Strings
    scope: Attributes
    scope_schema_url: Strings
    scope_name: Strings
    scope_version: Strings

    @classmethod
    def of(cls, request: _Request, note: Note) -> _Head:
        scope = request.scopes.field("scope")
        name, version, _ = scope.flatten()
        return cls(
            resource=Attributes.of(_present_lists(request.resources.field("resource"), "attributes"), note),
            resource_schema_url=request.resources.field("schema_url"),
            scope=Attributes.of(_present_lists(scope, "attributes"), note),
            scope_schema_url=request.scopes.field("schema_url"),
            scope_name=or_empty(name),
            scope_version=or_empty(version),
        )

    def fields(self) -> dict[str, Field]:
        return {
            "resource.url": Field(self.resource_schema_url),
            "scope.url": Field(self.scope_schema_url),
            "scope.name": Field(self.scope_name),
            "scope.version": Field(self.scope_version),
            **self.resource.fields("resource"),
            **self.scope.fields("scope"),
        }

    def shared(self, request: _Request, cleaned: Mapping[str, Strings]) -> dict[str, Column]:
        """Return the columns that repeat what resource and scope say for each record."""
        resource = self.resource.redacted("resource", cleaned)
        scope = self.scope.redacted("scope", cleaned)
        by_scope = column(request.record_scope)
        by_resource = column(request.scope_resource[request.record_scope])
        _check_broadcast(((resource, numbers(by_resource)), (scope, numbers(by_scope))))
        return {
            "ServiceName": _service_names(resource).take(by_resource),
            "ResourceAttributes": resource.column().take(by_resource),
            "ResourceSchemaUrl": cleaned["resource.url"].take(by_resource),
            "ScopeName": cleaned["scope.name"].take(by_scope),
            "ScopeVersion": cleaned["scope.version"].take(by_scope),
            "ScopeAttributes": scope.column().take(by_scope),
            "ScopeSchemaUrl": cleaned["scope.url"].take(by_scope),
        }


def _present_lists(parents: Structs, name: str) -> Lists:
    """Return a list field of a message that may be absent, as empty lists where it is."""
    lists = parents.field(name)
    return pa.ListArray.from_arrays(lists.offsets, lists.values)


def _check_broadcast(repeated: Iterable[tuple[Attributes, Int64s]]) -> None:
    total = 0
    for own, rows in repeated:
        key_sizes = _sizes(own.keys.dictionary)[numbers(own.keys.indices)]
        sizes = np.concatenate([np.zeros(1, np.int64), np.cumsum(key_sizes + _sizes(own.values))])
        offsets = numbers(own.offsets)
        total += int((sizes[offsets[1:]] - sizes[offsets[:-1]])[rows].sum())
    if total > MAX_BROADCAST_BYTES:
        raise TooLarge(f"resource and scope attributes repeated for each record would take {total} bytes")


def _sizes(words: Strings) -> Int64s:
    sizes: Int64s = numbers(pc.binary_length(words)).astype(np.int64)
    return sizes


def _service_names(resource: Attributes) -> Strings:
    maps = resource.column().to_pylist()
    names = [next((value for key, value in items if key == "service.name"), "") for items in maps]
    return column(names, pa.string())


def _id_text(ids: Binaries) -> Strings:
    """Return optional ids as hex; empty where there is none, or only zeros."""
    text = hex_text(ids)
    blank = all_zero(ids) & (lengths(ids) > 0)
    return pc.if_else(column(blank), "", text) if blank.any() else text


def _storable(times: Uint64s, now_ns: int, note: Note) -> Int64s:
    times = np.where(times == 0, np.uint64(now_ns), times)
    late = times > np.uint64(_LAST_NS)
    if late.any():
        _count(note, "future_time", late)
        times = np.where(late, np.uint64(now_ns), times)
    stored = times.astype(np.int64)
    days = np.unique(stored // _DAY_NS)
    if len(days) > MAX_DAYS:
        oldest = days[-MAX_DAYS] * _DAY_NS
        _count(note, "too_many_days", stored < oldest)
        stored = np.maximum(stored, oldest)
    return stored


def _count(note: Note, reason: str, hit: Bools) -> None:
    found = int(np.count_nonzero(hit))
    if found:
        note(reason, found)


def _timestamps(times: Int64s) -> Column:
    return column(times).view(TIMESTAMP)


def _batch(
    signal: Signal, columns: Mapping[str, Column], schema: pa.Schema, identity: Uint64s, marked: Bools
) -> Batch:
    rows = pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
    positions = column(np.flatnonzero(marked).astype(np.uint32))
    return Batch(signal, rows, column(identity), positions)


# --- the slow path: some record is bad, find out which


def _without_bad_records(signal: Signal, body: bytes, rejected: Counter[str]) -> bytes:
    """Return the request without the records that cannot be read; Rejected when not even the envelope can."""
    envelope = _envelope(body)
    for resource in envelope.resources:
        resource_fault = _fault("Resource", [resource.resource])
        for scope in resource.scopes:
            fault = resource_fault or _fault("Scope", [scope.scope])
            records = list(scope.records)
            reasons = [fault] * len(records) if fault else _faults(_RECORD[signal], records)
            good = [record for record, reason in zip(records, reasons, strict=True) if not reason]
            rejected.update(reason for reason in reasons if reason)
            del scope.records[:]
            scope.records.extend(good)
            if fault:
                scope.scope = b""
            scope.schema_url = scope.schema_url.decode(errors="replace").encode()
        if resource_fault:
            resource.resource = b""
        resource.schema_url = resource.schema_url.decode(errors="replace").encode()
    return cast("bytes", envelope.SerializeToString())


def _envelope(body: bytes) -> Message:
    try:
        return message_class("Envelope").FromString(body)
    except DecodeError as error:
        raise Rejected("malformed protobuf") from error


def _faults(message: str, payloads: list[bytes]) -> list[str]:
    """Return why each payload cannot be read, empty where it can; halving finds the few bad ones."""
    reason = _fault(message, payloads)
    if not reason or len(payloads) == 1:
        return [reason] * len(payloads)
    half = len(payloads) // 2
    return _faults(message, payloads[:half]) + _faults(message, payloads[half:])


def _fault(message: str, payloads: list[bytes]) -> str:
    try:
        columns_of(message).list_to_record_batch(payloads)
    except ValueError as error:
        return "invalid_utf8" if "UTF-8" in str(error) else "malformed"
    return ""


# --- metrics


def _count_points(body: bytes) -> int:
    return sum(_points(body))


def _points(body: bytes) -> Iterator[int]:
    for resource in _envelope(body).resources:
        for scope in resource.scopes:
            for record in scope.records:
                try:
                    metric = message_class("Metric").FromString(record)
                except DecodeError as error:
                    raise Rejected("malformed protobuf") from error
                for kind in ("gauge", "sum", "histogram", "exponential_histogram", "summary"):
                    yield len(getattr(metric, kind).data_points)


def _message(signal: Signal, rejected: Counter[str]) -> str:
    if not rejected:
        return ""
    reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(rejected.items()))
    return f"rejected {sum(rejected.values())} {_NOUN[signal]}: {reasons}"[:_MESSAGE_CHARS]
