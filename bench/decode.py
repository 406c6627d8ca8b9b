"""What decoding and redacting one span costs: columns by `ptars` against a loop over upb objects.

Usage: ``python -m bench.decode [--spans 512] [--rounds 40]``. A span has 12 attributes; every second one is
an agent's tool span with a result of 500 bytes. Prints the best and the median round, in microseconds of
CPU time a span.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable, Mapping

import pyarrow as pa
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from bench.upb_loop import decode_by_loop
from collector.batch import Signal
from collector.decode import decode
from collector.otlp_descriptor import columns_of
from collector.redact import Field, RedactionSettings, Redactor

_NOW_NS = 1_790_000_000_000_000_000
_RESULT_CHARS = 500
_WORDS = (
    "the",
    "page",
    "was",
    "fetched",
    "and",
    "its",
    "table",
    "has",
    "rows",
    "for",
    "each",
    "city",
    "with",
    "name",
)


class _Blind(Redactor):
    """Redacts nothing."""

    def fields(self, fields: Mapping[str, Field]) -> dict[str, pa.StringArray]:
        """Return the texts as they are."""
        return {name: field.texts for name, field in fields.items()}


def request(spans: int, seed: int = 7) -> bytes:
    """Return a request of so many spans in one resource and scope: half web spans, half tool spans."""
    rng = random.Random(seed)
    message = ExportTraceServiceRequest()
    resource = message.resource_spans.add()
    for key, value in (
        ("service.name", "travel-desk"),
        ("service.version", "1.4.2"),
        ("telemetry.sdk.language", "python"),
        ("telemetry.sdk.name", "opentelemetry"),
        ("telemetry.sdk.version", "1.40.0"),
        ("host.name", "worker-12"),
        ("process.pid", "4121"),
        ("deployment.environment.name", "production"),
    ):
        resource.resource.attributes.add(key=key).value.string_value = value
    scope = resource.scope_spans.add()
    scope.scope.name = "travel.desk"
    for number in range(spans):
        span = scope.spans.add(
            trace_id=rng.randbytes(16),
            span_id=rng.randbytes(8),
            parent_span_id=rng.randbytes(8),
            name="execute_tool search" if number % 2 else "GET /cities/{id}",
            kind=1 if number % 2 else 2,
            start_time_unix_nano=_NOW_NS + number * 1000,
            end_time_unix_nano=_NOW_NS + number * 1000 + 52_000_000,
        )
        for name, content in _tool(rng, number) if number % 2 else _web(rng, number):
            target = span.attributes.add(key=name).value
            if isinstance(content, int):
                target.int_value = content
            else:
                target.string_value = content
    return message.SerializeToString()


def _tool(rng: random.Random, number: int) -> list[tuple[str, str | int]]:
    text = ""
    while len(text) < _RESULT_CHARS:
        text += rng.choice(_WORDS) + " "
    return [
        ("gen_ai.operation.name", "execute_tool"),
        ("gen_ai.tool.name", "search"),
        ("gen_ai.tool.call.id", f"call_{number:08x}"),
        ("gen_ai.tool.type", "function"),
        ("gen_ai.tool.call.arguments", f'{{"query": "hotels in city {number % 977}", "page": {number % 7}}}'),
        ("gen_ai.tool.call.result", text[:_RESULT_CHARS]),
        ("gen_ai.conversation.id", f"conversation-{number % 61}"),
        ("gen_ai.agent.name", "planner"),
        ("gen_ai.agent.id", f"agent-{number % 61}"),
        ("gen_ai.usage.input_tokens", number % 3000),
        ("gen_ai.provider.name", "openai"),
        ("user.id", f"user-{number % 331}"),
    ]


def _web(rng: random.Random, number: int) -> list[tuple[str, str | int]]:
    return [
        ("http.request.method", "GET"),
        ("http.route", "/cities/{id}"),
        ("url.path", f"/cities/{number}"),
        ("url.scheme", "https"),
        ("http.response.status_code", 200),
        ("server.address", "cities.internal"),
        ("server.port", 443),
        ("client.address", f"10.0.{rng.randrange(256)}.{rng.randrange(256)}"),
        ("network.protocol.version", "1.1"),
        ("user_agent.original", "travel-desk/1.4.2 (linux; x86_64)"),
        ("thread.id", number % 40),
        ("thread.name", f"worker-{number % 40}"),
    ]


def measure(name: str, spans: int, rounds: int, work: Callable[[], object]) -> None:
    """Print best and median CPU microseconds a span over the rounds."""
    work()
    costs = []
    for _ in range(rounds):
        begun = time.thread_time_ns()
        work()
        costs.append((time.thread_time_ns() - begun) / 1000 / spans)
    print(f"{name:46} best {min(costs):7.2f}   median {statistics.median(costs):7.2f}  us CPU a span")


def main() -> None:
    """Measure each way to decode, and what redaction adds."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--spans", type=int, default=512)
    options.add_argument("--rounds", type=int, default=40)
    chosen = options.parse_args()
    body = request(chosen.spans)
    print(f"{chosen.spans} spans, {len(body) / chosen.spans:.0f} bytes a span")
    plain, full = _Blind(RedactionSettings()), Redactor(RedactionSettings())
    hashes = Redactor(RedactionSettings(hash_only=True))

    def columns(redactor: Redactor) -> Callable[[], object]:
        return lambda: decode(Signal.TRACES, "protobuf", body, redactor=redactor, now_ns=_NOW_NS)

    ways: list[tuple[str, Callable[[], object]]] = [
        ("upb: parse alone", lambda: ExportTraceServiceRequest.FromString(body)),
        ("upb: parse, loop, Arrow", lambda: decode_by_loop(body)),
        (
            "ptars: parse into nested columns alone",
            lambda: columns_of("TracesData").list_to_record_batch([body]),
        ),
        ("ptars: decode without redaction", columns(plain)),
        ("ptars: decode with redaction", columns(full)),
        ("ptars: decode in hash-only mode", columns(hashes)),
    ]
    for name, work in ways:
        measure(name, chosen.spans, chosen.rounds, work)


if __name__ == "__main__":
    main()
