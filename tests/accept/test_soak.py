"""Minutes of load with ever new traces: all is stored, the spool empties, memory stays where it was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import PATIENCE, OnCall, Served

LOAD = Path(__file__).parents[2] / "bench" / "load.py"
SECONDS = 180
RATE = 2_000
GROWTH = 200 * 1024 * 1024  # bytes that the second half of the load may add to a process


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    on_call = OnCall.start()
    sidecar = Served(tmp_path, on_call)
    sidecar.start()
    yield sidecar
    on_call.stop()


def resident(served: Served) -> dict[str, int]:
    pids = {name: served.pid(name) for name in ("ingest", "store", "control")}
    page = os.sysconf("SC_PAGE_SIZE")
    return {
        name: int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * page
        for name, pid in pids.items()
        if pid is not None
    }


@pytest.mark.accept
def test_minutes_of_load_leave_nothing_behind(served: Served) -> None:
    url = f"http://127.0.0.1:{served.http_port}"
    command = [sys.executable, str(LOAD), url, "--rate", str(RATE), "--seconds", str(SECONDS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as load:
        time.sleep(SECONDS / 2)
        before = resident(served)
        assert load.stdout is not None
        sent = json.loads(load.stdout.read())
    after = resident(served)
    assert sent["refused"] == 0
    for name, size in after.items():
        assert size - before[name] < GROWTH, f"{name} grew from {before[name]} to {size}"
    deadline = time.monotonic() + PATIENCE
    while served.metric('recloser_stored_rows_total{table="otel_traces"}') < sent["acknowledged"]:
        assert time.monotonic() < deadline
        time.sleep(0.5)
    while served.metric("recloser_spool_bytes") > 0:
        assert time.monotonic() < deadline
        time.sleep(0.5)
    assert served.stop() == 0
    counted = served.stored("SELECT count(), uniqExact(TraceId, SpanId) FROM otel.otel_traces")
    assert counted == [[sent["acknowledged"]] * 2]
    steps = served.stored("SELECT uniqExact(step_id) FROM otel.steps")
    assert steps == [[sent["acknowledged"] // 2]]
