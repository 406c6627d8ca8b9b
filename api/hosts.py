"""Whom a request is meant for: without tokens, only requests to this machine by a name of its own are served.

A page in a browser can let its own name point to 127.0.0.1 and then talk to what listens there as if it were
its server (DNS rebinding). Such a request carries the page's name in its Host header. A number is no name:
nobody can make it point elsewhere.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from api.problems import Problem, dump

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

MISDIRECTED: Final = 421


class KnownHosts:
    """ASGI in front of an app: 421 for requests that name a host which is none of ours.

    Only while it is `needed`: a page in a browser has no token.
    """

    def __init__(
        self, app: ASGIApp, names: Iterable[str] = (), needed: Callable[[], bool] = lambda: True
    ) -> None:
        self._app = app
        self._needed = needed
        self._names = frozenset(name.lower() for name in names)
        self._known: set[bytes] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http":
            host = next((value for name, value in scope["headers"] if name == b"host"), b"")
            if host not in self._known and self._needed():
                if not is_ours(host.decode("latin-1"), self._names):
                    await _refuse(send, host)
                    return
                if len(self._known) < 64:  # noqa: PLR2004 - as many as anybody needs
                    self._known.add(host)
        await self._app(scope, receive, send)


def is_ours(host: str, names: frozenset[str] = frozenset()) -> bool:
    """Tell whether a Host header names this machine: no host, a number, localhost, or one of `names`.

    >>> [is_ours(host) for host in ("localhost:4319", "127.0.0.1", "[::1]:4319", "", "evil.example:4319")]
    [True, True, True, True, False]
    >>> is_ours("recloser.internal:4319", frozenset({"recloser.internal"}))
    True
    """
    text = host.strip().lower()
    name = text[1:].partition("]")[0] if text.startswith("[") else text.partition(":")[0]
    name = name.removesuffix(".")
    if name in ("", "localhost") or name.endswith(".localhost") or name in names:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


async def _refuse(send: Send, host: bytes) -> None:
    detail = (
        f"the host {host.decode('latin-1')[:200]!r} is none of this sidecar's names; "
        "use localhost, add the name to allowed_hosts, or set tokens"
    )
    body = dump(Problem(code="misdirected", detail=detail))
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": MISDIRECTED, "headers": headers})
    await send({"type": "http.response.body", "body": body})
