"""Facts, notes and the pulse from the detection loop into the spool, over a crash too."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest
from harness import call_span, request
from prometheus_client import CollectorRegistry

from api.build import build_decode, build_pack
from api.config import Settings
from api.detection import DetectionLoop
from api.judging import Troubles
from api.metrics import IngestMetrics
from api.noting import Noter
from collector import ipc
from collector.batch import Signal
from collector.reader import StepReader
from collector.spool import Spool, SpoolLimits
from collector.step import Step, StepSeen
from control.facts import Fact, SpoolFacts, SpoolNotes
from detectors.catalog import BUILT_IN, build
from detectors.engine import Engine
from detectors.notes import Notes
from detectors.notes_book import NotesBook
from tests.detectors.stream import Stream

MISSING = "FileNotFoundError: [Errno 2] No such file or directory: 'a.py'"


class Life:
    """One life of the real loop over a real spool."""

    def __init__(self, path: Path, interval: float) -> None:
        self.path = path
        self.spool = Spool(path, SpoolLimits(), time.time_ns)
        self.spool.start()
        self._decode = build_decode(Settings())
        self.loop = DetectionLoop(
            self.spool,
            reader=StepReader(hold_ns=20 * 10**6),
            engine=Engine(build(kinds={"doom_loop": BUILT_IN["doom_loop"]})),
            pack=build_pack(),
            metrics=IngestMetrics(CollectorRegistry()),
            readers=("detectors",),
            settle=0.05,
            checkpoint_interval=interval,
        )
        self.loop.start()

    def send(self, session: str, calls: range) -> None:
        rng = random.Random(f"{session} {calls.start}")
        for number in calls:
            body = request([call_span(rng, session, number, looping=True)])
            batch = self._decode(Signal.TRACES, "protobuf", body).batch
            assert batch is not None
            self.spool.append(batch, ipc.encode(batch)).result(10)

    def end(self) -> None:
        self.loop.stop()
        assert self.loop.failed is None
        self.spool.close()


def await_that(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def facts_in(path: Path) -> list[Fact]:
    with closing(SpoolFacts(path)) as source:
        return source.poll(0, 10_000)


def notes_in(path: Path, session: str) -> Notes:
    notes = SpoolNotes(path).get(session)
    assert notes is not None
    return notes


def test_a_crash_after_a_finding_doubles_neither_facts_nor_notes(tmp_path: Path) -> None:
    """The finding, its session's notes and the facts are on disk, the checkpoint is not: it happens again."""
    first = Life(tmp_path / "first.db", interval=1000.0)
    first.send("stuck", range(12))

    def found() -> bool:
        return bool(first.spool.reader.execute("SELECT count(*) FROM findings").fetchone()[0])

    await_that(found)
    ahead = notes_in(tmp_path / "first.db", "stuck")
    assert ahead.found
    crashed = tmp_path / "crashed.db"
    with closing(sqlite3.connect(tmp_path / "first.db")) as source, closing(sqlite3.connect(crashed)) as copy:
        source.backup(copy)
        assert not copy.execute("SELECT count(*) FROM cursors WHERE name = 'detectors'").fetchone()[0]
    first.end()
    Life(crashed, interval=0.05).end()
    assert notes_in(crashed, "stuck") == notes_in(tmp_path / "first.db", "stuck")
    assert notes_in(crashed, "stuck").calls == 12
    told = [(fact.kind, fact.payload.get("step_id")) for fact in facts_in(crashed)]
    assert len(told) == len(set(told))
    assert sorted(told) == sorted(
        (fact.kind, fact.payload.get("step_id")) for fact in facts_in(tmp_path / "first.db")
    )
    assert {kind for kind, _ in told} >= {"failed"}


def test_what_is_noted_goes_on_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "spool.db"
    first = Life(path, interval=0.05)
    first.send("stuck", range(4))
    first.end()
    before = notes_in(path, "stuck")
    second = Life(path, interval=0.05)
    second.send("stuck", range(4, 7))
    second.end()
    after = notes_in(path, "stuck")
    assert (before.calls, after.calls) == (4, 7)
    assert after.first_ns == before.first_ns


