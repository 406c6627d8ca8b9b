"""The chain of the audit: every kind of tampering is found."""

from __future__ import annotations

import hashlib
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control import audit
from control.actor import Actor
from control.breakers.states import Event
from control.db import ControlDb, Transaction
from tests.control.breaker_world import PERSON, SESSION, TOOL, WIDE, World
from tests.control.support import START_NS

if TYPE_CHECKING:
    from collections.abc import Iterator

WHO = Actor(type="person", id="on-call")


@pytest.fixture
def db(tmp_path: Path) -> Iterator[ControlDb]:
    made = ControlDb(tmp_path / "control.db")
    yield made
    made.close()


def written(db: ControlDb, count: int = 6) -> list[audit.Head]:
    heads = []
    for number in range(count):
        with db.transaction() as tx:
            heads.append(
                audit.record(
                    tx,
                    at_ns=START_NS + number,
                    actor=WHO,
                    verb="breaker.reset",
                    subject=f"br_{number}",
                    reason="because",
                    before={"state": "open"},
                    after={"state": "closed"},
                    extra={"n": number},
                )
            )
    return heads


def verified(db: ControlDb, noted: audit.Head | None = None) -> audit.Broken | int:
    with db.reading() as connection:
        return audit.verify(connection, noted)


def tampered(db: ControlDb, *statements: str) -> audit.Broken | int:
    """Change the file behind the back of the program, as one who may write it can."""
    with closing(sqlite3.connect(db.path, isolation_level=None)) as connection:
        connection.execute("DROP TRIGGER audit_is_not_changed")
        connection.execute("DROP TRIGGER audit_is_not_deleted")
        for statement in statements:
            connection.execute(statement)
    return verified(db)


def test_a_whole_chain_is_counted_and_its_head_is_there(db: ControlDb) -> None:
    assert verified(db) == 0
    heads = written(db)
    assert verified(db) == 6
    assert [verified(db, head) for head in heads] == [6] * 6
    with db.reading() as connection:
        assert audit.head(connection) == heads[-1]


def test_an_entry_says_who_did_what_to_what_and_why(db: ControlDb) -> None:
    written(db, 3)
    with db.reading() as connection:
        first, second = audit.entries(connection, since=1, limit=2)
        assert audit.entries(connection, since=3, limit=2) == []
    assert (second.seq, second.previous) == (3, first.hash)
    assert (first.seq, first.at, first.actor, first.verb, first.subject, first.reason) == (
        2, START_NS + 1, WHO, "breaker.reset", "br_1", "because",
    )  # fmt: skip
    assert (first.before, first.after, first.extra) == ({"state": "open"}, {"state": "closed"}, {"n": 1})


def test_the_hash_is_what_the_docs_say(db: ControlDb) -> None:
    written(db, 2)
    with db.reading() as connection:
        one, two = connection.execute("SELECT payload, previous, hash FROM audit ORDER BY seq").fetchall()
    assert one["previous"] == "0" * 64
    assert two["hash"] == hashlib.sha256(f"{one['hash']}\n{two['payload']}".encode()).hexdigest()
    told = orjson.loads(one["payload"])
    assert one["payload"].encode() == orjson.dumps(told, option=orjson.OPT_SORT_KEYS)


EDITS = {
    "payload": ("UPDATE audit SET payload = replace(payload, 'because', 'by mistake') WHERE seq = 3", 3),
    "a space": ("UPDATE audit SET payload = payload || ' ' WHERE seq = 4", 4),
    "time": ("UPDATE audit SET at_ns = at_ns + 1 WHERE seq = 2", 2),
    "hash": (f"UPDATE audit SET hash = '{'f' * 64}' WHERE seq = 3", 3),
    "previous": (f"UPDATE audit SET previous = '{'f' * 64}' WHERE seq = 3", 3),
    "first previous": (f"UPDATE audit SET previous = '{'f' * 64}' WHERE seq = 1", 1),
    "delete first": ("DELETE FROM audit WHERE seq = 1", 1),
    "delete one": ("DELETE FROM audit WHERE seq = 3", 3),
    "delete last": ("DELETE FROM audit WHERE seq = 6", 6),
    "truncate": ("DELETE FROM audit WHERE seq > 2", 3),
    "empty": ("DELETE FROM audit", 1),
    "insert": (
        "INSERT INTO audit (at_ns, payload, previous, hash) SELECT at_ns, payload, previous, hash FROM audit",
        7,
    ),
}


@pytest.mark.parametrize(("statement", "seq"), EDITS.values(), ids=EDITS.keys())
def test_tampering_is_found_where_it_is(db: ControlDb, statement: str, seq: int) -> None:
    written(db)
    broken = tampered(db, statement)
    assert isinstance(broken, audit.Broken)
    assert broken.seq == seq


def test_reordering_is_found(db: ControlDb) -> None:
    written(db)
    broken = tampered(
        db,
        "UPDATE audit SET seq = 99 WHERE seq = 2",
        "UPDATE audit SET seq = 2 WHERE seq = 3",
        "UPDATE audit SET seq = 3 WHERE seq = 99",
    )
    assert broken == audit.Broken(seq=2, what="it does not follow the entry before it")


