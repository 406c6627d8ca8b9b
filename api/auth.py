"""Who may do what. Without tokens everything is allowed, and everything listens on loopback only."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable


class Verb(StrEnum):
    """What a token allows. An agent's token has `check` (and `read`) and can reset nothing."""

    READ = "read"
    CHECK = "check"
    OPERATE = "operate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A bearer token by name, its secret kept as a hash. Raises `ValueError` naming the key."""

    name: str
    verbs: frozenset[Verb]
    digest: bytes = field(repr=False)

    @staticmethod
    def of(name: str, secret: str, verbs: Iterable[Verb]) -> Token:
        """Make a token from its secret (16 characters or more)."""
        if len(secret) < MIN_SECRET:
            raise ValueError(f"tokens.{name}.secret: at least {MIN_SECRET} characters are needed")
        return Token(name=name, verbs=frozenset(verbs), digest=_digest(secret))


MIN_SECRET: Final = 16


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, as it is written down: a token's name, or `local` when there are no tokens."""

    name: str


class Denied(Exception):  # noqa: N818 - says what happened to the caller
    """The caller may not do this: `status` 401 when nobody is known, 403 when the token lacks the verb."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


class Authority:
    """Knows the tokens. Comparing takes the same time whatever is presented."""

    def __init__(self, tokens: tuple[Token, ...] = ()) -> None:
        self._tokens = tokens

    @property
    def open(self) -> bool:
        """Whether no token is needed."""
        return not self._tokens

    def admit(self, authorization: str | None, verb: Verb) -> Caller:
        """Return the caller behind an Authorization header. Raises `Denied`."""
        if not self._tokens:
            return Caller("local")
        scheme, _, secret = (authorization or "").partition(" ")
        presented = _digest(secret.strip())
        known = [token for token in self._tokens if hmac.compare_digest(token.digest, presented)]
        if scheme.lower() != "bearer" or not known:
            raise Denied(401, "a bearer token is needed: Authorization: Bearer …")
        if verb not in known[0].verbs:
            raise Denied(403, f"the token {known[0].name!r} does not allow {verb.value!r}")
        return Caller(known[0].name)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()
