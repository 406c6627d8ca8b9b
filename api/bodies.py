"""How large a body the API takes, whatever the route."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.exceptions import HTTPException

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY_BYTES: Final = 1 << 20
TOO_LARGE: Final = f"a body may have {MAX_BODY_BYTES} bytes at most"


class BoundedBodies:
    """ASGI around routes: reading more than `MAX_BODY_BYTES` of a body ends in 413."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        size = 0

        async def counted() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > MAX_BODY_BYTES:
                raise HTTPException(413, TOO_LARGE)
            return message

        await self._app(scope, counted, send)
