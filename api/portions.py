"""Long answers go out in portions, each when the one before it has been taken.

A transport keeps whatever it is given until the other side reads it. Given a list of three megabytes in one
piece, it would keep three megabytes for each of the clients that ask for it and never read. And when two
thousand of them come back at once, a check waits for a few portions only, not for all of their lists.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

PORTION_BYTES: Final = 64 * 1024
SMALL_BYTES: Final = 16 * 1024
"""A body of so much has not to wait for its turn."""
AT_A_TIME: Final = 8
"""Portions that are sent before the event loop turns to others."""


class Portions:
    """ASGI around everything: cuts bodies; between two portions the server waits for a slow client."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._turns = _Turns()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def cut(message: Message) -> None:
            body = message.get("body", b"")
            if len(body) <= SMALL_BYTES:
                await send(message)
                return
            last = len(body) - PORTION_BYTES
            for start in range(0, len(body), PORTION_BYTES):
                more = start < last or message.get("more_body", False)
                await self._turns.take()
                await send({**message, "body": body[start : start + PORTION_BYTES], "more_body": more})

        await self._app(scope, receive, cut)


class _Turns:
    """Lets `AT_A_TIME` go on in one turn of the event loop, the others in the order in which they came."""

    def __init__(self) -> None:
        self._left = AT_A_TIME
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def take(self) -> None:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._left = loop, AT_A_TIME
            self._waiting.clear()
        if self._left == AT_A_TIME:
            loop.call_soon(self._next, loop)
        if self._left:
            self._left -= 1
            return
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        await turn

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        self._left = AT_A_TIME
        while self._waiting and self._left:
            turn = self._waiting.popleft()
            if not turn.done():  # else its client went away while it waited
                turn.set_result(None)
                self._left -= 1
        if self._left < AT_A_TIME:
            loop.call_soon(self._next, loop)
