"""OTLP/gRPC: Trace, Logs and Metrics services over `grpc.aio`, request bodies as raw bytes.

The message is not parsed by gRPC: its bytes go to the same decoder as those of OTLP/HTTP. It is read and
decompressed by us, as the only one of a stream, because gRPC does both for all calls at once before anybody
is asked. A message over
`Limits.max_body_bytes` is refused by gRPC itself with RESOURCE_EXHAUSTED and no RetryInfo, so that senders
do not try again; back-pressure is UNAVAILABLE with RetryInfo, so that they do.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, TypeAlias

import grpc
import grpc.aio

from collector.batch import Decoded, Signal
from collector.consumer import Consume, Rejected, TooLarge, Unavailable
from collector.receivers.auth import UNAUTHENTICATED, Auth, anyone, bearer_token
from collector.receivers.inflating import inflated
from collector.receivers.limits import Holding, InFlight, Limits
from collector.receivers.metrics import NoMetrics, ReceiverMetrics
from collector.receivers.status import PROTOBUF, encoded, response, shortened, status
from collector.receivers.tls import Tls

Context: TypeAlias = Any  # grpc ships no types

_TRANSPORT: Final = "grpc"
_STREAMS_PER_CONNECTION: Final = 64
_ZLIB: Final = 0x78  # deflate in a window of 32 KiB (RFC 1950)
_READ_AT_ONCE: Final = 8  # messages; each may be as large as the limits say before it is counted
_SERVICES: Final = {
    Signal.TRACES: "opentelemetry.proto.collector.trace.v1.TraceService",
    Signal.LOGS: "opentelemetry.proto.collector.logs.v1.LogsService",
    Signal.METRICS: "opentelemetry.proto.collector.metrics.v1.MetricsService",
}
_LOG: Final = logging.getLogger(__name__)


def grpc_server(
    consume: Consume,
    *,
    limits: Limits | None = None,
    auth: Auth = anyone,
    metrics: ReceiverMetrics | None = None,
    in_flight: InFlight | None = None,
) -> grpc.aio.Server:
    """Return a server that is neither bound (see `bind`) nor started.

    Give `in_flight` to share the bound on bytes with the HTTP receiver.
    """
    limits = limits or Limits()
    receiver = _Receiver(consume, limits, auth, metrics or NoMetrics(), in_flight or InFlight(limits))
    server = grpc.aio.server(
        options=(
            ("grpc.max_receive_message_length", limits.max_body_bytes),
            ("grpc.max_concurrent_streams", _STREAMS_PER_CONNECTION),
            ("grpc.so_reuseport", 0),
            ("grpc.per_message_decompression", 0),
        )
    )
    server.add_generic_rpc_handlers(
        tuple(
            grpc.method_handlers_generic_handler(
                service, {"Export": grpc.stream_unary_rpc_method_handler(receiver.handler(signal))}
            )
            for signal, service in _SERVICES.items()
        )
    )
    return server


def bind(server: grpc.aio.Server, address: str, tls: Tls | None = None) -> int:
    """Listen on `host:port` and return the port (port 0 picks one). Raises RuntimeError when it is taken."""
    if tls is None:
        port: int = server.add_insecure_port(address)
    else:
        pair = (tls.key_file.read_bytes(), tls.certificate_file.read_bytes())
        port = server.add_secure_port(address, grpc.ssl_server_credentials([pair]))
    return port


class _RefusedError(Exception):
    """The call is answered with an error; `reason` is its word in metrics."""

    def __init__(
        self,
        code: grpc.StatusCode,
        http_status: int,
        reason: str,
        message: str,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.http_status = http_status
        self.reason = reason
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class _Receiver:
    consume: Consume
    limits: Limits
    auth: Auth
    metrics: ReceiverMetrics
    in_flight: InFlight
    reading: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_READ_AT_ONCE))

    def handler(self, signal: Signal) -> Callable[[AsyncIterator[bytes], Context], Awaitable[bytes]]:
        """Return the Export method of one signal's service."""

        async def export(_bodies: AsyncIterator[bytes], context: Context) -> bytes:
            outcome = await self._outcome(signal, context)
            if isinstance(outcome, _RefusedError):
                await _abort(context, outcome)
            self._count(signal, outcome)
            return encoded(response(signal, outcome), PROTOBUF)

        return export

    async def _outcome(self, signal: Signal, context: Context) -> Decoded | _RefusedError:
        """Take a request, or say why not.

        gRPC keeps what ends a call in a cycle with its context; frames in a trace would keep the body there.
        """
        try:
            return await self._taken(signal, context)
        except _RefusedError as error:
            outcome = "unavailable" if error.retry_after_s is not None else "refused"
            self.metrics.request(signal.value, _TRANSPORT, outcome, error.reason)
            error.__cause__ = error.__context__ = None
            return error.with_traceback(None)

    async def _taken(self, signal: Signal, context: Context) -> Decoded:
        self._check_token(context)
        try:
            with self.in_flight.request() as holding:
                body = await self._read(context, holding)
                self.metrics.received(signal.value, _TRANSPORT, len(body))
                return await self.consume(signal, "protobuf", body)
        except TooLarge as error:
            raise _RefusedError(grpc.StatusCode.RESOURCE_EXHAUSTED, 413, "too_large", str(error)) from error
        except Rejected as error:
            raise _RefusedError(grpc.StatusCode.INVALID_ARGUMENT, 400, "malformed", str(error)) from error
        except Unavailable as error:
            raise _RefusedError(
                grpc.StatusCode.UNAVAILABLE, 503, "unavailable", str(error), error.retry_after
            ) from error
        except Exception as error:
            _LOG.exception("a request of %s could not be taken", signal.value)
            message = "the request could not be taken"
            raise _RefusedError(grpc.StatusCode.INTERNAL, 500, "internal", message) from error

    async def _read(self, context: Context, holding: Holding) -> bytes:
        try:
            async with asyncio.timeout(self.limits.read_timeout_s), self.reading:
                raw = await context.read()  # the iterator would keep it, in a cycle with its call
                if raw is grpc.aio.EOF:
                    raise Rejected("there is no request in the call")
                holding.grow_to(len(raw))
                encoding = encoding_of(raw)
                return await inflated(encoding, raw, self.limits, holding) if encoding else raw
        except TimeoutError:
            raise Unavailable("the request did not come in time", self.limits.retry_after_s) from None

    def _check_token(self, context: Context) -> None:
        metadata = dict(context.invocation_metadata() or ())
        denied = self.auth(bearer_token(metadata.get("authorization")))
        if denied == UNAUTHENTICATED:
            message = "a bearer token is required"
            raise _RefusedError(grpc.StatusCode.UNAUTHENTICATED, 401, "unauthenticated", message)
        if denied is not None:
            message = "this token may not send telemetry"
            raise _RefusedError(grpc.StatusCode.PERMISSION_DENIED, 403, "forbidden", message)

    def _count(self, signal: Signal, decoded: Decoded) -> None:
        outcome = "partial" if decoded.rejected else "accepted"
        self.metrics.request(signal.value, _TRANSPORT, outcome, "")
        self.metrics.records(signal.value, _TRANSPORT, "accepted", "", decoded.accepted)
        for reason, count in decoded.rejected.items():
            self.metrics.records(signal.value, _TRANSPORT, "rejected", reason, count)


def encoding_of(message: bytes) -> str:
    r"""Tell how a message is compressed, "" when it is not: gRPC keeps that header to itself.

    No OTLP request begins like gzip (field 3 of a wire type that does not exist) or zlib (a field 15).

    >>> encoding_of(b"\x1f\x8b\x08\x00"), encoding_of(b"\x78\x9c\xed\xc4"), encoding_of(b"\x0a\x00")
    ('gzip', 'deflate', '')
    """
    if message.startswith(b"\x1f\x8b\x08"):
        return "gzip"
    if len(message) > 1 and message[0] == _ZLIB and (message[0] << 8 | message[1]) % 31 == 0:
        return "deflate"
    return ""


async def _abort(context: Context, error: _RefusedError) -> NoReturn:
    details = status(error.http_status, str(error), retry_after_s=error.retry_after_s)
    trailer = (("grpc-status-details-bin", details.SerializeToString()),)
    await context.abort(error.code, shortened(str(error)), trailing_metadata=trailer)
    raise AssertionError("abort returned")
