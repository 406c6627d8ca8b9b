"""An agent with the real OpenTelemetry SDK: `python_exporter.py grpc|http ENDPOINT SPANS SECONDS SESSION`."""

from __future__ import annotations

import sys
import time

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter


def exporter(protocol: str, endpoint: str) -> SpanExporter:
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as Grpc

        return Grpc(endpoint=endpoint, insecure=True)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as Http

    return Http(endpoint=f"{endpoint}/v1/traces")


def main() -> None:
    protocol, endpoint, spans, seconds, session = sys.argv[1:]
    provider = TracerProvider(resource=Resource.create({"service.name": f"exporter-{protocol}"}))
    provider.add_span_processor(BatchSpanProcessor(exporter(protocol, endpoint), schedule_delay_millis=200))
    tracer = provider.get_tracer("acceptance")
    for number in range(int(spans)):
        with tracer.start_as_current_span(
            "execute_tool look_up",
            attributes={
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": "look_up",
                "gen_ai.tool.call.arguments": f'{{"number": {number}}}',
                "gen_ai.tool.call.result": f"row {number}",
                "gen_ai.conversation.id": session,
            },
        ):
            pass
        time.sleep(float(seconds) / int(spans))
    assert provider.force_flush(60_000)
    provider.shutdown()


if __name__ == "__main__":
    main()
