"""What storing spans costs: CPU of the client and of the store process a row, and the store's memory.

Spans have 12 attributes, half of them a result of 500 bytes. Prints one line a second, then the sums:

    python bench/store.py --rows 10000 --batches 60 --every 1.0

`--every 0` sends one batch after the other. Linux only (/proc).
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import secrets
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from collector.batch import SPAN_SCHEMA
from storage.client import StoreTarget, connect
from storage.embedded import EmbeddedOptions, serve_embedded
from storage.migrate import migrate
from storage.writer import Writer

TICKS = os.sysconf("SC_CLK_TCK")
PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / 2**20
SPANS_A_TRACE = 20
START_NS = 1_760_000_000 * 10**9


@dataclass(frozen=True, slots=True)
class Spent:
    """CPU seconds of this process and of the store."""

    client_s: float
    engine_s: float

    @classmethod
    def now(cls, pid: int) -> Spent:
        """Read both clocks."""
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return cls(time.process_time(), (int(fields[11]) + int(fields[12])) / TICKS)


def resident_mib(pid: int) -> float:
    """Resident memory of a process, MiB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_MIB


def span_batch(rows: int, seed: int) -> pa.RecordBatch:
    """Make spans of tool calls; deterministic in `seed`."""
    numbers = random.Random(seed)
    traces = [f"{numbers.getrandbits(128):032x}" for _ in range(rows // SPANS_A_TRACE + 1)]
    attributes = [
        [
            ("gen_ai.operation.name", "execute_tool"),
            ("gen_ai.request.model", "model-large"),
            ("gen_ai.conversation.id", traces[n // SPANS_A_TRACE][:12]),
            ("gen_ai.usage.input_tokens", str(numbers.randrange(20_000))),
            ("gen_ai.usage.output_tokens", str(numbers.randrange(2_000))),
            ("gen_ai.tool.name", f"tool_{n % 9}"),
            ("gen_ai.tool.call.id", f"call_{numbers.getrandbits(64):016x}"),
            ("gen_ai.tool.call.arguments", f'{{"path":"src/module_{n % 400}.py"}}'),
            ("gen_ai.tool.call.result", numbers.randbytes(250).hex() if n % 2 else "ok"),
            ("gen_ai.agent.name", f"agent-{n % 5}"),
            ("thread.id", "140012"),
            ("server.address", "api.example.org"),
        ]
        for n in range(rows)
    ]
    empty: list[list[str]] = [[] for _ in range(rows)]
    columns: dict[str, list[Any]] = {
        "Timestamp": [START_NS + seed * 10**9 + n * 1000 for n in range(rows)],
        "TraceId": [traces[n // SPANS_A_TRACE] for n in range(rows)],
        "SpanId": [f"{numbers.getrandbits(64):016x}" for _ in range(rows)],
        "ParentSpanId": [f"{numbers.getrandbits(64):016x}" for _ in range(rows)],
        "SpanName": [f"execute_tool tool_{n % 9}" for n in range(rows)],
        "SpanKind": ["Internal"] * rows,
        "ServiceName": [f"service-{n % 4}" for n in range(rows)],
        "ResourceAttributes": [
            [("service.name", f"service-{n % 4}"), ("host.name", "h")] for n in range(rows)
        ],
        "SpanAttributes": attributes,
        "Duration": [numbers.randrange(10**9) for _ in range(rows)],
        "StatusCode": ["Unset"] * rows,
    }
    arrays = []
    for field in SPAN_SCHEMA:
        default: list[Any] = list(empty) if pa.types.is_list(field.type) else [""] * rows
        arrays.append(pa.array(columns.get(field.name, default), type=field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=SPAN_SCHEMA)


def paced(count: int, every_s: float) -> Iterator[int]:
    """Count, one number each `every_s` seconds from now on."""
    begin = time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, begin + number * every_s - time.monotonic()))
        yield number


def run(rows: int, batches: int, every_s: float, data_dir: Path) -> None:
    """Store `batches` batches and print what it cost."""
    spawn = multiprocessing.get_context("spawn")
    receive, send = spawn.Pipe(duplex=False)
    options = EmbeddedOptions(data_dir=data_dir, secret=secrets.token_hex())
    process = spawn.Process(target=serve_embedded, args=(options, send.send))
    process.start()
    pid = process.pid or 0
    client = connect(StoreTarget(url=f"http://127.0.0.1:{receive.recv()}", password=options.secret))
    migrate(client)
    writer = Writer(client)
    prepared = [span_batch(rows, seed) for seed in range(min(batches, 20))]
    writer.insert_spans(prepared[0].slice(0, 100), "warm")
    slowest, peak, client_s = 0.0, 0.0, 0.0
    before = Spent.now(pid)
    for number in paced(batches, every_s):
        cpu, wall = time.process_time(), time.perf_counter()
        writer.insert_spans(prepared[number % len(prepared)], f"batch {number}")
        client_s += time.process_time() - cpu
        slowest = max(slowest, time.perf_counter() - wall)
        peak = max(peak, resident_mib(pid))
        took_ms = (time.perf_counter() - wall) * 1e3
        print(f"{number:4} wall {took_ms:6.0f} ms  resident {resident_mib(pid):5.0f} MiB")
    after = Spent.now(pid)
    total = rows * batches
    print(f"client {client_s / total * 1e6:.2f} µs CPU a row")
    print(f"engine {(after.engine_s - before.engine_s) / total * 1e6:.1f} µs CPU a row, merges included")
    print(f"slowest insert {slowest * 1e3:.0f} ms, resident at most {peak:.0f} MiB")
    print(f"stored {client.rows('SELECT count() FROM otel_traces')[0][0] - 100} of {total}")
    process.terminate()
    process.join()


def main() -> None:
    """Read the options and run."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--rows", type=int, default=10_000, help="rows a batch")
    options.add_argument("--batches", type=int, default=30)
    options.add_argument("--every", type=float, default=1.0, help="seconds between batches")
    told = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run(told.rows, told.batches, told.every, Path(folder))


if __name__ == "__main__":
    main()
