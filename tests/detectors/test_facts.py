"""Facts about tools and sessions, each at its moment."""

from __future__ import annotations

from typing import Any

import orjson

from collector.step import Outcome, RunEnded, Step, StepSeen
from control.breakers.settings import BreakerSettings
from detectors.facts import SESSIONS_KEPT, TOOLS_KEPT, TOOLS_OF_A_SESSION, WITHIN_NS, Fact, ToolFacts
from detectors.notes_book import NotesBook
from detectors.reading import Lens, Reading
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


def told(*steps: Step) -> list[tuple[str, str, str]]:
    """What the steps of several sessions tell: kind, session, tool."""
    book = NotesBook()
    said = [fact for step in sorted(steps, key=lambda s: s.end_ns) for fact in book.apply(StepSeen(step))]
    return [(fact.kind, fact.session_id, str(fact.payload["tool"])) for fact in said]


def test_working_is_news_only_after_a_failure_of_that_tool() -> None:
    failing = Stream("a").call("look", {"p": 1}, ok="x").call("look", {"p": 2}, error=TIMEOUT)
    other = Stream("b", now_ns=failing.now_ns).call("other", {"p": 1}, ok="x").call("look", {"p": 3}, ok="x")
    assert told(*failing.steps, *other.steps) == [("failed", "a", "look"), ("worked", "b", "look")]
    assert facts(Stream().call("look", {}, error=TIMEOUT).call("look", {}, ok="x"))[1].payload["start_ns"]


def test_working_is_news_in_a_session_that_failed_whatever_worked() -> None:
    stream = Stream().call("look", {"p": 1}, error=TIMEOUT)
    stream.call("other", {"p": 1}, ok="x").call("other", {"p": 2}, ok="x").call("look", {"p": 2}, ok="x")
    assert told(*stream.steps) == [("failed", "s", "look"), ("worked", "s", "other"), ("worked", "s", "look")]


def test_working_is_news_in_each_session_that_the_tool_failed_in() -> None:
    """A success that others have told of a moment ago still ends the row of failures of its own session."""
    one = Stream("a").call("look", {"p": 1}, error=TIMEOUT).call("look", {"p": 2}, ok="x", after=3.0)
    two = (
        Stream("b").call("look", {"p": 1}, error=TIMEOUT, after=2.1).call("look", {"p": 2}, ok="x", after=3.0)
    )
    third = Stream("c").call("look", {"p": 1}, ok="x", after=6.0)
    assert told(*one.steps, *two.steps, *third.steps) == [
        ("failed", "a", "look"),
        ("failed", "b", "look"),
        ("worked", "a", "look"),
        ("worked", "b", "look"),
    ]


def test_working_in_a_session_is_told_over_a_restart() -> None:
    tools = ToolFacts()
    stream = (
        Stream().call("look", {"p": 1}, error=TIMEOUT).call("other", {}, ok="x").call("other", {}, ok="x")
    )
    assert tools.observe(Reading(stream.steps[0])) is not None
    again = ToolFacts()
    again.restore(orjson.loads(orjson.dumps(tools.state())))
    assert again.state() == tools.state()
    assert [again.observe(Reading(step)) is not None for step in stream.steps[1:]] == [True, False]


def test_working_is_told_once_a_second_while_a_breaker_may_be_open() -> None:
    stream = Stream().call("look", {"p": 0}, error=TIMEOUT)
    stream.call("look", {"p": 1}, ok="x", after=0.1).call("look", {"p": 2}, ok="x", after=0.1)
    assert kinds(stream) == ["failed", "worked"]
    stream.call("look", {"p": 3}, ok="x", after=2.0).call("look", {"p": 4}, ok="x", after=3700.0)
    assert kinds(stream) == ["failed", "worked", "worked", "worked"]
    stream.call("look", {"p": 5}, ok="x", after=3600.0)
    assert kinds(stream) == ["failed", "worked", "worked", "worked"]


def test_a_tool_is_heard_of_for_longer_than_a_breaker_is_open() -> None:
    settings = BreakerSettings()
    assert (settings.cap_open_s + settings.probe_ttl_s) * 10**9 < WITHIN_NS


def test_a_change_clears_what_was_dead_once() -> None:
    stream = Stream().call("write_file", {"path": "a"}, ok="done").call("read", {"path": "a"}, error=MISSING)
    stream.call("list_files", {"p": "."}, ok="x").call("write_file", {"path": "a.py"}, ok="done")
    stream.call("write_file", {"path": "b.py"}, ok="done")
    assert kinds(stream) == ["failed", "worked", "changed"]
    assert facts(stream)[2].payload["why"] == "call"


def test_a_user_clears_what_was_dead() -> None:
    stream = Stream().call("read", {"path": "a"}, error=MISSING).user().user()
    assert kinds(stream) == ["failed", "changed"]
    assert facts(stream)[1].payload["why"] == "user_turn"


def test_transient_failures_are_not_dead() -> None:
    assert kinds(Stream().call("read", {"p": 1}, error=TIMEOUT).call("write", {"p": 1}, ok="x")) == [
        "failed",
        "worked",
    ]


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
    last = Stream("another", now_ns=stream.now_ns).call("first", {"p": 2}, ok="x")
    assert told(*stream.steps, *last.steps)[-1][0] == "failed"


def test_the_memory_of_sessions_is_bounded() -> None:
    tools = ToolFacts()
    for number in range(3 * SESSIONS_KEPT):
        (step,) = Stream(f"s{number}").call("look", {"p": 1}, error=TIMEOUT).steps
        tools.observe(Reading(step))
    state: Any = tools.state()
    assert len(state) == SESSIONS_KEPT + 1


def test_the_memory_of_tools_of_a_session_is_bounded() -> None:
    tools = ToolFacts()
    stream = Stream()
    for number in range(3 * TOOLS_OF_A_SESSION):
        stream.call(f"tool-{number}", {"p": 1}, error=TIMEOUT)
    for step in stream.steps:
        tools.observe(Reading(step))
    state: Any = tools.state()
    ((_, stuck),) = (row for row in state if row[0] == "s")
    assert len(stuck) == TOOLS_OF_A_SESSION
    again = ToolFacts()
    again.restore(orjson.loads(orjson.dumps(state)))
    assert again.state() == state
