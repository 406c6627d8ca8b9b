"""What receivers answer: success and partial success as OTLP, every error as a google.rpc.Status."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from google.protobuf.duration_pb2 import Duration
from google.protobuf.json_format import MessageToJson
from google.protobuf.message import Message
from google.rpc import code_pb2
from google.rpc.error_details_pb2 import BadRequest, RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from collector.batch import Decoded, Signal

PROTOBUF: Final = "application/x-protobuf"
JSON: Final = "application/json"

MAX_MESSAGE_BYTES: Final = 1024
"""What a client is told at most; far below the 4 MiB that OTLP allows for a response."""

_BAD_REQUEST: Final = 400
_CODES: Final[Mapping[int, int]] = {
    400: code_pb2.INVALID_ARGUMENT,
    401: code_pb2.UNAUTHENTICATED,
    403: code_pb2.PERMISSION_DENIED,
    404: code_pb2.NOT_FOUND,
    405: code_pb2.UNIMPLEMENTED,
    408: code_pb2.DEADLINE_EXCEEDED,
    413: code_pb2.RESOURCE_EXHAUSTED,
    415: code_pb2.INVALID_ARGUMENT,
    500: code_pb2.INTERNAL,
    503: code_pb2.UNAVAILABLE,
}


def status(http_status: int, message: str, *, retry_after_s: float | None = None) -> Status:
    """Return the Status for an HTTP status code; with RetryInfo when the sender is to try again."""
    answer = Status(code=_CODES.get(http_status, code_pb2.UNKNOWN), message=shortened(message))
    if http_status == _BAD_REQUEST:
        violation = BadRequest.FieldViolation(field="body", description=shortened(message))
        answer.details.add().Pack(BadRequest(field_violations=[violation]))
    if retry_after_s is not None:
        answer.details.add().Pack(RetryInfo(retry_delay=_duration(retry_after_s)))
    return answer


def response(signal: Signal, decoded: Decoded) -> Message:
    """Return the Export…ServiceResponse; `partial_success` is unset when nothing was rejected."""
    count = sum(decoded.rejected.values())
    message = shortened(decoded.message)
    if signal is Signal.TRACES:
        traces = ExportTraceServiceResponse()
        if count:
            traces.partial_success.rejected_spans = count
            traces.partial_success.error_message = message
        return traces
    if signal is Signal.LOGS:
        logs = ExportLogsServiceResponse()
        if count:
            logs.partial_success.rejected_log_records = count
            logs.partial_success.error_message = message
        return logs
    metrics = ExportMetricsServiceResponse()
    if count:
        metrics.partial_success.rejected_data_points = count
        metrics.partial_success.error_message = message
    return metrics


def encoded(message: Message, content_type: str) -> bytes:
    """Return the message in the encoding of `PROTOBUF` or `JSON`."""
    if content_type == JSON:
        return MessageToJson(message, indent=None).encode()
    return message.SerializeToString()


def shortened(message: str) -> str:
    """Return the message cut to `MAX_MESSAGE_BYTES` of UTF-8."""
    return message.encode(errors="replace")[:MAX_MESSAGE_BYTES].decode(errors="ignore")


def retry_after_header(seconds: float) -> str:
    """Return the time to wait as a Retry-After header says it: whole seconds, one at least."""
    return str(max(1, math.ceil(seconds)))


def _duration(seconds: float) -> Duration:
    whole = int(seconds)
    return Duration(seconds=whole, nanos=int((seconds - whole) * 1e9))
