from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from typing import TYPE_CHECKING

import pytest

from control.db import ControlDb, ControlDbError, ControlDbInUseError, get_cursor, set_cursor
from control.migrate import scripts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def db(tmp_path: Path) -> Iterator[ControlDb]:
    with closing(ControlDb(tmp_path / "control.db")) as opened:
        yield opened


def test_a_new_file_has_the_newest_schema_and_syncs_every_commit(db: ControlDb) -> None:
    with db.reading() as connection:
        assert connection.execute("PRAGMA user_version").fetchone()[0] == len(scripts())
        assert connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    with db.transaction() as tx:
        assert tx.execute("PRAGMA synchronous").fetchone()[0] == 2


def test_opening_again_keeps_what_was_written(tmp_path: Path) -> None:
    for position in (0, 5):
        with closing(ControlDb(tmp_path / "control.db")) as db, db.transaction() as tx:
            assert get_cursor(tx, "findings") == position
            set_cursor(tx, "findings", position + 5)


def test_a_file_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "control.db")) as connection:
        connection.execute(f"PRAGMA user_version = {len(scripts()) + 1}")
    with pytest.raises(ControlDbError, match="newer Recloser"):
        ControlDb(tmp_path / "control.db")


def test_only_one_process_has_the_file(db: ControlDb) -> None:
    with pytest.raises(ControlDbInUseError, match="in use"):
        ControlDb(db.path)
    db.close()
    ControlDb(db.path).close()


def test_a_failed_block_leaves_nothing_and_runs_nothing(db: ControlDb) -> None:
    ran: list[str] = []

    def fail() -> None:
        with db.transaction() as tx:
            set_cursor(tx, "findings", 9)
            tx.after_commit(lambda: ran.append("after"))
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fail()
    with db.reading() as connection:
        assert get_cursor(connection, "findings") == 0
    assert ran == []


def test_a_failed_part_takes_only_itself_back(db: ControlDb) -> None:
    ran: list[str] = []
    with db.transaction() as tx:
        set_cursor(tx, "kept", 1)
        tx.after_commit(lambda: ran.append("kept"))
        with suppress(RuntimeError), tx.savepoint():
            set_cursor(tx, "lost", 1)
            tx.after_commit(lambda: ran.append("lost"))
            raise RuntimeError
    with db.reading() as connection:
        assert (get_cursor(connection, "kept"), get_cursor(connection, "lost")) == (1, 0)
    assert ran == ["kept"]


def test_what_runs_after_a_commit_sees_it(db: ControlDb) -> None:
    seen: list[int] = []

    def look() -> None:
        with db.reading() as connection:
            seen.append(get_cursor(connection, "findings"))

    with db.transaction() as tx:
        set_cursor(tx, "findings", 3)
        tx.after_commit(look)
    assert seen == [3]


def test_one_that_fails_after_a_commit_keeps_no_other_from_running(db: ControlDb) -> None:
    ran: list[str] = []

    def fails() -> None:
        raise RuntimeError("no")

    def write() -> None:
        with db.transaction() as tx:
            set_cursor(tx, "reader", 7)
            tx.after_commit(lambda: ran.append("before"))
            tx.after_commit(fails)
            tx.after_commit(lambda: ran.append("after"))

    with pytest.raises(RuntimeError):
        write()
    assert ran == ["before", "after"]
    with db.reading() as connection:
        assert get_cursor(connection, "reader") == 7, "it is on disk"


def test_the_files_are_for_their_owner_only(db: ControlDb) -> None:
    assert [p.name for p in db.path.parent.iterdir() if p.stat().st_mode & 0o077] == []


@pytest.mark.parametrize("replaced", [False, True])
def test_nothing_is_acknowledged_into_a_file_that_is_gone(tmp_path: Path, *, replaced: bool) -> None:
    path = tmp_path / "control.db"
    with closing(ControlDb(path)) as db:
        with db.transaction() as tx:
            set_cursor(tx, "findings", 1)
        path.rename(tmp_path / "elsewhere")
        if replaced:
            path.touch()
        assert db.gone
        ran: list[str] = []
        with pytest.raises(sqlite3.OperationalError, match="deleted or replaced"), db.transaction() as tx:
            ran.append("the block")
        assert ran == []
        path.unlink(missing_ok=True)
        (tmp_path / "elsewhere").rename(path)
        assert not db.gone
        with db.transaction() as tx:
            set_cursor(tx, "findings", 2)
            assert get_cursor(tx, "findings") == 2
