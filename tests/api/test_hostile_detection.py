"""Whatever one batch, one detector or one checkpoint does, the others are judged."""

from __future__ import annotations

import json
import random
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from harness import call_span, request
from prometheus_client import CollectorRegistry

from api.build import build_decode, build_pack, build_reader
from api.config import Settings
from api.detection import DetectionLoop, Pack
from api.metrics import IngestMetrics
from collector import ipc
from collector.batch import Batch, Signal
from collector.reader import StepReader
from collector.spool import Spool, SpoolLimits
from collector.step import Json, SessionsMerged, Step, StepEvent
from detectors.bounds import MAX_EVIDENCE
from detectors.catalog import BUILT_IN, build
from detectors.engine import DetectorFactory, Engine
from detectors.protocol import Finding, Severity
from detectors.reading import Reading


class Scripted:
    """A detector from elsewhere that answers every step with what it was told to say."""

    def __init__(self, say: Callable[[Step], Any], state: object = None) -> None:
        self._say = say
        self._state = state

    def observe(self, reading: Reading) -> Sequence[Finding]:
        found: Sequence[Finding] = self._say(reading.step)
        return found

    def snapshot(self) -> Json:
        return cast("Json", self._state)

    def restore(self, state: Json) -> None:
        del state


def finding(step: Step, evidence: Any) -> Finding:  # noqa: ANN401 - nonsense
    return Finding(
        id="0123456789abcdef",
        kind="elsewhere",
        severity=Severity.INFO,
        session_id=step.session_id,
        started_at=step.start_ns,
        detected_at=step.end_ns,
        occurrences=1,
        summary="said from elsewhere",
        evidence=evidence,
    )


def raises(_step: Step) -> Sequence[Finding]:
    raise RuntimeError("a detector's defect")


def doom_loop() -> dict[str, DetectorFactory]:
    return build(kinds={"doom_loop": BUILT_IN["doom_loop"]})


class Loop:
    """The real loop over a real spool."""

    def __init__(
        self,
        path: Path,
        factories: dict[str, DetectorFactory],
        reader: StepReader | None = None,
        pack: Pack | None = None,
    ) -> None:
        settings = Settings()
        self.metrics = IngestMetrics(CollectorRegistry())
        self.spool = Spool(path, SpoolLimits(), time.time_ns)
        self.spool.start()
        self._decode = build_decode(settings)
        self.loop = DetectionLoop(
            self.spool,
            reader=reader or build_reader(settings),
            engine=Engine(factories),
            pack=pack or build_pack(),
            metrics=self.metrics,
            readers=("detectors",),
            settle=0.6,
            checkpoint_interval=0.05,
        )
        self.loop.start()

    def send(self, session: str, calls: int) -> None:
        rng = random.Random(session)
        for number in range(calls):
            body = request([call_span(rng, session, number, looping=True)])
            batch = self._decode(Signal.TRACES, "protobuf", body).batch
            assert batch is not None
            self.spool.append(batch, ipc.encode(batch)).result(10)

    def end(self) -> list[dict[str, Any]]:
        self.loop.stop()
        assert self.loop.failed is None
        rows = self.spool.reader.execute("SELECT payload FROM findings ORDER BY seq").fetchall()
        self.spool.close()
        return [json.loads(row[0]) for row in rows]

    def failures(self, what: str) -> float:
        value: float = self.metrics.detection_failures.labels(what)._value.get()
        return value


def with_doom_loop(name: str, detector: Callable[[], Scripted]) -> dict[str, DetectorFactory]:
    return {name: DetectorFactory(detector), **doom_loop()}


def kinds(findings: list[dict[str, Any]]) -> set[str]:
    return {one["kind"] for one in findings}


@pytest.mark.parametrize(
    "say",
    [
        lambda step: [finding(step, {"set": {1, 2}})],
        lambda step: [finding(step, {1: "key"})],
        lambda step: [finding(step, ["no", "object"])],
        lambda _step: [42],
        lambda _step: 42,
    ],
)
def test_nonsense_is_counted_and_the_detector_left_out(tmp_path: Path, say: Callable[[Step], Any]) -> None:
    loop = Loop(tmp_path / "spool.db", {"zzz": DetectorFactory(lambda: Scripted(say))})
    loop.send("stuck", 3)
    assert loop.end() == []
    assert loop.metrics.detector_errors.labels("zzz")._value.get() == 1


@pytest.mark.parametrize("time_ns", [-1, 2**63])
def test_a_finding_that_no_reader_could_take_is_counted_alone(tmp_path: Path, time_ns: int) -> None:
    def say(step: Step) -> list[Finding]:
        return [replace(finding(step, {}), started_at=time_ns)]

    loop = Loop(tmp_path / "spool.db", with_doom_loop("elsewhere", lambda: Scripted(say)))
    loop.send("stuck", 6)
    assert kinds(loop.end()) == {"doom_loop"}
    assert loop.failures("finding") == 6


