"""Acknowledged means kept, once, and in order."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from collector import ipc
from collector.batch import SPAN_SCHEMA, Batch, Signal
from collector.consumer import Unavailable
from collector.spool import Spool, SpoolError, SpoolLimits


def batch(first: int, count: int = 4) -> Batch:
    rows = range(first, first + count)
    columns: dict[str, pa.Array[Any]] = {
        name: pa.array([None] * count, SPAN_SCHEMA.field(name).type) for name in SPAN_SCHEMA.names
    }
    columns["SpanName"] = pa.array([f"span {n}" for n in rows])
    return Batch(
        Signal.TRACES,
        pa.RecordBatch.from_arrays(list(columns.values()), schema=SPAN_SCHEMA),
        pa.array(list(rows), pa.uint64()),
        pa.array([n for n in range(count) if n % 2], pa.uint32()),
    )


def names(spool: Spool, after: int = 0) -> list[str]:
    return [str(name) for s in spool.read(after) for name in s.batch.columns.column("SpanName").to_pylist()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "spool.db"


@pytest.fixture
def spool(path: Path) -> Iterator[Spool]:
    opened = Spool(path, SpoolLimits(max_bytes=1_000_000), time.time_ns)
    opened.start()
    yield opened
    opened.close()


def append(spool: Spool, what: Batch) -> tuple[int, int]:
    done = spool.append(what, ipc.encode(what)).result(10)
    return done.fresh, done.duplicates


def test_a_batch_survives_its_encoding() -> None:
    original = batch(0, 7)
    copy = ipc.decode(ipc.encode(original))
    assert copy.columns.equals(original.columns)
    assert copy.identity.equals(original.identity)
    assert copy.agent_rows.equals(original.agent_rows)
    assert copy.signal is original.signal


def test_arrivals_never_go_back_though_the_clock_does_and_though_it_was_closed(path: Path) -> None:
    wall_ns = iter(range(10**18, 0, -3_600 * 10**9))
    for first in (0, 8):
        spool = Spool(path, SpoolLimits(), lambda: next(wall_ns))
        spool.start()
        append(spool, batch(first))
        append(spool, batch(first + 4))
        arrived = [head[3] for head in spool.heads(0)]
        assert spool.passed_ns() > arrived[-1]
        spool.close()
    assert len(arrived) == 4
    assert arrived == sorted(arrived)
    assert arrived[0] == 10**18


def test_time_has_not_passed_while_a_commit_may_still_bring_batches(spool: Spool) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def hold(_connection: sqlite3.Connection) -> None:
        begun.set()
        go_on.wait(10)

    held = spool.submit(hold)
    begun.wait(10)
    during = [spool.passed_ns(), spool.passed_ns()]
    what = batch(0)
    appended = spool.append(what, ipc.encode(what))
    go_on.set()
    held.result(10)
    appended.result(10)
    assert during[0] == during[1] <= next(spool.read(0)).received_ns
    spool.submit(lambda _: None).result(10)


def test_what_was_appended_is_read_in_order_and_again_after_reopening(spool: Spool, path: Path) -> None:
    append(spool, batch(0))
    append(spool, batch(4))
    assert names(spool) == [f"span {n}" for n in range(8)]
    spool.close()
    again = Spool(path, SpoolLimits(), time.time_ns)
    assert names(again) == [f"span {n}" for n in range(8)]
    again.start()
    assert append(again, batch(2)) == (0, 4)
    again.close()


def test_rows_that_were_seen_are_left_out_and_agent_rows_stay_in_step(spool: Spool) -> None:
    assert append(spool, batch(0, 4)) == (4, 0)
    assert append(spool, batch(2, 4)) == (2, 2)
    second = next(iter(spool.read(1))).batch
    assert second.columns.column("SpanName").to_pylist() == ["span 4", "span 5"]
    assert second.agent_rows.to_pylist() == [1]


def test_the_same_request_twice_at_once_is_kept_once(spool: Spool) -> None:
    same = batch(0)
    futures = [spool.append(same, ipc.encode(same)) for _ in range(20)]
    assert sorted(f.result(10).fresh for f in futures) == [0] * 19 + [4]
    assert names(spool) == [f"span {n}" for n in range(4)]


def test_a_piece_of_work_that_fails_takes_nobody_with_it(spool: Spool) -> None:
    def fails(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO cursors VALUES ('x', 1)")
        raise ValueError("mine alone")

    failing = spool.submit(fails)
    good = spool.append(batch(0), ipc.encode(batch(0)))
    assert good.result(10).fresh == 4
    with pytest.raises(ValueError, match="mine alone"):
        failing.result(10)
    assert spool.cursor("x") == 0


def test_a_piece_of_work_that_fails_leaves_the_size_as_it_was(spool: Spool) -> None:
    append(spool, batch(0))
    size = spool.size

    def fails(connection: sqlite3.Connection) -> None:
        spool.add_derived(connection, "steps", 1, b"12345")
        raise ValueError("after all")

    with pytest.raises(ValueError, match="after all"):
        spool.submit(fails).result(10)
    assert spool.size == size


def test_the_name_of_a_spool_stays_and_is_its_own(spool: Spool, path: Path, tmp_path: Path) -> None:
    spool.close()
    assert spool.name == Spool(path, SpoolLimits(), time.time_ns).name
    assert spool.name != Spool(tmp_path / "other.db", SpoolLimits(), time.time_ns).name


def test_a_full_spool_refuses_and_takes_again_when_both_readers_have_passed(path: Path) -> None:
    spool = Spool(path, SpoolLimits(max_bytes=1), time.time_ns)
    spool.start()
    append(spool, batch(0))
    with pytest.raises(Unavailable) as refused:
        spool.check_room()
    assert refused.value.retry_after > 0

    def pass_by(name: str) -> None:
        def run(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT INTO cursors VALUES (?, 1)", (name,))
            spool.release(connection, ("a", "b"))

        spool.submit(run).result(10)

    pass_by("a")
    with pytest.raises(Unavailable):
        spool.check_room()
    pass_by("b")
    spool.check_room()
    assert names(spool) == []
    spool.close()


def test_a_disk_that_does_not_take_it_is_unavailable_and_the_resend_is_no_duplicate(spool: Spool) -> None:
    spool.submit(lambda c: c.execute("PRAGMA max_page_count = 40").fetchall()).result(10)
    big = batch(0, 20_000)
    with pytest.raises(Unavailable, match="full"):
        append(spool, big)
    spool.submit(lambda c: c.execute("PRAGMA max_page_count = 100000").fetchall()).result(10)
    assert append(spool, big) == (20_000, 0)


def test_senders_are_refused_for_a_moment_after_the_disk_took_nothing(spool: Spool) -> None:
    spool.submit(lambda c: c.execute("PRAGMA max_page_count = 40").fetchall()).result(10)
    with pytest.raises(Unavailable):
        append(spool, batch(0, 20_000))
    with pytest.raises(Unavailable, match="cannot write"):
        spool.check_room()
    assert spool.cannot_write
    spool.try_to_write()
    spool.submit(lambda _: None).result(10)
    assert not spool.cannot_write


def test_a_sender_that_goes_away_meanwhile_harms_nobody(spool: Spool) -> None:
    started, go_on = threading.Event(), threading.Event()

    def busy(_connection: sqlite3.Connection) -> None:
        started.set()
        go_on.wait(10)

    spool.submit(busy)
    started.wait(10)
    given_up = spool.append(batch(0), ipc.encode(batch(0)))
    assert given_up.cancel()
    go_on.set()
    assert append(spool, batch(0)) == (4, 0)
    assert spool.failed is None


def test_a_damaged_file_is_the_disks_fault_and_not_the_senders(spool: Spool) -> None:
    def damaged(_connection: sqlite3.Connection) -> None:
        raise sqlite3.DatabaseError("database disk image is malformed")

    with pytest.raises(Unavailable, match="malformed"):
        spool.submit(damaged).result(10)


def test_a_file_that_is_no_spool_is_named_in_the_error(tmp_path: Path) -> None:
    path = tmp_path / "spool.db"
    path.write_bytes(b"this is not SQLite, not by a long way, and it never was")
    with pytest.raises(SpoolError, match=r"spool\.db"):
        Spool(path, SpoolLimits(), time.time_ns)


def test_a_later_version_of_the_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "spool.db"
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(SpoolError, match="another version"):
        Spool(path, SpoolLimits(), time.time_ns)


CRASHING = """
import sys, time
sys.path.insert(0, sys.argv[2])
from tests_spool_batch import batch
from collector import ipc
from collector.spool import Spool, SpoolLimits
from pathlib import Path
from typing import Any
spool = Spool(Path(sys.argv[1]), SpoolLimits(), time.time_ns)
spool.start()
for number in range(100000):
    one = batch(number * 4)
    spool.append(one, ipc.encode(one)).result()
    print(number, flush=True)
