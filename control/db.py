"""`control.db`: the truth about alerts, deliveries and breakers. SQLite, WAL, every commit on disk.

Two tables are for readers outside this process (they open the file read-only and keep a cursor of their
own): `alert_events` and `breaker_events`. Both are append-only, `seq` grows by itself and is never used
twice, and `payload` is the whole record after the change as JSON (see `control/alerts.py` and
`control/breakers.py`), so copying them in `seq` order into another store loses nothing.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

SqlValue: TypeAlias = "int | float | str | bytes | None"

MIGRATIONS: Final[tuple[str, ...]] = (
    """
    CREATE TABLE cursors (name TEXT PRIMARY KEY, position INTEGER NOT NULL) STRICT;

    CREATE TABLE findings (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        revision INTEGER NOT NULL,
        session_id TEXT NOT NULL,
        kind TEXT NOT NULL,
        severity TEXT NOT NULL,
        payload TEXT NOT NULL,
        updated_ns INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX findings_by_session ON findings (session_id, seq);
    CREATE INDEX findings_by_age ON findings (updated_ns);

    CREATE TABLE alerts (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        state TEXT NOT NULL CHECK (state IN ('firing', 'resolved')),
        session_id TEXT NOT NULL,
        payload TEXT NOT NULL,
        updated_ns INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX alerts_by_state ON alerts (state, seq);

    CREATE TABLE alert_events (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        alert_id TEXT NOT NULL,
        event TEXT NOT NULL,
        payload TEXT NOT NULL,
        created_ns INTEGER NOT NULL
    ) STRICT;

    CREATE TABLE breakers (
        id TEXT PRIMARY KEY,
        state TEXT NOT NULL,
        session_id TEXT NOT NULL,
        revision INTEGER NOT NULL,
        denied INTEGER NOT NULL,
        payload TEXT NOT NULL
    ) STRICT;
    CREATE INDEX breakers_by_session ON breakers (session_id, revision);
    CREATE INDEX breakers_by_state ON breakers (state, revision);

    CREATE TABLE breaker_events (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        breaker_id TEXT NOT NULL,
        event TEXT NOT NULL,
        payload TEXT NOT NULL,
        created_ns INTEGER NOT NULL
    ) STRICT;

    CREATE TABLE destinations (
        name TEXT PRIMARY KEY,
        address TEXT NOT NULL,
        failures INTEGER NOT NULL DEFAULT 0,
        held_until_ns INTEGER NOT NULL DEFAULT 0,
        disabled_ns INTEGER,
        reason TEXT NOT NULL DEFAULT ''
    ) STRICT;

    CREATE TABLE outbox (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        message_id TEXT NOT NULL,
        destination TEXT NOT NULL,
        order_key TEXT NOT NULL,
        type TEXT NOT NULL,
        body BLOB NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('pending', 'delivered', 'dead')),
        attempts INTEGER NOT NULL DEFAULT 0,
        next_ns INTEGER NOT NULL,
        created_ns INTEGER NOT NULL,
        finished_ns INTEGER,
        last_error TEXT NOT NULL DEFAULT '',
        UNIQUE (message_id, destination)
    ) STRICT;
    CREATE INDEX outbox_pending ON outbox (destination, order_key, seq) WHERE state = 'pending';
    CREATE INDEX outbox_by_key ON outbox (order_key, seq);
    CREATE INDEX outbox_finished ON outbox (finished_ns) WHERE state <> 'pending';

    CREATE TABLE attempts (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        outbox_seq INTEGER NOT NULL REFERENCES outbox (seq) ON DELETE CASCADE,
        at_ns INTEGER NOT NULL,
        took_ns INTEGER NOT NULL,
        status INTEGER,
        result TEXT NOT NULL,
        error TEXT NOT NULL,
        body_sha256 TEXT NOT NULL
    ) STRICT;
    CREATE INDEX attempts_by_message ON attempts (outbox_seq);
    """,
    # `seen_ns`: when a check was refused last, or a revision of a finding asked for the breaker again.
    # `source`: the identity of the file that a position belongs to. `identity`: that of this file.
    """
    ALTER TABLE breakers ADD COLUMN seen_ns INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE cursors ADD COLUMN source TEXT NOT NULL DEFAULT '';
    CREATE TABLE identity (id TEXT NOT NULL) STRICT;
    INSERT INTO identity (id) VALUES (lower(hex(randomblob(16))));
    """,
    # Alerts of a whole fleet belong to no session; every alert of a session looks for them.
    """
    CREATE INDEX alerts_of_fleet ON alerts (state, seq) WHERE session_id = '';
    """,
)
"""Forward only: number N brings a file from `user_version` N-1 to N. Released ones are never edited."""


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
        """Run what waited for the commit, in order."""
        for action in self._after_commit:
            action()


class ControlDb:
    """The one writer of `control.db`, safe to use from several threads, and its readers.

    Raises `ControlDbInUseError` when another process holds the file, `ControlDbError` when it cannot be
    opened, is damaged, or was made by a newer version of the program.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock_file = _exclusive(path)
        self._lock = threading.RLock()
        try:
            self._writer = _open_writer(path)
            migrate(self._writer)
        except (sqlite3.Error, ControlDbError) as error:
            os.close(self._lock_file)
            raise ControlDbError(f"{path}: {error}") from error
        except BaseException:
            os.close(self._lock_file)
            raise

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Begin a transaction, one at a time; commit it (fsync) at the end of the block, or roll it back."""
        with self._lock:
            tx = Transaction(self._writer)
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield tx
                self._writer.execute("COMMIT")
            except BaseException:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                raise
            tx.committed()

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


def migrate(connection: sqlite3.Connection) -> None:
    """Bring a database to the newest schema, one migration a transaction.

    Raises `ControlDbError` when the file is of a newer version than this program knows.
    """
    version = _refuse_newer(connection)
    for number, script in enumerate(MIGRATIONS[version:], start=version + 1):
        connection.executescript(f"BEGIN IMMEDIATE; {script} PRAGMA user_version = {number}; COMMIT;")


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


def _refuse_newer(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > len(MIGRATIONS):
        raise ControlDbError(
            f"has schema version {version}, this program knows {len(MIGRATIONS)}: made by a newer Recloser"
        )
    return version


def _open_writer(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30.0)
    connection.row_factory = sqlite3.Row
    _refuse_newer(connection)  # before the first change
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


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
