"""A backlog does not hold up the end: what was not judged is judged after the next start."""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING

from harness import call_span, request
from prometheus_client import CollectorRegistry

from api.build import build_decode, build_engine, build_pack, build_reader
from api.config import Settings
from api.detection import DetectionLoop
from api.metrics import IngestMetrics
from collector import ipc
from collector.batch import Batch, Signal
from collector.spool import Spool, SpoolLimits

if TYPE_CHECKING:
    from pathlib import Path

    from collector.step import StepEvent

BATCHES = 8


class Held:
    """A loop whose reader waits at the first batch until the loop is told to stop."""

    def __init__(self, spool: Spool, last_read_s: float) -> None:
        reader = build_reader(Settings())
        self._push, self._stopping = reader.push, threading.Event()
        reader.push = self._read  # type: ignore[method-assign]
        self._loop = DetectionLoop(
            spool,
            reader=reader,
            engine=build_engine(Settings()),
            pack=build_pack(),
            metrics=IngestMetrics(CollectorRegistry()),
            readers=("detectors",),
            settle=0.1,
            checkpoint_interval=0.0,
            last_read_s=last_read_s,
        )

    def _read(self, batch: Batch, now_ns: int) -> list[StepEvent]:
        assert self._stopping.wait(10)
        return self._push(batch, now_ns)

    def run_to_its_end(self) -> None:
        self._loop.start()
        ending = threading.Thread(target=self._loop.stop)
        ending.start()
        assert self._loop._stopping.wait(10)
        self._stopping.set()
        ending.join(30)
        assert not ending.is_alive()
        assert self._loop.failed is None


def test_what_is_not_read_at_the_end_is_read_after_the_next_start(tmp_path: Path) -> None:
    rng = random.Random(1)
    spool = Spool(tmp_path / "spool.db", SpoolLimits(), time.time_ns)
    spool.start()
    decode = build_decode(Settings())
    for _ in range(BATCHES):
        batch = decode(Signal.TRACES, "protobuf", request([call_span(rng, "stuck", 0, looping=True)])).batch
        assert batch is not None
        spool.append(batch, ipc.encode(batch)).result(10)
    cursors = []
    for _ in range(BATCHES):
        Held(spool, last_read_s=-1.0).run_to_its_end()
        cursors.append(spool.cursor("detectors"))
    assert cursors[0] < BATCHES
    assert cursors == sorted(cursors)
    assert cursors[-1] == BATCHES
    Held(spool, last_read_s=60.0).run_to_its_end()
    found = spool.reader.execute("SELECT count(*) FROM findings").fetchone()[0]
    spool.close()
    assert found
