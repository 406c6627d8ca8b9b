"""Facts out of the spool: in order, once, whatever a taker does; and the notes beside them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import orjson
import pytest
import zstandard
from prometheus_client import CollectorRegistry

from control.db import ControlDb, set_cursor
from control.facts import Fact, FactsDuty, SpoolFacts, SpoolNotes
from control.metrics import ControlMetrics
from detectors.notes import Notes, to_json
from tests.control.support import Spool

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from control.db import Transaction

TABLE = """CREATE TABLE facts (seq INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE,
           kind TEXT NOT NULL, session_id TEXT NOT NULL, payload TEXT NOT NULL,
           created_ns INTEGER NOT NULL)"""


def make(path: Path) -> None:
    Spool(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(TABLE)


def add(path: Path, *keys: str) -> None:
    rows = [(key, "failed", "s", orjson.dumps({"key": key}).decode(), 7) for key in keys]
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany(
            "INSERT INTO facts (key, kind, session_id, payload, created_ns) VALUES (?, ?, ?, ?, ?)", rows
        )


class Taker:
    def __init__(self) -> None:
        self.taken: list[str] = []

    def __call__(self, tx: Transaction, fact: Fact) -> None:
        del tx
        self.taken.append(str(fact.payload["key"]))


@pytest.fixture
def db(tmp_path: Path) -> Iterator[ControlDb]:
    with closing(ControlDb(tmp_path / "control.db")) as opened:
        yield opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "spool.db"


def test_facts_come_in_order_and_once(db: ControlDb, path: Path) -> None:
    make(path)
    add(path, "a", "b", "c")
    taker = Taker()
    duty = FactsDuty(db, SpoolFacts(path), [taker], limit=2)
    duty.turn()
    assert taker.taken == ["a", "b"]
    duty.turn()
    duty.turn()
    add(path, "d")
    duty.turn()
    assert taker.taken == ["a", "b", "c", "d"]


def test_the_cursor_survives_a_restart(db: ControlDb, path: Path) -> None:
    make(path)
    add(path, "a", "b")
    FactsDuty(db, SpoolFacts(path), []).turn()
    add(path, "c")
    taker = Taker()
    FactsDuty(db, SpoolFacts(path), [taker]).turn()
    assert taker.taken == ["c"]


def test_a_fact_is_as_it_was_written(path: Path) -> None:
    make(path)
    add(path, "a")
    assert SpoolFacts(path).poll(0) == [Fact(1, "failed", "s", {"key": "a"}, 7)]


def test_a_spool_that_is_not_there_or_has_no_facts_yet_has_none(path: Path) -> None:
    facts = SpoolFacts(path)
    assert facts.poll(0) == []
    Spool(path)
    assert facts.poll(0) == []
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(TABLE)
    add(path, "a")
    assert [fact.seq for fact in facts.poll(0)] == [1]


def test_a_new_spool_is_read_from_its_beginning(db: ControlDb, path: Path, tmp_path: Path) -> None:
    make(path)
    add(path, "a", "b", "c")
    taker = Taker()
    duty = FactsDuty(db, SpoolFacts(path), [taker])
    duty.turn()
    make(tmp_path / "new.db")
    add(tmp_path / "new.db", "d")
    with closing(sqlite3.connect(tmp_path / "new.db")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for name in ("spool.db-wal", "spool.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / "new.db").replace(path)
    duty.turn()
    duty.turn()
    assert taker.taken == ["a", "b", "c", "d"]


def test_a_taker_that_fails_is_undone_and_keeps_nobody_back(db: ControlDb, path: Path) -> None:
    make(path)
    add(path, "a", "b")

    def fails(tx: Transaction, fact: Fact) -> None:
        set_cursor(tx, f"by fact {fact.seq}", 1)
        raise ValueError("a defect")

    taker, metrics = Taker(), ControlMetrics(CollectorRegistry())
    FactsDuty(db, SpoolFacts(path), [fails, taker], metrics).turn()
    assert taker.taken == ["a", "b"]
    assert metrics.malformed._value.get() == 2
    with db.reading() as connection:
        assert [row["name"] for row in connection.execute("SELECT name FROM cursors")] == ["facts"]


def test_what_takers_decide_is_on_disk_with_the_cursor_or_not_at_all(db: ControlDb, path: Path) -> None:
    make(path)
    add(path, "a")

    def disk_fails(_tx: Transaction, _fact: Fact) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    duty = FactsDuty(db, SpoolFacts(path), [disk_fails])
    with pytest.raises(sqlite3.OperationalError):
        duty.turn()
    taker = Taker()
    FactsDuty(db, SpoolFacts(path), [taker]).turn()
    assert taker.taken == ["a"]


def put(path: Path, key: str, value: bytes) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (key, value))


@pytest.mark.parametrize("packed", [False, True])
def test_notes_are_read_plain_and_compressed(path: Path, *, packed: bool) -> None:
    Spool(path)
    notes = Notes(session_id="s", calls=3, goal="Find it", trace_ids=("t",))
    value = to_json(notes)
    put(path, "notes:s", zstandard.ZstdCompressor().compress(value) if packed else value)
    assert SpoolNotes(path).get("s") == notes
    assert SpoolNotes(path).get("other") is None


def test_notes_that_cannot_be_read_are_none(path: Path, tmp_path: Path) -> None:
    Spool(path)
    put(path, "notes:s", b"{}")
    put(path, "notes:t", zstandard.FRAME_HEADER + b"damaged")
    put(path, "pulse", b"[1]")
    notes = SpoolNotes(path)
    assert (notes.get("s"), notes.get("t"), notes.pulse()) == (None, None, {})
    for active in (b"[1]", b"{}", b'{"at_ns": 1}', b'{"at_ns": "x", "sessions": 1}', b"no"):
        put(path, "active", active)
        assert notes.active_sessions(1) is None
    assert SpoolNotes(tmp_path / "nowhere.db").get("s") is None


def test_the_pulse_is_by_service(path: Path) -> None:
    Spool(path)
    assert SpoolNotes(path).pulse() == {}
    put(path, "pulse", b'{"shop": 12, "": 13}')
    assert SpoolNotes(path).pulse() == {"shop": 12, "": 13}


def test_active_sessions_are_those_of_the_last_ten_minutes(path: Path) -> None:
    notes = SpoolNotes(path)
    assert notes.active_sessions(0) is None
    Spool(path)
    put(path, "active", b'{"at_ns": 1000000000, "sessions": 12}')
    assert [notes.active_sessions(now * 10**9) for now in (1, 601, 602, 10_000)] == [12, 12, 0, 0]
