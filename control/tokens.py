"""Tokens: records that keep a digest of the secret, never the secret; and the book of them in `control.db`.

The book is the one writer. What it decided is in `find` at once when the transaction is on disk; another
process follows the same table with `control/tokenfile.py`.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from control.audit import record
from control.verbs import EVERYTHING, LIMITABLE, Only, Verb

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Mapping

    from collector.step import Json
    from control.actor import Actor
    from control.db import ControlDb, Transaction

PREFIX: Final = "rcl_"
MIN_SECRET: Final = 16
MOST: Final = 1000
"""Tokens that may be valid at a time."""
LONGEST_NAME: Final = 200
SELECT: Final = "SELECT id, name, digest, payload, created_ns, revoked_ns FROM tokens ORDER BY created_ns, id"


class UnknownToken(Exception):  # noqa: N818 - says what happened to the caller
    """No token has this id."""


class TokenRefused(Exception):  # noqa: N818 - says what happened to the caller
    """It makes no sense in the present state; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A bearer token, its secret kept as SHA-256. Times are unix ns; `source` is `config` or `created`."""

    id: str
    name: str
    verbs: frozenset[Verb]
    digest: bytes = field(repr=False)
    only: Only = EVERYTHING
    source: str = "created"
    created_ns: int | None = None
    created_by: str = ""
    expires_ns: int | None = None
    last_used_ns: int | None = None
    revoked_ns: int | None = None
    revoked_by: str = ""

    @staticmethod
    def of(name: str, secret: str, verbs: Iterable[Verb], only: Only = EVERYTHING) -> Token:
        """Make a token of the configuration from its secret. Raises `ValueError` naming the key."""
        if len(secret) < MIN_SECRET:
            raise ValueError(f"tokens.{name}.token: at least {MIN_SECRET} characters are needed")
        wanted = frozenset(verbs)
        check_restriction(wanted, only, f"tokens.{name}.scopes")
        return Token(
            id=f"config-{name}", name=name, verbs=wanted, digest=digest_of(secret), only=only, source="config"
        )

    def valid(self, now_ns: int) -> bool:
        """Whether it may still be used."""
        return self.revoked_ns is None and (self.expires_ns is None or now_ns < self.expires_ns)


def digest_of(secret: str) -> bytes:
    """SHA-256: enough for 256 random bits, and what is looked up tells nothing about the secret by time."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def check_restriction(verbs: frozenset[Verb], only: Only, key: str) -> None:
    """Refuse verbs whose use cannot be compared with a restriction. Raises `ValueError` naming the key."""
    beyond = sorted(verbs - LIMITABLE)
    if only and beyond:
        raise ValueError(
            f"{key}: {', '.join(beyond)} cannot be restricted to services, agents or sessions; "
            f"make another token for that"
        )


def read_tokens(connection: sqlite3.Connection | Transaction) -> tuple[Token, ...]:
    """Return every token of the table, the oldest first, revoked and expired ones, too."""
    return tuple(_token(row) for row in connection.execute(SELECT).fetchall())


