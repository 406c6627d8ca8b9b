"""Signed links to the page on which a person stops one session. They expire, and allow nothing else."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_NS: Final = 1_000_000_000
_KEY_BYTES: Final = 32
LIFETIME_S: Final = 86_400
MAX_SESSION: Final = 512


class BadLink(Exception):  # noqa: N818 - says what is wrong, as the rest of the tree does
    """The link is not one of ours: made up, or changed."""


class ExpiredLink(Exception):  # noqa: N818 - says what is wrong, as the rest of the tree does
    """The link was one of ours and is too old."""


class LinkKeyError(Exception):
    """The key of links cannot be used; the message names its file."""


class StopLinks:
    """Makes and checks links. `base` is where people reach the API, without a slash at the end."""

    def __init__(self, key: bytes, base: str, now_ns: Callable[[], int]) -> None:
        self._key = key
        self._base = base.rstrip("/")
        self._now_ns = now_ns

    def of(self, session_id: str) -> str:
        """Make the link for a session; it holds for a day."""
        expires = self._now_ns() // _NS + LIFETIME_S
        query = urlencode({"session": session_id, "exp": expires, "sig": self._sign(session_id, expires)})
        return f"{self._base}/stop?{query}"

    def check(self, session_id: str, expires: str, signature: str) -> None:
        """Raise `BadLink` or `ExpiredLink` unless the link is one of ours that still holds."""
        if not (expires.isascii() and expires.isdigit() and len(expires) <= len("9" * 12)):
            raise BadLink
        wanted = self._sign(session_id, int(expires))
        if not hmac.compare_digest(wanted.encode(), signature.encode("utf-8", "surrogateescape")):
            raise BadLink
        if int(expires) * _NS <= self._now_ns():
            raise ExpiredLink

    def _sign(self, session_id: str, expires: int) -> str:
        text = f"stop\n{expires}\n{session_id}".encode("utf-8", "surrogatepass")
        return hmac.new(self._key, text, hashlib.sha256).hexdigest()


def load_key(path: Path) -> bytes:
    """Read the key of links, made the first time, for this user's eyes only.

    A file that a crash left empty is made anew. Raises `LinkKeyError`.
    """
    try:
        key = _made(path) if not path.exists() or path.stat().st_size == 0 else path.read_bytes()
    except OSError as error:
        raise LinkKeyError(f"{path}: {error.strerror}") from error
    if len(key) != _KEY_BYTES:
        raise LinkKeyError(f"{path}: holds no key; delete it, and links made with it end")
    return key


def _made(path: Path) -> bytes:
    key = secrets.token_bytes(_KEY_BYTES)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(key)
        file.flush()
        os.fsync(file.fileno())
    return key
