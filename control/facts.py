"""What ingest knows besides findings: facts in order, the notes of a session, who was heard last.

All of it is in `spool.db`, which control only reads. The table `facts(seq INTEGER PRIMARY KEY AUTOINCREMENT,
key TEXT UNIQUE, kind, session_id, payload, created_ns)` is written with findings and at checkpoints; `key`
keeps what happens again after a crash from being a second fact. Notes are in the table `state` under
`notes:<session>`, JSON, compressed where that is worth its while; `pulse` there says when each service was
heard last, `active` how many sessions had a step lately.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import orjson
import zstandard

from control.breakers.blast import ACTIVE_S
from control.breakers.timing import NS
from control.db import ControlDb, Transaction, get_cursor, get_cursor_source, set_cursor
from detectors.notes import MalformedNotes, Notes, from_json

if TYPE_CHECKING:
    from pathlib import Path

    from control.metrics import ControlMetrics

_log = logging.getLogger(__name__)

CURSOR: Final = "facts"
NOTES: Final = "notes:"
PULSE: Final = "pulse"
ACTIVE: Final = "active"
_NOT_YET: Final = ("no such table", "no such column")  # a spool of a version that had no facts
_MAX_NOTES: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact: its position, what it is (`failed`, `worked`, `changed`, `ended`), of which session.

    `session_id` is empty when the session is not known; `created_ns` is when ingest wrote it, unix
    nanoseconds. What `payload` holds by kind is in docs/handoff.md.
    """

    seq: int
    kind: str
    session_id: str
    payload: Mapping[str, Any]
    created_ns: int


Taker: TypeAlias = Callable[[Transaction, Fact], None]
"""Decides about one fact, within the transaction that moves the cursor past it."""


class _SpoolReader:
    """A read-only connection to a spool that may not exist yet, and may be replaced by a new one.

    `generation` counts how often a file was opened. One thread at a time.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._inode = (0, 0)
        self.generation = 0

    def close(self) -> None:
        """Let go of the file."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def attached(self) -> sqlite3.Connection | None:
        """The connection to the file that is there now; None when there is none, or it cannot be read."""
        try:
            status = self._path.stat()
        except OSError:
            self.close()
            return None
        if self._connection is not None and self._inode == (status.st_dev, status.st_ino):
            return self._connection
        self.close()
        try:
            uri = f"{self._path.resolve().as_uri()}?mode=ro"
            # whoever stops the following thread may close the file for it
            self._connection = sqlite3.connect(
                uri, uri=True, isolation_level=None, timeout=1.0, check_same_thread=False
            )
        except sqlite3.Error as error:
            _log.warning("%s cannot be read: %s", self._path, error)
            return None
        self._inode = (status.st_dev, status.st_ino)
        self.generation += 1
        return self._connection

    def value(self, key: str) -> bytes | None:
        """A value of the table `state`; None when it is not there, or cannot be read now."""
        connection = self.attached()
        if connection is None:
            return None
        try:
            row = connection.execute("SELECT value FROM state WHERE key = ?", (key,)).fetchone()
        except sqlite3.Error as error:
            _log.warning("%s cannot be read: %s", self._path, error)
            self.close()
            return None
        return None if row is None else bytes(row[0])


class SpoolFacts:
    """Follows the facts in `spool.db` without ever writing to it. One thread at a time.

    Raises `sqlite3.Error` when the file cannot be read; a file that is not there has no facts yet.
    """

    def __init__(self, path: Path) -> None:
        self._reader = _SpoolReader(path)
        self._data_version = -1
        self._read_to = -1

    @property
    def generation(self) -> int:
        """How often a file was opened."""
        return self._reader.generation

    def poll(self, after: int, limit: int = 512) -> list[Fact]:
        """Return up to `limit` facts behind position `after`, in order; nothing when nothing is new."""
        generation = self._reader.generation
        connection = self._reader.attached()
        if connection is None:
            return []
        (version,) = connection.execute("PRAGMA data_version").fetchone()
        if generation == self._reader.generation and version == self._data_version and after == self._read_to:
            return []
        try:
            rows = connection.execute(
                "SELECT seq, kind, session_id, payload, created_ns FROM facts"
                " WHERE seq > ? ORDER BY seq LIMIT ?",
                (after, limit),
            ).fetchall()
        except sqlite3.OperationalError as error:
            if not str(error).startswith(_NOT_YET):
                raise
            rows = []
        if not rows:
            self._data_version, self._read_to = version, after
        return [_fact(row) for row in rows]

    def recent(self, upto: int, since_ns: int, limit: int) -> Iterator[Fact]:
        """Yield the facts up to position `upto` that were written since a moment (unix ns), in order.

        Only of the last `limit` positions, so that it costs a bounded time.
        """
        connection = self._reader.attached()
        if connection is None:
            return
        rows = connection.execute(
            "SELECT seq, kind, session_id, payload, created_ns FROM facts"
            " WHERE seq > ? AND seq <= ? AND created_ns >= ? ORDER BY seq",
            (upto - limit, upto, since_ns),
        )
        for row in rows:
            yield _fact(row)

    def last_position(self) -> int | None:
        """Return the highest position that the spool ever gave to a fact, None when it cannot be told now."""
        connection = self._reader.attached()
        if connection is None:
            return None
        try:
            row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'facts'").fetchone()
        except sqlite3.Error:
            return None
        return 0 if row is None else int(row[0])

    def identity(self) -> str | None:
        """Return the spool's random id, empty when it has none yet; None when it cannot be told now."""
        if self._reader.attached() is None:
            return None
        name = self._reader.value("name")
        return "" if name is None else name.decode()

    def close(self) -> None:
        """Let go of the file."""
        self._reader.close()


