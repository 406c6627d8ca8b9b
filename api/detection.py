"""The detection loop: batches in spool order become steps, findings and a checkpoint.

One thread. Findings are committed as they arise (a second time changes nothing: they are unique by id and
revision); a checkpoint (cursor, reader, changed scopes, steps for the store) is one commit. After a crash
the loop restores the last checkpoint and reads on from its cursor, so what happened in between happens
again in the same order.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import orjson
import zstandard

from api.judging import Judge, Troubles
from api.metrics import IngestMetrics
from api.noting import Noter, is_noted
from api.recording import Recorder
from collector.consumer import Unavailable
from collector.reader import StepReader
from collector.spool import DamagedError, Spool, Spooled
from collector.step import Json, SessionsMerged, Step, StepAmended, StepEvent, StepSeen
from detectors.engine import Engine
from detectors.notes_book import NotesBook
from detectors.protocol import Finding
from detectors.recovery import Recovery
from detectors.recovery_book import RecoveryBook
from storage.rows import DefinitionRow

logger = logging.getLogger(__name__)

R = TypeVar("R")
CURSOR: Final = "detectors"
READER: Final = "reader:"  # prefixes of the checkpoint's pieces in the spool's table `state`
SCOPE: Final = "scope:"
RECOVERY: Final = "recovery:"
IDLE_WAIT: Final = 0.1  # seconds
CHECKPOINT_SHARE: Final = 20  # a checkpoint that took t is followed by a pause of at least 20 t
STEPS_PER_BLOCK: Final = 5_000
COMPRESS_FROM: Final = 256  # bytes
STOPPING_ATTEMPTS: Final = 2
TROUBLE_PAUSE: Final = 1.0  # seconds
LAST_READ_S: Final = 5.0  # of a backlog at the end; the next start reads the rest


@dataclass(frozen=True, slots=True)
class Pack:
    """How derived rows become the bytes that the shipper hands to the store."""

    steps: Callable[[Sequence[Step]], bytes]
    merges: Callable[[Sequence[SessionsMerged]], bytes]
    failures: Callable[[Sequence[Recovery]], bytes]
    definitions: Callable[[Sequence[DefinitionRow]], bytes]


class DetectionLoop:
    """See the module."""

    def __init__(
        self,
        spool: Spool,
        *,
        reader: StepReader,
        engine: Engine,
        recoveries: RecoveryBook | None = None,
        notes: NotesBook | None = None,
        pack: Pack,
        metrics: IngestMetrics,
        readers: Sequence[str],
        settle: float,
        checkpoint_interval: float = 1.0,
        last_read_s: float = LAST_READ_S,
    ) -> None:
        self._spool = spool
        self._reader = reader
        self._engine = engine
        self._troubles = Troubles(lambda what: metrics.detection_failures.labels(what).inc())
        self._judge = Judge(engine, self._troubles)
        recoveries = RecoveryBook() if recoveries is None else recoveries  # an empty one is false
        notes = NotesBook(lens=engine.lens) if notes is None else notes
        self._recorder = Recorder(recoveries, metrics, self._troubles)
        self._noter = Noter(notes, self._packed, self._troubles)
        self._pack = pack
        self._metrics = metrics
        self._all_readers = readers
        self._interval = checkpoint_interval
        self._settle = settle
        self._last_read_s = last_read_s
        self._read_until = 0.0
        self._pending: list[Step] = []
        self._merges: list[SessionsMerged] = []
        self._cursor = 0
        self._dirty = False
        self._compressor = zstandard.ZstdCompressor(level=1)
        self._unread: dict[str, bytes | None] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="detectors", daemon=True)
        self.failed: BaseException | None = None

    def start(self) -> None:
        """Restore the last checkpoint and go on from there."""
        self._restore()
        self._thread.start()

    def stop(self) -> None:
        """Judge what is in the spool, as far as there is time, write a last checkpoint, end."""
        self._read_until = time.monotonic() + self._last_read_s
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._loop()
        except BaseException as error:
            self.failed = error
            logger.exception("the detection loop failed; ingest ends, so that it is started again")
            raise

    def _loop(self) -> None:
        generation = 0
        due = time.monotonic() + self._interval
        while True:
            stopping = self._stopping.is_set()
            # Asked before looking: what had arrived until then is seen, unless it arrives in that moment.
            passed_ns = self._spool.passed_ns()
            progressed = self._read_on(min(due, self._read_until) if stopping else due)
            if not progressed:  # else time is that of the batches: read again, they must say the same again
                self._advance(passed_ns)
            if stopping and not progressed:
                self._end()
                return
            if stopping and time.monotonic() >= self._read_until:
                self._checkpoint()  # what waits to be put in order waits for what was not read
                return
            waiting = len(self._pending) + len(self._recorder) + len(self._noter)
            if waiting >= STEPS_PER_BLOCK or (self._dirty and time.monotonic() >= due):
                started = time.monotonic()
                self._checkpoint()
                now = time.monotonic()
                due = now + max(self._interval, CHECKPOINT_SHARE * (now - started))
            if not progressed:
                generation = self._spool.wait(generation, IDLE_WAIT)

    def _end(self) -> None:
        """Let the steps that wait to be put in order come out, then write what is known."""
        time.sleep(self._settle)
        self._advance(self._spool.passed_ns())
        self._checkpoint()

    def _advance(self, passed_ns: int) -> None:
        try:
            events = self._reader.advance(passed_ns)
        except Exception as error:  # noqa: BLE001 - what waited is lost to the detectors, what follows is not
            self._troubles("batch", error)
            return
        self._take(events, passed_ns)

    def _steps_of(self, spooled: Spooled) -> list[StepEvent]:
        """What a batch tells; nothing, if it cannot be read: it would fail again after every restart."""
        try:
            return self._reader.push(spooled.batch, spooled.received_ns)
        except Exception as error:  # noqa: BLE001 - one batch must not keep all others from being judged
            self._troubles("batch", error)
            return []

    def _spooled(self) -> Iterator[Spooled]:
        """Batches after the cursor; damaged ones are passed over, a disk in trouble is waited for."""
        try:
            for seq, _, _, _ in self._spool.heads(self._cursor):
                try:
                    yield self._spool.load(seq)
                except DamagedError as error:
                    self._troubles("batch", error)
                    self._cursor = seq
        except sqlite3.Error as error:
            self._troubles("read of the spool", error)
            time.sleep(TROUBLE_PAUSE)

    def _read_on(self, due: float) -> bool:
        """Read at least a batch, if there is one, and on until a checkpoint is due."""
        progressed = False
        for spooled in self._spooled():
            with self._metrics.stage("read steps"):
                events = self._steps_of(spooled)
            with self._metrics.stage("detect"):
                self._take(events, spooled.received_ns)
            self._cursor = spooled.seq
            self._dirty = progressed = True
            if time.monotonic() >= due:
                break
        return progressed

    def _take(self, events: Sequence[StepEvent], received_ns: int) -> None:
        if not events:
            return
        self._dirty = True
        for event in events:
            match event:
                case StepSeen(step) | StepAmended(step):
                    self._pending.append(step)
                case SessionsMerged():
                    self._merges.append(event)
            self._recorder.take(event)
            self._noter.take(event, received_ns)
            self._report(self._judge.apply(event), received_ns)
        self._count(events)

    def _count(self, events: Sequence[StepEvent]) -> None:
        metrics = self._metrics
        seen = [event.step for event in events if isinstance(event, StepSeen)]
        for kind, count in Counter([step.kind for step in seen]).items():
            metrics.steps.labels(kind.value).inc(count)
        metrics.late.inc(sum([step.late for step in seen]))
        metrics.amended.inc(sum([isinstance(event, StepAmended) for event in events]))

    def _report(self, findings: Sequence[tuple[Finding, str]], received_ns: int) -> None:
        if not findings:
            return
        created = time.time_ns()
        rows = [(finding.id, finding.revision, payload, created) for finding, payload in findings]
        self._noter.found(one for one, _ in findings)
        facts, noted = self._noter.pending(), self._noter.of_findings(one for one, _ in findings)

        def run(connection: sqlite3.Connection) -> None:
            connection.executemany(
                "INSERT OR IGNORE INTO findings (id, revision, payload, created_ns) VALUES (?, ?, ?, ?)", rows
            )
            put_state(connection, noted)
            self._spool.add_facts(connection, facts)

        try:
            self._commit(run)
        except Unavailable:
            raise
        except Exception as error:  # noqa: BLE001 - numbers of any size; one must not keep all others back
            self._troubles("finding", error)
            return
        self._noter.written(len(facts))
        self._metrics.detection_lag.observe(max(0.0, (time.time_ns() - received_ns) / 1e9))
        for finding, _ in findings:
            self._metrics.findings.labels(finding.kind, finding.severity.value).inc()

    def _commit(self, run: Callable[[sqlite3.Connection], None]) -> None:
        """Write, and when the disk does not take it, wait and try again: what was judged is not lost."""
        attempt = 0
        while True:
            try:
                return self._spool.submit(run).result()
            except Unavailable as error:
                attempt += 1
                if attempt == 1:
                    logger.warning("detection waits: %s", error)
                if self._stopping.is_set() and attempt > STOPPING_ATTEMPTS:
                    raise
                time.sleep(error.retry_after)

    def _restore(self) -> None:
        rows = dict(self._spool.reader.execute("SELECT key, value FROM state").fetchall())
        self._cursor = self._spool.cursor(CURSOR)
        # A checkpoint of another version may not fit: what it knew is lost, and that is all that is lost.
        try:
            pieces = {key: _unpacked(value) for key, value in rows.items() if key.startswith(READER)}
            self._reader.restore({key.removeprefix(READER): piece for key, piece in pieces.items()})
        except Exception as error:  # noqa: BLE001 - see above
            self._troubles("checkpoint", error)
            self._unread.update((key, None) for key in rows if key.startswith(READER))
        if "detection" in rows:
            self._reader.number_from(int(orjson.loads(rows["detection"])["engine_seq"]))
        scopes: dict[str, Json] = {}
        for key, value in rows.items():
            if key.startswith(SCOPE):
                try:
                    scopes[key.removeprefix(SCOPE)] = orjson.loads(_unpacked(value))
                except Exception as error:  # noqa: BLE001 - see above
                    self._troubles("checkpoint", error)
                    self._unread[key] = None
        self._restore_recoveries(rows)
        self._restore_notes(rows)
        for name, why in self._engine.restore(scopes).items():
            if why is not None:
                self._troubles("checkpoint", why)
            self._unread[f"{SCOPE}{name}"] = None

    def _restore_recoveries(self, rows: Mapping[str, bytes]) -> None:
        states: dict[str, Json] = {}
        for key, value in rows.items():
            if key.startswith(RECOVERY):
                try:
                    states[key.removeprefix(RECOVERY)] = orjson.loads(_unpacked(value))
                except Exception as error:  # noqa: BLE001 - of another version: only what it knew is lost
                    self._troubles("checkpoint", error)
                    self._unread[key] = None
        for name, why in self._recorder.restore(states).items():
            self._troubles("checkpoint", why)
            self._unread[f"{RECOVERY}{name}"] = None

    def _restore_notes(self, rows: Mapping[str, bytes]) -> None:
        states: dict[str, Json] = {}
        for key in filter(is_noted, rows):
            try:
                states[key] = orjson.loads(_unpacked(rows[key]))
            except Exception as error:  # noqa: BLE001 - of another version: only what it knew is lost
                self._troubles("checkpoint", error)
                self._unread[key] = None
        for key, why in self._noter.restore(states).items():
            self._troubles("checkpoint", why)
            self._unread[key] = None

    def _checkpoint(self) -> None:
        with self._metrics.stage("checkpoint"):
            self._write_checkpoint()

    def _write_checkpoint(self) -> None:
        steps, self._pending = self._pending, []
        merges, self._merges = self._merges, []
        changed, self._unread = self._unread, {}
        changed.update(self._packed_reader())
        changed.update(self._packed_scopes())
        changed.update(
            (f"{RECOVERY}{key}", state) for key, state in self._recorder.changed(self._packed).items()
        )
        changed.update(self._noter.changed())
        facts = self._noter.pending()
        failures, definitions = self._recorder.drain()
        detection = orjson.dumps({"engine_seq": self._reader.said})
        blocks = [
            ("steps", *packed) for part in _blocks(steps) for packed in self._rows(self._pack.steps, part)
        ]
        blocks.extend(("session_merges", *packed) for packed in self._rows(self._pack.merges, merges))
        blocks.extend(("failures", *packed) for packed in self._rows(self._pack.failures, failures))
        blocks.extend(
            ("tool_definitions", *packed) for packed in self._rows(self._pack.definitions, definitions)
        )
        cursor = self._cursor

        def run(connection: sqlite3.Connection) -> None:
            put_state(connection, {"detection": detection, **changed})
            self._spool.add_facts(connection, facts)
            for kind, rows, payload in blocks:
                self._spool.add_derived(connection, kind, rows, payload)
            move_cursor(connection, CURSOR, cursor)
            self._spool.release(connection, self._all_readers)

        self._commit(run)
        self._noter.written(len(facts))
        self._spool.forget_cached(min(self._spool.cursor(name) for name in self._all_readers))
        self._dirty = False
        self._show()

    def _packed_reader(self) -> dict[str, bytes | None]:
        """What changed of the reader."""
        try:
            changes = self._reader.changes()
        except Exception as error:  # noqa: BLE001 - the cursor must go on, see `_packed_scopes`
            self._troubles("checkpoint", error)
            return {}
        return {f"{READER}{key}": piece and self._packed(piece) for key, piece in changes.items()}

    def _rows(self, pack: Callable[[Sequence[R]], bytes], rows: Sequence[R]) -> Iterator[tuple[int, bytes]]:
        """Rows as one payload; should one not fit, halves of them, until that one is left out alone."""
        if not rows:
            return
        try:
            payload = pack(rows)
        except Exception as error:  # noqa: BLE001 - one row must not keep all others from the store
            if len(rows) == 1:
                self._troubles("row", error)
                return
            half = len(rows) // 2
            yield from self._rows(pack, rows[:half])
            yield from self._rows(pack, rows[half:])
        else:
            yield len(rows), payload

    def _packed_scopes(self) -> dict[str, bytes | None]:
        """The scopes that changed; one whose state cannot be written stays as it was written last."""
        packed: dict[str, bytes | None] = {}
        try:
            changed = self._engine.dirty_scopes()
        except Exception as error:  # noqa: BLE001 - a detector of any origin; the cursor must go on
            self._troubles("checkpoint", error)
            return packed
        for key, state in changed.items():
            try:
                key.encode()  # a key with half a character is for no database
                packed[f"{SCOPE}{key}"] = None if state is None else self._packed(orjson.dumps(state))
            except Exception as error:  # noqa: BLE001 - whatever one scope holds, the others are written
                self._troubles("checkpoint", error)
        return packed

    def _packed(self, piece: bytes) -> bytes:
        """JSON, compressed when that is worth its while; one compressor for all, to make one is dear."""
        return piece if len(piece) < COMPRESS_FROM else self._compressor.compress(piece)

    def _show(self) -> None:
        metrics, counters = self._metrics, self._reader.counters
        metrics.open_scopes.set(len(self._engine))
        metrics.evicted_scopes.set(self._engine.evicted)
        metrics.reader_forgotten.labels("traces").set(counters.forgotten_traces)
        metrics.reader_forgotten.labels("conversations").set(counters.forgotten_groups)
        metrics.reader_forgotten.labels("calls").set(counters.forgotten_entries)
        metrics.reader_forgotten.labels("asked-for calls").set(counters.forgotten_asked)
        metrics.reader_forgotten.labels("tool definitions").set(counters.forgotten_definitions)
        metrics.reader_forgotten.labels("pieces").set(counters.unwritable)
        for name, error in self._engine.errors.items():
            metrics.detector_errors.labels(name).set(error.count)


def move_cursor(connection: sqlite3.Connection, name: str, seq: int) -> None:
    """Within a piece of spool work: the reader `name` has come to `seq`."""
    connection.execute(
        "INSERT INTO cursors (name, seq) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET seq = excluded.seq",
        (name, seq),
    )


def put_state(connection: sqlite3.Connection, changed: Mapping[str, bytes | None]) -> None:
    """Within a piece of spool work: write pieces of the checkpoint, delete those that are None."""
    connection.executemany(
        "INSERT OR REPLACE INTO state (key, value) VALUES (?, ?)",
        [(key, state) for key, state in changed.items() if state is not None],
    )
    gone = [(key,) for key, state in changed.items() if state is None]
    connection.executemany("DELETE FROM state WHERE key = ?", gone)


def _blocks(steps: Sequence[Step]) -> list[Sequence[Step]]:
    return [steps[at : at + STEPS_PER_BLOCK] for at in range(0, len(steps), STEPS_PER_BLOCK)]


def _unpacked(value: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompress(value) if value[:4] == zstandard.FRAME_HEADER else value
