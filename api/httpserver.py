"""uvicorn with bounds: heads in size and time, bodies and unread answers in time, connections in number.

uvicorn itself waits for ever for the rest of a request's head, takes a head of any size, and counts no
connections; a few hundred idle sockets, or one endless header, would otherwise be enough to stop a sidecar.
"""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

_FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
)
_TOO_SLOW: Final = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_TOO_LONG: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
)
_MOST_CONNECTIONS: Final = 4096
_MOST_FILES: Final = 65_536
_FILES_PER_CONNECTION: Final = 4  # no more than a quarter of what may be open is sockets of strangers


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpBounds:
    """Bytes, seconds and a number of connections. `body_timeout_s` None: the application sees to bodies.

    `unread_timeout_s`: for how long a client may take nothing of what waits for it.
    """

    head_bytes: int = 64 * 1024
    head_timeout_s: float = 10.0
    body_timeout_s: float | None = None
    unread_timeout_s: float = 30.0
    max_connections: int = _MOST_CONNECTIONS


def bounded(given: HttpBounds) -> type[HttpToolsProtocol]:
    """Make the class to give to `uvicorn.Config(http=…)`."""

    class Bounded(_BoundedProtocol):
        bounds = given

    return Bounded


def room_for_connections(most: int = _MOST_CONNECTIONS) -> int:
    """Raise this process's limit of open files as far as it goes; return how many connections then fit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return most if soft == resource.RLIM_INFINITY else max(16, min(most, soft // _FILES_PER_CONNECTION))


class EndingServer(uvicorn.Server):
    """A server that says so before it waits for open answers: those that would not end by themselves."""

    def __init__(self, config: uvicorn.Config, on_end: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_end = on_end

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End in order."""
        self._on_end()
        await super().shutdown(sockets)


class _BoundedProtocol(HttpToolsProtocol):
    """One connection: what the parser tells of heads and bodies starts and stops one timer."""

    bounds: HttpBounds
    _timer: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _partial = False  # a head has begun and is not complete
    _head_size = 0
    _heads = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Take a connection, unless there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self.bounds.max_connections:
            self._refuse(_FULL)
        else:
            self._wait(self.bounds.head_timeout_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timers with the connection."""
        self._stop_waiting()
        self._is_read()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse, and look at how long the head has become."""
        before = self._heads
        super().data_received(data)
        if not self._partial or self.transport.is_closing():
            return
        self._head_size = self._head_size + len(data) if self._heads == before else 0
        if self._head_size > self.bounds.head_bytes:
            self._refuse(_TOO_LONG)
        elif self._timer is None:
            self._wait(self.bounds.head_timeout_s)

    def eof_received(self) -> bool:  # type: ignore[override]  # True keeps the transport open for the answer
        """Answer a client that has closed its half after a whole request; it sends no other one."""
        cycle = self._current()
        if cycle is None or cycle.response_complete or cycle.more_body:
            return False
        cycle.keep_alive = False
        return self.scheme == "http"

    def pause_writing(self) -> None:
        """Give a client that is behind some time; nothing reaches one that does not read, so it is let go."""
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(self.bounds.unread_timeout_s, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on: the client reads."""
        super().resume_writing()
        self._is_read()

    def on_message_begin(self) -> None:
        """Note that a head has begun."""
        self._partial = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """End the wait for the head, begin that for the body."""
        self._partial, self._head_size, self._heads = False, 0, self._heads + 1
        self._stop_waiting()
        if self.bounds.body_timeout_s is not None:
            self._wait(self.bounds.body_timeout_s)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """End the wait for the body."""
        self._stop_waiting()
        super().on_message_complete()

    def _current(self) -> RequestResponseCycle | None:
        return self.cycle  # uvicorn declares it as always there

    def _wait(self, seconds: float) -> None:
        self._timer = self.loop.call_later(seconds, self._refuse, _TOO_SLOW)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _is_read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _refuse(self, answer: bytes) -> None:
        """Say why, if nothing else is being said, and close."""
        self._stop_waiting()
        if not self.transport.is_closing():
            cycle = self._current()
            if cycle is None or cycle.response_complete or not cycle.response_started:
                self.transport.write(answer)
            if cycle is not None:
                cycle.disconnected = True  # whatever the application says now has nowhere to go
            self.transport.close()
