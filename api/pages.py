"""Pages of others in a browser on this machine: without tokens they may change nothing.

A page of any origin may have the browser send a form or an empty POST to 127.0.0.1; no CORS is asked for
that, only the answer is kept from the page. Browsers say where such a request comes from (`Sec-Fetch-Site`,
`Origin`); programs that are no browsers say nothing and are served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from api.problems import Problem, dump

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Receive, Scope, Send

_LOOKING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_OURS: Final = frozenset({b"", b"same-origin", b"none"})
_NO_ORIGIN: Final = frozenset({b"", b"null"})
_REFUSAL: Final = dump(
    Problem(code="denied", detail="a page of another origin may change nothing here; set tokens for that")
)


class OwnPagesOnly:
    """ASGI in front of an app: 403 for what a page of another origin has sent, while it is `needed`."""

    def __init__(self, app: ASGIApp, needed: Callable[[], bool]) -> None:
        self._app = app
        self._needed = needed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if (
            scope["type"] == "http"
            and scope["method"] not in _LOOKING
            and not of_us(scope["headers"])
            and self._needed()
        ):
            headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(_REFUSAL))]
            await send({"type": "http.response.start", "status": 403, "headers": headers})
            await send({"type": "http.response.body", "body": _REFUSAL})
            return
        await self._app(scope, receive, send)


def of_us(headers: list[tuple[bytes, bytes]]) -> bool:
    """Tell whether no page sent this, or one that came from here.

    An origin `null` says nothing: our own page sends it, too, since it tells nobody where it stands.

    >>> of_us([(b"host", b"localhost:4319")])
    True
    >>> of_us([(b"host", b"localhost:4319"), (b"origin", b"http://localhost:4319")])
    True
    >>> of_us([(b"host", b"localhost:4319"), (b"origin", b"http://localhost:3000")])
    False
    >>> of_us([(b"host", b"localhost:4319"), (b"origin", b"null"), (b"sec-fetch-site", b"cross-site")])
    False
    """
    host = origin = site = b""
    for name, value in headers:
        if name == b"host":
            host = value
        elif name == b"origin":
            origin = value
        elif name == b"sec-fetch-site":
            site = value
    return site in _OURS and (origin in _NO_ORIGIN or origin.partition(b"://")[2].lower() == host.lower())
