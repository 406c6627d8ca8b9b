"""Who may send: an optional check of bearer tokens, the same for both transports."""

from __future__ import annotations

from typing import Final, Literal, Protocol

UNAUTHENTICATED: Final = 401
FORBIDDEN: Final = 403


class Auth(Protocol):
    """Checks the bearer token of a request; quick, since it runs on the event loop."""

    def __call__(self, token: str | None, /) -> Literal[401, 403] | None:
        """Return None to let the request in, 401 without a (known) token, 403 when it may not send."""
        ...


def anyone(_token: str | None) -> Literal[401, 403] | None:
    """Let everyone in: for receivers on loopback."""
    return None


def bearer_token(header: str | None) -> str | None:
    """Return the token of an Authorization header, None when there is none or it is of another scheme."""
    if header is None:
        return None
    scheme, _, token = header.strip().partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None
