"""Reads a server-sent event stream out of an ASGI app, as a client that may be slow or go away."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, MutableMapping

    from starlette.types import ASGIApp

PATIENCE_S = 10.0


@dataclass(frozen=True)
class Event:
    """One event; `id` is empty when it has none."""

    name: str
    id: str
    data: Any


@dataclass
class Stream:
    """What came in. While `reading` is clear the client takes nothing more."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    text: str = ""
    ended: bool = False
    reading: asyncio.Event = field(default_factory=asyncio.Event)
    leaving: asyncio.Event = field(default_factory=asyncio.Event)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    _taken: int = 0

    @property
    def events(self) -> list[Event]:
        """All events so far, comments left out."""
        return [event for block in self.text.split("\n\n") if (event := _event(block)) is not None]

    async def next(self, *names: str) -> Event:
        """Wait for the next event of one of these names (none: any but a heartbeat) and take it."""
        async with asyncio.timeout(PATIENCE_S), self.changed:
            while True:
                found = self.events[self._taken :]
                for event in found:
                    self._taken += 1
                    if event.name in names or (not names and event.name != "heartbeat"):
                        return event
                await self.changed.wait()

    async def end(self) -> None:
        """Wait until the server has ended it."""
        async with asyncio.timeout(PATIENCE_S), self.changed:
            await self.changed.wait_for(lambda: self.ended)


@asynccontextmanager
async def following(app: ASGIApp, path: str, **headers: str) -> AsyncIterator[Stream]:
    """Open a stream, and go away at the end of the block."""
    stream = Stream()
    stream.reading.set()
    route, _, query = path.partition("?")
    scope = {
        "type": "http",
        "method": "GET",
        "path": route,
        "raw_path": route.encode(),
        "query_string": query.encode(),
        "headers": [(b"host", b"recloser"), *((k.encode(), v.encode()) for k, v in headers.items())],
        "client": ("127.0.0.1", 1),
        "server": ("recloser", 80),
        "scheme": "http",
        "http_version": "1.1",
        "root_path": "",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "state": {},
    }
    begun = False

    async def receive() -> MutableMapping[str, Any]:
        nonlocal begun
        if not begun:
            begun = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await stream.leaving.wait()
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        await stream.reading.wait()
        async with stream.changed:
            if message["type"] == "http.response.start":
                stream.status = message["status"]
                stream.headers = {k.decode(): v.decode() for k, v in message["headers"]}
            else:
                stream.text += message.get("body", b"").decode()
                stream.ended = not message.get("more_body", False)
            stream.changed.notify_all()

    serving = asyncio.ensure_future(app(scope, receive, send))
    try:
        yield stream
    finally:
        stream.reading.set()
        stream.leaving.set()
        async with asyncio.timeout(PATIENCE_S):
            await serving


def _event(block: str) -> Event | None:
    fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line and line[0] != ":")
    if "data" not in fields:
        return None
    return Event(fields.get("event", "message"), fields.get("id", ""), json.loads(fields["data"]))
