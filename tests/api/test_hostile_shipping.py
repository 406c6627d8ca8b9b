"""A store that refuses, does not fit or hangs: what it can take it gets, the rest is kept."""

from __future__ import annotations

import json
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from harness import call_span, request
from prometheus_client import CollectorRegistry

from api import shipping
from api.build import build_decode
from api.config import Settings
from api.metrics import IngestMetrics
from api.shipping import FlushPolicy, ShippingLoop
from collector import ipc
from collector.batch import Signal
from collector.consumer import Rejected, Unavailable
from collector.spool import Spool, SpoolLimits
from control import audit
from control.actor import Actor
from control.alerts import take_finding
from control.db import ControlDb, set_cursor
from control.findings import CURSOR
from detectors.protocol import Finding
from storage.migrate import SchemaError
from storage.rows import AlertRow, AuditRow, BreakerEventRow
from tests.control.support import STUCK

PATIENCE = 10.0


class Shelf:
    """A store in memory that refuses spans by name and hangs on request."""

    def __init__(self, poison: str = "") -> None:
        self.spans: list[str] = []
        self.findings: list[str] = []
        self.alerts: list[str] = []
        self.audit: list[AuditRow] = []
        self.tokens: set[str] = set()
        self.go_on = threading.Event()
        self.go_on.set()
        self._poison = poison

    def insert_spans(self, batch: pa.RecordBatch, token: str) -> None:
        assert token
        self.go_on.wait()
        names = [str(name) for name in batch.column("SpanName").to_pylist()]
        if self._poison in names:
            raise Rejected("a value that no column can hold")
        self.spans += names

    def insert_logs(self, batch: pa.RecordBatch, token: str) -> None:
        """Take nothing: no logs are sent here."""

    def insert_packed(self, table: str, columns: pa.RecordBatch, token: str) -> None:
        """Take nothing: no detection runs here."""

    def insert_findings(self, findings: Sequence[Finding], token: str) -> None:
        assert token
        self.findings += [finding.id for finding in findings]

    def insert_alerts(self, rows: Sequence[AlertRow], token: str) -> None:
        assert token
        if token not in self.tokens:
            self.alerts += [row.finding_id for row in rows]
        self.tokens.add(token)

    def insert_breaker_events(self, rows: Sequence[BreakerEventRow], token: str) -> None:
        """Take nothing: no breaker is opened here."""

    def insert_audit(self, rows: Sequence[AuditRow], token: str) -> None:
        if token not in self.tokens:
            self.audit += rows
        self.tokens.add(token)


class Rig:
    def __init__(self, folder: Path, connect: Callable[[], Shelf]) -> None:
        self.metrics = IngestMetrics(CollectorRegistry())
        self.spool = Spool(folder / "spool.db", SpoolLimits(), time.time_ns)
        self.spool.start()
        self._decode = build_decode(Settings())
        self.loop = ShippingLoop(
            self.spool,
            connect=connect,
            control_db=folder / "control.db",
            metrics=self.metrics,
            policy=FlushPolicy(interval=0.05),
            readers=("store",),
        )

    def spool_spans(self, *names: str) -> None:
        spans = [call_span(random.Random(name), name, 0, looping=False) for name in names]
        for span, name in zip(spans, names, strict=True):
            span.name = name
        batch = self._decode(Signal.TRACES, "protobuf", request(spans)).batch
        assert batch is not None
        self.spool.append(batch, ipc.encode(batch)).result(10)

    def spool_findings(self, *payloads: str, first: int = 0) -> None:
        def run(connection: sqlite3.Connection) -> None:
            connection.executemany(
                "INSERT INTO findings (id, revision, payload, created_ns) VALUES (?, 0, ?, 0)",
                [(f"row {number}", payload) for number, payload in enumerate(payloads, first)],
            )

        self.spool.submit(run).result(10)

    def refused(self) -> list[str]:
        return [row[0] for row in self.spool.reader.execute("SELECT origin FROM refused ORDER BY seq")]

    def end(self) -> None:
        self.loop.stop()
        self.spool.close()


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def a_finding(name: str) -> str:
    return json.dumps(
        {"id": name, "kind": "doom_loop", "severity": "critical", "session_id": "s", "summary": "stuck"}
        | {"started_at": 1, "detected_at": 2, "occurrences": 4}
    )