class TokenBook:
    """Creates, lists and revokes tokens; `find` and `required` are in memory. Safe from several threads."""

    def __init__(self, db: ControlDb, now_ns: Callable[[], int], *, configured: Iterable[Token] = ()) -> None:
        self._db = db
        self._now_ns = now_ns
        self._configured = tuple(configured)
        self._lock = threading.Lock()
        self._used: dict[str, int] = {}
        self._tokens: dict[str, Token] = {}
        self._by_digest: Mapping[bytes, Token] = {}
        with db.reading() as connection:
            self._take(read_tokens(connection))

    @property
    def required(self) -> bool:
        """Whether a token is needed: once there is one, be it revoked or expired."""
        return bool(self._tokens or self._configured)

    def find(self, digest: bytes) -> Token | None:
        """Return the token with this digest, valid or not; memory only."""
        return self._by_digest.get(digest)

    def used(self, token: Token) -> None:
        """Remember that it was used just now; `settle` writes it down."""
        if token.source == "created":
            self._used[token.id] = self._now_ns()

    def all(self) -> tuple[Token, ...]:
        """Return all, the configuration's first."""
        with self._lock:
            used = dict(self._used)
        created = (
            replace(token, last_used_ns=used.get(token.id, token.last_used_ns))
            for token in self._tokens.values()
        )
        return (*self._configured, *created)

    def settle(self) -> None:
        """Write down when tokens were last used. One transaction, none when there is nothing."""
        with self._lock:
            used, self._used = self._used, {}
        if not used:
            return
        with self._db.transaction() as tx:
            for key, at in list(used.items()):
                token = self._tokens.get(key)
                if token is not None:
                    self._store(tx, replace(token, last_used_ns=at))

    def create(self, wanted: Wanted, actor: Actor) -> tuple[Token, str]:
        """Make a token; return it with its secret, which is nowhere else from now on.

        Raises `ValueError` naming the field, `TokenRefused` when the name is taken, when there are too many,
        or when the first token of all could not make another one.
        """
        wanted.check()
        secret = PREFIX + secrets.token_urlsafe(32)
        now = self._now_ns()
        token = Token(
            id=secrets.token_hex(8),
            name=wanted.name,
            verbs=wanted.verbs,
            digest=digest_of(secret),
            only=wanted.only,
            created_ns=now,
            created_by=actor.id,
            expires_ns=wanted.expires_ns,
        )
        with self._db.transaction() as tx:
            self._refuse(wanted, now)
            self._store(tx, token)
            _audit(tx, "token.create", token, actor, now)
        return token, secret

    def revoke(self, token_id: str, actor: Actor, *, last_admin: bool = False) -> Token:
        """End a token at once; one that has ended stays as it is.

        Raises `UnknownToken`, `TokenRefused` for one of the configuration and, unless `last_admin`, for the
        last one that could make another.
        """
        if any(token.id == token_id for token in self._configured):
            raise TokenRefused("this token is in the configuration; take it out there")
        with self._db.transaction() as tx:
            token = self._tokens.get(token_id)
            if token is None:
                raise UnknownToken(token_id)
            now = self._now_ns()
            if token.revoked_ns is not None:
                return token
            rest = [other for other in self._valid(now) if other.id != token_id and Verb.ADMIN in other.verbs]
            if not rest and Verb.ADMIN in token.verbs and token.valid(now) and not last_admin:
                raise TokenRefused("this is the last token that allows admin; make another one first")
            after = replace(token, revoked_ns=now, revoked_by=actor.id)
            self._store(tx, after)
            _audit(tx, "token.revoke", after, actor, now)
            return after

    def _refuse(self, wanted: Wanted, now: int) -> None:
        valid = self._valid(now)
        if any(token.name == wanted.name for token in valid):
            raise TokenRefused(f"there is a token with the name {wanted.name!r}")
        if len(valid) >= MOST:
            raise TokenRefused(f"there are {MOST} tokens; revoke some")
        if not any(Verb.ADMIN in token.verbs for token in valid) and Verb.ADMIN not in wanted.verbs:
            raise TokenRefused("the first token must allow admin: from then on only admin can make others")

    def _valid(self, now: int) -> list[Token]:
        return [token for token in (*self._configured, *self._tokens.values()) if token.valid(now)]

    def _store(self, tx: Transaction, token: Token) -> None:
        payload = {
            "verbs": sorted(token.verbs),
            "services": token.only.services,
            "agents": token.only.agents,
            "sessions": token.only.sessions,
            "created_by": token.created_by,
            "expires_ns": token.expires_ns,
            "last_used_ns": token.last_used_ns,
            "revoked_by": token.revoked_by,
        }
        tx.execute(
            "INSERT INTO tokens (id, name, digest, payload, created_ns, revoked_ns) "
            "VALUES (?1, ?2, ?3, ?4, ?5, ?6) "
            "ON CONFLICT (id) DO UPDATE SET payload = ?4, revoked_ns = ?6",
            (token.id, token.name, token.digest, json.dumps(payload), token.created_ns, token.revoked_ns),
        )
        tx.after_commit(lambda: self._take((*self._tokens.values(), token)))

    def _take(self, tokens: Iterable[Token]) -> None:
        """Replace the copies in memory; readers see the old ones or the new ones."""
        self._tokens = {token.id: token for token in tokens}
        by_digest = {token.digest: token for token in self._tokens.values()}
        self._by_digest = by_digest | {token.digest: token for token in self._configured}


class TokenUse:
    """A duty: writes down once a minute when tokens were last used."""

    name = "the last use of tokens"
    every_s = 60.0

    def __init__(self, book: TokenBook) -> None:
        self._book = book

    def turn(self) -> None:
        """Write what is new."""
        self._book.settle()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A token to be made. `expires_ns` is a unix time in ns."""

    name: str
    verbs: frozenset[Verb]
    expires_ns: int | None = None
    only: Only = EVERYTHING

    def check(self) -> None:
        """Raise `ValueError` that names the field which makes no sense."""
        if not 0 < len(self.name.strip()) <= LONGEST_NAME:
            raise ValueError(f"name: 1 to {LONGEST_NAME} characters are needed")
        if not self.verbs:
            raise ValueError(f"verbs: at least one of {', '.join(Verb)} is needed")
        check_restriction(self.verbs, self.only, "verbs")


def _audit(tx: Transaction, verb: str, token: Token, actor: Actor, now_ns: int) -> None:
    said: dict[str, Json] = {
        "name": token.name,
        "verbs": [verb.value for verb in sorted(token.verbs)],
        "expires_ns": token.expires_ns,
        "services": list(token.only.services),
        "agents": list(token.only.agents),
        "sessions": list(token.only.sessions),
    }
    revoked = token.revoked_ns is not None
    record(
        tx,
        at_ns=now_ns,
        actor=actor,
        verb=verb,
        subject=token.id,
        reason="",
        before=said if revoked else None,
        after=None if revoked else said,
    )


def _token(row: sqlite3.Row) -> Token:
    payload = json.loads(row["payload"])
    return Token(
        id=row["id"],
        name=row["name"],
        digest=row["digest"],
        verbs=frozenset(Verb(verb) for verb in payload["verbs"]),
        only=Only(
            services=tuple(payload["services"]),
            agents=tuple(payload["agents"]),
            sessions=tuple(payload["sessions"]),
        ),
        created_ns=row["created_ns"],
        created_by=payload["created_by"],
        expires_ns=payload["expires_ns"],
        last_used_ns=payload["last_used_ns"],
        revoked_ns=row["revoked_ns"],
        revoked_by=payload["revoked_by"],
    )
