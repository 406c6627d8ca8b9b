"""What waits in the spool is read in the order in which it would have been read when it came."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

from harness import call_span, request
from prometheus_client import CollectorRegistry

from api.build import build_decode, build_engine, build_pack, build_reader
from api.config import Settings
from api.detection import DetectionLoop
from api.metrics import IngestMetrics
from collector import ipc
from collector.batch import Signal
from collector.spool import Spool, SpoolLimits

MS = 1_000_000  # ns
AN_HOUR_AGO = time.time_ns() - 3600 * 1000 * MS


def first_span(spool: Spool) -> str:
    loop = DetectionLoop(
        spool,
        reader=build_reader(Settings()),
        engine=build_engine(Settings()),
        pack=build_pack(),
        metrics=IngestMetrics(CollectorRegistry()),
        readers=("detectors",),
        settle=0.6,
    )
    loop.start()
    loop.stop()
    assert loop.failed is None
    (payload,) = spool.reader.execute("SELECT payload FROM findings ORDER BY seq").fetchone()
    found: str = json.loads(payload)["first_span_id"]
    return found


def test_a_backlog_is_put_in_order_within_the_window(tmp_path: Path) -> None:
    rng = random.Random(1)
    spans = [call_span(rng, "stuck", number, looping=True) for number in range(6)]
    for number, span in enumerate(spans):
        span.start_time_unix_nano = AN_HOUR_AGO - 100 * MS + number * 10 * MS
        span.end_time_unix_nano = span.start_time_unix_nano + MS
    arrivals = iter([AN_HOUR_AGO, AN_HOUR_AGO + 100 * MS])
    spool = Spool(tmp_path / "spool.db", SpoolLimits(), lambda: next(arrivals, time.time_ns()))
    spool.start()
    decode = build_decode(Settings())
    for sent in (spans[1:], spans[:1]):
        batch = decode(Signal.TRACES, "protobuf", request(sent)).batch
        assert batch is not None
        spool.append(batch, ipc.encode(batch)).result(10)
    found = first_span(spool)
    spool.close()
    assert found == spans[0].span_id.hex()
