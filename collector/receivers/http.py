"""OTLP/HTTP as a bare ASGI application: `POST …/v1/{traces,logs,metrics}`, protobuf or JSON.

Serve it with uvicorn on one event loop. Each answer is in the encoding of its request, errors are
google.rpc.Status. What a request may weigh and how long it may take is in `Limits`; a refused request's
body is read to its end, so that the connection can be used again, or the connection is closed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from collector.batch import Decoded, Signal
from collector.consumer import Consume, Rejected, TooLarge, Unavailable
from collector.receivers.auth import UNAUTHENTICATED, Auth, anyone, bearer_token
from collector.receivers.compression import ENCODINGS
from collector.receivers.inflating import inflated
from collector.receivers.limits import Holding, InFlight, Limits
from collector.receivers.metrics import NoMetrics, ReceiverMetrics
from collector.receivers.status import JSON, PROTOBUF, encoded, response, retry_after_header, status

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers: TypeAlias = Mapping[bytes, bytes]

_SIGNALS: Final = {f"/v1/{signal}": signal for signal in Signal}
_ENCODING: Final = {PROTOBUF: "protobuf", JSON: "json"}
_LOG: Final = logging.getLogger(__name__)


def http_app(
    consume: Consume,
    *,
    limits: Limits | None = None,
    auth: Auth = anyone,
    metrics: ReceiverMetrics | None = None,
    in_flight: InFlight | None = None,
) -> Application:
    """Return the ASGI application. Give `in_flight` to share the bound on bytes with the gRPC receiver."""
    limits = limits or Limits()
    return _Receiver(consume, limits, auth, metrics or NoMetrics(), in_flight or InFlight(limits))


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a client is told."""

    code: int
    body: bytes
    content_type: str
    headers: tuple[tuple[bytes, bytes], ...] = ()
    close: bool = False