def test_a_row_that_the_store_can_never_take_is_put_aside_alone(tmp_path: Path) -> None:
    shelf = Shelf(poison="poison")
    rig = Rig(tmp_path, lambda: shelf)
    rig.spool_spans("one", "two", "poison", "three", "four")
    rig.spool_spans("five")
    rig.loop.start()
    until(lambda: len(shelf.spans) == 5)
    until(lambda: not rig.spool.heads(0))
    assert sorted(shelf.spans) == ["five", "four", "one", "three", "two"]
    assert rig.refused() == ["otel_traces"]
    rig.end()


def test_a_finding_that_cannot_be_read_is_put_aside_alone(tmp_path: Path) -> None:
    shelf = Shelf()
    rig = Rig(tmp_path, lambda: shelf)
    rig.spool_findings(a_finding("first"), "42", a_finding("second"), '{"id": "no finding"}')
    rig.loop.start()
    until(lambda: len(rig.refused()) == 2)
    assert shelf.findings == ["first", "second"]
    assert rig.refused() == ["findings", "findings"]
    assert rig.loop.failed is None
    rig.end()


def test_a_damaged_batch_is_put_aside_and_the_others_arrive(tmp_path: Path) -> None:
    first = Rig(tmp_path, Shelf)
    first.spool_spans("damaged")
    first.spool.close()
    with sqlite3.connect(tmp_path / "spool.db") as connection:
        connection.execute("UPDATE batches SET payload = substr(payload, 1, 50)")
    shelf = Shelf()
    rig = Rig(tmp_path, lambda: shelf)
    rig.spool_spans("whole")
    rig.loop.start()
    until(lambda: shelf.spans == ["whole"])
    assert rig.refused() == ["otel_traces"]
    rig.end()


@pytest.mark.parametrize(
    "error",
    [
        SchemaError("made by a newer program"),
        Rejected("a statement it does not know"),
        Unavailable("away", 0.01),
    ],
)
def test_a_store_that_does_not_fit_gets_nothing_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(shipping, "AFTER_A_PERSON", 0.01)
    shelf, fits = Shelf(), threading.Event()

    def connect() -> Shelf:
        if not fits.is_set():
            raise error
        return shelf

    rig = Rig(tmp_path, connect)
    rig.spool_spans("kept")
    rig.loop.start()
    until(lambda: rig.metrics.store_failures._value.get() >= 2)
    assert rig.loop.failed is None
    assert rig.refused() == []
    fits.set()
    until(lambda: shelf.spans == ["kept"])
    rig.end()


def test_a_store_that_hangs_does_not_hold_up_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipping, "LAST_INSERT", 0.1)
    shelf = Shelf()
    shelf.go_on.clear()
    rig = Rig(tmp_path, lambda: shelf)
    rig.spool_spans("waits")
    rig.loop.start()
    until(lambda: rig.spool.reader.execute("SELECT count(*) FROM shipments").fetchone()[0])
    assert rig.loop.stop() is False
    assert [count for _, _, count, _ in rig.spool.heads(0)] == [1]
    shelf.go_on.set()
    until(rig.loop.stop)
    rig.spool.close()


def fire(control: ControlDb, name: str) -> None:
    with control.transaction() as tx:
        take_finding(tx, replace(STUCK, id=name), (), time.time_ns())


def test_a_replaced_control_db_is_copied_from_its_start(tmp_path: Path) -> None:
    shelf = Shelf()
    rig = Rig(tmp_path, lambda: shelf)
    rig.loop.start()
    with closing(ControlDb(tmp_path / "control.db")) as control:
        fire(control, "old")
        until(lambda: shelf.alerts == ["old"])
    rig.spool.submit(lambda c: c.execute("INSERT INTO shipments VALUES ('alert_events:old', 2, 3)")).result(
        10
    )
    for file in tmp_path.glob("control.db*"):
        file.unlink()
    with closing(ControlDb(tmp_path / "control.db")) as control:
        fire(control, "new")
        until(lambda: shelf.alerts == ["old", "new"])
        until(lambda: not rig.spool.reader.execute("SELECT count(*) FROM shipments").fetchone()[0])
    rig.end()


