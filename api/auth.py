"""Who may do what. Without tokens everything is allowed, and everything listens on loopback only."""

from __future__ import annotations

import hmac
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from api.ratelimit import Kind, Limiter, NoLimits
from control.tokens import MIN_SECRET, Token, digest_of
from control.verbs import EVERYTHING, Only, Verb

__all__ = ["MIN_SECRET", "Authority", "Caller", "Denied", "Refused", "Token", "Tokens", "Verb"]

_UNAUTHENTICATED: Final = 401
_TOO_MANY: Final = 429


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, as it is written down: a token's name, or `local` when there are no tokens."""

    name: str
    verbs: frozenset[Verb] = frozenset(Verb)
    only: Only = EVERYTHING
    token: Token | None = None

    @property
    def identity(self) -> str:
        """What nobody else has, ever: names are given anew when a token has ended."""
        return self.name if self.token is None else f"token {self.token.id}"

    def need(self, verb: Verb, why: str = "") -> None:
        """Let only a token with `verb` go on. Raises `Denied`."""
        if verb not in self.verbs:
            reason = f": {why}" if why else ""
            raise Denied(403, f"the token {self.name!r} does not allow {verb.value!r}{reason}", self.name)

    def confirm(self, *, service: str | None, agent: str | None, session: str | None) -> None:
        """Let only what the token is restricted to go on. Raises `Denied`."""
        if self.only and not self.only.allows(service=service, agent=agent, session=session):
            raise Denied(403, f"the token {self.name!r} is restricted: {restriction(self.only)}", self.name)


