"""The shipping loop: what the spool holds goes to ClickHouse, each row once.

One thread. A shipment (first and last position) is written down before it is sent, so that after a crash
the same rows go under the same deduplication token and the store knows them. When the store is away
everything waits in the spool; rows that it can never take are put aside, counted and logged.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Protocol, TypeVar

import orjson
import pyarrow as pa

from api.detection import move_cursor
from api.metrics import IngestMetrics
from api.projection import ControlEvent, ControlFile, alert_row, audit_row, breaker_row, finding
from collector.batch import Signal
from collector.consumer import Rejected, Unavailable
from collector.spool import DamagedError, Spool
from control.findings import MalformedFinding
from detectors.protocol import Finding
from storage.rows import AlertRow, AuditRow, BreakerEventRow

logger = logging.getLogger(__name__)

CURSOR: Final = "store"
MAX_BACKOFF: Final = 5.0  # seconds
LAST_TRIES: Final = 4  # at the end, for a store that has just been started again
LAST_PAUSE: Final = 0.5
AFTER_A_PERSON: Final = 30.0  # seconds; until somebody has looked
LAST_INSERT: Final = 8.0  # seconds that the insert under way at the end may take
WAIT: Final = 0.2
ROWS_PER_PROJECTION: Final = 1_000
_NO_END: Final = 2**62
T = TypeVar("T")
_TABLES: Final = {Signal.TRACES: "otel_traces", Signal.LOGS: "otel_logs"}


class Store(Protocol):
    """What the loop needs of `storage.writer.Writer`: one insert a call, exactly once a token.

    Raises `Unavailable` when the store is away and `Rejected` for rows that it can never take.
    """

    def insert_spans(self, batch: pa.RecordBatch, token: str) -> None:
        """Rows of `otel_traces`."""

    def insert_logs(self, batch: pa.RecordBatch, token: str) -> None:
        """Rows of `otel_logs`."""

    def insert_packed(self, table: str, columns: pa.RecordBatch, token: str) -> None:
        """Rows of a derived table, as the detection loop packed them."""

    def insert_findings(self, findings: Sequence[Finding], token: str) -> None:
        """Rows of `findings`."""

    def insert_alerts(self, rows: Sequence[AlertRow], token: str) -> None:
        """Rows of `alerts`."""

    def insert_breaker_events(self, rows: Sequence[BreakerEventRow], token: str) -> None:
        """Rows of `breaker_events`."""

    def insert_audit(self, rows: Sequence[AuditRow], token: str) -> None:
        """Rows of `audit`."""


@dataclass(frozen=True, slots=True)
class FlushPolicy:
    """Insert at `rows`, or `interval` seconds after the last insert."""

    rows: int = 10_000
    interval: float = 1.0


@dataclass(frozen=True, slots=True)
class _Shipment:
    """Rows on their way. `name` is their cursor's: the table, and whose positions they are if not ours."""

    name: str
    first: int
    last: int

    @property
    def table(self) -> str:
        """The table that they go to."""
        return self.name.partition(":")[0]


