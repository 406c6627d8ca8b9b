"""A real `recloser serve`, a client that resends until it is told "kept", and on-call that remembers."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

SECRET = "whsec_" + base64.b64encode(hashlib.sha256(b"acceptance").digest()).decode()
MODULES = {"store": "api.storeprocess", "ingest": "api.ingest", "control": "api.controlprocess"}
PATIENCE = 60.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(slots=True)
class OnCall:
    """Receives webhooks; `seen` maps a webhook id to the bodies that came with it."""

    server: ThreadingHTTPServer
    seen: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def start(cls) -> OnCall:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                on_call.seen[self.headers["webhook-id"]].append(json.loads(body))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *args: object) -> None:
                del args

        on_call = cls(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=on_call.server.serve_forever, daemon=True).start()
        return on_call

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/hook"

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()


class HasUrl(Protocol):
    """Where webhooks go."""

    @property
    def url(self) -> str:
        """The address."""
        ...


@dataclass(slots=True)
class Served:
    """A `recloser serve` in a process of its own, with fixed ports so that it can come back."""

    folder: Path
    on_call: HasUrl
    extra: tuple[str, ...] = ()
    http_port: int = field(default_factory=free_port)
    grpc_port: int = field(default_factory=free_port)
    api_port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        config = self.folder / "recloser.toml"
        config.write_text(
            f"""
policy_file = "{self.written_policy()}"
data_dir = "{self.folder / "data"}"
otlp_http_port = {self.http_port}
otlp_grpc_port = {self.grpc_port}
api_port = {self.api_port}
[[webhooks]]
name = "on-call"
url = "{self.on_call.url}"
secrets = ["{SECRET}"]
{self.settings()}"""
        )
        log = (self.folder / "serve.log").open("ab")
        self.process = subprocess.Popen(
            [Path(sys.executable).parent / "recloser", "serve", "--config", config, *self.extra],
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        log.close()
        self.await_ready()

    def settings(self) -> str:
        """What the configuration has besides: TOML tables."""
        return ""

    def written_policy(self) -> Path:
        """Stop doom loops; without the cap on what is stopped in a minute, because many runs loop in it."""
        path = self.folder / "policy.toml"
        path.write_text(
            '[[rule]]\nname = "stop"\nkinds = ["doom_loop"]\ntrip = { scope = "session", action = "halt" }\n'
            "[breaker]\nblast_per_minute = 100000\nblast_share = 1.0\n"
        )
        return path

    def await_ready(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                if self.get("/readyz")[0] == 200 and self.post_otlp(b"") == 200:
                    return
            except OSError:
                pass
            time.sleep(0.1)
        raise AssertionError("not ready in time:\n" + (self.folder / "serve.log").read_text()[-4000:])

    def get(self, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.api_port, timeout=5)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def metric(self, name: str) -> float:
        """The sum over all series of a metric."""
        text = self.get("/metrics")[1].decode()
        values = [float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name)]
        assert values, name
        return sum(values)

    def post_otlp(self, body: bytes) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=10)
        try:
            connection.request("POST", "/v1/traces", body, {"content-type": "application/x-protobuf"})
            answer = connection.getresponse()
            answer.read()
            return answer.status
        finally:
            connection.close()

    def pid(self, name: str) -> int | None:
        """The process id of the supervisor or of one of its children."""
        assert self.process is not None
        if name == "supervisor":
            return self.process.pid
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                command = (entry / "cmdline").read_bytes().decode(errors="replace")
            except (OSError, IndexError):
                continue
            if parent == self.process.pid and MODULES[name] in command:
                return int(entry.name)
        return None

    def kill(self, name: str) -> bool:
        """`kill -9`; a killed supervisor is started again, as a service manager would."""
        pid = self.pid(name)
        if pid is None:
            return False
        os.kill(pid, signal.SIGKILL)
        if name == "supervisor":
            assert self.process is not None
            self.process.wait()
            self.start()
        return True

    def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(60)

    def end(self) -> None:
        """End it if it runs, whatever a test has left behind; its children end with it."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def stored(self, sql: str) -> list[list[Any]]:
        """Ask the stopped sidecar's embedded store."""
        script = (
            "import sys, chdb; c = chdb.connect(sys.argv[1]);"
            "sys.stdout.write(str(c.query(sys.argv[2], 'JSONCompactEachRow')))"
        )
        answer = subprocess.run(
            [sys.executable, "-c", script, self.store_path(), sql], capture_output=True, text=True, check=True
        )
        return [json.loads(line) for line in answer.stdout.splitlines()]

    def store_path(self) -> str:
        return str(self.folder / "data" / "store" / "engine")


