"""HTTP to the sidecar, by the standard library alone. No proxy, no redirect: the address is its own."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import ssl
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from recloser_guard.errors import GuardError

_MAX_ANSWER = 64 * 1024 * 1024
_AT_ONCE = 1024 * 1024


class Unreachable(Exception):  # noqa: N818 - says what the sidecar is
    """No answer: connection refused, timed out, broken off, or a 5xx or 429."""

    def __init__(self, why: str, retry_after: float | None = None) -> None:
        super().__init__(why)
        self.retry_after = retry_after


class Forbidden(Exception):  # noqa: N818 - as above
    """401 or 403: the token is missing, wrong or may not do this. Trying again soon does not help."""


class Answer(NamedTuple):
    """An answer below 500."""

    status: int
    body: Any
    etag: str | None

    def text(self, key: str) -> str | None:
        """Return a text of the body, None where there is none of this name."""
        found = self.body.get(key) if isinstance(self.body, Mapping) else None
        return found if isinstance(found, str) and found else None


class Address(NamedTuple):
    """Where the sidecar's API is."""

    scheme: str
    host: str
    port: int
    path: str


def address_of(url: str) -> Address:
    """Read the API's address; raises `GuardError`.

    >>> address_of("http://127.0.0.1:4319/")
    Address(scheme='http', host='127.0.0.1', port=4319, path='')
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise GuardError(f"url: not an http or https address: {url!r}")
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        raise GuardError(f"url: {error}: {url!r}") from error
    return Address(parts.scheme, parts.hostname, port, parts.path.rstrip("/"))


class Stream:
    """An open stream of lines, read and closed by one thread; `interrupt` ends its waiting from another."""

    def __init__(self, connection: http.client.HTTPConnection, answer: http.client.HTTPResponse) -> None:
        self._connection = connection
        self._answer = answer
        self._timeout: float | None = None
        self._lines: deque[bytes] = deque()
        self._begun: list[bytes] = []  # a line of which the end has not come
        self._open = 0  # its length

    def line(self, timeout: float) -> bytes:
        """Return the next line with its end, empty at the end of the stream; raises `Unreachable`."""
        try:
            while not self._lines:
                if self._connection.sock is not None and timeout != self._timeout:
                    self._connection.sock.settimeout(timeout)
                    self._timeout = timeout
                came = self._answer.read1(_AT_ONCE)
                if not came:
                    return b""
                self._cut(came)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Unreachable(f"stream: {error!r}") from error
        return self._lines.popleft()

    def _cut(self, came: bytes) -> None:
        *whole, rest = came.split(b"\n")
        if whole:
            whole[0] = b"".join((*self._begun, whole[0]))
            self._begun = []
        self._lines.extend(line + b"\n" for line in whole)
        self._open = len(rest) if whole else self._open + len(rest)
        if rest:
            self._begun.append(rest)
        if self._open > _MAX_ANSWER:
            raise Unreachable("stream: a line without an end")

    def interrupt(self) -> None:
        """End the stream for whoever reads it."""
        sock = self._connection.sock
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give the connection back."""
        self._connection.close()


class Transport:
    """Makes requests of one sidecar, each over a connection of its own or over one that is kept."""

    def __init__(self, url: str, token: str | None, *, context: ssl.SSLContext | None, version: str) -> None:
        self._address = address_of(url)
        self._context = context
        if token is not None and not (token.isascii() and token.isprintable()):
            raise GuardError("token: not printable ASCII")  # never shown
        self._headers = {"user-agent": f"recloser-guard/{version}", "accept": "application/json"}
        if token:
            self._headers["authorization"] = f"Bearer {token}"

    def connection(self, timeout: float) -> http.client.HTTPConnection:
        """Make a connection that is opened by its first request."""
        host, port = self._address.host, self._address.port
        if self._address.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=timeout, context=self._context)
        return http.client.HTTPConnection(host, port, timeout=timeout)

    def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        timeout: float,
        headers: Mapping[str, str] | None = None,
        over: http.client.HTTPConnection | None = None,
    ) -> Answer:
        """Make one request; raises `Unreachable` and `Forbidden`."""
        connection = self.connection(timeout) if over is None else over
        sent = {**self._headers, **(headers or {})}
        content = None
        if body is not None:
            content = json.dumps(body).encode()
            sent["content-type"] = "application/json"
        try:
            connection.request(method, self._address.path + path, content, sent)
            answer = connection.getresponse()
            text = answer.read(_MAX_ANSWER)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise Unreachable(f"{method} {path}: {error!r}") from error
        finally:
            if over is None:
                connection.close()
        _raise_for(answer.status, f"{method} {path}", answer.getheader("retry-after"))
        try:
            return Answer(answer.status, json.loads(text) if text else None, answer.getheader("etag"))
        except (ValueError, RecursionError) as error:
            raise Unreachable(f"{method} {path}: {answer.status} with a body that is no JSON") from error

    def open(self, path: str, *, timeout: float, headers: Mapping[str, str]) -> Stream | None:
        """Open a stream of events; None where the other side has none (404, 406, other content).

        Raises `Unreachable` and `Forbidden`.
        """
        connection = self.connection(timeout)
        sent = {**self._headers, "accept": "text/event-stream", "cache-control": "no-cache", **headers}
        try:
            connection.request("GET", self._address.path + path, headers=sent)
            answer = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise Unreachable(f"GET {path}: {error!r}") from error
        kind = answer.getheader("content-type") or ""
        if answer.status == http.client.OK and kind.startswith("text/event-stream"):
            return Stream(connection, answer)
        connection.close()
        _raise_for(answer.status, f"GET {path}", answer.getheader("retry-after"))
        return None


def _raise_for(status: int, what: str, retry_after: str | None) -> None:
    if status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
        raise Forbidden(f"{what}: {status}")
    if status == http.client.TOO_MANY_REQUESTS or status >= http.client.INTERNAL_SERVER_ERROR:
        seconds = float(retry_after) if retry_after and re.fullmatch("[0-9]+", retry_after) else None
        raise Unreachable(f"{what}: {status}", seconds)