class SpoolNotes:
    """Reads the notes of sessions, and the pulse of services, as ingest committed them last.

    Opens the file anew at each call, so that any thread may ask: it is for one session at a time.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def get(self, session_id: str) -> Notes | None:
        """The notes of a session; None when there are none (any more), or the spool cannot be read now."""
        payload = self._value(NOTES + session_id)
        if payload is None:
            return None
        try:
            return from_json(unpacked(payload))
        except (MalformedNotes, zstandard.ZstdError) as error:
            _log.warning("the notes of session %s cannot be read: %s", session_id, error)
            return None

    def pulse(self) -> dict[str, int]:
        """When each service was heard last: its name to unix nanoseconds of receipt; empty when not known."""
        payload = self._value(PULSE)
        if payload is None:
            return {}
        try:
            told = orjson.loads(unpacked(payload))
            return {str(service): int(at_ns) for service, at_ns in told.items()}
        except (ValueError, TypeError, AttributeError, zstandard.ZstdError) as error:
            _log.warning("the pulse cannot be read: %s", error)
            return {}

    def active_sessions(self, now_ns: int) -> int | None:
        """How many sessions had a step within `ACTIVE_S`; None when that is not known.

        As of the last checkpoint at which anything was new; nobody is active when that is longer ago.
        """
        payload = self._value(ACTIVE)
        if payload is None:
            return None
        try:
            told = orjson.loads(unpacked(payload))
            at_ns, sessions = int(told["at_ns"]), int(told["sessions"])
        except (ValueError, TypeError, KeyError, zstandard.ZstdError) as error:
            _log.warning("the number of active sessions cannot be read: %s", error)
            return None
        return sessions if now_ns - at_ns <= ACTIVE_S * NS else 0

    def _value(self, key: str) -> bytes | None:
        reader = _SpoolReader(self._path)
        try:
            return reader.value(key)
        finally:
            reader.close()


class FactsDuty:
    """Hands facts in order to all takers, each once: with what they decide the cursor moves on.

    A taker that fails keeps neither the others nor later facts back: what it began with that fact is undone,
    it is logged and counted. A spool that is a new one is read from its beginning.

    `recall` is called once, before the first facts are handed over, with the facts and the position up to
    which they were taken before: for who keeps in memory what they said.
    """

    name: Final = "facts"

    def __init__(
        self,
        db: ControlDb,
        source: SpoolFacts,
        takers: Sequence[Taker],
        metrics: ControlMetrics | None = None,
        *,
        recall: Callable[[SpoolFacts, int], None] | None = None,
        every_s: float = 0.0,
        limit: int = 512,
    ) -> None:
        self._db = db
        self._source = source
        self._recall = recall
        self._takers = tuple(takers)
        self._metrics = metrics
        self._limit = limit
        self.every_s = every_s
        with db.reading() as connection:
            self._cursor = get_cursor(connection, CURSOR)
            self._spool = get_cursor_source(connection, CURSOR)
        self._checked_generation = 0

    def turn(self) -> None:
        """Take the next facts, if there are any."""
        facts = self._source.poll(self._cursor, self._limit)
        if self._source.generation != self._checked_generation:
            facts = self._checked(facts)
        if self._recall is not None and self._checked_generation:
            self._call_to_mind(self._recall)
        if not facts:
            return
        with self._db.transaction() as tx:
            for fact in facts:
                self._hand_over(tx, fact)
            set_cursor(tx, CURSOR, facts[-1].seq, self._spool)
        self._cursor = facts[-1].seq

    def _call_to_mind(self, recall: Callable[[SpoolFacts, int], None]) -> None:
        try:
            recall(self._source, self._cursor)
        except sqlite3.Error:
            raise
        except Exception:  # noqa: BLE001 - what was kept in memory must not keep new facts from being decided
            _log.exception("facts of before the start cannot be recalled")
            if self._metrics is not None:
                self._metrics.malformed.inc()
        self._recall = None

    def _hand_over(self, tx: Transaction, fact: Fact) -> None:
        for taker in self._takers:
            try:
                with tx.savepoint():
                    taker(tx, fact)
            except sqlite3.Error:
                raise
            except Exception:  # noqa: BLE001 - one taker must not keep the facts from all others
                _log.exception("fact %d (%s) cannot be decided", fact.seq, fact.kind)
                if self._metrics is not None:
                    tx.after_commit(self._metrics.malformed.inc)

    def _checked(self, facts: list[Fact]) -> list[Fact]:
        """Read anew when the spool is not the one that our cursor belongs to, or younger than it."""
        generation = self._source.generation
        last, name = self._source.last_position(), self._source.identity()
        if last is None or name is None or self._source.generation != generation:
            return []
        self._checked_generation = generation
        known, self._spool = self._spool, name
        if last >= self._cursor and known in ("", name):
            return facts
        _log.warning("the spool is a new one: its facts are at %d, we were at %d", last, self._cursor)
        self._cursor = 0
        return self._source.poll(0, self._limit)


def _fact(row: tuple[int, str, str, str, int]) -> Fact:
    seq, kind, session_id, payload, created_ns = row
    return Fact(seq, kind, session_id, orjson.loads(payload), created_ns)


def unpacked(value: bytes) -> bytes:
    """A value of the table `state` as it was before it was compressed. Raises `zstandard.ZstdError`."""
    if value[:4] != zstandard.FRAME_HEADER:
        return value
    return zstandard.ZstdDecompressor().decompress(value, max_output_size=_MAX_NOTES)
