"""Facts about tools and sessions, each at its moment."""

from __future__ import annotations

from typing import Any

from collector.step import Outcome, RunEnded, StepSeen
from detectors.facts import TOOLS_KEPT, Fact
from detectors.notes_book import NotesBook
from detectors.reading import Lens
from detectors.tool_policy import ToolPolicy
from tests.detectors.stream import Stream

MISSING = "FileNotFoundError: [Errno 2] No such file or directory: 'a.py'"
TIMEOUT = "Request timed out after 30 s"


def facts(stream: Stream, book: NotesBook | None = None) -> list[Fact]:
    book = NotesBook() if book is None else book
    return [fact for step in stream.steps for fact in book.apply(StepSeen(step))]


def kinds(stream: Stream) -> list[str]:
    return [fact.kind for fact in facts(stream)]


def test_a_failure_tells_why_and_what_would_help() -> None:
    stream = Stream().call("read", {"path": "a.py"}, error=MISSING, service="shop")
    (fact,) = facts(stream)
    step = stream.steps[0]
    told: dict[str, Any] = dict(fact.payload)
    assert len(told.pop("signature")) == 16
    assert fact.key == f"failed:{step.step_id}"
    assert told == {
        "service": "shop",
        "agent": "main",
        "tool": "read",
        "error_class": "not_found",
        "nature": "structural",
        "prescription": "replan",
        "error": MISSING,
        "step_id": step.step_id,
        "end_ns": step.end_ns,
        "engine_seq": 0,
    }


def test_a_refusal_is_no_failure() -> None:
    assert kinds(Stream().call("read", {"p": 1}, outcome=Outcome.DENIED)) == []


def test_what_only_reads_like_a_failure_is_none() -> None:
    assert kinds(Stream().call("fetch", {"p": 1}, ok='{"error": "no such order"}')) == []


def test_working_is_news_only_after_a_failure_of_that_tool() -> None:
    stream = Stream().call("look", {"p": 1}, ok="x").call("look", {"p": 2}, error=TIMEOUT)
    stream.call("other", {"p": 1}, ok="x").call("look", {"p": 3}, ok="x")
    assert kinds(stream) == ["failed", "worked"]
    assert facts(stream)[1].payload["start_ns"] == stream.steps[-1].start_ns


def test_working_is_told_once_a_second_until_ten_minutes_have_passed() -> None:
    stream = Stream().call("look", {"p": 0}, error=TIMEOUT)
    stream.call("look", {"p": 1}, ok="x", after=0.1).call("look", {"p": 2}, ok="x", after=0.1)
    assert kinds(stream) == ["failed", "worked"]
    stream.call("look", {"p": 3}, ok="x", after=2.0).call("look", {"p": 4}, ok="x", after=600.0)
    assert kinds(stream) == ["failed", "worked", "worked"]


def test_a_change_clears_what_was_dead_once() -> None:
    stream = Stream().call("write_file", {"path": "a"}, ok="done").call("read", {"path": "a"}, error=MISSING)
    stream.call("list_files", {"p": "."}, ok="x").call("write_file", {"path": "a.py"}, ok="done")
    stream.call("write_file", {"path": "b.py"}, ok="done")
    assert kinds(stream) == ["failed", "changed"]
    assert facts(stream)[1].payload["why"] == "call"


def test_a_user_clears_what_was_dead() -> None:
    stream = Stream().call("read", {"path": "a"}, error=MISSING).user().user()
    assert kinds(stream) == ["failed", "changed"]
    assert facts(stream)[1].payload["why"] == "user_turn"


def test_transient_failures_are_not_dead() -> None:
    assert kinds(Stream().call("read", {"p": 1}, error=TIMEOUT).call("write", {"p": 1}, ok="x")) == ["failed"]


def test_a_run_ends() -> None:
    (fact,) = NotesBook().apply(RunEnded("s", "r", 7))
    assert (fact.key, fact.kind, fact.session_id) == ("ended:s:r:7", "ended", "s")
    assert fact.payload == {"run_id": "r", "at_ns": 7}


def test_a_session_that_is_only_a_process_is_no_session() -> None:
    (fact,) = facts(Stream(session="process:web-1").call("read", {"p": 1}, error=MISSING))
    assert fact.session_id == ""


def test_tools_that_are_ignored_are_no_facts() -> None:
    book = NotesBook(lens=Lens(ToolPolicy(ignore=("read",))))
    assert facts(Stream().call("read", {"p": 1}, error=MISSING), book) == []


def test_the_memory_of_tools_is_bounded() -> None:
    stream = Stream().call("first", {"p": 1}, error=TIMEOUT)
    for number in range(TOOLS_KEPT):
        stream.call(f"tool-{number}", {"p": 1}, error=TIMEOUT, after=0.01)
    stream.call("first", {"p": 2}, ok="x")
    assert kinds(stream)[-1] == "failed"
