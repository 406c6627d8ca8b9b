"""A sidecar that does what a test says: for what a real one does not do on demand, such as falling silent."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PATIENCE = 40.0
QUIET = {"breakers": [], "revision": 0}


def breaker(
    number: int = 1, revision: int = 1, state: str = "open", action: str = "deny", **more: Any
) -> dict[str, Any]:
    """A breaker as the sidecar shows it; `scope` is given by `more`."""
    scope = {
        "tenant": "default",
        **dict.fromkeys(("service", "agent", "session", "run", "tool", "args", "model")),
    }
    return {
        "id": f"br_{number:016x}",
        "state": state,
        "action": action,
        "revision": revision,
        "episode": more.pop("episode", 1),
        "reason": more.pop("reason", "doom_loop"),
        "message_for_model": more.pop("message", f"Stopped: {number}"),
        "until": more.pop("until", None),
        "forced_until": more.pop("forced_until", None),
        "quarantine": more.pop("quarantine", None),
        "scope": {**scope, **more},
        "new_field": "ignored",
    }


def event(name: str, data: Any, number: int | None = None) -> bytes:
    """One event of the stream."""
    mark = "" if number is None else f"id: {number}\n"
    return f"event: {name}\n{mark}data: {json.dumps(data)}\n\n".encode()


def snapshot(*breakers: dict[str, Any], revision: int | None = None) -> bytes:
    """The event that a stream begins with."""
    newest = max((b["revision"] for b in breakers), default=0) if revision is None else revision
    return event("snapshot", {"revision": newest, "breakers": list(breakers)}, newest)


class Scripted:
    """What it answers, and what it was asked.

    `answers` maps (method, path without query) to (status, body) or to a function of the request's body;
    `streams` are functions that write one stream each, the last one again and again.
    """

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.answers: dict[tuple[str, str], Any] = {("POST", "/v1/acks"): (200, {"revision": 0})}
        self.streams: list[Callable[[Stream], None]] = []
        self.asked: list[tuple[str, str, dict[str, str], Any]] = []
        self.opened = 0
        self.etag: str | None = None  # of answers that have no body
        self.ended = threading.Event()

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """Clients that go away are part of the script."""

        self._server = Server(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            self.url = self.url.replace("http:", "https:")
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()

    def bodies(self, method: str, path: str) -> list[Any]:
        """The bodies that were sent to one path."""
        return [body for m, p, _, body in list(self.asked) if (m, p.partition("?")[0]) == (method, path)]


def _handler(scripted: Scripted) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._serve("GET", None)

        def do_POST(self) -> None:
            self._serve("POST", json.loads(self.rfile.read(int(self.headers.get("content-length", 0)))))

        def _serve(self, method: str, body: Any) -> None:
            path, _, _ = self.path.partition("?")
            headers = {name.lower(): value for name, value in self.headers.items()}
            scripted.asked.append((method, self.path, headers, body))
            if path.endswith("/watch") and (method, path) not in scripted.answers:
                self._stream()
                return
            answer = scripted.answers.get((method, path), (404, {"code": "not_found"}))
            status, content = answer(body, headers) if callable(answer) else answer
            text = b"" if content is None else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(text)))
            if isinstance(content, dict) and "revision" in content:
                self.send_header("etag", f'"rev-{content["revision"]}"')
            elif scripted.etag is not None:
                self.send_header("etag", scripted.etag)
            self.end_headers()
            self.wfile.write(text)

        def _stream(self) -> None:
            number = min(scripted.opened, len(scripted.streams) - 1)
            scripted.opened += 1
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            self.close_connection = True
            with suppress(OSError):
                scripted.streams[number](Stream(self.wfile, scripted.ended))

        def log_message(self, *args: object) -> None:
            del args

    return Handler


class Stream:
    """One stream of events that is being written."""

    def __init__(self, file: Any, ended: threading.Event) -> None:
        self._file = file
        self.ended = ended

    def write(self, data: bytes) -> None:
        self._file.write(b"%x\r\n%s\r\n" % (len(data), data))
        self._file.flush()

    def hold(self, until: threading.Event | None = None) -> None:
        """Say nothing until the test is over, or until an event."""
        deadline = time.monotonic() + PATIENCE
        while not self.ended.is_set() and not (until and until.is_set()) and time.monotonic() < deadline:
            time.sleep(0.005)


@contextmanager
def scripted(*streams: Callable[[Stream], None], context: ssl.SSLContext | None = None) -> Iterator[Scripted]:
    """A scripted sidecar for the length of a test; with a context it speaks TLS."""
    sidecar = Scripted(context)
    sidecar.streams = list(streams)
    try:
        yield sidecar
    finally:
        sidecar.close()


def eventually(true: Callable[[], object]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, "did not come true in time"
        time.sleep(0.005)


class Clock:
    """Time that passes when a test says so: monotonic and wall time alike."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
