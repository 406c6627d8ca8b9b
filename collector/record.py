"""One span or log record of a batch as a Python object: what conventions read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa

from collector.batch import Batch, Signal

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

INSTANCE_KEYS: Final = ("service.instance.id", "process.pid")


@dataclass(frozen=True, slots=True)
class Event:
    """A span event. `time_ns` is unix nanoseconds; attribute values are strings, as in the batch."""

    name: str
    time_ns: int
    attributes: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One agent row of a batch: a span (`signal` traces) or a log record (`signal` logs).

    Attribute values are strings as `collector.batch` says. `process` names the process that sent it, as
    far as the resource tells (instance id or pid, else a hash of the resource). Of a log record, `name` is
    empty and `start_ns == end_ns` is its time; `body` and `event_name` are empty for spans.
    """

    signal: Signal
    identity: int
    trace_id: str
    span_id: str
    parent_span_id: str
    name: str
    service: str
    process: str
    scope: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, str]
    resource: Mapping[str, str]
    status: str = "Unset"
    status_message: str = ""
    events: tuple[Event, ...] = ()
    body: str = ""
    event_name: str = ""


def records(batch: Batch) -> Iterator[Record]:
    """Yield the agent rows of a batch, in order. Resource mappings are shared between rows."""
    if len(batch.agent_rows) == 0:
        return
    columns = _Columns(batch)
    if batch.signal is Signal.TRACES:
        yield from _spans(columns)
    elif batch.signal is Signal.LOGS:
        yield from _logs(columns)


def process_of(resource: Mapping[str, str]) -> str:
    """Name the sending process: its instance id or pid, else a hash of the whole resource (16 hex digits).

    >>> process_of({"service.name": "a", "service.instance.id": "i-1"})
    'a/i-1'
    """
    for key in INSTANCE_KEYS:
        if resource.get(key):
            return f"{resource.get('service.name', '')}/{resource[key]}"
    text = "\x1f".join(f"{key}\x1e{resource[key]}" for key in sorted(resource))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


@dataclass(slots=True)
class _Columns:
    """The agent rows of a batch, column by column, each converted when asked for."""

    batch: Batch
    _resources: dict[tuple[str, ...], dict[str, str]] = field(default_factory=dict)

    def _taken(self, name: str) -> pa.Array[pa.Scalar[pa.DataType]]:
        column = self.batch.columns.column(name)
        if len(self.batch.agent_rows) == len(column):
            return _compact(column)
        return column.take(self.batch.agent_rows)

    def identities(self) -> list[int]:
        return cast("list[int]", self.batch.identity.take(self.batch.agent_rows).to_pylist())

    def strings(self, name: str) -> list[str]:
        return _strings(self._taken(name))

    def nanoseconds(self, name: str) -> list[int]:
        return cast("list[int]", self._taken(name).cast(pa.int64()).to_numpy().tolist())

    def durations(self) -> list[int]:
        return cast("list[int]", self._taken("Duration").to_numpy().tolist())

    def maps(self, name: str) -> list[dict[str, str]]:
        return _maps(self._taken(name))

    def resources(self) -> list[tuple[dict[str, str], str]]:
        """Resource attributes and process name of every row; equal resources are one object."""
        known: dict[tuple[tuple[str, str], ...], tuple[dict[str, str], str]] = {}
        out = []
        for mapping in self.maps("ResourceAttributes"):
            key = tuple(mapping.items())
            entry = known.get(key)
            if entry is None:
                entry = known[key] = (mapping, process_of(mapping))
            out.append(entry)
        return out

    def events(self) -> list[tuple[Event, ...]]:
        names = cast("pa.ListArray[pa.StringScalar]", self._taken("Events.Name"))
        starts = _offsets(names)
        if starts[0] == starts[-1]:
            return [()] * len(names)
        times = cast("pa.ListArray[pa.Scalar[pa.DataType]]", self._taken("Events.Timestamp"))
        attributes = cast("pa.ListArray[pa.Scalar[pa.DataType]]", self._taken("Events.Attributes"))
        flat_times = times.flatten().cast(pa.int64()).to_numpy().tolist()
        flat = [
            Event(*event)
            for event in zip(
                _strings(names.flatten()), flat_times, _maps(_compact(attributes.flatten())), strict=True
            )
        ]
        first = starts[0]
        return [tuple(flat[a - first : b - first]) for a, b in pairwise(starts)]


def _compact(array: pa.Array[pa.Scalar[pa.DataType]]) -> pa.Array[pa.Scalar[pa.DataType]]:
    """A slice without its offset: flattened children of a sliced array are those of the whole."""
    return pa.concat_arrays([array]) if array.offset else array


def _strings(array: pa.Array[pa.Scalar[pa.DataType]]) -> list[str]:
    values = cast("npt.NDArray[np.object_]", array.to_numpy(zero_copy_only=False))
    return cast("list[str]", values.tolist())


def _offsets(array: pa.Array[pa.Scalar[pa.DataType]]) -> list[int]:
    return cast("list[int]", cast("pa.ListArray[pa.Scalar[pa.DataType]]", array).offsets.to_numpy().tolist())


def _maps(array: pa.Array[pa.Scalar[pa.DataType]]) -> list[dict[str, str]]:
    maps = cast("pa.MapArray[Any, Any]", array)
    starts = _offsets(maps)
    keys = maps.keys.dictionary_encode()
    words = _strings(keys.dictionary)
    names = [words[index] for index in keys.indices.to_numpy().tolist()]
    values = _strings(maps.items)
    if None in values:
        values = [value or "" for value in values]
    return [dict(zip(names[a:b], values[a:b], strict=True)) for a, b in pairwise(starts)]


def _spans(columns: _Columns) -> Iterator[Record]:
    ends = columns.durations()
    for (
        identity, trace_id, span_id, parent, name, service, (resource, process), scope,
        start, duration, attributes, status, message, events,
    ) in zip(
        columns.identities(), columns.strings("TraceId"), columns.strings("SpanId"),
        columns.strings("ParentSpanId"), columns.strings("SpanName"), columns.strings("ServiceName"),
        columns.resources(), columns.strings("ScopeName"), columns.nanoseconds("Timestamp"), ends,
        columns.maps("SpanAttributes"), columns.strings("StatusCode"), columns.strings("StatusMessage"),
        columns.events(), strict=True,
    ):  # fmt: skip
        yield Record(
            signal=Signal.TRACES,
            identity=identity,
            trace_id=trace_id,
            span_id=span_id,
            parent_span_id=parent,
            name=name,
            service=service,
            process=process,
            scope=scope,
            start_ns=start,
            end_ns=start + duration,
            attributes=attributes,
            resource=resource,
            status=status,
            status_message=message,
            events=events,
        )


def _logs(columns: _Columns) -> Iterator[Record]:
    for identity, trace_id, span_id, service, (resource, process), scope, at, attributes, body, event in zip(
        columns.identities(), columns.strings("TraceId"), columns.strings("SpanId"),
        columns.strings("ServiceName"), columns.resources(), columns.strings("ScopeName"),
        columns.nanoseconds("Timestamp"), columns.maps("LogAttributes"), columns.strings("Body"),
        columns.strings("EventName"), strict=True,
    ):  # fmt: skip
        yield Record(
            signal=Signal.LOGS,
            identity=identity,
            trace_id=trace_id,
            span_id=span_id,
            parent_span_id="",
            name="",
            service=service,
            process=process,
            scope=scope,
            start_ns=at,
            end_ns=at,
            attributes=attributes,
            resource=resource,
            body=body,
            event_name=event,
        )