class ShippingLoop:
    """See the module. `connect` opens the store, its schema up to date; it is called until it works."""

    def __init__(
        self,
        spool: Spool,
        *,
        connect: Callable[[], Store],
        control_db: Path,
        metrics: IngestMetrics,
        policy: FlushPolicy,
        readers: Sequence[str],
    ) -> None:
        self._spool = spool
        self._connect = connect
        self._control = ControlFile(control_db)
        self._metrics = metrics
        self._policy = policy
        self._all_readers = readers
        self._store: Store | None = None
        self._backoff = 0.0
        self._warned = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self.failed: BaseException | None = None

    def start(self) -> None:
        """Begin with the shipment that a crash may have cut off."""
        self._thread.start()

    def stop(self) -> bool:
        """Ship what is there if the store takes it, then end; False when a hanging store prevents that.

        What was not confirmed goes again after the next start, under its token.
        """
        self._stopping.set()
        self._thread.join(LAST_INSERT)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._loop()
        except BaseException as error:
            self.failed = error
            logger.exception("the shipping loop failed; ingest ends, so that it is started again")
            raise

    def _loop(self) -> None:
        flushed = time.monotonic()
        last_tries = LAST_TRIES
        while True:
            stopping = self._stopping.is_set()
            idle = True
            try:
                self._writer()
                due = stopping or time.monotonic() - flushed >= self._policy.interval
                if due or self._waiting_rows() >= self._policy.rows:
                    flushed = time.monotonic()
                    with self._metrics.stage("ship"):
                        idle = not self._ship_all()
                self._recovered()
            except (Unavailable, sqlite3.Error) as error:
                self._failed(error if isinstance(error, Unavailable) else Unavailable(str(error), WAIT))
                if stopping:
                    last_tries -= 1
                    if not last_tries:
                        return
                    time.sleep(LAST_PAUSE)
                self._stopping.wait(self._backoff)
                continue
            if stopping and idle:
                return
            if idle:
                self._stopping.wait(WAIT)

    def _recovered(self) -> None:
        if self._store is not None:
            self._backoff = 0.0
            self._metrics.store_up.set(1)
            if self._warned:
                self._warned = False
                logger.info("the store is back")

    def _failed(self, error: Unavailable) -> None:
        self._metrics.store_up.set(0)
        self._metrics.store_failures.inc()
        if not self._warned:
            self._warned = True
            logger.warning("the store is away, spans wait in the spool: %s", error)
        self._backoff = max(error.retry_after, min(MAX_BACKOFF, self._backoff * 2))

    def _ship_all(self) -> bool:
        """One round over everything; whether anything was shipped."""
        shipped = self._ship_batches()
        shipped |= self._ship_derived()
        shipped |= self._ship_findings()
        shipped |= self._project("alert_events", _insert_alerts)
        shipped |= self._project("breaker_events", _insert_breaker_events)
        shipped |= self._project("audit", _insert_audit)
        return shipped

    def _writer(self) -> Store:
        if self._store is None:
            try:
                self._store = self._connect()
            except Unavailable:
                raise
            except Exception as error:
                # A store of another version, or a damaged one: no fault of the rows that wait for it.
                raise Unavailable(f"it cannot be used: {error}", AFTER_A_PERSON) from error
        return self._store

    def _waiting_rows(self) -> int:
        return sum(rows for _, _, rows, _ in self._spool.heads(self._spool.cursor(CURSOR)))

    def _planned(self, name: str) -> _Shipment | None:
        row = self._spool.reader.execute(
            "SELECT first, last FROM shipments WHERE name = ?", (name,)
        ).fetchone()
        return None if row is None else _Shipment(name, row[0], row[1])

    def _plan(self, name: str, choose: Callable[[int], tuple[int, int] | None]) -> _Shipment | None:
        """The shipment that was under way, or a new one, written down."""
        planned = self._planned(name)
        if planned is not None:
            return planned
        chosen = choose(self._spool.cursor(name))
        if chosen is None:
            return None
        first, last = chosen

        def run(connection: sqlite3.Connection) -> None:
            connection.execute(
                "INSERT INTO shipments (name, first, last) VALUES (?, ?, ?)", (name, first, last)
            )

        self._spool.submit(run).result()
        return _Shipment(name, first, last)

    def _arrived(self, shipment: _Shipment, also: Callable[[sqlite3.Connection], None] | None = None) -> None:
        def run(connection: sqlite3.Connection) -> None:
            move_cursor(connection, shipment.name, shipment.last)
            connection.execute("DELETE FROM shipments WHERE name = ?", (shipment.name,))
            # What was under way from a control.db that has been replaced since will never arrive.
            connection.execute("DELETE FROM shipments WHERE name GLOB ?", (f"{shipment.table}:*",))
            if also is not None:
                also(connection)

        self._spool.submit(run).result()

    def _token(self, shipment: _Shipment, part: str = "") -> str:
        """What the store knows a shipment by; with the spool's name, so that a new one never repeats it."""
        return f"{self._spool.name}-{shipment.name}{part}-{shipment.first}-{shipment.last}"

    def _choose_batches(self, after: int) -> tuple[int, int] | None:
        rows, first, last = 0, 0, 0
        for seq, _, count, _ in self._spool.heads(after):
            if rows and rows + count > self._policy.rows:
                break
            rows, first, last = rows + count, first or seq, seq
        return (first, last) if last else None

    def _ship_batches(self) -> bool:
        shipment = self._plan(CURSOR, self._choose_batches)
        if shipment is None:
            return False
        writer = self._writer()
        for signal, columns in self._columns(shipment).items():
            whole = pa.Table.from_batches(columns).combine_chunks().to_batches()[0]
            table = _TABLES[signal]
            insert = writer.insert_spans if signal is Signal.TRACES else writer.insert_logs
            self._insert_rows(table, insert, whole, self._token(shipment, f"-{signal.value}"))
        self._arrived(shipment, lambda connection: self._spool.release(connection, self._all_readers))
        self._spool.forget_cached(min(self._spool.cursor(name) for name in self._all_readers))
        return True

    def _columns(self, shipment: _Shipment) -> dict[Signal, list[pa.RecordBatch]]:
        """The shipment's rows by signal; a batch whose bytes are damaged is put aside as it is."""
        parts: dict[Signal, list[pa.RecordBatch]] = {}
        for seq, name, count, _ in self._spool.heads(shipment.first - 1):
            if seq > shipment.last:
                break
            try:
                batch = self._spool.load(seq).batch
            except DamagedError as error:
                self._put_aside(_TABLES[Signal(name)], error, count, self._spool.payload(seq))
                continue
            parts.setdefault(batch.signal, []).append(batch.columns)
        return parts

    def _insert_rows(
        self, table: str, insert: Callable[[pa.RecordBatch, str], None], rows: pa.RecordBatch, token: str
    ) -> None:
        """Insert; when the store says "never", halve until the rows that it cannot take stand alone."""
        try:
            insert(rows, token)
        except Rejected as error:
            if rows.num_rows > 1:
                half = rows.num_rows // 2
                self._insert_rows(table, insert, rows.slice(0, half), f"{token}.0")
                self._insert_rows(table, insert, rows.slice(half), f"{token}.1")
                return
            self._put_aside(table, error, rows.num_rows, orjson.dumps(rows.to_pylist(), default=str))
            return
        self._metrics.stored.labels(table).inc(rows.num_rows)

    def _put_aside(self, table: str, error: Exception, rows: int, payload: bytes) -> None:
        logger.error("the store can never take %d rows of %s: %s", rows, table, error)
        self._metrics.refused.labels(table).inc(rows)

        def run(connection: sqlite3.Connection) -> None:
            connection.execute(
                "INSERT INTO refused (origin, reason, payload) VALUES (?, ?, ?)",
                (table, str(error)[:1000], payload),
            )
            connection.execute("DELETE FROM refused WHERE seq <= (SELECT max(seq) FROM refused) - 1000")

        self._spool.submit(run).result()

    def _ship_derived(self) -> bool:
        rows = self._spool.reader.execute(
            "SELECT seq, kind, rows, payload FROM derived ORDER BY seq LIMIT 8"
        ).fetchall()
        for seq, kind, count, payload in rows:
            token, insert = f"{self._spool.name}-{kind}-{seq}", partial(self._writer().insert_packed, kind)
            try:
                self._insert_rows(kind, insert, _unpacked(payload), token)
            except DamagedError as error:
                self._put_aside(kind, error, count, payload)
            self._spool.submit(partial(self._spool.drop_derived, upto=seq)).result()
        return bool(rows)

    def _ship_findings(self) -> bool:
        def choose(after: int) -> tuple[int, int] | None:
            row = self._spool.reader.execute(
                "SELECT min(seq), max(seq)"
                " FROM (SELECT seq FROM findings WHERE seq > ? ORDER BY seq LIMIT ?)",
                (after, ROWS_PER_PROJECTION),
            ).fetchone()
            return (row[0], row[1]) if row[0] is not None else None

        shipment = self._plan("findings", choose)
        if shipment is None:
            return False
        rows = self._spool.reader.execute(
            "SELECT payload FROM findings WHERE seq BETWEEN ? AND ? ORDER BY seq",
            (shipment.first, shipment.last),
        ).fetchall()
        self._insert_all(
            shipment,
            [row[0] for row in rows],
            lambda w, payloads, token: w.insert_findings([finding(payload) for payload in payloads], token),
            str.encode,
        )
        if self._spool.too_many_findings():
            self._forget_findings(shipment.last)
        return True

    def _forget_findings(self, shipped: int) -> None:
        """Let go of findings that control has decided on, too; of none while that cannot be told."""
        try:
            decided = self._control.findings_read(self._spool.name)
        except sqlite3.Error as error:
            logger.debug("control.db is not readable: %s", error)
            return
        forget = partial(self._spool.forget_findings, upto=min(shipped, decided))
        self._spool.submit(forget).result()

    def _project(self, table: str, insert: Callable[[Store, Sequence[ControlEvent], str], None]) -> bool:
        """Copy new events of control.db into the store."""
        try:
            control = self._control.identity()
            if control is None:
                return False
            name = f"{table}:{control}"
            planned = self._planned(name)
            upto = planned.last if planned is not None else _NO_END
            events = self._control.events(table, self._spool.cursor(name), upto, ROWS_PER_PROJECTION)
        except sqlite3.Error as error:
            logger.debug("control.db is not readable yet: %s", error)
            return False
        if not events and planned is not None:  # control has let go of them since
            self._arrived(planned)
        if not events:
            return False
        shipment = self._plan(name, lambda _: (events[0].seq, events[-1].seq))
        if shipment is None:
            return False
        self._insert_all(shipment, events, insert, lambda event: event.payload.encode())
        return True

    def _insert_all(
        self,
        shipment: _Shipment,
        rows: Sequence[T],
        insert: Callable[[Store, Sequence[T], str], None],
        plain: Callable[[T], bytes],
    ) -> None:
        self._insert_some(shipment.table, rows, partial(insert, self._writer()), plain, self._token(shipment))
        self._arrived(shipment)

    def _insert_some(
        self,
        table: str,
        rows: Sequence[T],
        insert: Callable[[Sequence[T], str], None],
        plain: Callable[[T], bytes],
        token: str,
    ) -> None:
        """As `_insert_rows`, for rows that are yet to be read: one that cannot be read is put aside alone."""
        if not rows:
            return
        try:
            insert(rows, token)
        except (Rejected, MalformedFinding, KeyError, TypeError, ValueError) as error:
            if len(rows) > 1:
                half = len(rows) // 2
                self._insert_some(table, rows[:half], insert, plain, f"{token}.0")
                self._insert_some(table, rows[half:], insert, plain, f"{token}.1")
                return
            self._put_aside(table, error, 1, plain(rows[0]))
            return
        self._metrics.stored.labels(table).inc(len(rows))


def _insert_alerts(store: Store, events: Sequence[ControlEvent], token: str) -> None:
    store.insert_alerts([alert_row(event) for event in events], token)


def _insert_breaker_events(store: Store, events: Sequence[ControlEvent], token: str) -> None:
    store.insert_breaker_events([breaker_row(event) for event in events], token)


def _insert_audit(store: Store, events: Sequence[ControlEvent], token: str) -> None:
    store.insert_audit([audit_row(event) for event in events], token)


def pack_rows(rows: pa.RecordBatch) -> bytes:
    """Derived rows as the spool keeps them."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(rows)
    return sink.getvalue().to_pybytes()


def _unpacked(payload: bytes) -> pa.RecordBatch:
    try:
        with pa.ipc.open_stream(payload) as reader:
            return reader.read_next_batch()
    except (pa.ArrowException, OSError, StopIteration) as error:
        raise DamagedError(f"derived rows are damaged: {error}") from error
