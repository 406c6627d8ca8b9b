"""OTLP/JSON to OTLP protobuf bytes, by the rules of the specification (1.11), so that both take one path.

Ids are hex of either case, 64-bit integers are decimal strings or numbers, enums are integers only,
`bytesValue` is base64, doubles may be `"NaN"`, `"Infinity"`, `"-Infinity"`. Keys are lowerCamelCase only;
a key that is not known, snake_case included, is ignored at every level. `null` is an absent field.

A field of a span or log record that breaks these rules rejects that record alone. A bad field of a resource
or scope rejects the records under it; a list or object in the wrong place above them, the request.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeAlias

import orjson

from collector.arrow_types import Json, Message
from collector.batch import Signal
from collector.consumer import Rejected
from collector.otlp_descriptor import message_class
from collector.otlp_values import MAX_DEPTH, TOO_DEEP, Note

Object: TypeAlias = dict[str, Any]
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,20}")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_INT64: Final = (-(2**63), 2**63 - 1)
_UINT64: Final = (0, 2**64 - 1)
_UINT32: Final = (0, 2**32 - 1)
_INT32: Final = (-(2**31), 2**31 - 1)
_POINT_KINDS: Final = {
    "gauge": "gauge",
    "sum": "sum",
    "histogram": "histogram",
    "exponentialHistogram": "exponential_histogram",
    "summary": "summary",
}


@dataclass(frozen=True, slots=True)
class Transcoded:
    """The request as protobuf bytes, without the records that were rejected, which are counted by reason."""

    body: bytes
    rejected: Counter[str]


class _BadFieldError(Exception):
    """A field breaks the rules of OTLP/JSON; `reason` is what it is counted under."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def transcode(signal: Signal, body: bytes, note: Note) -> Transcoded:
    """Return the request as protobuf bytes; Rejected when it is no JSON object of this signal's shape."""
    request = _parse(body)
    if signal is Signal.TRACES:
        return _Walk("TracesData", "resourceSpans", "scopeSpans", "spans", _span, note).run(request)
    if signal is Signal.LOGS:
        return _Walk("LogsData", "resourceLogs", "scopeLogs", "logRecords", _log_record, note).run(request)
    return Transcoded(_metrics(request), Counter())


def _parse(body: bytes) -> Object:
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        parsed = _parse_with_surrogates(body, error)
    if not isinstance(parsed, dict):
        raise Rejected("malformed JSON: the request is not an object")
    return parsed


def _parse_with_surrogates(body: bytes, strict_error: Exception) -> Json:
    """Parse JSON with half a surrogate pair in it: JavaScript sends that when a text was cut in an emoji."""
    if b"\\u" not in body:
        raise Rejected(f"malformed JSON: {strict_error}") from strict_error
    try:
        return json.loads(body, parse_constant=_refuse_constant, object_hook=_without_surrogates)
    except (ValueError, RecursionError) as error:
        raise Rejected(f"malformed JSON: {error}") from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _without_surrogates(parsed: Object) -> Object:
    return {
        _SURROGATE.sub("\ufffd", key): _SURROGATE.sub("\ufffd", value) if isinstance(value, str) else value
        for key, value in parsed.items()
    }


@dataclass(frozen=True, slots=True)
class _Walk:
    """The way down a request to its records, for one signal."""

    message: str
    resources: str
    scopes: str
    records: str
    fill: Callable[[Object, Message, Note], None]
    note: Note

    def run(self, request: Object) -> Transcoded:
        data = message_class(self.message)()
        rejected: Counter[str] = Counter()
        for source in _objects(request, self.resources):
            target = data.resources.add()
            fault = self._head(source, "resource", target.resource, _resource)
            for scope in _objects(source, self.scopes):
                self._scope(scope, target.scopes.add(), fault, rejected)
            target.schema_url = _text_or_empty(source, "schemaUrl")
        return Transcoded(data.SerializeToString(), rejected)

    def _scope(self, source: Object, target: Message, fault: str, rejected: Counter[str]) -> None:
        fault = fault or self._head(source, "scope", target.scope, _scope)
        for record in _list(source, self.records):
            reason = fault or self._record(record, target.records)
            if reason:
                rejected[reason] += 1
        target.schema_url = _text_or_empty(source, "schemaUrl")

    def _head(
        self, source: Object, key: str, target: Message, fill: Callable[[Object, Message, Note], None]
    ) -> str:
        stated = source.get(key)
        if stated is None:
            return ""
        try:
            fill(_object(stated), target, self.note)
        except _BadFieldError as error:
            target.Clear()
            return error.reason
        return ""

    def _record(self, source: object, records: Message) -> str:
        target = records.add()
        try:
            self.fill(_object(source), target, self.note)
        except _BadFieldError as error:
            del records[-1]
            return error.reason
        return ""


