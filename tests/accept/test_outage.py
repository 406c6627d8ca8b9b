"""Real exporters deliver without loss, also while the store is away."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from harness import PATIENCE, OnCall, Served, free_port

from collector.consumer import Unavailable
from storage.client import StoreTarget, connect
from storage.embedded import EmbeddedOptions, serve_embedded

HERE = Path(__file__).parent / "exporters"
PASSWORD = "a password for the acceptance suite"
NPM_PACKAGES = (
    "@opentelemetry/api",
    "@opentelemetry/sdk-trace-node",
    "@opentelemetry/exporter-trace-otlp-http",
    "@opentelemetry/exporter-trace-otlp-proto",
    "@opentelemetry/exporter-trace-otlp-grpc",
)
SPANS = 400


@dataclass(slots=True)
class Server:
    """A ClickHouse by URL that can be stopped and started: the engine's endpoint in a process of its own."""

    folder: Path
    port: int = field(default_factory=free_port)
    process: BaseProcess | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        context = multiprocessing.get_context("spawn")
        ready = context.Event()
        options = EmbeddedOptions(data_dir=self.folder, secret=PASSWORD, port=self.port)
        self.process = context.Process(target=_serve, args=(options, ready))
        self.process.start()
        assert ready.wait(PATIENCE)

    def stop(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.join()

    def count(self, sql: str) -> int:
        client = connect(StoreTarget(url=self.url, password=PASSWORD))
        try:
            return int(str(client.rows(sql)[0][0]))
        finally:
            client.close()


def _serve(options: EmbeddedOptions, ready: object) -> None:
    serve_embedded(options, lambda _port: ready.set())  # type: ignore[attr-defined]  # an event of the spawn context


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    running = Server(tmp_path / "clickhouse")
    running.start()
    yield running
    running.stop()


@pytest.fixture
def served(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv("RECLOSER_CLICKHOUSE__PASSWORD", PASSWORD)
    on_call = OnCall.start()
    sidecar = Served(tmp_path, on_call, ("--clickhouse", server.url))
    sidecar.start()
    yield sidecar
    assert sidecar.stop() == 0
    on_call.stop()


def python(served: Served, protocol: str, seconds: float) -> subprocess.Popen[bytes]:
    endpoint = {"grpc": f"127.0.0.1:{served.grpc_port}", "http": f"http://127.0.0.1:{served.http_port}"}[
        protocol
    ]
    script = HERE / "python_exporter.py"
    arguments = [protocol, endpoint, str(SPANS), str(seconds), f"python-{protocol}"]
    return subprocess.Popen([sys.executable, script, *arguments])


def javascript(served: Served, protocol: str, seconds: float, packages: Path) -> subprocess.Popen[bytes]:
    port = served.grpc_port if protocol == "grpc" else served.http_port
    script = HERE / "javascript_exporter.mjs"
    return subprocess.Popen(
        ["node", script, protocol, f"http://127.0.0.1:{port}", str(SPANS), str(seconds), f"js-{protocol}"],
        env={**os.environ, "NODE_PACKAGES": str(packages)},
    )


def deliver_through_outage(
    server: Server, agents: list[subprocess.Popen[bytes]], outage: float, seconds: float
) -> None:
    time.sleep(seconds / 8)
    server.stop()
    time.sleep(outage)
    server.start()
    assert [agent.wait(seconds + PATIENCE) for agent in agents] == [0] * len(agents)
    sent = SPANS * len(agents)
    await_count(server, "SELECT count() FROM otel_traces", sent)
    await_count(server, "SELECT uniqExact(step_id) FROM steps", sent)
    assert server.count("SELECT uniqExact(SpanId) FROM otel_traces") == sent


def await_count(server: Server, sql: str, wanted: int) -> None:
    deadline = time.monotonic() + PATIENCE
    counted = -1
    while counted != wanted and time.monotonic() < deadline:
        time.sleep(0.5)
        with contextlib.suppress(Unavailable):
            counted = server.count(sql)
    assert counted == wanted


@pytest.mark.accept
@pytest.mark.short
def test_python_exporters_and_a_short_outage(server: Server, served: Served) -> None:
    agents = [python(served, protocol, 16) for protocol in ("grpc", "http")]
    deliver_through_outage(server, agents, outage=8, seconds=16)


@pytest.mark.accept
def test_python_and_javascript_exporters_while_the_store_is_away_for_two_minutes(
    server: Server, served: Served, tmp_path: Path
) -> None:
    packages = tmp_path / "npm"
    packages.mkdir()
    npm = ["npm", "install", "--silent", "--no-fund", "--no-audit", *NPM_PACKAGES]
    subprocess.run(npm, cwd=packages, check=True)
    agents = [python(served, protocol, 150) for protocol in ("grpc", "http")]
    agents += [javascript(served, protocol, 150, packages) for protocol in ("json", "proto", "grpc")]
    deliver_through_outage(server, agents, outage=120, seconds=150)
