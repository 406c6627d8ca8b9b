"""`control.db`: the truth about alerts, deliveries and breakers. SQLite, WAL, every commit on disk.

Two tables are for readers outside this process (they open the file read-only and keep a cursor of their
own): `alert_events` and `breaker_events`. Both are append-only, `seq` grows by itself and is never used
twice, and `payload` is the whole record after the change as JSON (see `control/alerts.py` and
`control/breakers/record.py`), so copying them in `seq` order into another store loses nothing.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from control.migrate import NewerSchemaError, migrate, refuse_newer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

SqlValue: TypeAlias = "int | float | str | bytes | None"

GONE: Final = "was deleted or replaced while it was in use; put it back or start anew"


class ControlDbError(Exception):
    """The file cannot be used; the message names it: it is damaged, or a newer version made it."""


class ControlDbInUseError(ControlDbError):
    """Another process has the file; it may be about to end."""


class Transaction:
    """One unit of decisions: all of them are on disk when it ends, or none."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._after_commit: list[Callable[[], None]] = []

    def execute(self, sql: str, parameters: Sequence[SqlValue] = ()) -> sqlite3.Cursor:
        """Run one statement inside this transaction."""
        return self._connection.execute(sql, parameters)

    def one(self, sql: str, parameters: Sequence[SqlValue] = ()) -> sqlite3.Row | None:
        """Return the first row of a query, or None."""
        row: sqlite3.Row | None = self._connection.execute(sql, parameters).fetchone()
        return row

    def insert(self, sql: str, parameters: Sequence[SqlValue] = ()) -> int:
        """Run an INSERT and return the new row's `seq`."""
        seq = self._connection.execute(sql, parameters).lastrowid
        if seq is None:
            raise sqlite3.DataError("the statement inserted no row")
        return seq

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Undo only this block, its actions after the commit included, when it raises; then raise on."""
        actions = len(self._after_commit)
        self._connection.execute("SAVEPOINT part")
        try:
            yield
        except BaseException:
            del self._after_commit[actions:]
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK TO part")
                self._connection.execute("RELEASE part")
            raise
        self._connection.execute("RELEASE part")

    def after_commit(self, action: Callable[[], None]) -> None:
        """Run `action` once the decisions are on disk, before any other transaction begins."""
        self._after_commit.append(action)

    def committed(self) -> None:
        """Run what waited for the commit, in order.

        One that fails keeps no other from running: each brings a copy in memory up to what is on disk.
        The first error is raised at the end.
        """
        first: Exception | None = None
        for action in self._after_commit:
            try:
                action()
            except Exception as error:  # noqa: BLE001 - raised below
                first = first or error
        if first is not None:
            raise first


class ControlDb:
    """The one writer of `control.db`, safe to use from several threads, and its readers.

    When the file is deleted or replaced meanwhile, every transaction is refused (`sqlite3.OperationalError`):
    what it would acknowledge is in no file that the next start finds.

    Raises `ControlDbInUseError` when another process holds the file, `ControlDbError` when it cannot be
    opened, is damaged, or was made by a newer version of the program.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock_file = _exclusive(path)
        self._lock = threading.RLock()
        self._under_way: Transaction | None = None
        try:
            self._writer = _open_writer(path)
            migrate(self._writer)
            self._identity = _identity(path)
        except (sqlite3.Error, NewerSchemaError) as error:
            os.close(self._lock_file)
            raise ControlDbError(f"{path}: {error}") from error
        except BaseException:
            os.close(self._lock_file)
            raise

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Begin a transaction, one at a time; commit it (fsync) at the end of the block, or roll it back.

        Within another one of the same thread the block is a part of that: decided with it, or undone alone.
        """
        with self._lock:
            if self._under_way is not None:
                with self._under_way.savepoint():
                    yield self._under_way
                return
            if self.gone:
                raise sqlite3.OperationalError(f"{self.path}: {GONE}")
            tx = Transaction(self._writer)
            self._writer.execute("BEGIN IMMEDIATE")
            self._under_way = tx
            try:
                yield tx
                self._writer.execute("COMMIT")
            except BaseException:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                raise
            finally:
                self._under_way = None
            tx.committed()

    @property
    def gone(self) -> bool:
        """Whether the file at the path is another one than was opened, or none."""
        return _identity(self.path) != self._identity

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Open a read-only connection that sees all committed decisions and blocks nobody."""
        uri = f"{self.path.resolve().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, isolation_level=None, timeout=5.0)) as connection:
            connection.row_factory = sqlite3.Row
            yield connection

    def close(self) -> None:
        """Close the file and let another process have it. Safe to call twice."""
        with self._lock:
            self._writer.close()
            if self._lock_file >= 0:
                os.close(self._lock_file)
                self._lock_file = -1


def get_cursor(connection: sqlite3.Connection | Transaction, name: str) -> int:
    """Return how far the named reader has come; 0 when it never read."""
    row: Any = connection.execute("SELECT position FROM cursors WHERE name = ?", (name,)).fetchone()
    return 0 if row is None else int(row["position"])


def get_cursor_source(connection: sqlite3.Connection | Transaction, name: str) -> str:
    """Return the identity of the file that the named reader's position belongs to; empty when not known."""
    row: Any = connection.execute("SELECT source FROM cursors WHERE name = ?", (name,)).fetchone()
    return "" if row is None else str(row["source"])


def set_cursor(tx: Transaction, name: str, position: int, source: str = "") -> None:
    """Remember how far the named reader has come in the file of this identity, with what it decided."""
    tx.execute(
        "INSERT INTO cursors (name, position, source) VALUES (?, ?, ?) "
        "ON CONFLICT (name) DO UPDATE SET position = excluded.position, source = excluded.source",
        (name, position, source),
    )


def _open_writer(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30.0)
    connection.row_factory = sqlite3.Row
    refuse_newer(connection)  # before the first change
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116 - a third of what Path.stat takes, at every transaction
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _exclusive(path: Path) -> int:
    """Take the file for this process; the kernel gives it back however the process ends."""
    beside = path.with_name(path.name + ".lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ControlDbError(f"{beside}: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except BlockingIOError as error:
        os.close(lock)
        raise ControlDbInUseError(f"{path} is in use by another process") from error
    except OSError as error:
        os.close(lock)
        raise ControlDbError(f"{path}: {error.strerror}") from error
    return lock
