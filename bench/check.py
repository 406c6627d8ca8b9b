"""How long `/v1/check` takes, and what it costs: `python bench/check.py [--busy]`.

Starts the control process with 1,000 open breakers, asks it from this one over keep-alive connections, one
call after the other on each, and prints latency and the control process's CPU time a call, for the shortcut
and for the same call as a batch of one (which goes through the framework). `--busy` keeps a third process
computing meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import multiprocessing
import os
import sqlite3
import tempfile
import time
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from api.controlprocess import ControlOptions, run_control
from control.breakers.settings import BreakerSettings
from control.policy import Policy, Rule
from detectors.protocol import Finding, Severity

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

CALLS = 20_000
CONNECTIONS = 4
BREAKERS = 1000
TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--busy", action="store_true", help="keep another process computing meanwhile")
    busy = parser.parse_args().busy
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _fill_spool(folder / "spool.db")
        here, there = context.Pipe()
        control = context.Process(target=_serve, args=(folder, there))
        burner = context.Process(target=_burn)
        control.start()
        port = here.recv()
        time.sleep(2)
        _spent[control.pid or 0] = _cpu(control.pid or 0)  # starting is no part of it
        if busy:
            burner.start()
        try:
            for path, wrap in (("/v1/check", False), ("/v1/check/batch", True)):
                _report(path, asyncio.run(_ask(port, path, wrap=wrap)), control.pid or 0)
        finally:
            control.terminate()
            control.join()
            if busy:
                burner.terminate()
                burner.join()


def _serve(folder: Path, ready: Connection) -> None:
    logging.disable()
    run_control(
        ControlOptions(
            spool_path=folder / "spool.db",
            control_path=folder / "control.db",
            policy=Policy(rules=(Rule(name="deny"),), breakers=BreakerSettings(escalate_after=0)),
        ),
        ready.send,
    )


def _burn() -> None:
    while True:
        sum(range(10_000))


def _fill_spool(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(
            "CREATE TABLE findings (seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT, revision INTEGER, "
            "payload TEXT, created_ns INTEGER, UNIQUE (id, revision))"
        )
        for number in range(BREAKERS):
            finding = Finding(
                id=f"{number:016x}",
                kind="doom_loop",
                severity=Severity.CRITICAL,
                session_id=f"session-{number}",
                tool="fetch_page",
                started_at=0,
                detected_at=0,
                occurrences=6,
                summary="stuck",
            )
            connection.execute(
                "INSERT INTO findings (id, revision, payload, created_ns) VALUES (?, 0, ?, ?)",
                (finding.id, orjson.dumps(asdict(finding)).decode(), time.time_ns()),
            )


async def _ask(port: int, path: str, *, wrap: bool) -> tuple[list[float], float]:
    started = time.perf_counter()
    share = CALLS // CONNECTIONS
    parts = await asyncio.gather(*(_connection(port, path, share, wrap=wrap) for _ in range(CONNECTIONS)))
    return [latency for part in parts for latency in part], time.perf_counter() - started


async def _connection(port: int, path: str, count: int, *, wrap: bool) -> list[float]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    latencies = []
    for number in range(count):
        call = {
            "session_id": f"session-{number % (2 * BREAKERS)}",
            "tool": "fetch_page",
            "arguments": {"url": "x"},
        }
        body = orjson.dumps({"calls": [call]} if wrap else call)
        head = (
            f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        began = time.perf_counter()
        writer.write(head.encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = int(answer.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        await reader.readexactly(length)
        latencies.append(time.perf_counter() - began)
    writer.close()
    await writer.wait_closed()
    return latencies


_spent: dict[int, float] = {}


def _cpu(pid: int) -> float:
    """Seconds of CPU that a process has spent so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _report(path: str, measured: tuple[list[float], float], pid: int) -> None:
    latencies, took = measured
    latencies.sort()
    cpu = _cpu(pid)
    spent, _spent[pid] = cpu - _spent.get(pid, 0.0), cpu
    count = len(latencies)
    print(
        f"{path:16} {count} calls, {count / took:7.0f}/s  "
        f"p50 {latencies[count // 2] * 1e3:.2f} ms  p99 {latencies[int(count * 0.99)] * 1e3:.2f} ms  "
        f"max {latencies[-1] * 1e3:.2f} ms  CPU {spent / count * 1e6:.0f} µs a call"
    )


if __name__ == "__main__":
    main()
