from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from api.cli import app
from control.actor import Actor
from control.audit import record
from control.db import ControlDb

if TYPE_CHECKING:
    from pathlib import Path

SOMEBODY = Actor(type="person", id="somebody")


def verify(folder: Path, *more: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["audit", "verify", "--data-dir", str(folder), *more])
    return result.exit_code, result.output


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with closing(ControlDb(tmp_path / "control.db")) as db, db.transaction() as tx:
        for number in range(3):
            record(tx, at_ns=number, actor=SOMEBODY, verb="test", subject="x", reason="why")
    return tmp_path


def tamper(folder: Path, sql: str) -> None:
    """Change the file as somebody does who takes off its triggers first."""
    with closing(sqlite3.connect(folder / "control.db")) as connection, connection:
        guards = connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for (name,) in guards:
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute(sql)


def test_a_whole_chain_is_counted_and_its_head_told(folder: Path) -> None:
    status, text = verify(folder)
    assert status == 0
    assert re.fullmatch(r"3 entries, unbroken, head 3:[0-9a-f]{64}\n", text)


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE audit SET payload = replace(payload, 'why', 'because') WHERE seq = 2",
        "DELETE FROM audit WHERE seq = 2",
        "DELETE FROM audit WHERE seq = 3",
    ],
)
def test_what_was_changed_or_taken_out_is_told(folder: Path, sql: str) -> None:
    tamper(folder, sql)
    status, text = verify(folder)
    assert status == 1
    assert re.search(r"the audit is broken at entry [23]: ", text)


def test_a_noted_head_shows_what_was_cut_off_and_hidden(folder: Path) -> None:
    noted = verify(folder)[1].split("head ")[1].strip()
    assert verify(folder, "--noted", noted)[0] == 0
    tamper(folder, "DELETE FROM audit WHERE seq = 3")
    tamper(folder, "UPDATE sqlite_sequence SET seq = 2 WHERE name = 'audit'")
    assert verify(folder)[0] == 0
    assert verify(folder, "--noted", noted)[0] == 1


def test_what_cannot_be_read_is_no_verdict(tmp_path: Path, folder: Path) -> None:
    status, text = verify(tmp_path / "nowhere")
    assert status == 2
    assert "--data-dir" in text
    assert verify(folder, "--noted", "3")[0] == 2


def test_it_may_run_beside_the_sidecar(folder: Path) -> None:
    with closing(ControlDb(folder / "control.db")):
        assert verify(folder)[0] == 0
