"""ClickHouse's HTTP interface over the embedded engine: `/ping`, and statements to whoever knows the secret.

Threads of the standard library's server carry it: measured at 1.6 ms of CPU for a 10 MB insert, against
4.6 ms for uvicorn on asyncio and 13 ms on uvloop, which take a body apart in 64 KiB pieces.
SQL on the embedded engine can read and write files, so nothing but the project's own fixed statements
may come in here: loopback only, and a secret that only the project's processes are given.
"""

from __future__ import annotations

import hmac
import json
import threading
import uuid
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Final

from storage.engine import Answer, Engine, EngineError
from storage.httprequest import (
    MAX_BODY_BYTES,
    BadRequest,
    Insert,
    Request,
    presented_secret,
    read_request,
)

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping
    from typing import TypeAlias

    _Socket: TypeAlias = socket.socket | tuple[bytes, socket.socket]

_MAX_CONNECTIONS: Final = 64
_IDLE_TIMEOUT_S: Final = 300
_MAX_CHUNK_HEADER: Final = 1024
_DISCARD_LIMIT: Final = 64 * 1024 * 1024

# ClickHouse `src/Server/HTTP/exceptionCodeToHTTPStatus.cpp`, as far as clients care.
_STATUS: Final = {
    60: 404,  # UNKNOWN_TABLE
    81: 404,  # UNKNOWN_DATABASE
    46: 404,  # UNKNOWN_FUNCTION
    47: 404,  # UNKNOWN_IDENTIFIER
    115: 404,  # UNKNOWN_SETTING
    36: 400,  # BAD_ARGUMENTS
    62: 400,  # SYNTAX_ERROR
    27: 400,  # CANNOT_PARSE_INPUT_ASSERTION_FAILED
    457: 400,  # BAD_QUERY_PARAMETER
    159: 408,  # TIMEOUT_EXCEEDED
}
_AUTHENTICATION_FAILED: Final = 516


class Endpoint(ThreadingHTTPServer):
    """The listening server; `serve_forever` in one thread, `shutdown` and `drain` from another."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, engine: Engine, secret: str, port: int) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.engine = engine
        self._secret = secret.encode()
        self._connections = threading.BoundedSemaphore(_MAX_CONNECTIONS)
        self._calls = 0
        self._idle = threading.Condition()

    def knows(self, secret: str) -> bool:
        """Compare in constant time."""
        return hmac.compare_digest(secret.encode(), self._secret)

    def verify_request(self, request: object, client_address: object) -> bool:  # noqa: ARG002 - inherited
        """Take a connection unless there are too many."""
        return self._connections.acquire(blocking=False)

    def process_request_thread(self, request: _Socket, client_address: object) -> None:
        """Serve one connection to its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.release()

    def run(self, request: Request) -> Answer:
        """Do what a request asks. Raises `EngineError`."""
        with self._idle:
            self._calls += 1
        try:
            return _run(self.engine, request)
        finally:
            with self._idle:
                self._calls -= 1
                self._idle.notify_all()

    def drain(self, timeout_s: float) -> bool:
        """Wait until no statement runs; False when the time is over first."""
        with self._idle:
            return self._idle.wait_for(lambda: self._calls == 0, timeout_s)