def attributes(values: Mapping[str, str]) -> list[KeyValue]:
    return [KeyValue(key=key, value=AnyValue(string_value=value)) for key, value in values.items()]


def request(spans: list[Span]) -> bytes:
    out = ExportTraceServiceRequest()
    resource = out.resource_spans.add()
    resource.resource.attributes.extend(
        attributes({"service.name": "crash-agent", "service.instance.id": "crash-1"})
    )
    resource.scope_spans.add().spans.extend(spans)
    return out.SerializeToString()


def call_span(rng: random.Random, session: str, number: int, *, looping: bool) -> Span:
    now = time.time_ns()
    url = "https://example.invalid/status" if looping else f"https://example.invalid/{session}/{number}"
    span = Span(
        trace_id=hashlib.sha256(session.encode()).digest()[:16],
        span_id=rng.randbytes(8),
        name="execute_tool fetch_page",
        start_time_unix_nano=now - 1_000_000,
        end_time_unix_nano=now,
        attributes=attributes(
            {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": "fetch_page",
                "gen_ai.tool.call.id": f"call_{number}",
                "gen_ai.tool.call.arguments": json.dumps({"url": url}),
                "gen_ai.conversation.id": session,
                "gen_ai.agent.name": "reader",
                # A host of its own for each: many sessions stuck at one would page once, for the fleet.
                "server.address": f"{session}.example.invalid",
            }
        ),
    )
    if looping:
        span.attributes.extend(attributes({"error.type": "ConnectError"}))
        span.status.CopyFrom(Status(code=Status.STATUS_CODE_ERROR, message="ConnectError: no route to host"))
    else:
        span.attributes.extend(attributes({"gen_ai.tool.call.result": f"page {session} {number}"}))
    return span


class Client(threading.Thread):
    """Sends spans for as long as it is told to; each request again until it is acknowledged.

    Clients with odd seeds swap neighbouring requests, as exporters of several processes do.
    """

    def __init__(self, served: Served, seed: int, pause: float = 0.02) -> None:
        super().__init__(daemon=True)
        self._served = served
        self._rng = random.Random(seed)
        self._seed = seed
        self._pause = pause
        self.stopping = threading.Event()
        self.spans = 0
        self.loops: list[str] = []
        self.resent = 0

    def run(self) -> None:
        session_number = 0
        while not self.stopping.is_set():
            session_number += 1
            looping = session_number % 3 == 0
            session = f"client-{self._seed}-session-{session_number}"
            for number in range(0, 10 if looping else 6, 2):
                if self._seed % 2:
                    bodies = [self._made(session, each, looping=looping) for each in (number, number + 1)]
                    self._deliver(bodies[1])
                    self._deliver(bodies[0])
                else:
                    for each in (number, number + 1):
                        self._deliver(self._made(session, each, looping=looping))
                self.spans += 2
            if looping:
                self.loops.append(session)

    def _made(self, session: str, number: int, *, looping: bool) -> bytes:
        time.sleep(self._pause)
        return request([call_span(self._rng, session, number, looping=looping)])

    def _deliver(self, body: bytes) -> None:
        for attempt in range(2_000):
            try:
                if self._served.post_otlp(body) == 200:
                    # Now and then a client does not see the answer and sends again.
                    if self._rng.random() < 0.05:
                        self._served.post_otlp(body)
                    return
            except (OSError, http.client.HTTPException):
                pass
            self.resent += 1
            time.sleep(min(0.5, 0.05 * (attempt + 1)))
        raise AssertionError("never acknowledged")