class _RefusedError(Exception):
    """The request is answered with an error; `code` is the HTTP status, `reason` its word in metrics."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        headers: tuple[tuple[bytes, bytes], ...] = (),
        retry_after_s: float | None = None,
        close: bool = False,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.headers = headers
        self.retry_after_s = retry_after_s
        self.close = close


class _DisconnectedError(Exception):
    """The client is gone; there is nobody to answer."""


@dataclass(slots=True)
class _Request:
    """One request while its body comes in; `transport` is sharpened as the encoding becomes known."""

    scope: Scope
    receive: Receive
    headers: Headers
    signal: str = "unknown"
    transport: str = "http"
    finished: bool = False
    drained: int = 0


@dataclass(frozen=True, slots=True)
class _Receiver:
    consume: Consume
    limits: Limits
    auth: Auth
    metrics: ReceiverMetrics
    in_flight: InFlight

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one ASGI connection scope."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            return
        request = _Request(scope, receive, dict(scope["headers"]))
        try:
            answer = await self._answer(request)
        except _DisconnectedError:
            self.metrics.request(request.signal, request.transport, "refused", "disconnected")
            return
        await _send(send, answer)

    async def _answer(self, request: _Request) -> _Answer:
        content_type = JSON if _media_type(request.headers) == JSON else PROTOBUF
        try:
            signal = _signal(request.scope["path"])
            request.signal = signal.value
            self._check_head(request)
            request.transport = f"http_{_ENCODING[content_type]}"
            decoded = await self._taken(request, signal, _ENCODING[content_type])
        except _RefusedError as error:
            return await self._refusal(request, error, content_type)
        self._count(request, signal, decoded)
        return _Answer(200, encoded(response(signal, decoded), content_type), content_type)

    def _check_head(self, request: _Request) -> None:
        if request.scope["method"] != "POST":
            raise _RefusedError(405, "method", "only POST is understood here", headers=((b"allow", b"POST"),))
        authorization = request.headers.get(b"authorization")
        denied = self.auth(bearer_token(authorization.decode("latin-1") if authorization else None))
        if denied == UNAUTHENTICATED:
            challenge = ((b"www-authenticate", b'Bearer realm="otlp"'),)
            raise _RefusedError(401, "unauthenticated", "a bearer token is required", headers=challenge)
        if denied is not None:
            raise _RefusedError(403, "forbidden", "this token may not send telemetry")
        media_type = _media_type(request.headers)
        if media_type not in _ENCODING:
            raise _RefusedError(
                415, "content_type", f"send {PROTOBUF} or {JSON}, not {media_type or 'nothing'}"
            )
        encoding = _content_encoding(request.headers)
        if encoding not in ENCODINGS:
            raise _RefusedError(415, "content_encoding", f"content encoding {encoding!r} is not understood")

    async def _taken(self, request: _Request, signal: Signal, encoding: str) -> Decoded:
        try:
            with self.in_flight.request() as holding:
                body = await self._body(request, holding)
                self.metrics.received(request.signal, request.transport, len(body))
                return await self.consume(signal, encoding, body)
        except TooLarge as error:
            raise _RefusedError(413, "too_large", str(error)) from error
        except Rejected as error:
            raise _RefusedError(400, "malformed", str(error)) from error
        except Unavailable as error:
            headers = ((b"retry-after", retry_after_header(error.retry_after).encode()),)
            raise _RefusedError(
                503, "unavailable", str(error), headers=headers, retry_after_s=error.retry_after
            ) from error
        except (_RefusedError, _DisconnectedError):
            raise
        except Exception as error:
            _LOG.exception("a request of %s could not be taken", signal.value)
            raise _RefusedError(500, "internal", "the request could not be taken") from error

    async def _body(self, request: _Request, holding: Holding) -> bytes:
        encoding = _content_encoding(request.headers)
        compressed = encoding not in ("", "identity")
        limit = self.limits.max_compressed_bytes if compressed else self.limits.max_body_bytes
        announced = _content_length(request.headers)
        if announced is not None:
            if announced > limit:
                raise TooLarge(f"the request is over {limit} bytes")
            holding.grow_to(announced)
        try:
            async with asyncio.timeout(self.limits.read_timeout_s):
                raw = await _read(request, limit, holding)
        except TimeoutError:
            raise _RefusedError(408, "timeout", "the request did not come in time", close=True) from None
        if not compressed:
            return raw
        return await inflated(encoding, raw, self.limits, holding)

    async def _refusal(self, request: _Request, error: _RefusedError, content_type: str) -> _Answer:
        outcome = "unavailable" if error.retry_after_s is not None else "refused"
        self.metrics.request(request.signal, request.transport, outcome, error.reason)
        close = error.close or not await self._drained(request)
        body = encoded(status(error.code, error.message, retry_after_s=error.retry_after_s), content_type)
        return _Answer(error.code, body, content_type, error.headers, close)

    async def _drained(self, request: _Request) -> bool:
        """Read and drop the rest of the body; return whether it ended within the bounds."""
        announced = _content_length(request.headers)
        if announced is not None and announced > self.limits.max_drain_bytes:
            return False
        try:
            async with asyncio.timeout(self.limits.read_timeout_s):
                while not request.finished and request.drained <= self.limits.max_drain_bytes:
                    await _chunk(request)
        except TimeoutError:
            return False
        return request.finished

    def _count(self, request: _Request, signal: Signal, decoded: Decoded) -> None:
        outcome = "partial" if decoded.rejected else "accepted"
        self.metrics.request(signal.value, request.transport, outcome, "")
        self.metrics.records(signal.value, request.transport, "accepted", "", decoded.accepted)
        for reason, count in decoded.rejected.items():
            self.metrics.records(signal.value, request.transport, "rejected", reason, count)


async def _read(request: _Request, limit: int, holding: Holding) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while not request.finished:
        chunk = await _chunk(request)
        size += len(chunk)
        if size > limit:
            raise TooLarge(f"the request is over {limit} bytes")
        holding.grow_to(size)
        chunks.append(chunk)
    return b"".join(chunks)


async def _chunk(request: _Request) -> bytes:
    message = await request.receive()
    if message["type"] == "http.disconnect":
        raise _DisconnectedError
    request.finished = not message.get("more_body", False)
    chunk: bytes = message.get("body", b"")
    request.drained += len(chunk)
    return chunk


def _signal(path: str) -> Signal:
    trimmed = path.rstrip("/")
    for suffix, signal in _SIGNALS.items():
        if trimmed.endswith(suffix):
            return signal
    raise _RefusedError(404, "path", "no OTLP path: /v1/traces, /v1/logs and /v1/metrics are understood")


def _media_type(headers: Headers) -> str:
    return headers.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip().lower()


def _content_encoding(headers: Headers) -> str:
    return headers.get(b"content-encoding", b"").decode("latin-1").strip().lower()


def _content_length(headers: Headers) -> int | None:
    stated = headers.get(b"content-length", b"")
    return int(stated) if stated.isdigit() else None


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


async def _send(send: Send, answer: _Answer) -> None:
    headers = [
        (b"content-type", answer.content_type.encode()),
        (b"content-length", str(len(answer.body)).encode()),
        *answer.headers,
    ]
    if answer.close:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": answer.code, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
