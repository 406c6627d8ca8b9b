"""Recorded traces: OTLP request bodies in files, as the collector's file exporter or a capture wrote them."""

from __future__ import annotations

import gzip
import io
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Final, TypeAlias, cast

import orjson

from collector.batch import Signal

MAX_BODY: Final = (
    256 * 1024 * 1024
)  # bytes of one request, decompressed; larger ones are reported and left out
MAX_LINE: Final = 64 * 1024 * 1024
_CHUNK: Final = 1 << 20
_GZIP: Final = b"\x1f\x8b"
_SKIPPED: Final = frozenset({"meta.json"})
_SUFFIXES: Final = (
    ".pb",
    ".bin",
    ".proto",
    ".protobuf",
    ".json",
    ".jsonl",
    ".ndjson",
    ".otlp",
    ".log",
    ".txt",
)
_KEYS: Final = {
    "resourceSpans": Signal.TRACES, "resource_spans": Signal.TRACES, "resourceLogs": Signal.LOGS,
    "resource_logs": Signal.LOGS, "resourceMetrics": Signal.METRICS, "resource_metrics": Signal.METRICS,
}  # fmt: skip
_WORDS: Final = (
    ("trace", Signal.TRACES),
    ("span", Signal.TRACES),
    ("log", Signal.LOGS),
    ("metric", Signal.METRICS),
)

Body: TypeAlias = tuple[Signal, str, bytes, str]
OnProblem: TypeAlias = Callable[[Path, int, str], None]


def read_files(paths: Iterable[Path], on_problem: OnProblem) -> Iterator[Body]:
    """Yield every request body in files and folders: (signal, encoding, body, where it came from).

    Folders are read recursively, in the order of names; `meta.json` and hidden files in them are left out,
    and so are files whose name is not one of a recording. A file is protobuf, JSON, or JSON lines (one
    request a line), plain or gzip, told by its content; the signal is told by the JSON's own keys, else
    by the file's name, else by trying. `encoding` is "protobuf" or "json"; the source is the path, with
    `:line` for lines.

    Memory is bounded by one request (256 MiB; a line, 64 MiB). What cannot be read is told to
    `on_problem(path, line, reason)` (line 0: the whole file), and reading goes on.
    """
    for path in paths:
        for file in _files(path, on_problem):
            yield from _read(file, on_problem)


def signal_of_name(name: str) -> Signal | None:
    """The signal that a file's name tells, by the last word in it that is one.

    >>> signal_of_name("001-traces.pb.gz"), signal_of_name("spans.log"), signal_of_name("body.bin")
    (<Signal.TRACES: 'traces'>, <Signal.TRACES: 'traces'>, None)
    """
    stem = name.lower()
    for suffix in (".gz", *_SUFFIXES):
        stem = stem.removesuffix(suffix)
    places = [(stem.rfind(word), signal) for word, signal in _WORDS if word in stem]
    return max(places)[1] if places else None


def _files(path: Path, on_problem: OnProblem, above: tuple[Path, ...] = ()) -> Iterator[Path]:
    """The files at or below `path`; a folder that is `above` itself, by a link, is not entered again."""
    try:
        kind = path.stat().st_mode
        entries = sorted(path.iterdir()) if stat.S_ISDIR(kind) else []
    except FileNotFoundError:
        on_problem(path, 0, "no such file or folder")
        return
    except OSError as error:
        on_problem(path, 0, f"cannot be read: {error.strerror}")
        return
    if stat.S_ISREG(kind):
        yield path
    elif not stat.S_ISDIR(kind):
        on_problem(path, 0, "neither a file nor a folder")
    elif (real := path.resolve()) not in above:
        for inner in entries:
            if inner.name.startswith(".") or inner.name in _SKIPPED:
                continue
            if _is_folder(inner) or inner.name.lower().removesuffix(".gz").endswith(_SUFFIXES):
                yield from _files(inner, on_problem, (*above, real))


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False


