"""Runs and their hand-off reports by HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from collector.step import StepSeen
from detectors.notes_book import NotesBook
from detectors.protocol import Severity
from tests.control.support import STUCK, another
from tests.detectors.stream import Stream

if TYPE_CHECKING:
    from tests.api.conftest import Api

MISSING = "FileNotFoundError: [Errno 2] No such file or directory: 'a.py'"


@pytest.fixture
def noted(api: Api) -> Api:
    """The API of a control plane that knows one stuck session, and its notes."""
    stream = Stream(session="session-1").user(text="Buy it")
    for _ in range(4):
        stream.call("fetch_page", {"url": "a"}, error=MISSING)
    book = NotesBook()
    for step in stream.steps:
        book.apply(StepSeen(step))
    notes = book.notes("session-1")
    assert notes is not None
    api.parts.notes["session-1"] = notes
    api.spool.add(STUCK)
    api.parts.decide_all()
    return api


def test_runs_are_listed_the_newest_first(api: Api) -> None:
    api.spool.add(
        another(1, session_id="a"),
        another(2, session_id="b", severity=Severity.WARNING, kind="flail"),
        another(3, session_id="a", kind="flail", severity=Severity.INFO),
        another(4, session_id=""),
    )
    api.parts.decide_all()
    runs = api.ask("GET", "/v1/runs").json()["runs"]
    assert [(run["session_id"], run["findings"], run["severity"]) for run in runs] == [
        ("a", 2, "critical"),
        ("b", 1, "warning"),
    ]
    assert runs[0]["kinds"] == ["doom_loop", "flail"]
    assert runs[0]["firing"] == 1


def test_runs_are_read_a_page_at_a_time(api: Api) -> None:
    api.spool.add(*(another(number, session_id=f"s{number}") for number in range(5)))
    api.parts.decide_all()
    seen, before = [], ""
    while True:
        page = api.ask("GET", f"/v1/runs?limit=2{before}").json()
        seen += [run["session_id"] for run in page["runs"]]
        if page["next_before"] is None:
            break
        before = f"&before={page['next_before']}"
    assert seen == ["s4", "s3", "s2", "s1", "s0"]


def test_a_run_shows_its_notes_and_findings(noted: Api) -> None:
    told = noted.ask("GET", "/v1/runs/session-1").json()
    assert told["notes"]["goal"] == "Buy it"
    assert told["notes"]["recent"][-1]["tool"] == "fetch_page"
    assert told["notes"]["paths"][0]["count"] == 4
    assert [finding["id"] for finding in told["findings"]] == [STUCK.id]


def test_a_session_that_nobody_knows_is_not_found(api: Api) -> None:
    for path in ("/v1/runs/nobody", "/v1/runs/nobody/handoff"):
        assert api.ask("GET", path).status_code == 404


def test_a_session_id_may_have_slashes(api: Api) -> None:
    api.spool.add(another(1, session_id="team/chat/17"))
    api.parts.decide_all()
    for path in ("/v1/runs/team/chat/17", "/v1/runs/team%2Fchat%2F17"):
        assert api.ask("GET", path).json()["session_id"] == "team/chat/17"
        assert api.ask("GET", f"{path}/handoff").json()["session_id"] == "team/chat/17"


def test_a_report_is_json_or_markdown(noted: Api) -> None:
    for query, accept, is_text in (
        ("", "application/json", False),
        ("", "*/*", False),
        ("", "text/markdown", True),
        ("?format=markdown", "application/json", True),
        ("?format=json", "text/markdown", False),
        ("", "text/html,*/*;q=0.8", True),
    ):
        answer = noted.ask("GET", f"/v1/runs/session-1/handoff{query}", headers={"accept": accept})
        assert answer.status_code == 200
        if is_text:
            shown = "text/plain" if "html" in accept else "text/markdown"
            assert answer.headers["content-type"].startswith(shown)
            assert answer.text.startswith("# Hand-off: session `session-1`")
            continue
        told = answer.json()
        assert told["goal"] == "Buy it"
        assert told["failing_paths"][0]["failures"] == 4
        assert told["filled"] == 1 - len(told["unknown"]) / 10
    assert noted.ask("GET", "/v1/runs/session-1/handoff?format=pdf").status_code == 422
