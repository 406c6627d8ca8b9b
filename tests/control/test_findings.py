from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import orjson
import pytest

from control.db import ControlDb
from control.findings import (
    MalformedFinding,
    SpoolFindings,
    finding_from_json,
    list_findings,
    remember_finding,
)
from tests.control.support import STUCK, Spool, another

if TYPE_CHECKING:
    from pathlib import Path


def test_a_finding_survives_its_json_form() -> None:
    assert finding_from_json(orjson.dumps(asdict(STUCK))) == STUCK


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": None}, "id: expected text, got null"),
        ({"occurrences": "six"}, "occurrences: expected a whole number, got str"),
        ({"occurrences": True}, "occurrences: expected a whole number, got bool"),
        ({"started_at": -1}, "started_at: -1 is out of range"),
        ({"severity": "bad"}, "severity: 'bad' is none of info, warning, critical"),
        ({"session_ids": [1]}, "session_ids: expected a list of texts"),
        ({"evidence": [1]}, "evidence: expected an object, got list"),
    ],
)
def test_a_malformed_finding_is_refused_by_its_field(change: dict[str, object], message: str) -> None:
    with pytest.raises(MalformedFinding) as caught:
        finding_from_json(orjson.dumps(asdict(STUCK) | change))
    assert str(caught.value) == message


@pytest.mark.parametrize("payload", ["", "[]", "{", "null"])
def test_what_is_no_object_is_refused(payload: str) -> None:
    with pytest.raises(MalformedFinding, match="no JSON"):
        finding_from_json(payload)


def test_fields_of_newer_versions_are_ignored() -> None:
    assert finding_from_json(orjson.dumps(asdict(STUCK) | {"later": 1})) == STUCK


def test_the_reader_waits_for_a_spool_and_then_follows_it(tmp_path: Path) -> None:
    with closing(SpoolFindings(tmp_path / "spool.db")) as source:
        assert source.poll(0) == []
        assert source.waiting_for == "the spool to be created"
        spool = Spool(tmp_path / "spool.db")
        assert source.poll(0) == []
        assert source.waiting_for is None
        spool.add(another(1), another(2))
        assert [row.seq for row in source.poll(0)] == [1, 2]
        assert source.poll(2) == []
        spool.add(another(3))
        assert [row.seq for row in source.poll(2)] == [3]


def test_the_reader_gives_at_most_what_it_is_asked_for(tmp_path: Path) -> None:
    Spool(tmp_path / "spool.db").add(*(another(n) for n in range(5)))
    with closing(SpoolFindings(tmp_path / "spool.db")) as source:
        assert [row.seq for row in source.poll(0, 2)] == [1, 2]
        assert [row.seq for row in source.poll(2, 2)] == [3, 4]
        assert [row.seq for row in source.poll(4, 2)] == [5]


def test_a_file_without_the_table_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "spool.db").touch()
    with closing(SpoolFindings(tmp_path / "spool.db")) as source:
        assert source.poll(0) == []
        assert source.waiting_for is not None
        assert "no such table" in source.waiting_for


def test_a_replaced_file_is_opened_anew(tmp_path: Path) -> None:
    path = tmp_path / "spool.db"
    Spool(path).add(another(1))
    with closing(SpoolFindings(path)) as source:
        assert len(source.poll(0)) == 1
        for file in tmp_path.iterdir():
            file.unlink()
        Spool(path).add(another(2), another(3))
        assert len(source.poll(0)) == 2
        assert (source.generation, source.last_position()) == (2, 2)


def test_only_a_newer_revision_is_news(tmp_path: Path) -> None:
    with closing(ControlDb(tmp_path / "control.db")) as db:
        with db.transaction() as tx:
            newer = replace(STUCK, revision=2, occurrences=8)
            news = [
                remember_finding(tx, f, orjson.dumps(f).decode(), 0) for f in (STUCK, STUCK, newer, STUCK)
            ]
        assert news == [True, False, True, False]
        with db.reading() as connection:
            ((_, payload),) = list_findings(connection, session_id=None, kind=None, before=None, limit=9)
            assert finding_from_json(payload) == newer
            assert list_findings(connection, session_id="else", kind=None, before=None, limit=9) == []
