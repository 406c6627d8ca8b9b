"""Failed calls and offered tools, from the detection loop into the store, over a restart too."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from harness import call_span, request
from prometheus_client import CollectorRegistry

from api.build import build_decode, build_pack, build_recoveries
from api.config import Settings
from api.detection import DetectionLoop
from api.metrics import IngestMetrics
from api.shipping import FlushPolicy, ShippingLoop
from collector import ipc
from collector.batch import Batch, Signal
from collector.reader import StepReader
from collector.spool import Spool, SpoolLimits
from collector.step import Outcome, Step, StepEvent, StepSeen, ToolDefinition, ToolDefinitions
from detectors.engine import Engine
from storage.client import StoreClient, connect
from storage.migrate import migrate
from storage.writer import Writer
from tests.detectors.stream import Stream
from tests.storage.store_process import StoreProcess

READERS = ("store", "detectors")
OFFERED = ToolDefinitions(
    "00000000000000aa", {"fetch": ToolDefinition("fetch", "gets a page", hash="bb")}, 30
)


class Scripted(StepReader):
    """A reader that says steps of its own for each batch."""

    def __init__(self, script: Sequence[Step]) -> None:
        super().__init__(hold_ns=0)
        self._script = list(script)

    def push(self, batch: Batch, now_ns: int) -> list[StepEvent]:
        del batch, now_ns
        return [StepSeen(self._script.pop(0))] if self._script else []


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreClient]:
    process = StoreProcess(tmp_path_factory.mktemp("store"))
    process.start()
    client = connect(process.target)
    migrate(client)
    yield client
    client.close()
    process.stop()


def run(path: Path, steps: Sequence[Step], metrics: IngestMetrics) -> None:
    """Let one life of the detection loop see these steps, one a batch."""
    spool = Spool(path / "spool.db", SpoolLimits(), time.time_ns)
    spool.start()
    loop = DetectionLoop(
        spool,
        reader=Scripted(steps),
        engine=Engine({}),
        recoveries=build_recoveries(Settings()),
        pack=build_pack(),
        metrics=metrics,
        readers=READERS,
        settle=0.0,
        checkpoint_interval=0.01,
    )
    loop.start()
    decode, rng = build_decode(Settings()), random.Random(steps[0].step_id)
    for number in range(len(steps)):
        body = request([call_span(rng, "any", number, looping=False)])
        batch = decode(Signal.TRACES, "protobuf", body).batch
        assert batch is not None
        spool.append(batch, ipc.encode(batch)).result(10)
    loop.stop()
    assert loop.failed is None
    spool.close()


def ship(path: Path, store: StoreClient, metrics: IngestMetrics) -> None:
    spool = Spool(path / "spool.db", SpoolLimits(), time.time_ns)
    spool.start()
    loop = ShippingLoop(
        spool,
        connect=lambda: Writer(store),
        control_db=path / "control.db",
        metrics=metrics,
        policy=FlushPolicy(1, 0.0),
        readers=READERS,
    )
    loop.start()
    assert loop.stop()
    assert loop.failed is None
    spool.close()


@pytest.mark.store
def test_a_failed_and_recovered_call_is_in_the_store(tmp_path: Path, store: StoreClient) -> None:
    stream = Stream(session="recovering").model(10, definitions=OFFERED, service="web", service_version="7")
    stream.call("fetch", {"q": 1}, error="Request timed out", service="web", service_version="7")
    stream.model(10, definitions=OFFERED, service="web", service_version="7")
    stream.call("fetch", {"q": 1}, ok="fine", service="web")
    metrics = IngestMetrics(CollectorRegistry())
    for part in (stream.steps[:3], stream.steps[3:]):
        run(tmp_path, part, metrics)
    ship(tmp_path, store, metrics)
    failures = store.rows(
        "SELECT step_id, error_class, first_response, response, followed, fed_back, ure, tokens_spent"
        " FROM failures FINAL"
    )
    assert failures == [(stream.steps[1].step_id, "timeout", "retry", "recovered", True, True, False, 20)]
    classes = store.rows(
        "SELECT error_class, operation FROM steps WHERE kind = 'tool_call' ORDER BY start_time"
    )
    assert classes == [("timeout", "fetch"), ("", "fetch")]
    definitions = store.rows(
        "SELECT service, service_version, definitions_hash, tool, any(description) FROM tool_definitions"
        " GROUP BY ALL"
    )
    assert definitions == [("web", "7", OFFERED.hash, "fetch", "gets a page")]
    counted = metrics.failures.labels("timeout", "retry", "recovered")._value.get()
    assert counted == 1


def test_definitions_are_told_once_a_day(tmp_path: Path) -> None:
    stream = Stream().model(definitions=OFFERED).model(definitions=OFFERED)
    tomorrow = replace(
        stream.steps[0], step_id="tomorrow", start_ns=stream.steps[0].start_ns + 86_400 * 10**9
    )
    run(tmp_path, [*stream.steps, tomorrow], IngestMetrics(CollectorRegistry()))
    spool = Spool(tmp_path / "spool.db", SpoolLimits(), time.time_ns)
    rows = spool.reader.execute("SELECT sum(rows) FROM derived WHERE kind = 'tool_definitions'").fetchone()
    assert rows == (2,)


def test_a_step_that_cannot_be_followed_keeps_no_other_from_it(tmp_path: Path) -> None:
    broken = replace(Stream().call("fetch", {}, error="x").steps[0], error=cast("str", 42), step_id="broken")
    stream = Stream(session="t").call("fetch", {"q": 1}, outcome=Outcome.ERROR, error="x")
    stream.call("fetch", {"q": 1}, ok="fine")
    metrics = IngestMetrics(CollectorRegistry())
    run(tmp_path, [broken, *stream.steps], metrics)
    assert metrics.detection_failures.labels("recovery")._value.get() == 1
    spool = Spool(tmp_path / "spool.db", SpoolLimits(), time.time_ns)
    rows = spool.reader.execute("SELECT sum(rows) FROM derived WHERE kind = 'failures'").fetchone()
    assert rows == (1,)
