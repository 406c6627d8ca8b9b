from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from control.actor import Actor
from control.audit import entries, verify
from control.db import ControlDb
from control.tokenfile import TokenFile, any_token
from control.tokens import (
    MOST,
    PREFIX,
    Token,
    TokenBook,
    TokenRefused,
    TokenUse,
    UnknownToken,
    Wanted,
    digest_of,
    read_tokens,
)
from control.verbs import AGENT, Only, Verb
from tests.control.support import START_NS, ManualClock

ADA = Actor(type="person", id="ada")
BOSS = Wanted(name="boss", verbs=frozenset({Verb.ADMIN}))
BOT = Wanted(name="bot", verbs=AGENT)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def db(tmp_path: Path) -> Iterator[ControlDb]:
    with closing(ControlDb(tmp_path / "control.db")) as db:
        yield db


@pytest.fixture
def book(db: ControlDb, clock: ManualClock) -> TokenBook:
    return TokenBook(db, clock)


def test_a_token_is_known_by_its_secret_which_is_kept_nowhere(
    db: ControlDb, book: TokenBook, tmp_path: Path
) -> None:
    assert not book.required
    token, secret = book.create(replace(BOSS, expires_ns=START_NS + 5), ADA)
    assert secret.startswith(PREFIX)
    assert len(secret) >= len(PREFIX) + 43
    assert book.required
    assert book.find(digest_of(secret)) == token
    assert (token.created_by, token.created_ns, token.expires_ns) == ("ada", START_NS, START_NS + 5)
    for name in ("control.db", "control.db-wal"):
        assert secret.removeprefix(PREFIX).encode() not in (tmp_path / name).read_bytes()
    assert TokenBook(db, ManualClock()).find(digest_of(secret)) == token


def test_a_token_ends_when_it_is_revoked_or_its_time_is_over(book: TokenBook, clock: ManualClock) -> None:
    book.create(BOSS, ADA)
    token, secret = book.create(replace(BOT, expires_ns=START_NS + 10_000_000_000), ADA)
    assert token.valid(clock())
    clock.advance(10)
    assert not token.valid(clock())
    clock.advance(-5)
    revoked = book.revoke(token.id, Actor(type="person", id="eve"))
    assert (revoked.revoked_by, revoked.revoked_ns) == ("eve", clock())
    assert book.find(digest_of(secret)) == revoked
    assert not revoked.valid(clock())
    clock.advance(1)
    assert book.revoke(token.id, ADA) == revoked


def test_the_first_token_must_be_able_to_make_others_and_the_last_such_stays(book: TokenBook) -> None:
    with pytest.raises(TokenRefused, match="first token must allow admin"):
        book.create(BOT, ADA)
    boss, _ = book.create(BOSS, ADA)
    book.create(BOT, ADA)
    with pytest.raises(TokenRefused, match="last token that allows admin"):
        book.revoke(boss.id, ADA)
    book.revoke(boss.id, ADA, last_admin=True)
    assert book.required