def _objects(source: Object, key: str) -> list[Object]:
    listed = _list(source, key)
    if not all(isinstance(item, dict) for item in listed):
        raise Rejected(f"malformed JSON: {key} has an item that is not an object")
    return listed


def _list(source: Object, key: str) -> list[Any]:
    stated = source.get(key)
    if stated is None:
        return []
    if not isinstance(stated, list):
        raise Rejected(f"malformed JSON: {key} is not a list")
    return stated


def _text_or_empty(source: Object, key: str) -> str:
    stated = source.get(key)
    return stated if isinstance(stated, str) else ""


def _resource(source: Object, target: Message, note: Note) -> None:
    _attributes(source, target.attributes, note)


def _scope(source: Object, target: Message, note: Note) -> None:
    target.name = _text(source, "name")
    target.version = _text(source, "version")
    _attributes(source, target.attributes, note)


def _span(source: Object, target: Message, note: Note) -> None:
    target.trace_id = _id(source, "traceId", "invalid_trace_id")
    target.span_id = _id(source, "spanId", "invalid_span_id")
    target.parent_span_id = _id(source, "parentSpanId", "invalid_parent_span_id")
    target.trace_state = _text(source, "traceState")
    target.name = _text(source, "name")
    target.kind = _enum(source, "kind")
    target.start_time_unix_nano = _integer(source, "startTimeUnixNano", _UINT64)
    target.end_time_unix_nano = _integer(source, "endTimeUnixNano", _UINT64)
    _attributes(source, target.attributes, note)
    for item in _items(source, "events"):
        event = target.events.add()
        event.time_unix_nano = _integer(item, "timeUnixNano", _UINT64)
        event.name = _text(item, "name")
        _attributes(item, event.attributes, note)
    for item in _items(source, "links"):
        link = target.links.add()
        link.trace_id = _id(item, "traceId", "invalid_link")
        link.span_id = _id(item, "spanId", "invalid_link")
        link.trace_state = _text(item, "traceState")
        _attributes(item, link.attributes, note)
    status = source.get("status")
    if status is not None:
        target.status.message = _text(_object(status), "message")
        target.status.code = _enum(_object(status), "code")


def _log_record(source: Object, target: Message, note: Note) -> None:
    target.time_unix_nano = _integer(source, "timeUnixNano", _UINT64)
    target.observed_time_unix_nano = _integer(source, "observedTimeUnixNano", _UINT64)
    target.severity_number = _enum(source, "severityNumber")
    target.severity_text = _text(source, "severityText")
    target.flags = _integer(source, "flags", _UINT32)
    target.trace_id = _id(source, "traceId", "invalid_trace_id")
    target.span_id = _id(source, "spanId", "invalid_span_id")
    target.event_name = _text(source, "eventName")
    if source.get("body") is not None:
        _any_value(_object(source["body"]), target.body, 1, note)
    _attributes(source, target.attributes, note)


def _metrics(request: Object) -> bytes:
    envelope = message_class("Envelope")()
    for resource in _objects(request, "resourceMetrics"):
        scopes = envelope.resources.add().scopes
        for scope in _objects(resource, "scopeMetrics"):
            records = scopes.add().records
            records.extend(_metric(metric) for metric in _objects(scope, "metrics"))
    serialized: bytes = envelope.SerializeToString()
    return serialized


def _metric(source: Object) -> bytes:
    metric = message_class("Metric")()
    for key, field in _POINT_KINDS.items():
        if isinstance(source.get(key), dict):
            getattr(metric, field).data_points.extend(b"" for _ in _list(source[key], "dataPoints"))
    serialized: bytes = metric.SerializeToString()
    return serialized


# --- attributes


def _attributes(source: Object, target: Message, note: Note) -> None:
    for item in _items(source, "attributes"):
        _key_value(item, target.add(), 1, note)


def _key_value(source: Object, target: Message, depth: int, note: Note) -> None:
    target.key = _text(source, "key")
    value = source.get("value")
    if value is not None:
        _any_value(_object(value), target.value, depth, note)


def _any_value(source: Object, target: Message, depth: int, note: Note) -> None:
    """Fill an AnyValue; with several arms the last one counts, as on the wire."""
    target.SetInParent()
    for arm, content in source.items():
        fill = _ARMS.get(arm)
        if fill is not None and content is not None:
            fill(content, target, depth, note)


def _string_arm(content: object, target: Message, _depth: int, _note: Note) -> None:
    if not isinstance(content, str):
        raise _BadFieldError("invalid_field")
    target.string_value = content


