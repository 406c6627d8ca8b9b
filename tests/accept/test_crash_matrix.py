"""kill -9 of each process at random moments under load: nothing is lost, nothing is there twice."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import PATIENCE, Client, OnCall, Served

PROCESSES = ("ingest", "store", "control", "supervisor")
CLIENTS = 4


@pytest.fixture
def on_call() -> Iterator[OnCall]:
    receiver = OnCall.start()
    yield receiver
    receiver.stop()


@pytest.fixture
def served(tmp_path: Path, on_call: OnCall) -> Iterator[Served]:
    sidecar = Served(tmp_path, on_call)
    sidecar.start()
    yield sidecar
    sidecar.end()


def crash_matrix(served: Served, on_call: OnCall, process: str, kills: int, seed: int) -> None:
    rng = random.Random(seed)
    clients = [Client(served, number) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    done = 0
    try:
        while done < kills:
            time.sleep(rng.uniform(0.2, 3.0))
            done += served.kill(process)
    finally:
        for client in clients:
            client.stopping.set()
    for client in clients:
        client.join(PATIENCE)
        assert not client.is_alive()
    served.await_ready()
    loops = sorted(session for client in clients for session in client.loops)
    await_pages(on_call, loops)
    await_stored(served)
    assert served.stop() == 0

    sent = sum(client.spans for client in clients)
    assert served.stored("SELECT count(), uniqExact(TraceId, SpanId) FROM otel.otel_traces") == [[sent, sent]]
    # A view's sums show what its table's rows do not: a block that was inserted into one of them only.
    assert served.stored("SELECT sum(Spans) FROM otel.otel_traces_trace_id_ts") == [[sent]]
    assert served.stored("SELECT count() FROM (SELECT step_id FROM otel.steps GROUP BY step_id)") == [[sent]]
    twice = served.stored(
        "SELECT id, revision, count() AS c FROM otel.findings GROUP BY id, revision HAVING c > 1"
    )
    assert twice == []
    found = served.stored(
        "SELECT session_id, uniqExact(id) FROM otel.findings WHERE severity = 'critical'"
        " GROUP BY session_id ORDER BY session_id"
    )
    assert found == [[session, 1] for session in loops]


def await_stored(served: Served) -> None:
    """Nothing waits in the spool any more."""
    deadline = time.monotonic() + PATIENCE
    while served.metric("recloser_spool_bytes") > 0:
        assert time.monotonic() < deadline
        time.sleep(0.2)


def await_pages(on_call: OnCall, loops: list[str]) -> None:
    """Every looping session pages at least once, always under one webhook id."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        ids: dict[str, set[str]] = {}
        for webhook_id, bodies in list(on_call.seen.items()):
            for body in bodies:
                if body["type"] == "alert.firing" and body["data"]["session_id"]:
                    ids.setdefault(body["data"]["session_id"], set()).add(webhook_id)
        if sorted(ids) == loops:
            assert {session: len(own) for session, own in ids.items()} == dict.fromkeys(loops, 1)
            return
        time.sleep(0.2)
    raise AssertionError(f"not paged: {sorted(set(loops) - set(ids))[:5]}")


@pytest.mark.accept
@pytest.mark.short
@pytest.mark.parametrize("process", PROCESSES)
def test_three_kills(served: Served, on_call: OnCall, process: str) -> None:
    crash_matrix(served, on_call, process, kills=3, seed=3)


@pytest.mark.accept
@pytest.mark.parametrize("process", PROCESSES)
def test_twenty_kills(served: Served, on_call: OnCall, process: str) -> None:
    crash_matrix(served, on_call, process, kills=20, seed=20)