class Denied(Exception):  # noqa: N818 - says what happened to the caller
    """The caller may not do this: 401 nobody is known, 403 the token does not allow it, 429 too often.

    `retry_after` (s) says when a 429 may be tried again; `who` is the token's name, empty when unknown.
    """

    def __init__(self, status: int, detail: str, who: str = "", retry_after: float | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.who = who
        self.retry_after = retry_after
        self.noted = False

    @property
    def code(self) -> str:
        """The stable name of the reason."""
        return "too_many_requests" if self.status == _TOO_MANY else "denied"

    @property
    def headers(self) -> dict[str, str]:
        """What the answer owes the caller."""
        if self.status == _TOO_MANY:
            return {"retry-after": str(max(1, math.ceil(self.retry_after or 0)))}
        return {"www-authenticate": "Bearer"} if self.status == _UNAUTHENTICATED else {}


class Tokens(Protocol):
    """Where tokens are known: `control.tokens.TokenBook`, `control.tokenfile.TokenFile`."""

    @property
    def required(self) -> bool:
        """Whether a token is needed."""
        ...

    def find(self, digest: bytes, /) -> Token | None:
        """Return the token with this digest, valid or not."""
        ...

    def used(self, token: Token, /) -> None:
        """Remember that it was used just now."""
        ...


Refused: TypeAlias = Callable[[Denied, Mapping[str, Any]], None]
"""Told of every refusal with the ASGI scope of the request; must be quick."""


class Authority:
    """Knows the tokens. Looking one up takes time that says nothing about any secret."""

    def __init__(
        self,
        tokens: tuple[Token, ...] = (),
        *,
        book: Tokens | None = None,
        limiter: Limiter | None = None,
        refused: Refused | None = None,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.book: Tokens = book or _Fixed(tokens)
        self._limiter = limiter or NoLimits()
        self._refused = refused
        self._now_ns = now_ns

    @property
    def open(self) -> bool:
        """Whether no token is needed."""
        return not self.book.required

    def admit(
        self,
        authorization: str | None,
        verb: Verb | None,
        request: Mapping[str, Any] | None = None,
        *,
        restricted: bool = False,
        brake: bool = False,
    ) -> Caller:
        """Return the caller behind an Authorization header. Raises `Denied`.

        `verb` None: any known token. `request` is the ASGI scope. `restricted`: the route compares what is
        asked with the token's restriction (`Caller.confirm`); all others refuse restricted tokens. `brake`:
        guards live by the answer, so it is limited as checks are.
        """
        key, kind = _address(request), Kind.CHECK if brake or verb is Verb.CHECK else Kind.OTHER
        try:
            if not self.book.required:
                self._spend(key, kind, "")
                return _LOCAL
            return self._known(authorization, verb, key, kind, restricted=restricted)
        except Denied as denied:
            self.note(denied, request)
            raise

    def confirm(
        self,
        caller: Caller,
        request: Mapping[str, Any],
        service: str | None,
        agent: str | None,
        session: str | None,
    ) -> None:
        """Compare what is asked with the restriction of the caller's token. Raises `Denied`."""
        if caller.only:
            try:
                caller.confirm(service=service, agent=agent, session=session)
            except Denied as denied:
                self.note(denied, request)
                raise

    def note(self, denied: Denied, request: Mapping[str, Any] | None) -> None:
        """Have a refusal written down, once whoever says so. `request` is the ASGI scope."""
        if self._refused is not None and not denied.noted:
            denied.noted = True
            self._refused(denied, request or {})

    def stands(self, caller: Caller) -> bool:
        """Tell whether a caller would still be let in: asked by answers that go on for long."""
        if caller.token is None:
            return self.open
        known = self.book.find(caller.token.digest)
        return known is not None and known.valid(self._now_ns())

    def insist(self, caller: Caller) -> None:
        """Let only a caller that still stands go on, after a wait. Raises `Denied`."""
        if not self.stands(caller):
            raise Denied(401, "the token has ended meanwhile", caller.name)

    def _known(
        self, authorization: str | None, verb: Verb | None, address: str, kind: Kind, *, restricted: bool
    ) -> Caller:
        scheme, _, secret = (authorization or "").partition(" ")
        digest = digest_of(secret.strip())
        token = self.book.find(digest)
        if (
            token is None
            or scheme.lower() != "bearer"
            or not hmac.compare_digest(token.digest, digest)
            or not token.valid(self._now_ns())
        ):
            wait = self._limiter.failed(address)
            if wait > 0:
                raise Denied(429, "too many unknown tokens from this address", "", wait)
            raise Denied(401, "no valid token was sent: Authorization: Bearer …")
        wait = self._limiter.known(token, address)
        if wait > 0:
            raise Denied(429, "too many unknown tokens from this address", "", wait)
        caller = Caller(token.name, token.verbs, token.only, token)
        self._spend(token.id, kind, token.name)
        self.book.used(token)
        if verb is not None:
            caller.need(verb)
            if token.only and not restricted:
                raise Denied(
                    403,
                    f"the token {token.name!r} is restricted ({restriction(token.only)}), "
                    "and what is asked here is not",
                    token.name,
                )
        return caller

    def _spend(self, key: str, kind: Kind, who: str) -> None:
        wait = self._limiter.spend(key, kind)
        if wait > 0:
            raise Denied(429, "too many requests; see Retry-After", who, wait)


def restriction(only: Only) -> str:
    """Name what a token is restricted to."""
    kinds = (("services", only.services), ("agents", only.agents), ("sessions", only.sessions))
    return "; ".join(f"{kind} {', '.join(patterns)}" for kind, patterns in kinds if patterns)


def configured_tokens(given: Sequence[Mapping[str, Any]]) -> tuple[Token, ...]:
    """Make the tokens of the setting `tokens` (plain data). Raises `ValueError` that names the key."""
    tokens = tuple(_configured(number, token) for number, token in enumerate(given, start=1))
    for field in ("name", "digest"):
        values = [getattr(token, field) for token in tokens]
        again = next((n for n, value in enumerate(values, start=1) if value in values[: n - 1]), None)
        if again is not None:
            what = "token" if field == "digest" else field
            raise ValueError(f"tokens.{again}.{what}: another token has the same")
    return tokens


def _configured(number: int, given: Mapping[str, Any]) -> Token:
    only = Only(
        services=tuple(given["services"]), agents=tuple(given["agents"]), sessions=tuple(given["sessions"])
    )
    name = given["name"] or f"token-{number}"
    return Token.of(name, given["token"], (Verb(scope) for scope in given["scopes"]), only)


_LOCAL = Caller("local")


class _Fixed:
    """Tokens that do not change."""

    def __init__(self, tokens: tuple[Token, ...]) -> None:
        self._by_digest = {token.digest: token for token in tokens}
        self.required = bool(tokens)

    def find(self, digest: bytes) -> Token | None:
        return self._by_digest.get(digest)

    def used(self, token: Token) -> None:
        """Tokens of the configuration are not dated."""


def _address(request: Mapping[str, Any] | None) -> str:
    client = request.get("client") if request else None
    return str(client[0]) if client else ""
