"""Pre-encoded OTLP load: a few request bodies whose ids, times and arguments are overwritten in place.

Half of the spans are tool calls with 500-byte results, half are HTTP client spans; 12 attributes each.
Every request carries new ids, so nothing is a resend. Encoding costs nothing while the load runs. No result
is told twice, each line of it begins anew, as of agents that get on; with `--equal-results` all are one text,
which is what detectors look for.

    python bench/load.py URL --rate SPANS_PER_S --seconds S [--batch 512] [--connections 2] [--equal-results]
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import secrets
import sys
import threading
import time
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

LINE: Final = " | shipped | Lisbon | 17.40 EUR | weight 2.1 kg | carrier DPD | updated 2026-11-02 ;"
LINES: Final = 5
SESSIONS: Final = 200
MARK: Final = 16
TRACE_SPANS: Final = 16


def _kv(key: str, value: str | int) -> KeyValue:
    any_value = AnyValue(int_value=value) if isinstance(value, int) else AnyValue(string_value=value)
    return KeyValue(key=key, value=any_value)


@dataclass(frozen=True, slots=True)
class Template:
    """An encoded request and where in it the changing bytes are."""

    body: bytes
    trace_at: npt.NDArray[np.int64]
    span_at: npt.NDArray[np.int64]
    start_at: npt.NDArray[np.int64]
    end_at: npt.NDArray[np.int64]
    argument_at: npt.NDArray[np.int64]
    call_at: npt.NDArray[np.int64]
    result_at: npt.NDArray[np.int64]

    def fresh(self, rng: np.random.Generator, now_ns: int, *, equal_results: bool = False) -> bytes:
        """The request with new ids, arguments and times, and new lines in results but for `equal_results`."""
        data = np.frombuffer(self.body, dtype=np.uint8).copy()
        traces = rng.integers(0, 256, (-(-self.trace_at.size // TRACE_SPANS), 16), dtype=np.uint8)
        data[self.trace_at[:, None] + np.arange(16)] = np.repeat(traces, TRACE_SPANS, axis=0)[
            : self.trace_at.size
        ]
        data[self.span_at[:, None] + np.arange(8)] = rng.integers(
            0, 256, (self.span_at.size, 8), dtype=np.uint8
        )
        for at in (self.argument_at, self.call_at, *([] if equal_results else [self.result_at])):
            data[at[:, None] + np.arange(MARK)] = rng.integers(97, 123, (at.size, MARK), dtype=np.uint8)
        for at, shift in ((self.start_at, 50_000_000), (self.end_at, 0)):
            times = (now_ns - shift + np.arange(at.size, dtype=np.int64)).astype("<u8")
            data[at[:, None] + np.arange(8)] = times.view(np.uint8).reshape(-1, 8)
        return data.tobytes()


def template(spans: int) -> Template:
    """Encode one request of `spans` spans and find its changing parts."""
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    resource.resource.attributes.extend(
        [_kv("service.name", "bench-agent"), _kv("service.instance.id", "bench-1"), _kv("host.name", "bench"),
         _kv("telemetry.sdk.language", "python")]
    )  # fmt: skip
    scope = resource.scope_spans.add()
    scope.scope.name = "bench"
    marks: list[list[bytes]] = [[], [], [], [], [], [], []]
    for number in range(spans):
        trace, own, start, end = (secrets.token_bytes(size) for size in (16, 8, 7, 7))
        argument, call = (secrets.token_hex(MARK // 2) for _ in range(2))
        lines = [secrets.token_hex(MARK // 2) for _ in range(LINES)]
        span = scope.spans.add(
            trace_id=trace,
            span_id=own,
            start_time_unix_nano=int.from_bytes(start + b"\x01", "little"),
            end_time_unix_nano=int.from_bytes(end + b"\x01", "little"),
        )
        tool = number % 2 == 0
        _fill_tool(span, number, argument, call, lines) if tool else _fill_http(span, argument)
        changing = [
            trace,
            own,
            start,
            end,
            argument.encode(),
            *([call.encode()] if tool else []),
        ]
        for column, mark in zip(marks, changing, strict=False):
            column.append(mark)
        marks[-1] += [line.encode() for line in lines] if tool else []
    body = request.SerializeToString()
    return Template(
        body, *(np.array([body.index(mark) for mark in column], dtype=np.int64) for column in marks)
    )


def _fill_http(span: Span, argument: str) -> None:
    span.name, span.kind = "GET /orders", Span.SPAN_KIND_CLIENT
    attributes: dict[str, str | int] = {
        "http.request.method": "GET",
        "url.full": f"https://shop.example.invalid/orders/{argument}",
        "server.address": "shop.example.invalid",
        "server.port": 443,
        "http.response.status_code": 200,
        "network.protocol.version": "1.1",
        "user_agent.original": "bench/1.0",
        "thread.id": 7,
        "thread.name": "worker-7",
        "http.response.body.size": 18_312,
        "code.function.name": "fetch",
        "deployment.environment.name": "bench",
    }
    span.attributes.extend(_kv(key, value) for key, value in attributes.items())


def _fill_tool(span: Span, number: int, argument: str, call: str, lines: list[str]) -> None:
    span.name, span.kind = "execute_tool query_orders", Span.SPAN_KIND_INTERNAL
    attributes: dict[str, str | int] = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "query_orders",
        "gen_ai.tool.call.id": f"call_{call}",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.arguments": json.dumps({"customer": argument, "limit": 20}),
        "gen_ai.tool.call.result": "\n".join(f"{line}{LINE}" for line in lines),
        "gen_ai.conversation.id": f"session-{number // 2 % SESSIONS}",
        "gen_ai.agent.name": "bench",
        "gen_ai.provider.name": "bench",
        "gen_ai.request.model": "bench-model",
        "thread.id": 7,
        "user.id": "user-1",
    }
    span.attributes.extend(_kv(key, value) for key, value in attributes.items())


def run(options: argparse.Namespace) -> dict[str, float]:
    """Send for `seconds` at most `rate` spans/s; what was acknowledged and how long that took."""
    target, batch = urlsplit(options.url), options.batch
    bodies = [template(batch) for _ in range(2)]
    state = {"sent": 0, "acknowledged": 0, "refused": 0}
    lock = threading.Lock()
    started = time.monotonic()

    def worker(seed: int) -> None:
        rng = np.random.default_rng(seed)
        connection = http.client.HTTPConnection(str(target.hostname), target.port, timeout=60)
        while time.monotonic() - started < options.seconds:
            with lock:
                due = started + state["sent"] / options.rate
                state["sent"] += batch
            time.sleep(max(0.0, due - time.monotonic()))
            body = bodies[int(rng.integers(len(bodies)))].fresh(
                rng, time.time_ns(), equal_results=options.equal_results
            )
            while True:
                connection.request(
                    "POST", f"{target.path}/v1/traces", body, {"content-type": "application/x-protobuf"}
                )
                response = connection.getresponse()
                response.read()
                if response.status == http.client.OK:
                    break
                with lock:
                    state["refused"] += 1
                time.sleep(float(response.headers.get("retry-after", "0.2")))
            with lock:
                state["acknowledged"] += batch
        connection.close()

    threads = [
        threading.Thread(target=worker, args=(int.from_bytes(os.urandom(4)),))
        for _ in range(options.connections)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed = time.monotonic() - started
    cpu = time.process_time()
    return {**state, "elapsed_s": elapsed, "spans_per_s": state["acknowledged"] / elapsed, "load_cpu_s": cpu}


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("url")
    parser.add_argument("--rate", type=float, default=10_000)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--connections", type=int, default=2)
    parser.add_argument("--equal-results", action="store_true")
    json.dump(run(parser.parse_args()), sys.stdout)


if __name__ == "__main__":
    main()