def test_services_have_a_pulse(tmp_path: Path) -> None:
    before = time.time_ns()
    life = Life(tmp_path / "spool.db", interval=0.05)
    life.send("stuck", range(2))
    life.end()
    (heard,) = SpoolNotes(tmp_path / "spool.db").pulse().values()
    assert before <= heard <= time.time_ns()


def test_active_sessions_are_counted_over_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "spool.db"
    for sessions, active in ((("a", "b", "a"), 2), (("b", "c"), 3)):
        life = Life(path, interval=0.05)
        for session in sessions:
            life.send(session, range(active, active + 1))
        life.end()
        assert SpoolNotes(path).active_sessions(time.time_ns()) == active


def test_a_spool_from_before_facts_gets_their_table(tmp_path: Path) -> None:
    path = tmp_path / "spool.db"
    Life(path, interval=0.05).end()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TABLE facts")
    assert facts_in(path) == []
    life = Life(path, interval=0.05)
    life.send("stuck", range(3))
    life.end()
    assert facts_in(path)


def test_old_facts_go(tmp_path: Path) -> None:
    now = [10**18]
    spool = Spool(tmp_path / "spool.db", SpoolLimits(), lambda: now[0])
    spool.start()

    def add(name: str) -> None:
        spool.submit(lambda connection: spool.add_facts(connection, [(name, "ended", "s", "{}")])).result(5)

    add("old")
    now[0] += 25 * 3600 * 10**9
    for number in range(64):  # commits between two looks at what is old
        add(f"new {number}")
    keys = [row[0] for row in spool.reader.execute("SELECT key FROM facts ORDER BY seq")]
    spool.close()
    assert keys == [f"new {number}" for number in range(64)]


@pytest.fixture
def troubles() -> list[str]:
    return []


def noter_of(troubles: list[str]) -> Noter:
    return Noter(NotesBook(), bytes, Troubles(troubles.append))


def test_what_no_database_takes_is_counted_and_the_rest_goes_on(troubles: list[str]) -> None:
    noter = noter_of(troubles)
    for session, service in (("half \ud800", "a"), ("fine", "half \ud800")):
        stream = Stream(session=session).call("read", {"p": 1}, error=MISSING, service=service)
        noter.take(StepSeen(stream.steps[0]), 1)
    noter.take(StepSeen(Stream(session="good").call("read", {"p": 1}, error=MISSING).steps[0]), 2)
    assert [row[2] for row in noter.pending()] == ["good"]
    assert "notes:good" in noter.changed()
    assert set(troubles) == {"note", "checkpoint"}


def test_a_state_that_cannot_be_read_is_told_and_the_others_are_restored(troubles: list[str]) -> None:
    noter = noter_of(troubles)
    noter.take(StepSeen(Stream(session="good").call("read", {"p": 1}, error=MISSING).steps[0]), 2)
    told: dict[str, Any] = {key: orjson.loads(value or b"") for key, value in noter.changed().items()}
    again = noter_of(troubles)
    left = again.restore({"notes:bad": {"version": 0}, "pulse": {"a": "x"}, **told} | {"pulse": {"a": "x"}})
    assert set(left) == {"notes:bad", "pulse"}
    step: Step = Stream(session="good").call("read", {"p": 2}, error=MISSING).steps[0]
    again.take(StepSeen(step), 3)
    state = orjson.loads(again.changed()["notes:good"] or b"")
    assert state["calls"] == 2


def test_facts_wait_until_they_are_written(troubles: list[str]) -> None:
    noter = noter_of(troubles)
    for number in range(3):
        stream = Stream(session=f"s{number}").call("read", {"p": 1}, error=MISSING, step_id=f"step {number}")
        noter.take(StepSeen(stream.steps[0]), 1)
    assert len(noter) == 3
    noter.written(2)
    assert [row[0] for row in noter.pending()] == ["failed:step 2"]
