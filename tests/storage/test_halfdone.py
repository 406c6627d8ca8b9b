from __future__ import annotations

import os
from pathlib import Path

import pytest

from storage import halfdone
from storage.client import connect
from storage.halfdone import settle
from storage.migrate import migrate
from storage.writer import Writer
from tests.storage.rows_for_tests import span_batch, trace_id
from tests.storage.store_process import StoreProcess


class Folder:
    """A data folder with one table, as the engine lays it out."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.table = root / "engine" / "store" / "abc" / "abc-uuid"
        (self.table / "deduplication_logs").mkdir(parents=True)
        self.log(1, [])

    def parts(self, *names: str) -> None:
        for name in names:
            (self.table / name).mkdir()

    def log(self, number: int, parts: list[str], end: str = "") -> Path:
        path = self.table / "deduplication_logs" / f"deduplication_log_{number}.txt"
        path.write_text("".join(f"1\t{part}\ttoken_{part}\n" for part in parts) + end)
        return path

    def present(self) -> set[str]:
        return {folder.name for folder in self.table.iterdir()} - {"deduplication_logs", "detached"}

    def settle(self) -> tuple[list[str], list[str]]:
        done = settle(self.root, self.root / "engine")
        return [place.name for place in done.detached], [line.split("\t")[1] for line in done.forgotten]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path)
    settle(tmp_path, tmp_path / "engine")
    return made


def test_what_is_whole_is_left_alone(folder: Folder) -> None:
    folder.parts(
        "20250615_1_3_1", "20250615_4_4_0", "20250616_5_5_0", "detached", "tmp_insert_20250615_6_6_0"
    )
    folder.log(1, [f"20250615_{n}_{n}_0" for n in range(1, 5)] + ["20250616_5_5_0"])
    before = folder.present()
    assert folder.settle() == ([], [])
    assert folder.present() == before


def test_a_part_without_a_token_is_detached(folder: Folder) -> None:
    folder.parts("20250615_1_1_0", "20250615_2_2_0", "20250615_3_3_0")
    folder.log(1, ["20250615_1_1_0", "20250615_3_3_0"])
    assert folder.settle() == (["unacknowledged_20250615_2_2_0"], [])
    assert folder.present() == {"20250615_1_1_0", "20250615_3_3_0"}


def test_a_token_without_a_part_is_forgotten(folder: Folder) -> None:
    folder.parts("20250615_1_1_0")
    log = folder.log(1, ["20250615_1_1_0", "20250615_2_2_0"])
    assert folder.settle() == ([], ["20250615_2_2_0"])
    assert log.read_text() == "1\t20250615_1_1_0\ttoken_20250615_1_1_0\n"


def test_after_a_power_cut_no_part_is_moved(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.parts("20250615_1_1_0", "20250615_2_2_0")
    folder.log(1, ["20250615_1_1_0"])
    other_boot = folder.root / "another boot"
    other_boot.write_text("1234\n")
    monkeypatch.setattr(halfdone, "_BOOT_ID", other_boot)
    assert folder.settle() == ([], [])
    assert folder.settle() == (["unacknowledged_20250615_2_2_0"], [])


def test_a_part_older_than_what_the_log_remembers_is_left_alone(folder: Folder) -> None:
    folder.parts("20250615_7_7_0", "20250615_2001_2001_0")
    folder.parts(*(f"20250615_{n}_{n}_0" for n in range(1000, 2000)))
    folder.log(1, []).unlink()
    folder.log(2, [f"20250615_{n}_{n}_0" for n in range(1000, 2000)])
    assert folder.settle() == (["unacknowledged_20250615_2001_2001_0"], [])


def test_a_part_that_was_there_long_before_the_crash_is_left_alone(folder: Folder) -> None:
    folder.parts("20250615_1_1_0", "20250615_2_2_0")
    folder.log(1, ["20250615_1_1_0"])
    os.utime(folder.table / "20250615_2_2_0", (1e9, 1e9))
    assert folder.settle() == ([], [])


def test_mutated_and_merged_parts_are_left_alone(folder: Folder) -> None:
    folder.parts("20250615_1_1_0_4", "20250615_2_2_2", "20250615_2_3_1")
    assert folder.settle() == ([], [])


def test_a_line_that_was_cut_off_is_taken_out(folder: Folder) -> None:
    folder.parts("20250615_1_1_0")
    log = folder.log(1, ["20250615_1_1_0"], end="1\t2025")
    assert folder.settle() == ([], [])
    assert log.read_text() == "1\t20250615_1_1_0\ttoken_20250615_1_1_0\n"


@pytest.mark.store
@pytest.mark.parametrize("left", ["part without token", "token without part"])
@pytest.mark.parametrize("table", ["otel_traces", "otel_traces_trace_id_ts"])
def test_a_batch_is_stored_once_whatever_a_crash_left(
    own: StoreProcess, tmp_path: Path, left: str, table: str
) -> None:
    client = connect(own.target)
    migrate(client)
    for number in range(2):
        Writer(client).insert_spans(span_batch("crash", 10, number * 10), f"token {number}")
    [(data,)] = client.rows(
        "SELECT data_paths[1] FROM system.tables WHERE database = 'otel' AND name = {table:String}",
        {"table": table},
    )
    own.kill()
    folder = Path(data)
    [log] = (folder / "deduplication_logs").iterdir()
    *lines, last = log.read_text().splitlines(keepends=True)
    if left == "part without token":
        log.write_text("".join(lines))
    else:
        (folder / last.split("\t")[1]).rename(tmp_path / "gone")
    own.start()
    Writer(client).insert_spans(span_batch("crash", 10, 10), "token 1")
    parameters = {"trace": trace_id("crash")}
    base = client.rows("SELECT count() FROM otel_traces WHERE TraceId = {trace:String}", parameters)
    view = client.rows(
        "SELECT sum(Spans) FROM otel_traces_trace_id_ts WHERE TraceId = {trace:String}", parameters
    )
    assert (base, view) == ([(20,)], [(20,)])
    client.close()
