"""Both receivers on free ports around the real decoder, and one way to send over three transports."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

import grpc
import uvicorn
from google.protobuf.json_format import Parse
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from otlp_requests import NOW_NS, Loose, as_json

from collector.batch import Decoded, Signal
from collector.decode import decode
from collector.receivers.grpc import bind, grpc_server
from collector.receivers.http import http_app
from collector.receivers.limits import InFlight, Limits
from collector.receivers.tls import Tls
from collector.redact import RedactionSettings, Redactor

RESPONSES: dict[Signal, type[Message]] = {
    Signal.TRACES: ExportTraceServiceResponse,
    Signal.LOGS: ExportLogsServiceResponse,
    Signal.METRICS: ExportMetricsServiceResponse,
}
_SERVICES = {
    Signal.TRACES: "trace.v1.Trace",
    Signal.LOGS: "logs.v1.Logs",
    Signal.METRICS: "metrics.v1.Metrics",
}
_OUTCOMES = {
    200: "ok", 400: "malformed", 401: "unauthenticated", 403: "forbidden", 413: "too_large", 500: "internal",
    503: "unavailable",
}  # fmt: skip
_GRPC_OUTCOMES = {
    grpc.StatusCode.INVALID_ARGUMENT: "malformed",
    grpc.StatusCode.UNAUTHENTICATED: "unauthenticated",
    grpc.StatusCode.PERMISSION_DENIED: "forbidden",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "too_large",
    grpc.StatusCode.INTERNAL: "internal",
    grpc.StatusCode.UNAVAILABLE: "unavailable",
}


@dataclass
class Rig:
    """Running receivers. `fault` is raised by the next stage instead of taking a request; `tokens` guards."""

    http_port: int
    grpc_port: int
    loop: asyncio.AbstractEventLoop
    taken: list[Decoded] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)
    counted: Counter[tuple[str, ...]] = field(default_factory=Counter)
    fault: Exception | None = None
    delay_s: float = 0.0
    tokens: dict[str, bool] | None = None
    in_flight: InFlight | None = None

    def reset(self) -> None:
        """Forget what one test left."""
        self.taken.clear()
        self.notes.clear()
        self.counted.clear()
        self.fault = None
        self.delay_s = 0.0
        self.tokens = None

    def rows(self) -> list[dict[str, Any]]:
        """Return all rows that were taken."""
        return [row for decoded in self.taken if decoded.batch for row in decoded.batch.columns.to_pylist()]

    async def consume(self, signal: Signal, encoding: str, body: bytes) -> Decoded:
        """Decode as the ingest process does, and keep what came out."""
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        if self.fault is not None:
            raise self.fault
        decoded = await asyncio.to_thread(
            decode, signal, encoding, body, redactor=_REDACTOR, now_ns=NOW_NS, note=self.note
        )
        self.taken.append(decoded)
        return decoded

    def note(self, reason: str, count: int) -> None:
        """Count a repair."""
        self.notes[reason] += count

    def auth(self, token: str | None) -> Literal[401, 403] | None:
        """Check against `tokens`: name to whether it may send."""
        if self.tokens is None:
            return None
        if token not in self.tokens:
            return 401
        return None if self.tokens[token] else 403

    def request(self, *labels: str) -> None:
        """Count a request, for ReceiverMetrics."""
        self.counted[("request", *labels)] += 1

    def records(self, signal: str, transport: str, outcome: str, reason: str, count: int) -> None:
        """Count records, for ReceiverMetrics."""
        self.counted[("records", signal, transport, outcome, reason)] += count

    def received(self, signal: str, transport: str, body_bytes: int) -> None:
        """Count bytes, for ReceiverMetrics."""
        self.counted[("received", signal, transport)] += body_bytes


_M = TypeVar("_M", bound=Message)
_REDACTOR = Redactor(RedactionSettings())


@contextmanager
def receivers(limits: Limits, tls: Tls | None = None) -> Iterator[Rig]:
    """Run both receivers on one event loop in a thread of its own."""
    rig = Rig(0, 0, asyncio.new_event_loop())
    started = threading.Event()
    finish: list[Callable[[], None]] = []

    async def serve() -> None:
        rig.in_flight = InFlight(limits)
        shared: dict[str, Any] = {
            "limits": limits, "auth": rig.auth, "metrics": rig, "in_flight": rig.in_flight
        }  # fmt: skip
        over_grpc = grpc_server(rig.consume, **shared)
        rig.grpc_port = bind(over_grpc, "127.0.0.1:0", tls)
        await over_grpc.start()
        app = http_app(rig.consume, **shared)
        config = uvicorn.Config(app, host="127.0.0.1", port=0, lifespan="on", ws="none", log_level="error")
        if tls:
            config.ssl_certfile = tls.uvicorn_options().get("ssl_certfile")
            config.ssl_keyfile = tls.uvicorn_options().get("ssl_keyfile")
        over_http = uvicorn.Server(config)
        running = asyncio.ensure_future(over_http.serve())
        while not over_http.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
        rig.http_port = over_http.servers[0].sockets[0].getsockname()[1]
        finish.append(lambda: setattr(over_http, "should_exit", True))
        started.set()
        await running
        await over_grpc.stop(0)

    def run() -> None:
        asyncio.set_event_loop(rig.loop)
        rig.loop.run_until_complete(serve())
        rig.loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    assert started.wait(20)
    try:
        yield rig
    finally:
        rig.loop.call_soon_threadsafe(finish[0])
        thread.join(20)


@dataclass(frozen=True)
class Outcome:
    """What a sender was told: in which way it went, what was rejected, whether and when to try again."""

    kind: str
    response: Message | None = None
    message: str = ""
    retry_after_s: float | None = None

    @property
    def partial(self) -> Loose:
        """Return the partial success, None when it is unset."""
        assert self.kind == "ok", self
        response: Any = self.response
        return response.partial_success if response.HasField("partial_success") else None


class Transport(Protocol):
    """One way to send a request."""

    def send(self, rig: Rig, signal: Signal, request: Message, token: str | None = None) -> Outcome:
        """Send a message."""
        ...

    def send_raw(self, rig: Rig, signal: Signal, body: bytes, token: str | None = None) -> Outcome:
        """Send bytes as they are."""
        ...


@dataclass(frozen=True)
class OverHttp:
    """OTLP/HTTP in one of its two encodings."""

    json: bool

    def send(self, rig: Rig, signal: Signal, request: Message, token: str | None = None) -> Outcome:
        """Send a message."""
        return self.send_raw(
            rig, signal, as_json(request) if self.json else request.SerializeToString(), token
        )

    def send_raw(self, rig: Rig, signal: Signal, body: bytes, token: str | None = None) -> Outcome:
        """Send bytes as they are."""
        content_type = "application/json" if self.json else "application/x-protobuf"
        headers = {"Content-Type": content_type}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        answer = post(rig, f"/v1/{signal}", body, headers)
        assert answer.headers["content-type"] == content_type
        kind = _OUTCOMES[answer.code]
        if kind == "ok":
            return Outcome(kind, parsed(answer.body, RESPONSES[signal](), content_type))
        told = parsed(answer.body, Status(), content_type)
        retry_after = answer.headers.get("retry-after")
        return Outcome(kind, None, told.message, float(retry_after) if retry_after else None)


@dataclass(frozen=True)
class OverGrpc:
    """OTLP/gRPC."""

    compression: grpc.Compression = grpc.Compression.NoCompression

    def send(self, rig: Rig, signal: Signal, request: Message, token: str | None = None) -> Outcome:
        """Send a message."""
        return self.send_raw(rig, signal, request.SerializeToString(), token)

    def send_raw(self, rig: Rig, signal: Signal, body: bytes, token: str | None = None) -> Outcome:
        """Send bytes as they are."""
        metadata = (("authorization", f"Bearer {token}"),) if token is not None else ()
        method = f"/opentelemetry.proto.collector.{_SERVICES[signal]}Service/Export"
        with grpc.insecure_channel(f"127.0.0.1:{rig.grpc_port}") as channel:
            try:
                answer = channel.unary_unary(method)(
                    body, timeout=20, metadata=metadata, compression=self.compression
                )
            except grpc.RpcError as error:
                return _refusal(error)
        response = RESPONSES[signal]()
        response.ParseFromString(answer)
        return Outcome("ok", response)


def _refusal(error: Loose) -> Outcome:
    details = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin")
    retry_after = None
    if details:
        told = Status.FromString(details)
        for detail in told.details:
            info = RetryInfo()
            if detail.Unpack(info):
                retry_after = info.retry_delay.seconds + info.retry_delay.nanos / 1e9
    return Outcome(_GRPC_OUTCOMES[error.code()], None, error.details(), retry_after)


@dataclass(frozen=True)
class Answer:
    """An HTTP response."""

    code: int
    headers: dict[str, str]
    body: bytes


def post(rig: Rig, path: str, body: Loose, headers: dict[str, str], method: str = "POST") -> Answer:
    """Send one HTTP request on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", rig.http_port, timeout=20)
    try:
        return on(connection, path, body, headers, method)
    finally:
        connection.close()


def on(
    connection: http.client.HTTPConnection,
    path: str,
    body: Loose,
    headers: dict[str, str],
    method: str = "POST",
) -> Answer:
    """Send one HTTP request on an open connection."""
    connection.request(method, path, body, headers)
    response = connection.getresponse()
    return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())


def parsed(body: bytes, into: _M, content_type: str) -> _M:
    """Return the message that a body holds in this encoding."""
    if content_type == "application/json":
        json.loads(body)
        Parse(body, into)
    else:
        into.ParseFromString(body)
    return into