def audited(control: ControlDb, *subjects: str) -> None:
    for subject in subjects:
        with control.transaction() as tx:
            audit.record(
                tx,
                at_ns=time.time_ns(),
                actor=Actor(type="person", id="on-call"),
                verb="reset",
                subject=subject,
                reason="fixed",
                after={"state": "closed"},
            )


def test_the_audit_is_copied_once_over_crashes_and_can_be_checked_there(tmp_path: Path) -> None:
    shelf = Shelf()
    with closing(ControlDb(tmp_path / "control.db")) as control:
        audited(control, "a", "b", "c")
        with control.reading() as connection:
            (identity,) = connection.execute("SELECT id FROM identity").fetchone()
        rig = Rig(tmp_path, lambda: shelf)

        def cut_off(connection: sqlite3.Connection) -> None:
            planned = (f"audit:{identity}", 1, 2)
            connection.execute("INSERT INTO shipments (name, first, last) VALUES (?, ?, ?)", planned)

        rig.spool.submit(cut_off).result(10)
        rig.loop.start()
        until(lambda: len(shelf.audit) == 3)
        assert f"{rig.spool.name}-audit:{identity}-1-2" in shelf.tokens
        rig.end()
        audited(control, "d")
        rig = Rig(tmp_path, lambda: shelf)
        rig.loop.start()
        until(lambda: len(shelf.audit) == 4)
        rig.end()
        with control.reading() as connection:
            newest = audit.head(connection)
    assert [(row.seq, row.subject, row.actor_id, row.verb) for row in shelf.audit] == [
        (number, subject, "on-call", "reset") for number, subject in enumerate("abcd", start=1)
    ]
    previous = audit.GENESIS
    for row in shelf.audit:
        assert (row.previous, row.hash) == (previous, audit.chain(previous, row.payload))
        previous = row.hash
    assert newest == audit.Head(seq=4, hash=previous)


def test_an_entry_of_the_audit_that_is_none_is_put_aside_alone(tmp_path: Path) -> None:
    shelf = Shelf()
    rig = Rig(tmp_path, lambda: shelf)
    with closing(ControlDb(tmp_path / "control.db")) as control:
        audited(control, "a")
        with control.transaction() as tx:
            tx.execute("INSERT INTO audit (at_ns, payload, previous, hash) VALUES (1, '[]', '', '')")
        audited(control, "b")
        rig.loop.start()
        until(lambda: [row.subject for row in shelf.audit] == ["a", "b"])
        until(lambda: rig.refused() == ["audit"])
    rig.end()


def test_a_shipment_whose_events_control_has_let_go_of_holds_up_no_other(tmp_path: Path) -> None:
    shelf = Shelf()
    rig = Rig(tmp_path, lambda: shelf)
    with closing(ControlDb(tmp_path / "control.db")) as control:
        fire(control, "forgotten")
        with control.transaction() as tx:
            (identity,) = tx.execute("SELECT id FROM identity").fetchone()
            tx.execute("DELETE FROM alert_events")
        planned = (f"alert_events:{identity}", 1, 1)

        def plan(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT INTO shipments (name, first, last) VALUES (?, ?, ?)", planned)

        rig.spool.submit(plan).result(10)
        fire(control, "kept")
        rig.loop.start()
        until(lambda: shelf.alerts == ["kept"])
    assert rig.spool.reader.execute("SELECT count(*) FROM shipments").fetchone()[0] == 0
    rig.end()


def test_findings_are_kept_until_control_has_decided_on_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collector.spool.FINDINGS_KEPT", 2)
    shelf = Shelf()
    rig = Rig(tmp_path, lambda: shelf)

    def left() -> list[int]:
        return [row[0] for row in rig.spool.reader.execute("SELECT seq FROM findings ORDER BY seq")]

    rig.spool_findings(*(a_finding(f"f{n}") for n in range(1, 6)), first=1)
    rig.loop.start()
    until(lambda: len(shelf.findings) == 5)
    with closing(ControlDb(tmp_path / "control.db")) as control:
        for position, source, number in ((5, "another spool", 6), (4, rig.spool.name, 7)):
            assert left() == list(range(1, number))
            with control.transaction() as tx:
                set_cursor(tx, CURSOR, position, source)
            rig.spool_findings(a_finding(f"f{number}"), first=number)
            until(lambda number=number: len(shelf.findings) == number)  # type: ignore[misc]  # bound now
        until(lambda: left() == [5, 6, 7])
    rig.end()