def _run(engine: Engine, request: Request) -> Answer:
    work = request.work
    if isinstance(work, Insert):
        return engine.insert(
            work.statement,
            work.data_format,
            work.data,
            database=request.database,
            session=request.session,
            settings=request.settings,
        )
    return engine.query(
        work.statement,
        default_format=work.answer_format,
        parameters=request.parameters,
        database=request.database,
        session=request.session,
        settings=request.settings,
    )


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "recloser-store"
    sys_version = ""
    disable_nagle_algorithm = True
    timeout = _IDLE_TIMEOUT_S
    server: Endpoint

    def do_GET(self) -> None:
        """Answer `/ping`."""
        if self.path == "/ping":
            self._answer(HTTPStatus.OK, b"Ok.\n", {"Content-Type": "text/html; charset=UTF-8"})
        else:
            self._refuse(HTTPStatus.NOT_FOUND, 0, "There is no such page here.")

    def do_POST(self) -> None:
        """Run a statement, or take rows in."""
        path, _, query_string = self.path.partition("?")
        if path != "/":
            self._refuse(HTTPStatus.NOT_FOUND, 0, "There is no such page here.")
        elif not self.server.knows(presented_secret(self.headers)):
            message = "Code: 516. DB::Exception: Authentication failed. (AUTHENTICATION_FAILED)"
            self._refuse(HTTPStatus.FORBIDDEN, _AUTHENTICATION_FAILED, message)
        else:
            self._serve(query_string)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Say nothing: statements carry what users' agents did."""

    def _serve(self, query_string: str) -> None:
        try:
            request = read_request(query_string, self.headers, self._body())
        except BadRequest as error:
            self.close_connection = True
            self._answer(error.status, f"{error}\n".encode(), {})
            return
        query_id = request.query_id or str(uuid.uuid4())
        try:
            answer = self.server.run(request)
        except EngineError as error:
            status = _STATUS.get(error.code, HTTPStatus.INTERNAL_SERVER_ERROR)
            headers = {"X-ClickHouse-Exception-Code": str(error.code), "X-ClickHouse-Query-Id": query_id}
            self._answer(status, f"{error}\n".encode(), headers)
            return
        self._answer(HTTPStatus.OK, answer.body, _answer_headers(request, query_id, answer))

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            return self._chunks()
        try:
            length = int(self.headers.get("Content-Length") or 0)
        except ValueError as error:
            raise BadRequest("Content-Length is no number") from error
        if not 0 <= length <= MAX_BODY_BYTES:
            raise BadRequest("the body is too large", HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        body = self.rfile.read(length)
        if len(body) != length:
            raise BadRequest("the body ended early")
        return body

    def _chunks(self) -> bytes:
        """Read a chunked body (RFC 9112, 7.1)."""
        body = bytearray()
        while True:
            try:
                size = int(self.rfile.readline(_MAX_CHUNK_HEADER).split(b";")[0], 16)
            except ValueError as error:
                raise BadRequest("the chunked body is broken") from error
            if size < 0 or len(body) + size > MAX_BODY_BYTES:
                raise BadRequest("the body is too large", HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            if size == 0:
                break
            body += self.rfile.read(size)
            self.rfile.readline(_MAX_CHUNK_HEADER)
        while self.rfile.readline(_MAX_CHUNK_HEADER).strip():
            pass
        return bytes(body)

    def _refuse(self, status: int, code: int, message: str) -> None:
        """Answer without serving, after taking in a body of bounded size so that the client hears of it."""
        self.close_connection = True
        told = self.headers.get("Content-Length") or ""
        left = min(int(told[:18]), _DISCARD_LIMIT) if told.isascii() and told.isdigit() else 0
        while left > 0 and (piece := self.rfile.read(min(left, 65536))):
            left -= len(piece)
        headers = {"X-ClickHouse-Exception-Code": str(code)} if code else {}
        self._answer(status, f"{message}\n".encode(), headers)

    def _answer(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)


def _answer_headers(request: Request, query_id: str, answer: Answer) -> dict[str, str]:
    summary = {
        "read_rows": str(answer.read_rows),
        "read_bytes": str(answer.read_bytes),
        "written_rows": str(answer.written_rows),
        "written_bytes": str(answer.written_bytes),
        "result_rows": str(answer.written_rows),
        "elapsed_ns": "0",
    }
    headers = {
        "X-ClickHouse-Query-Id": query_id,
        "X-ClickHouse-Server-Display-Name": "recloser-store",
        "X-ClickHouse-Summary": json.dumps(summary),
        "X-ClickHouse-Timezone": "UTC",
    }
    work = request.work
    if not isinstance(work, Insert) and answer.body:
        headers["X-ClickHouse-Format"] = work.answer_format
    return headers