def _bool_arm(content: object, target: Message, _depth: int, _note: Note) -> None:
    if not isinstance(content, bool):
        raise _BadFieldError("invalid_field")
    target.bool_value = content


def _int_arm(content: object, target: Message, _depth: int, _note: Note) -> None:
    target.int_value = _number(content, _INT64)


def _double_arm(content: object, target: Message, _depth: int, _note: Note) -> None:
    if isinstance(content, bool) or not isinstance(content, int | float | str):
        raise _BadFieldError("invalid_field")
    if isinstance(content, str) and content not in ("NaN", "Infinity", "-Infinity"):
        content = _decimal(content)
    try:
        target.double_value = float(content)
    except (ValueError, OverflowError):
        raise _BadFieldError("invalid_field") from None


def _bytes_arm(content: object, target: Message, _depth: int, _note: Note) -> None:
    if not isinstance(content, str):
        raise _BadFieldError("invalid_field")
    standard = content.replace("-", "+").replace("_", "/").rstrip("=")
    try:
        target.bytes_value = base64.b64decode(standard + "=" * (-len(standard) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise _BadFieldError("invalid_field") from None


def _array_arm(content: object, target: Message, depth: int, note: Note) -> None:
    if depth > MAX_DEPTH:
        _too_deep(target, note)
        return
    array = message_class("ArrayValue")()
    for item in _items(_object(content), "values", nulls=True):
        _any_value(item, array.values.add(), depth + 1, note)
    target.array_value = array.SerializeToString()


def _kvlist_arm(content: object, target: Message, depth: int, note: Note) -> None:
    if depth > MAX_DEPTH:
        _too_deep(target, note)
        return
    pairs = message_class("KeyValueList")()
    for item in _items(_object(content), "values"):
        _key_value(item, pairs.values.add(), depth + 1, note)
    target.kvlist_value = pairs.SerializeToString()


def _too_deep(target: Message, note: Note) -> None:
    note("too_deep", 1)
    target.string_value = TOO_DEEP


_ARMS: Final[dict[str, Callable[[object, Message, int, Note], None]]] = {
    "stringValue": _string_arm,
    "boolValue": _bool_arm,
    "intValue": _int_arm,
    "doubleValue": _double_arm,
    "bytesValue": _bytes_arm,
    "arrayValue": _array_arm,
    "kvlistValue": _kvlist_arm,
}


# --- fields


def _object(source: object) -> Object:
    if not isinstance(source, dict):
        raise _BadFieldError("malformed")
    return source


def _items(source: Object, key: str, *, nulls: bool = False) -> list[Object]:
    """Return a list of objects; `nulls` lets null stand for an empty object."""
    stated = source.get(key)
    if stated is None:
        return []
    if not isinstance(stated, list):
        raise _BadFieldError("malformed")
    return [{} if item is None and nulls else _object(item) for item in stated]


def _text(source: Object, key: str) -> str:
    stated = source.get(key)
    if stated is None:
        return ""
    if not isinstance(stated, str):
        raise _BadFieldError("invalid_field")
    return stated


def _id(source: Object, key: str, reason: str) -> bytes:
    stated = source.get(key)
    if stated is None:
        return b""
    try:
        return binascii.unhexlify(stated)
    except (binascii.Error, ValueError, TypeError):
        raise _BadFieldError(reason) from None


def _enum(source: Object, key: str) -> int:
    stated = source.get(key)
    if stated is None:
        return 0
    if isinstance(stated, bool) or not isinstance(stated, int):
        raise _BadFieldError("invalid_enum")
    if not _INT32[0] <= stated <= _INT32[1]:
        raise _BadFieldError("invalid_enum")
    return stated


def _integer(source: Object, key: str, bounds: tuple[int, int]) -> int:
    stated = source.get(key)
    return 0 if stated is None else _number(stated, bounds)


def _number(stated: object, bounds: tuple[int, int]) -> int:
    if isinstance(stated, str) and _INTEGER.fullmatch(stated):
        number = int(stated)
    elif isinstance(stated, int) and not isinstance(stated, bool):
        number = stated
    elif isinstance(stated, float) and math.isfinite(stated) and stated.is_integer():
        number = int(stated)
    else:
        raise _BadFieldError("invalid_field")
    if not bounds[0] <= number <= bounds[1]:
        raise _BadFieldError("invalid_field")
    return number


def _decimal(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise _BadFieldError("invalid_field") from None
    if not math.isfinite(number):  # "nan" and "inf" are Python's spellings, not JSON's
        raise _BadFieldError("invalid_field")
    return number
