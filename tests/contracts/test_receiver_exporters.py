"""The exporters of opentelemetry-python deliver to the receivers, also through a stretch of back-pressure."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from receiver_rig import Rig, receivers

from collector.consumer import Unavailable
from collector.receivers.limits import Limits


@pytest.fixture(scope="module")
def running() -> Iterator[Rig]:
    with receivers(Limits()) as rig:
        yield rig


@pytest.fixture
def rig(running: Rig) -> Rig:
    running.reset()
    return running


@pytest.mark.parametrize("kind", ["http", "http_gzip", "grpc"])
def test_spans_arrive_once_although_the_first_try_is_refused(rig: Rig, kind: str) -> None:
    exporter: Any
    if kind == "grpc":
        exporter = GrpcExporter(endpoint=f"http://127.0.0.1:{rig.grpc_port}", insecure=True)
    else:
        compression = Compression.Gzip if kind == "http_gzip" else Compression.NoCompression
        exporter = HttpExporter(
            endpoint=f"http://127.0.0.1:{rig.http_port}/v1/traces", compression=compression
        )
    rig.fault = Unavailable("starting", retry_after=0.2)
    recovered = threading.Timer(0.3, lambda: setattr(rig, "fault", None))
    recovered.start()
    provider = TracerProvider(resource=Resource.create({"service.name": "travel-desk"}))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    tracer = provider.get_tracer("travel")
    for number in range(40):
        with tracer.start_as_current_span(f"step {number}") as span:
            span.set_attribute("gen_ai.tool.name", "search")
            span.add_event("gen_ai.choice", {"finish_reason": "stop"})
    assert provider.force_flush(20_000)
    provider.shutdown()
    recovered.join()
    rows = rig.rows()
    assert sorted(row["SpanName"] for row in rows) == sorted(f"step {number}" for number in range(40))
    assert {row["ServiceName"] for row in rows} == {"travel-desk"}
    assert rig.counted[
        ("request", "traces", "grpc" if kind == "grpc" else "http_protobuf", "unavailable", "unavailable")
    ]
