"""The durable queue between acknowledged and stored: one SQLite file, one writer thread, group commit.

Everything that ingest promises is in this file: accepted batches until both readers have passed them,
their cursors, the identities of spans seen, detector checkpoints, findings, and steps on their way to the
store. Work is handed to the writer as a function over the connection; all that waits is committed
together (`synchronous=FULL`), each piece in a savepoint of its own, and its future resolves after the
commit. Reads use connections of their own and never wait for the writer.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import sqlite3
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, TypeVar

import numpy as np
import pyarrow as pa

from collector import ipc
from collector.batch import Batch
from collector.clock import SteadyClock
from collector.consumer import Unavailable
from collector.identities import DEFAULT_CAPACITY, SeenIdentities

T = TypeVar("T")

logger = logging.getLogger(__name__)

SCHEMA_VERSION: Final = 1
SCHEMA: Final = """
CREATE TABLE batches (seq INTEGER PRIMARY KEY AUTOINCREMENT, signal TEXT NOT NULL, rows INTEGER NOT NULL,
                      received_ns INTEGER NOT NULL, payload BLOB NOT NULL);
CREATE TABLE identities (seq INTEGER PRIMARY KEY, received_ns INTEGER NOT NULL, ids BLOB NOT NULL);
CREATE TABLE cursors (name TEXT PRIMARY KEY, seq INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE shipments (name TEXT PRIMARY KEY, first INTEGER NOT NULL, last INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE findings (seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, revision INTEGER NOT NULL,
                       payload TEXT NOT NULL, created_ns INTEGER NOT NULL, UNIQUE (id, revision));
CREATE TABLE derived (seq INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, rows INTEGER NOT NULL,
                      payload BLOB NOT NULL);
CREATE TABLE state (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE refused (seq INTEGER PRIMARY KEY AUTOINCREMENT, origin TEXT NOT NULL, reason TEXT NOT NULL,
                      payload BLOB NOT NULL);
"""
# Came later, and no reader of before minds it: made wherever it is missing, whoever made the file.
FACTS: Final = """
CREATE TABLE IF NOT EXISTS facts (seq INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE,
                                  kind TEXT NOT NULL, session_id TEXT NOT NULL, payload TEXT NOT NULL,
                                  created_ns INTEGER NOT NULL);
"""
RETRY_AFTER_FULL: Final = 5.0  # seconds
RETRY_AFTER_ERROR: Final = 2.0
CACHE_BYTES: Final = 48 * 1024 * 1024
GROUP: Final = 64  # pieces of work in one commit
FINDINGS_KEPT: Final = 100_000
FACTS_KEPT: Final = 200_000
FACTS_KEPT_NS: Final = 24 * 3600 * 10**9
_FORGOTTEN_AT_ONCE: Final = 10_000
_FACTS_FORGOTTEN_AT_ONCE: Final = 2_000
_IDENTITY_BYTES: Final = 8
_LOADED_AT_ONCE: Final = 8 * 1024 * 1024  # bytes of identities


class SpoolError(Exception):
    """The spool file cannot be used; the message names it."""


class DamagedError(Exception):
    """A batch in the spool is not what was written; the others are not concerned."""


@dataclass(frozen=True, slots=True)
class Appended:
    """What an append did: the batch's position (0 when all of it had been seen), rows new and known."""

    seq: int
    fresh: int
    duplicates: int


@dataclass(frozen=True, slots=True)
class Spooled:
    """A batch as it lies in the spool. `seq` grows by one a batch; `received_ns` is its arrival.

    That is when the commit began that took it in, by a clock that never goes back, not over restarts either:
    what has a higher `seq` never has a lower `received_ns`.
    """

    seq: int
    received_ns: int
    batch: Batch


@dataclass(frozen=True, slots=True)
class SpoolLimits:
    """`max_bytes`: payload bytes at which requests are refused; `horizon_ns`: how long spans are known."""

    max_bytes: int = 2 * 1024**3
    horizon_ns: int = 6 * 3600 * 10**9
    identities: int = DEFAULT_CAPACITY


@dataclass(slots=True)
class _Work(Generic[T]):
    run: Callable[[sqlite3.Connection], T]
    future: Future[T]


def _connect(path: Path) -> sqlite3.Connection:
    # Made before SQLite makes it: what agents said is for nobody else on this machine.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30)
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version not in (0, SCHEMA_VERSION):  # before the first change
        raise SpoolError(f"{path}: written by another version (schema {version}, this is {SCHEMA_VERSION})")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA wal_autocheckpoint=4000")
    return connection


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _name(connection: sqlite3.Connection) -> str:
    """The identity of a spool file, random and given once: positions in another file mean nothing in this."""
    row = connection.execute("SELECT value FROM state WHERE key = 'name'").fetchone()
    if row is not None:
        return str(row[0].decode())
    name = uuid.uuid4().hex
    connection.execute("INSERT INTO state (key, value) VALUES ('name', ?)", (name.encode(),))
    return name


def _identities(connection: sqlite3.Connection, limits: SpoolLimits) -> SeenIdentities:
    """The identities of the spool, the newest that there is room for.

    In large blocks: one at a time, those of a few hours would take minutes, and nothing is taken meanwhile.
    """
    blocks: list[tuple[int, bytes]] = []
    block: list[bytes] = []
    newest_ns = size = total = 0
    rows = connection.execute("SELECT received_ns, ids FROM identities ORDER BY seq DESC")
    for received_ns, ids in rows:
        total += len(ids)
        if total > limits.identities * _IDENTITY_BYTES:
            break
        newest_ns = newest_ns if block else received_ns
        block.append(ids)
        size += len(ids)
        if size >= _LOADED_AT_ONCE:
            blocks.append((newest_ns, b"".join(block)))
            block, size = [], 0
    if block:
        blocks.append((newest_ns, b"".join(block)))
    seen = SeenIdentities(limits.horizon_ns, limits.identities)
    for at_ns, ids in reversed(blocks):
        seen.add(np.frombuffer(ids, dtype=np.uint64), at_ns)
    return seen


class Spool:
    """See the module. Call `start` before use; `close` waits for what was handed in.

    `name` is the identity of the file, equal for all who ever open it.
    """

    def __init__(self, path: Path, limits: SpoolLimits, now_ns: Callable[[], int]) -> None:
        self._path = path
        self._limits = limits
        self._work: queue.SimpleQueue[_Work[object] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="spool-writer", daemon=True)
        self._news = threading.Condition()
        self._generation = 0
        self._cache: OrderedDict[int, tuple[int, Spooled]] = OrderedDict()
        self._cache_bytes = 0
        self._cache_lock = threading.Lock()
        self._seen = SeenIdentities(limits.horizon_ns, limits.identities)
        self._commit_ns: int | None = None  # when the commit under way began
        self._commit_lock = threading.Lock()
        self._size = 0
        self._since_trim = 0
        self._closing = False
        self._refuse_until = 0.0
        self._cannot_write = False
        self.failed: BaseException | None = None
        self.name = ""
        self._writer = self._open()
        self._identity = _identity(path)
        newest = self._writer.execute(
            "SELECT received_ns FROM identities ORDER BY seq DESC LIMIT 1"
        ).fetchone()
        self._now_ns = SteadyClock(now_ns, newest[0] if newest else 0)
        self._readers = threading.local()

    def _open(self) -> sqlite3.Connection:
        try:
            connection = _connect(self._path)
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version == 0:
                connection.executescript(f"BEGIN; {SCHEMA} PRAGMA user_version={SCHEMA_VERSION}; COMMIT;")
            connection.execute(FACTS)
            self.name = _name(connection)
            self._size = connection.execute(
                "SELECT (SELECT coalesce(sum(length(payload)), 0) FROM batches)"
                " + (SELECT coalesce(sum(length(payload)), 0) FROM derived)"
            ).fetchone()[0]
            self._seen = _identities(connection, self._limits)
        except OSError as error:
            raise SpoolError(f"{self._path}: {error.strerror}") from error
        except sqlite3.Error as error:
            raise SpoolError(f"{self._path}: {error}") from error
        return connection

    def start(self) -> None:
        """Start the writer thread."""
        self._thread.start()

    def close(self) -> None:
        """Finish what was handed in, then close. Later work is refused with `Unavailable`."""
        self._closing = True
        self._work.put(None)
        if self._thread.is_alive():
            self._thread.join()
        self._writer.close()
        with self._news:
            self._news.notify_all()

    @property
    def size(self) -> int:
        """Payload bytes in the spool."""
        return self._size

    @property
    def known_identities(self) -> int:
        """How many span identities are remembered."""
        return len(self._seen)

    @property
    def full(self) -> bool:
        """Whether there is no room for more batches."""
        return self._size >= self._limits.max_bytes

    @property
    def cannot_write(self) -> bool:
        """Whether the last commit failed; `try_to_write` finds out whether the next one would."""
        return self._cannot_write

    @property
    def gone(self) -> bool:
        """Whether the file was deleted or replaced: what is written now, nobody finds."""
        return _identity(self._path) != self._identity

    def try_to_write(self) -> None:
        """Commit something small, without waiting for it."""

        def run(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT OR REPLACE INTO state (key, value) VALUES ('tried', ?)", (b"",))

        self.submit(run)

    def check_room(self) -> None:
        """Raise `Unavailable` when nothing more may be taken."""
        if self._closing:
            raise Unavailable("shutting down", RETRY_AFTER_ERROR)
        if self.full:
            raise Unavailable("the spool is full; the store is not keeping up", RETRY_AFTER_FULL)
        if time.monotonic() < self._refuse_until:
            raise Unavailable("the spool cannot write", RETRY_AFTER_ERROR)

    def submit(self, run: Callable[[sqlite3.Connection], T]) -> Future[T]:
        """Run `run` on the writer's connection in the next commit; the future resolves after it is on disk.

        The future fails with `Unavailable` when the disk does not take it, and with what `run` raised.
        """
        future: Future[T] = Future()
        if self._closing:
            future.set_exception(Unavailable("shutting down", RETRY_AFTER_ERROR))
            return future
        self._work.put(_Work(run, future))  # type: ignore[arg-type]  # a queue of work of any result
        return future

    def append(self, batch: Batch, payload: bytes) -> Future[Appended]:
        """Take a batch in (`payload` is `ipc.encode(batch)`), less the rows that were seen before."""

        def run(connection: sqlite3.Connection) -> Appended:
            return self._append(connection, batch, payload)

        return self.submit(run)

    def passed_ns(self) -> int:
        """Time that has passed for good: no batch that is not committed yet will have arrived before it."""
        with self._commit_lock:
            return self._now_ns() if self._commit_ns is None else self._commit_ns

    def _append(self, connection: sqlite3.Connection, batch: Batch, payload: bytes) -> Appended:
        received_ns = self._commit_ns
        if received_ns is None:
            raise RuntimeError("batches are appended within a commit")
        ids = batch.identity.to_numpy(zero_copy_only=False)
        fresh = self._seen.fresh(ids)
        new = int(np.count_nonzero(fresh))
        if not new:
            return Appended(0, 0, ids.size)
        if new < ids.size:
            batch = ipc.keep(batch, pa.array(fresh))
            payload = ipc.encode(batch)
            ids = ids[fresh]
        cursor = connection.execute(
            "INSERT INTO batches (signal, rows, received_ns, payload) VALUES (?, ?, ?, ?)",
            (batch.signal.value, new, received_ns, payload),
        )
        seq = int(cursor.lastrowid or 0)
        connection.execute(
            "INSERT INTO identities (seq, received_ns, ids) VALUES (?, ?, ?)",
            (seq, received_ns, ids.tobytes()),
        )
        self._seen.add(ids, received_ns)
        self._size += len(payload)
        self._remember(Spooled(seq, received_ns, batch))
        return Appended(seq, new, fresh.size - new)

    def _write(self) -> None:
        try:
            while (group := self._next_group()) is not None:
                self._commit([work for work in group if work.future.set_running_or_notify_cancel()])
        except BaseException as error:
            self.failed = error
            logger.exception("the spool's writer failed; ingest ends, so that it is started again")
            raise

    def _next_group(self) -> list[_Work[object]] | None:
        first = self._work.get()
        if first is None:
            return None
        group = [first]
        while len(group) < GROUP:
            try:
                more = self._work.get_nowait()
            except queue.Empty:
                break
            if more is None:
                self._work.put(None)
                break
            group.append(more)
        return group

    def _commit(self, group: Sequence[_Work[object]]) -> None:
        if not group:
            return
        with self._commit_lock:
            self._commit_ns = self._now_ns()
        try:
            self._commit_all(group)
        finally:
            with self._commit_lock:
                self._commit_ns = None

    def _commit_all(self, group: Sequence[_Work[object]]) -> None:
        done: list[tuple[_Work[object], object, BaseException | None]] = []
        before = self._size
        try:
            self._writer.execute("BEGIN IMMEDIATE")
            done.extend((work, *self._attempt(work)) for work in group)
            self._trim()
            self._writer.execute("COMMIT")
        except sqlite3.Error as error:
            with contextlib.suppress(sqlite3.Error):
                self._writer.execute("ROLLBACK")
            self._size = before
            self._cannot_write = True
            self._forget_uncommitted()
            # A failure costs the reading of all identities: refuse for a moment without a try.
            self._refuse_until = time.monotonic() + RETRY_AFTER_ERROR / 2
            for work in group:
                work.future.set_exception(Unavailable(f"the spool cannot write: {error}", RETRY_AFTER_ERROR))
            return
        self._cannot_write = False
        for work, result, failure in done:
            if failure is None:
                work.future.set_result(result)
            else:
                work.future.set_exception(failure)
        with self._news:
            self._generation += 1
            self._news.notify_all()

    def _attempt(self, work: _Work[object]) -> tuple[object, BaseException | None]:
        self._writer.execute("SAVEPOINT piece")
        size = self._size
        try:
            result = work.run(self._writer)
        except (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.ProgrammingError) as error:
            failure: Exception = error
        except sqlite3.Error:
            raise
        except Exception as error:  # noqa: BLE001 - one piece's failure is its own; the group goes on
            failure = error
        else:
            self._writer.execute("RELEASE piece")
            return result, None
        self._writer.execute("ROLLBACK TO piece")
        self._writer.execute("RELEASE piece")
        self._size = size
        return None, failure

    def _forget_uncommitted(self) -> None:
        """After a failed commit the memory must not know more than the disk."""
        with self._cache_lock:
            self._cache.clear()
            self._cache_bytes = 0
        self._seen = SeenIdentities(self._limits.horizon_ns, self._limits.identities)
        with contextlib.suppress(sqlite3.Error):
            self._seen = _identities(self._writer, self._limits)

    def _trim(self) -> None:
        self._since_trim += 1
        if self._since_trim < GROUP:
            return
        self._since_trim = 0
        horizon = self._now_ns() - self._limits.horizon_ns
        self._writer.execute(
            "DELETE FROM identities"
            " WHERE seq IN (SELECT seq FROM identities WHERE received_ns < ? ORDER BY seq LIMIT 1000)",
            (horizon,),
        )
        # Whether control has read them or not: what is decided by facts is of the moment.
        self._writer.execute(
            "DELETE FROM facts WHERE seq IN (SELECT seq FROM facts ORDER BY seq LIMIT ?)"
            " AND (created_ns < ? OR seq <= (SELECT max(seq) FROM facts) - ?)",
            (_FACTS_FORGOTTEN_AT_ONCE, self._now_ns() - FACTS_KEPT_NS, FACTS_KEPT),
        )

    def add_facts(self, connection: sqlite3.Connection, facts: Sequence[tuple[str, str, str, str]]) -> None:
        """Within a piece of work: keep facts (key, kind, session, payload), one of each key."""
        created_ns = self._now_ns()
        connection.executemany(
            "INSERT OR IGNORE INTO facts (key, kind, session_id, payload, created_ns) VALUES (?, ?, ?, ?, ?)",
            [(*fact, created_ns) for fact in facts],
        )

    def too_many_findings(self) -> bool:
        """Whether there are more than those that are always kept."""
        row = self.reader.execute("SELECT max(seq) - min(seq) FROM findings").fetchone()
        return row[0] is not None and row[0] >= FINDINGS_KEPT

    def forget_findings(self, connection: sqlite3.Connection, upto: int) -> None:
        """Within a piece of work: delete findings up to and with `upto`, but none of the newest.

        `upto` is what all readers have passed: a finding that control never saw is an alert that nobody gets.
        """
        connection.execute(
            "DELETE FROM findings WHERE seq IN (SELECT seq FROM findings"
            " WHERE seq <= min(?, (SELECT max(seq) FROM findings) - ?) ORDER BY seq LIMIT ?)",
            (upto, FINDINGS_KEPT, _FORGOTTEN_AT_ONCE),
        )

    def release(self, connection: sqlite3.Connection, readers: Sequence[str]) -> None:
        """Within a piece of work: delete the batches that all `readers` have passed."""
        marks = ",".join("?" * len(readers))
        passed = connection.execute(
            f"SELECT min(seq), count(*) FROM cursors WHERE name IN ({marks})",  # noqa: S608 - only question marks
            tuple(readers),
        ).fetchone()
        if passed[1] < len(readers):
            return
        freed = connection.execute(
            "SELECT coalesce(sum(length(payload)), 0) FROM batches WHERE seq <= ?", (passed[0],)
        ).fetchone()[0]
        if freed:
            connection.execute("DELETE FROM batches WHERE seq <= ?", (passed[0],))
            self._size -= freed

    def add_derived(self, connection: sqlite3.Connection, kind: str, rows: int, payload: bytes) -> None:
        """Within a piece of work: queue derived rows (of the table `kind`) for the store."""
        connection.execute(
            "INSERT INTO derived (kind, rows, payload) VALUES (?, ?, ?)", (kind, rows, payload)
        )
        self._size += len(payload)

    def drop_derived(self, connection: sqlite3.Connection, upto: int) -> None:
        """Within a piece of work: delete derived rows up to and with `upto`; they are stored."""
        freed = connection.execute(
            "SELECT coalesce(sum(length(payload)), 0) FROM derived WHERE seq <= ?", (upto,)
        ).fetchone()[0]
        connection.execute("DELETE FROM derived WHERE seq <= ?", (upto,))
        self._size -= freed

    def _remember(self, spooled: Spooled) -> None:
        size = spooled.batch.columns.nbytes
        with self._cache_lock:
            self._cache[spooled.seq] = (size, spooled)
            self._cache_bytes += size
            while self._cache_bytes > CACHE_BYTES and self._cache:
                _, (dropped, _) = self._cache.popitem(last=False)
                self._cache_bytes -= dropped

    def forget_cached(self, upto: int) -> None:
        """Free the memory of batches up to and with `upto`, which every reader has passed."""
        with self._cache_lock:
            for seq in [seq for seq in self._cache if seq <= upto]:
                self._cache_bytes -= self._cache.pop(seq)[0]

    @property
    def reader(self) -> sqlite3.Connection:
        """This thread's own read connection."""
        connection: sqlite3.Connection | None = getattr(self._readers, "connection", None)
        if connection is None:
            connection = sqlite3.connect(self._path, isolation_level=None, timeout=30)
            connection.execute("PRAGMA query_only=1")
            self._readers.connection = connection
        return connection

    def cursor(self, name: str) -> int:
        """Position up to which the reader `name` has come, 0 at first."""
        row = self.reader.execute("SELECT seq FROM cursors WHERE name = ?", (name,)).fetchone()
        return int(row[0]) if row else 0

    def heads(self, after: int) -> list[tuple[int, str, int, int]]:
        """(seq, signal, rows, received_ns) of committed batches after `after`, in order."""
        return self.reader.execute(
            "SELECT seq, signal, rows, received_ns FROM batches WHERE seq > ? ORDER BY seq LIMIT 512",
            (after,),
        ).fetchall()

    def load(self, seq: int) -> Spooled:
        """One committed batch. Raises `KeyError` when it is gone, `DamagedError` when it is damaged."""
        with self._cache_lock:
            cached = self._cache.get(seq)
        if cached is not None:
            return cached[1]
        row = self.reader.execute("SELECT received_ns, payload FROM batches WHERE seq = ?", (seq,)).fetchone()
        if row is None:
            raise KeyError(seq)
        try:
            return Spooled(seq, row[0], ipc.decode(row[1]))
        except (pa.ArrowException, OSError, KeyError, ValueError, StopIteration) as error:
            raise DamagedError(f"batch {seq} is damaged: {error}") from error

    def payload(self, seq: int) -> bytes:
        """One committed batch as its bytes. Raises `KeyError` when it is gone."""
        row = self.reader.execute("SELECT payload FROM batches WHERE seq = ?", (seq,)).fetchone()
        if row is None:
            raise KeyError(seq)
        payload: bytes = row[0]
        return payload

    def read(self, after: int) -> Iterator[Spooled]:
        """Committed batches after `after`, in order, as far as there are any."""
        for seq, _, _, _ in self.heads(after):
            yield self.load(seq)

    def wait(self, generation: int, timeout: float) -> int:
        """Wait at most `timeout` seconds for a commit after `generation`; return the new generation."""
        with self._news:
            if self._generation == generation and not self._closing:
                self._news.wait(timeout)
            return self._generation