"""


def test_kill_minus_nine_loses_no_acknowledged_batch(tmp_path: Path, path: Path) -> None:
    (tmp_path / "tests_spool_batch.py").write_text(Path(__file__).read_text())
    child = subprocess.Popen(
        [sys.executable, "-c", CRASHING, str(path), str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    acknowledged = -1
    for line in child.stdout:
        acknowledged = int(line)
        if acknowledged >= 40:
            os.kill(child.pid, signal.SIGKILL)
            break
    rest = child.stdout.read().split()
    child.wait()
    child.stdout.close()
    acknowledged = max([acknowledged, *map(int, rest)])
    spool = Spool(path, SpoolLimits(), time.time_ns)
    spool.start()
    kept = names(spool)
    assert kept[: (acknowledged + 1) * 4] == [f"span {n}" for n in range((acknowledged + 1) * 4)]
    assert append(spool, batch(0)) == (0, 4)
    spool.close()


def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        spool = Spool(tmp_path / "spool.db", SpoolLimits(), time.time_ns)
    finally:
        os.umask(before)
    spool.start()
    spool.append(batch(0), ipc.encode(batch(0))).result()
    files = {file.name: file.stat().st_mode & 0o077 for file in tmp_path.iterdir()}
    spool.close()
    assert files == dict.fromkeys(("spool.db", "spool.db-wal", "spool.db-shm"), 0)


def test_after_a_restart_the_newest_spans_are_known_that_there_is_room_for(tmp_path: Path) -> None:
    limits = SpoolLimits(identities=100)
    spool = Spool(tmp_path / "spool.db", limits, time.time_ns)
    spool.start()
    for first in range(0, 200, 4):
        spool.append(batch(first), ipc.encode(batch(first))).result()
    spool.close()
    again = Spool(tmp_path / "spool.db", limits, time.time_ns)
    again.start()
    assert again.known_identities == 100
    resent = [again.append(batch(first), ipc.encode(batch(first))).result() for first in (196, 100, 96)]
    again.close()
    assert [appended.fresh for appended in resent] == [0, 0, 4]


def test_a_spool_whose_file_is_gone_says_so(spool: Spool, path: Path) -> None:
    assert not spool.gone
    path.rename(path.with_name("elsewhere"))
    assert spool.gone
    path.touch()
    assert spool.gone
    path.with_name("elsewhere").rename(path)
    assert not spool.gone