@pytest.mark.parametrize("say", [raises, lambda step: [finding(step, {"set": {1, 2}})]])
def test_a_loop_is_seen_beside_a_detector_that_fails(tmp_path: Path, say: Callable[[Step], Any]) -> None:
    loop = Loop(tmp_path / "spool.db", with_doom_loop("elsewhere", lambda: Scripted(say)))
    loop.send("stuck", 6)
    assert kinds(loop.end()) == {"doom_loop"}


def test_a_state_that_is_no_json_keeps_no_checkpoint_from_being_written(tmp_path: Path) -> None:
    loop = Loop(
        tmp_path / "spool.db", with_doom_loop("elsewhere", lambda: Scripted(lambda _s: [], state={1, 2}))
    )
    loop.send("stuck", 6)
    findings = loop.end()
    assert kinds(findings) == {"doom_loop"}
    with sqlite3.connect(tmp_path / "spool.db") as connection:
        assert connection.execute("SELECT seq FROM cursors WHERE name = 'detectors'").fetchone() == (6,)


def test_evidence_that_is_too_large_is_left_out(tmp_path: Path) -> None:
    loop = Loop(
        tmp_path / "spool.db",
        {"elsewhere": DetectorFactory(lambda: Scripted(lambda s: [finding(s, {"x": "y" * MAX_EVIDENCE})]))},
    )
    loop.send("stuck", 1)
    (said,) = loop.end()
    assert said["evidence"]["truncated"] is True
    assert "x" not in said["evidence"]


class FailsAtTheSecond(StepReader):
    """A reader with a defect that one batch brings out."""

    pushed = 0

    def push(self, batch: Batch, now_ns: int) -> list[StepEvent]:
        self.pushed += 1
        if self.pushed == 2:
            raise RuntimeError("a reader's defect")
        return super().push(batch, now_ns)


def test_a_batch_that_cannot_be_read_is_counted_and_left_behind(tmp_path: Path) -> None:
    loop = Loop(tmp_path / "spool.db", doom_loop(), FailsAtTheSecond())
    loop.send("stuck", 7)
    assert kinds(loop.end()) == {"doom_loop"}
    assert loop.failures("batch") == 1


@pytest.mark.parametrize("garbage", [b"garbage", b"", b'{"of": "another version"}'])
def test_a_checkpoint_that_does_not_fit_is_left_behind(tmp_path: Path, garbage: bytes) -> None:
    path = tmp_path / "spool.db"
    first = Loop(path, doom_loop())
    first.send("before", 2)
    first.end()
    with sqlite3.connect(path) as connection:
        connection.execute(
            "UPDATE state SET value = ? WHERE key LIKE 'reader%' OR key LIKE 'scope:%'", (garbage,)
        )
    again = Loop(path, doom_loop())
    again.send("stuck", 6)
    assert kinds(again.end()) == {"doom_loop"}
    assert again.failures("checkpoint") >= 2
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT key FROM state WHERE value = ?", (garbage,)).fetchall() == []


def test_a_batch_whose_bytes_are_damaged_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "spool.db"
    spool = Spool(path, SpoolLimits(), time.time_ns)
    spool.start()
    body = request([call_span(random.Random(1), "damaged", 0, looping=True)])
    batch = build_decode(Settings())(Signal.TRACES, "protobuf", body).batch
    assert batch is not None
    spool.append(batch, ipc.encode(batch)).result(10)
    spool.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE batches SET payload = substr(payload, 1, 100)")
    loop = Loop(path, doom_loop())
    loop.send("stuck", 6)
    assert kinds(loop.end()) == {"doom_loop"}
    assert loop.failures("batch") == 1


def count(path: Path, sql: str) -> int:
    with sqlite3.connect(path) as connection:
        (found,) = connection.execute(sql).fetchone()
    return int(found or 0)


@pytest.mark.parametrize("error", [RecursionError, OverflowError, ValueError, TypeError])
def test_a_step_that_no_row_can_hold_is_left_out_alone(tmp_path: Path, error: type[Exception]) -> None:
    real = build_pack()

    def steps(rows: Sequence[Step]) -> bytes:
        if any(step.call_id == "call_2" for step in rows):
            raise error("no row can hold this")
        return real.steps(rows)

    def merges(_rows: Sequence[SessionsMerged]) -> bytes:
        raise error("nor this")

    loop = Loop(tmp_path / "spool.db", doom_loop(), pack=replace(real, steps=steps, merges=merges))
    loop.send("stuck", 7)
    assert kinds(loop.end()) == {"doom_loop"}
    assert loop.failures("row") == 1
    assert count(tmp_path / "spool.db", "SELECT sum(rows) FROM derived WHERE kind = 'steps'") == 6
    assert count(tmp_path / "spool.db", "SELECT seq FROM cursors WHERE name = 'detectors'") == 7


class CannotBeWritten(StepReader):
    """A reader whose pieces are for nobody."""

    def changes(self) -> dict[str, bytes | None]:
        raise RecursionError("too deep")


def test_a_reader_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    loop = Loop(tmp_path / "spool.db", doom_loop(), CannotBeWritten())
    loop.send("stuck", 7)
    assert kinds(loop.end()) == {"doom_loop"}
    assert count(tmp_path / "spool.db", "SELECT seq FROM cursors WHERE name = 'detectors'") == 7