def _read(path: Path, on_problem: OnProblem) -> Iterator[Body]:
    try:
        with path.open("rb") as raw:
            head = raw.read(2)
            raw.seek(0)
            stream = cast("IO[bytes]", gzip.open(raw) if head == _GZIP else raw)  # noqa: SIM115 - closed with the file
            yield from _bodies(path, io.BufferedReader(_Bounded(stream), _CHUNK), on_problem)
    except (OSError, EOFError, zlib.error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        on_problem(path, 0, f"cannot be read: {reason}")


class _Bounded(io.RawIOBase):
    """A stream as a raw one, for buffering what gzip gives in bits."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]  # typed as any buffer, is one of bytes
        data = self._stream.read(len(view))
        view[: len(data)] = data
        return len(data)


def _bodies(path: Path, stream: io.BufferedReader, on_problem: OnProblem) -> Iterator[Body]:
    head = stream.peek(_CHUNK)
    if not head.strip():
        on_problem(path, 0, "is empty")
        return
    if head.lstrip()[:1] not in (b"{", b"["):
        yield from _protobuf(path, stream, on_problem)
    elif _is_lines(path, head):
        yield from _lines(path, stream, on_problem)
    else:
        yield from _whole_json(path, stream, on_problem)


def _is_lines(path: Path, head: bytes) -> bool:
    """Whether each line is a request: the first is a whole object and more follows, or the name says so."""
    if path.name.lower().removesuffix(".gz").endswith((".jsonl", ".ndjson")):
        return True
    first, newline, rest = head.lstrip().partition(b"\n")
    if not newline:
        return False
    try:
        orjson.loads(first)
    except ValueError:
        return False
    return bool(rest.strip())


def _lines(path: Path, stream: io.BufferedReader, on_problem: OnProblem) -> Iterator[Body]:
    number = 0
    while line := stream.readline(MAX_LINE + 1):
        number += 1
        if len(line) > MAX_LINE and not line.endswith(b"\n"):
            on_problem(path, number, f"a line of more than {MAX_LINE >> 20} MiB")
            while (more := stream.readline(_CHUNK)) and not more.endswith(b"\n"):
                pass
            continue
        if line.strip():
            yield from _json(path, number, line, on_problem)


def _whole(path: Path, stream: io.BufferedReader, on_problem: OnProblem) -> bytes | None:
    body = stream.read(MAX_BODY + 1)
    if len(body) > MAX_BODY:
        on_problem(path, 0, f"a request of more than {MAX_BODY >> 20} MiB")
        return None
    return body


def _whole_json(path: Path, stream: io.BufferedReader, on_problem: OnProblem) -> Iterator[Body]:
    body = _whole(path, stream, on_problem)
    if body is not None:
        yield from _json(path, 0, body, on_problem)


def _json(path: Path, line: int, body: bytes, on_problem: OnProblem) -> Iterator[Body]:
    try:
        value = orjson.loads(body)
    except ValueError as error:
        on_problem(path, line, f"not JSON: {error}")
        return
    source = f"{path}:{line}" if line else str(path)
    requests = value if isinstance(value, list) else [value]
    for request in requests:
        signals = [_KEYS[key] for key in request if key in _KEYS] if isinstance(request, dict) else []
        if not signals and request != {}:
            on_problem(
                path, line, "no OTLP request: neither resourceSpans, resourceLogs nor resourceMetrics in it"
            )
        for signal in dict.fromkeys(signals):
            yield signal, "json", body if request is value else orjson.dumps(request), source


def _protobuf(path: Path, stream: io.BufferedReader, on_problem: OnProblem) -> Iterator[Body]:
    body = _whole(path, stream, on_problem)
    if body is None:
        return
    signal = signal_of_name(path.name) or guess_signal(body)
    if signal is None:
        on_problem(path, 0, "neither OTLP protobuf nor JSON")
        return
    yield signal, "protobuf", body, str(path)


def guess_signal(body: bytes) -> Signal | None:
    """The signal of a protobuf request, by what its records look like; None when it is no OTLP request.

    All three signals have one shape down to the record: resource, scope, records. A span begins with a
    trace id of 16 bytes, a log record with a fixed 64-bit time, a metric with a name.
    """
    record = _first_record(body)
    if record is None:
        return None
    try:
        fields = [(number, wire, value) for number, wire, value in _fields(record)]
    except ValueError:
        return None
    for number, wire, value in fields:
        if number == 1 and wire == _FIXED64:
            return Signal.LOGS
        if number == 1 and wire == _BYTES and isinstance(value, bytes):
            return (
                Signal.TRACES
                if len(value) == _TRACE_ID and any(n in (7, 8) and w == _FIXED64 for n, w, _ in fields)
                else Signal.METRICS
            )
        if number in (2, 5, 11) and wire in (_VARINT, _BYTES, _FIXED64):
            return Signal.LOGS
    return None


_VARINT: Final = 0
_FIXED64: Final = 1
_BYTES: Final = 2
_FIXED32: Final = 5
_TRACE_ID: Final = 16


def _first_record(body: bytes) -> bytes | None:
    """The first record of the first scope that has one: fields 1, 2 and 2 of the nested messages."""
    try:
        for number, wire, resource in _fields(body):
            if number != 1 or wire != _BYTES or not isinstance(resource, bytes):
                return None
            for inner, kind, scope in _fields(resource):
                if inner != 2 or kind != _BYTES or not isinstance(scope, bytes):  # noqa: PLR2004 - field numbers
                    continue
                for last, kind_of, record in _fields(scope):
                    if last == 2 and kind_of == _BYTES and isinstance(record, bytes):  # noqa: PLR2004 - the field of records
                        return record
    except ValueError:
        return None
    return None


def _fields(data: bytes) -> Iterator[tuple[int, int, bytes | int]]:
    """Walk the fields of a protobuf message. Raises ValueError where it is none."""
    position, end = 0, len(data)
    while position < end:
        tag, position = _varint(data, position)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, position = _varint(data, position)
            yield number, wire, value
            continue
        if wire == _BYTES:
            size, position = _varint(data, position)
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        else:
            raise ValueError("unknown wire type")
        if position + size > end or not number:
            raise ValueError("cut short")
        yield number, wire, data[position : position + size]
        position += size


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            raise ValueError("cut short")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the format's own continuation bit
            return value, position
    raise ValueError("a varint without end")