def test_deleting_and_counting_anew_is_found(db: ControlDb) -> None:
    written(db)
    broken = tampered(db, "DELETE FROM audit WHERE seq = 3", "UPDATE audit SET seq = seq - 1 WHERE seq > 3")
    assert isinstance(broken, audit.Broken)
    assert broken.seq == 3


def test_cutting_off_the_end_with_the_counter_is_found_by_a_head_noted_elsewhere(db: ControlDb) -> None:
    heads = written(db)
    cut = tampered(
        db, "DELETE FROM audit WHERE seq > 4", "UPDATE sqlite_sequence SET seq = 4 WHERE name = 'audit'"
    )
    assert cut == 4, "the chain itself is whole"
    assert verified(db, heads[3]) == 4
    broken = verified(db, heads[-1])
    assert isinstance(broken, audit.Broken)
    assert broken.seq == 6


def test_writing_it_all_anew_is_found_by_a_head_noted_elsewhere(db: ControlDb) -> None:
    heads = written(db)
    tampered(db, "DELETE FROM audit", "DELETE FROM sqlite_sequence WHERE name = 'audit'")
    with db.transaction() as tx:
        for number in range(6):
            audit.record(tx, at_ns=START_NS + number, actor=WHO, verb="x", subject="y", reason="z")
    assert verified(db) == 6
    assert isinstance(verified(db, heads[-1]), audit.Broken)


@pytest.mark.parametrize("statement", ["UPDATE audit SET at_ns = 0", "DELETE FROM audit WHERE seq = 1"])
def test_the_program_itself_cannot_change_entries(db: ControlDb, statement: str) -> None:
    written(db)
    with pytest.raises(sqlite3.IntegrityError, match="append-only"), db.transaction() as tx:
        tx.execute(statement)
    assert verified(db) == 6


def undone(db: ControlDb) -> None:
    with db.transaction() as tx:
        audit.record(tx, at_ns=1, actor=WHO, verb="x", subject="y", reason="z")
        raise RuntimeError("undo")


def undone_part(tx: Transaction) -> None:
    with tx.savepoint():
        audit.record(tx, at_ns=1, actor=WHO, verb="x", subject="y", reason="z")
        raise RuntimeError("undo")


def test_what_is_undone_leaves_no_gap(db: ControlDb) -> None:
    written(db, 2)
    with pytest.raises(RuntimeError, match="undo"):
        undone(db)
    with db.transaction() as tx:
        with pytest.raises(RuntimeError, match="undo"):
            undone_part(tx)
        audit.record(tx, at_ns=1, actor=WHO, verb="x", subject="y", reason="z")
    assert verified(db) == 3


def test_every_change_of_a_breaker_is_audited_with_what_it_was(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.half_open(WIDE)
    world.act(Event.FORCE_CLOSE, WIDE, ttl_s=60)
    world.wait(60)
    world.tripped(TOOL)
    for _ in range(4):
        world.ask()
    world.breakers.settle()
    world.act(Event.RESET, TOOL)
    with world.db.reading() as connection:
        entries = audit.entries(connection, since=0, limit=99)
        assert audit.verify(connection) == len(entries)
    assert [entry.verb.removeprefix("breaker.") for entry in entries] == world.events()
    forced = next(entry for entry in entries if entry.verb == "breaker.force_close")
    assert (forced.actor, forced.reason, forced.subject) == (PERSON, "because", world.stored(WIDE).id)
    assert forced.before is not None
    assert forced.after is not None
    assert (forced.before["state"], forced.after["state"]) == ("half_open", "forced_closed")
    assert forced.extra["scope"] == "service=shop tool=fetch_page"
    first = entries[0]
    assert (first.before, first.actor.type, first.extra["rule"]) == (None, "rule", "r")
    assert world.ask(session=SESSION.session or "") is not None
    world.db.close()


@given(
    texts=st.lists(st.text(max_size=30), min_size=1, max_size=6),
    data=st.data(),
)
@settings(max_examples=20, deadline=None)
def test_any_changed_character_is_found(texts: list[str], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder, closing(ControlDb(Path(folder) / "control.db")) as db:
        with db.transaction() as tx:
            for text in texts:
                audit.record(tx, at_ns=1, actor=WHO, verb="x", subject="y", reason=text)
        assert verified(db) == len(texts)
        seq = data.draw(st.integers(1, len(texts)))
        with db.reading() as connection:
            (payload,) = connection.execute("SELECT payload FROM audit WHERE seq = ?", (seq,)).fetchone()
        at = data.draw(st.integers(0, len(payload) - 1))
        other = data.draw(st.characters(codec="utf-8", exclude_characters=payload[at]))
        with closing(sqlite3.connect(db.path, isolation_level=None)) as connection:
            connection.execute("DROP TRIGGER audit_is_not_changed")
            connection.execute(
                "UPDATE audit SET payload = ? WHERE seq = ?", (payload[:at] + other + payload[at + 1 :], seq)
            )
        broken = verified(db)
        assert isinstance(broken, audit.Broken)
        assert broken.seq == seq
