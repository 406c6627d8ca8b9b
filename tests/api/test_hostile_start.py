"""A data folder that cannot be used: the start ends with status 2, names the file, and deletes nothing."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import PATIENCE

RECLOSER = Path(sys.executable).parent / "recloser"
PORTS = ("--otlp-http-port", "0", "--otlp-grpc-port", "0", "--api-port", "0")


def serve(data_dir: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [RECLOSER, "serve", "--data-dir", data_dir, *PORTS],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )


def garbage(path: Path) -> None:
    path.write_bytes(b"this was never a database " * 500)


def of_a_newer_version(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()


def folder_in_its_place(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("spool.db", garbage),
        ("spool.db", of_a_newer_version),
        ("control.db", garbage),
        ("control.db", of_a_newer_version),
        ("control.db", folder_in_its_place),
        ("store", garbage),
        ("recloser.lock", folder_in_its_place),
    ],
)
def test_what_cannot_be_used_is_named_and_left_alone(
    tmp_path: Path, name: str, spoil: Callable[[Path], None]
) -> None:
    spoiled = tmp_path / name
    spoil(spoiled)
    before = spoiled.read_bytes() if spoiled.is_file() else b""
    run = serve(tmp_path)
    assert run.returncode == 2
    assert str(spoiled) in run.stderr
    assert "Traceback" not in run.stderr
    assert (spoiled.read_bytes() if spoiled.is_file() else b"") == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    data_dir.mkdir(mode=0o500)
    run = serve(data_dir)
    assert run.returncode == 2
    assert str(data_dir) in run.stderr
    assert "Traceback" not in run.stderr
