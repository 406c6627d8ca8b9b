"""End to end: a second process sends pre-encoded spans to the whole sidecar; what that costs, and whom.

Prints sustained spans/s (until the last span is in the store), CPU per span by process and by stage of
ingest, how far detection was behind, peak resident memory, and the latency of `POST /v1/check` meanwhile.

    python bench/ingest.py [--rate 10000] [--seconds 30] [--equal-results] [--clickhouse URL]
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from api.config import ClickHouse, Settings
from api.sidecar import Sidecar

TICK = os.sysconf("SC_CLK_TCK")
HERE = Path(__file__).parent
DRAIN = 120.0
STORED = 'recloser_stored_rows_total{table="otel_traces"}'


def cpu_seconds(pid: int) -> float:
    """User and system CPU of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def resident_bytes(pid: int) -> int:
    """Resident memory now."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def metrics(port: int) -> dict[str, float]:
    """The ingest process's metrics, by name with labels."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    return {
        m[1]: float(m[2]) for m in re.finditer(r"^(recloser_\S+(?:\{[^}]*\})?) (\S+)$", text, re.MULTILINE)
    }


class Watcher(threading.Thread):
    """Samples memory of all processes and the latency of checks while the load runs."""

    def __init__(self, sidecar: Sidecar) -> None:
        super().__init__(daemon=True)
        self._sidecar = sidecar
        self.stopping = threading.Event()
        self.check_ms: list[float] = []
        self.peak: dict[str, int] = {}
        self.peak_sum = 0

    def run(self) -> None:
        """Sample until told to stop."""
        connection = http.client.HTTPConnection("127.0.0.1", self._sidecar.endpoints.api_port, timeout=10)
        body = json.dumps({"session_id": "session-1", "tool": "query_orders", "arguments": {"limit": 20}})
        pids = self._sidecar.pids()
        while not self.stopping.wait(0.02):
            started = time.perf_counter()
            connection.request("POST", "/v1/check", body, {"content-type": "application/json"})
            connection.getresponse().read()
            self.check_ms.append((time.perf_counter() - started) * 1e3)
            now = {name: resident_bytes(pid) for name, pid in pids.items()} | {
                "supervisor": resident_bytes(os.getpid())
            }
            self.peak = {name: max(size, self.peak.get(name, 0)) for name, size in now.items()}
            self.peak_sum = max(self.peak_sum, sum(now.values()))


def quantile(values: list[float], share: float) -> float:
    """The value below which `share` of `values` lie."""
    return statistics.quantiles(values, n=1000)[int(share * 1000) - 1]


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run the load against a fresh sidecar and return all figures."""
    with tempfile.TemporaryDirectory(prefix="recloser-bench-") as folder:
        settings = Settings(
            data_dir=Path(folder), otlp_http_port=0, otlp_grpc_port=0, api_port=0, log_level="warning",
            clickhouse=ClickHouse(url=options.clickhouse),
        )  # fmt: skip
        sidecar = Sidecar(settings)
        sidecar.start()
        try:
            return loaded(sidecar, options)
        finally:
            sidecar.stop()


def steps_in(now: dict[str, float]) -> int:
    """How many steps have been judged."""
    return int(sum(value for name, value in now.items() if name.startswith("recloser_steps_total")))


def loaded(sidecar: Sidecar, options: argparse.Namespace) -> dict[str, Any]:
    """Load a running sidecar."""
    pids = sidecar.pids() | {"supervisor": os.getpid()}
    before = {name: cpu_seconds(pid) for name, pid in pids.items()}
    watcher = Watcher(sidecar)
    watcher.start()
    started = time.monotonic()
    load = subprocess.run(
        [sys.executable, str(HERE / "load.py"), sidecar.endpoints.otlp_http, "--rate", str(options.rate),
         "--seconds", str(options.seconds), "--batch", str(options.batch),
         *(["--equal-results"] if options.equal_results else [])],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    sent = json.loads(load.stdout)
    watcher.stopping.set()
    watcher.join()
    ended = time.monotonic()
    expected = sent["acknowledged"] // 2  # every other span is a tool call
    behind = expected - steps_in(now := metrics(sidecar.endpoints.api_port))
    judged: float | None = None
    while time.monotonic() < ended + DRAIN:
        now = metrics(sidecar.endpoints.api_port)
        if judged is None and steps_in(now) >= expected:
            judged = time.monotonic() - ended
        if judged is not None and now.get(STORED, 0) >= sent["acknowledged"]:
            break
        time.sleep(0.1)
    elapsed = time.monotonic() - started
    after = {name: cpu_seconds(pid) for name, pid in pids.items()}
    spans = sent["acknowledged"]
    stages = {
        key.split('"')[1]: round(value * 1e6 / spans, 1)
        for key, value in now.items()
        if key.startswith("recloser_stage_cpu_seconds_total")
    }
    per_span = {name: round((after[name] - before[name]) * 1e6 / spans, 1) for name in pids}
    return {
        "machine": f"{os.cpu_count()} x {platform.processor() or platform.machine()}",
        "spans": spans,
        "stored": int(now.get(STORED, 0)),
        "steps, of": [steps_in(now), expected],
        "steps behind at the end of the load": behind,
        "seconds until all were judged": "never" if judged is None else round(judged, 1),
        "refused requests": sent["refused"],
        "spans/s acknowledged": round(sent["spans_per_s"]),
        "spans/s stored, drain included": round(spans / elapsed),
        "load generator, CPU us/span": round(sent["load_cpu_s"] * 1e6 / spans, 1),
        "CPU us/span by process": per_span,
        "CPU us/span, all processes": round(sum(per_span.values()), 1),
        "CPU us/span by stage of ingest": stages,
        "peak resident MiB": {name: size >> 20 for name, size in watcher.peak.items()},
        "peak resident MiB, all processes": watcher.peak_sum >> 20,
        "check ms p50 / p99 / max": [
            round(quantile(watcher.check_ms, 0.5), 2), round(quantile(watcher.check_ms, 0.99), 2),
            round(max(watcher.check_ms), 2),
        ],
    }  # fmt: skip


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", type=float, default=10_000)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--clickhouse")
    parser.add_argument("--equal-results", action="store_true", help="no result is told twice")
    for name, value in measure(parser.parse_args()).items():
        print(f"{name:36} {value}")


if __name__ == "__main__":
    main()
