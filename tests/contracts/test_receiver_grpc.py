"""What OTLP/gRPC demands beyond what all transports share."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import BadRequest
from google.rpc.status_pb2 import Status
from memory import peak_kib, reset_peak_kib
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub
from otlp_requests import Loose, spans_of, traces
from receiver_rig import Rig, receivers

from collector.receivers.limits import MIB, Limits


@pytest.fixture(scope="module")
def running() -> Iterator[Rig]:
    with receivers(Limits(max_body_bytes=4 * MIB, max_in_flight_bytes=12 * MIB)) as rig:
        yield rig


@pytest.fixture
def rig(running: Rig) -> Rig:
    running.reset()
    return running


@pytest.fixture
def stub(rig: Rig) -> Iterator[Any]:
    with grpc.insecure_channel(f"127.0.0.1:{rig.grpc_port}") as channel:
        yield TraceServiceStub(channel)  # type: ignore[no-untyped-call]


def refused(stub: Loose, request: Loose, **options: Loose) -> Loose:
    with pytest.raises(grpc.RpcError) as caught:
        stub.Export(request, timeout=20, **options)
    return caught.value


def test_the_generated_stub_is_served(rig: Rig, stub: Loose) -> None:
    assert stub.Export(traces(2), timeout=20) == ExportTraceServiceResponse()
    assert len(rig.rows()) == 2


def test_bad_data_has_details(rig: Rig) -> None:
    with (
        grpc.insecure_channel(f"127.0.0.1:{rig.grpc_port}") as channel,
        pytest.raises(grpc.RpcError) as caught,
    ):
        channel.unary_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Export")(
            b"\xff", timeout=20
        )
    trailer = dict(caught.value.trailing_metadata())["grpc-status-details-bin"]
    detail = BadRequest()
    assert Status.FromString(trailer).details[0].Unpack(detail)
    assert detail.field_violations[0].description


def test_a_compressed_bomb_is_refused_in_bounded_memory(stub: Loose) -> None:
    request = traces()
    spans_of(request)[0].attributes.add(key="k").value.string_value = "x" * (48 * MIB)
    before = reset_peak_kib()
    error = refused(stub, request, compression=grpc.Compression.Gzip)
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    trailer = dict(error.trailing_metadata() or ())["grpc-status-details-bin"]
    assert not Status.FromString(trailer).details  # no RetryInfo
    # The sender lives in this process too, and holds the message once more in its own form.
    assert peak_kib() - before < 3 * 48 * 1024


def test_a_refused_request_is_not_kept_until_somebody_looks_for_garbage(rig: Rig) -> None:
    body = b"\xff" * (3 * MIB)
    with grpc.insecure_channel(f"127.0.0.1:{rig.grpc_port}") as channel:
        export = channel.unary_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Export")

        def refuse() -> None:
            with pytest.raises(grpc.RpcError) as caught:
                export(body, timeout=20)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT

        refuse()
        gc.disable()
        try:
            before = reset_peak_kib()
            for _ in range(40):
                refuse()
            assert peak_kib() - before < 60 * 1024
        finally:
            gc.enable()


def test_a_call_without_a_request_is_refused(rig: Rig) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{rig.grpc_port}") as channel:
        export = channel.stream_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Export")
        with pytest.raises(grpc.RpcError) as caught:
            export(iter(()), timeout=20)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_too_much_in_flight_is_back_pressure(rig: Rig, stub: Loose) -> None:
    assert rig.in_flight is not None
    with rig.in_flight.request() as other:
        other.grow_to(12 * MIB - 10)
        error = refused(stub, traces())
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert "grpc-status-details-bin" in dict(error.trailing_metadata())
    stub.Export(traces(), timeout=20)


def test_a_deadline_ends_the_call_and_not_the_server(rig: Rig, stub: Loose) -> None:
    rig.delay_s = 0.5
    with pytest.raises(grpc.RpcError) as caught:
        stub.Export(traces(), timeout=0.1)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    rig.delay_s = 0.0
    stub.Export(traces(), timeout=20)
    assert rig.in_flight is not None


def test_a_cancelled_call_leaves_nothing_behind(rig: Rig, stub: Loose) -> None:
    rig.delay_s = 0.3
    call = stub.Export.future(traces(), timeout=20)
    call.cancel()
    rig.delay_s = 0.0
    stub.Export(traces(), timeout=20)
    assert rig.in_flight is not None
    assert rig.in_flight.held == 0
    assert call.cancelled()


def test_other_methods_are_unimplemented(rig: Rig) -> None:
    with (
        grpc.insecure_channel(f"127.0.0.1:{rig.grpc_port}") as channel,
        pytest.raises(grpc.RpcError) as caught,
    ):
        channel.unary_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Import")(b"", timeout=20)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
