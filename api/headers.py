"""What every answer says to browsers: take it as what it is, keep it nowhere, put it into no frame.

No answer ever has a CORS header: a page of another origin can read nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_ALWAYS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)
_CACHE: Final = (b"cache-control", b"no-store")
_POLICY: Final = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")
_POLICY_OF_PAGES: Final = (
    b"content-security-policy",
    (
        b"default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
        b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
)
_PLAIN: Final = [*_ALWAYS, _CACHE, _POLICY]
_OWN: Final = (_CACHE[0], _POLICY[0])


class SecurityHeaders:
    """ASGI around everything: adds them, leaves `cache-control` and a policy that a route has set."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = dressed(message.get("headers", ()))
            await send(message)

        await self._app(scope, receive, with_headers)


def dressed(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return an answer's headers with what is missing.

    >>> dressed([(b"content-type", b"application/json")])[-1]
    (b'content-security-policy', b"default-src 'none'; frame-ancestors 'none'")
    >>> dressed([(b"cache-control", b"max-age=1")]).count((b"cache-control", b"no-store"))
    0
    """
    given = list(headers)
    special = {
        name.lower() for name, value in given if name.lower() in _OWN or value.startswith(b"text/html")
    }
    if not special:
        return given + _PLAIN
    given += _ALWAYS
    if _CACHE[0] not in special:
        given.append(_CACHE)
    if _POLICY[0] not in special:
        given.append(_POLICY_OF_PAGES if b"content-type" in special else _POLICY)
    return given