def test_two_valid_tokens_have_different_names(db: ControlDb, clock: ManualClock) -> None:
    configured = Token.of("pager", "x" * 16, {Verb.ADMIN})
    book = TokenBook(db, clock, configured=(configured,))
    bot, _ = book.create(BOT, ADA)
    for name in ("pager", "bot"):
        with pytest.raises(TokenRefused, match=f"name '{name}'"):
            book.create(replace(BOT, name=name), ADA)
    book.revoke(bot.id, ADA)
    book.create(BOT, ADA)
    with pytest.raises(TokenRefused, match="in the configuration"):
        book.revoke(configured.id, ADA)
    with pytest.raises(UnknownToken):
        book.revoke("nobody's", ADA)
    assert [token.source for token in book.all()] == ["config", "created", "created"]


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (replace(BOT, name=" "), r"^name: 1 to 200 characters"),
        (replace(BOT, verbs=frozenset()), r"^verbs: at least one of ingest, read, check"),
        (replace(BOT, only=Only(services=("shop",))), r"^verbs: ingest cannot be restricted"),
    ],
)
def test_what_makes_no_sense_is_named(book: TokenBook, wanted: Wanted, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        book.create(wanted, ADA)


def test_there_is_a_bound(db: ControlDb, clock: ManualClock) -> None:
    many = tuple(
        Token(id=str(n), name=str(n), verbs=frozenset(Verb), digest=digest_of(str(n))) for n in range(MOST)
    )
    with pytest.raises(TokenRefused, match="revoke some"):
        TokenBook(db, clock, configured=many).create(BOT, ADA)


def test_changes_are_audited_without_secrets(db: ControlDb, book: TokenBook) -> None:
    boss, secret = book.create(BOSS, ADA)
    book.revoke(boss.id, ADA, last_admin=True)
    with db.reading() as connection:
        assert verify(connection) == 2
        created, revoked = entries(connection, since=0, limit=10)
    assert (created.verb, created.subject, created.actor, created.before) == (
        "token.create",
        boss.id,
        ADA,
        None,
    )
    assert created.after is not None
    assert created.after["verbs"] == ["admin"]
    assert (revoked.verb, revoked.before, revoked.after) == ("token.revoke", created.after, None)
    assert secret not in repr((created, revoked))


def test_when_it_was_last_used_is_written_by_a_duty(
    db: ControlDb, book: TokenBook, clock: ManualClock
) -> None:
    token, _ = book.create(BOSS, ADA)
    clock.advance(7)
    book.used(token)
    assert [t.last_used_ns for t in book.all()] == [clock()]
    assert stored(db)[0].last_used_ns is None
    TokenUse(book).turn()
    assert stored(db)[0].last_used_ns == clock()
    assert [t.last_used_ns for t in book.all()] == [clock()]
    with db.reading() as connection:
        before = connection.execute("PRAGMA data_version").fetchone()[0]
        TokenUse(book).turn()
        assert connection.execute("PRAGMA data_version").fetchone()[0] == before


def test_a_restriction_names_what_may_be_named() -> None:
    only = Only(services=("shop-*",), agents=("buyer",))
    assert only.allows(service="shop-eu", agent="buyer", session="s")
    assert only.allows(service="shop-eu", agent="buyer@2", session=None)
    for service, agent in (("bank", "buyer"), ("shop-eu", "seller"), (None, "buyer"), ("Shop-eu", "buyer")):
        assert not only.allows(service=service, agent=agent, session="s")
    assert Only().allows(service=None, agent=None, session=None)
    assert not Only()


def test_another_process_follows_the_file(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "control.db"
    follower = TokenFile(path)
    assert (follower.required, any_token(path)) == (False, False)
    with closing(ControlDb(path)) as db:
        follower.look()
        assert not follower.required
        book = TokenBook(db, clock)
        token, secret = book.create(BOSS, ADA)
        follower.look()
        assert follower.required
        assert follower.find(digest_of(secret)) == token
        after = book.revoke(token.id, ADA, last_admin=True)
        follower.look()
        assert follower.find(digest_of(secret)) == after
    follower.look()
    assert follower.required
    assert any_token(path)
    follower.stop()


def test_tokens_of_the_configuration_go_before(tmp_path: Path) -> None:
    configured = Token.of("pager", "x" * 16, {Verb.READ})
    follower = TokenFile(tmp_path / "control.db", (configured,))
    assert follower.required
    assert follower.find(digest_of("x" * 16)) == configured


def test_a_file_of_an_older_version_has_no_tokens(tmp_path: Path) -> None:
    path = tmp_path / "control.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE alerts (id)")
    assert not any_token(path)


def test_a_file_that_cannot_be_read_lets_nobody_in_and_one_that_could_keeps_its_copy(
    tmp_path: Path, clock: ManualClock
) -> None:
    path = tmp_path / "control.db"
    path.write_bytes(b"no database at all" * 100)
    follower = TokenFile(path)
    assert follower.required
    path.unlink()
    with closing(ControlDb(path)) as db:
        _, secret = TokenBook(db, clock).create(BOSS, ADA)
        follower.look()
        assert follower.find(digest_of(secret)) is not None
    follower.stop()
    path.write_bytes(b"no database at all" * 100)
    follower.look()
    assert follower.find(digest_of(secret)) is not None


def stored(db: ControlDb) -> tuple[Token, ...]:
    with db.reading() as connection:
        return read_tokens(connection)
