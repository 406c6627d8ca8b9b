"""What is noted of a session: each list worked out by hand, and what must hold for any stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.step import (
    Json,
    Outcome,
    RunEnded,
    SessionsMerged,
    Step,
    StepAmended,
    StepEvent,
    StepSeen,
    ToolDefinition,
    ToolDefinitions,
    Usage,
)
from detectors.notes import MalformedNotes, Notes, from_json, to_json
from detectors.notes_book import TOOLS, NotesBook, NotesLimits
from tests.detectors.stream import SECOND_NS, START_NS, Stream

MISSING = "FileNotFoundError: [Errno 2] No such file or directory: 'a.py'"
TIMEOUT = "Request timed out after 30 s"


def numbered(steps: Sequence[Step]) -> list[StepEvent]:
    return [StepSeen(replace(step, engine_seq=seq)) for seq, step in enumerate(steps, start=1)]


def noted(stream: Stream, *more: StepEvent) -> Notes:
    book = NotesBook()
    for event in [*numbered(stream.steps), *more]:
        book.apply(event)
    notes = book.notes(stream.session)
    assert notes is not None
    return notes


def test_figures_are_those_of_the_steps() -> None:
    stream = Stream().user(text="Find  the\nbug").model(100, cost=0.5, model="m-1")
    stream.call("read", {"path": "a"}, ok="x").call("read", {"path": "b"}, error=MISSING)
    stream.call("pay", {"sum": 1}, outcome=Outcome.DENIED)
    notes = noted(stream)
    assert (notes.calls, notes.failures, notes.denied, notes.model_calls) == (3, 1, 1, 1)
    assert (notes.tokens, notes.cost_usd, notes.model) == (200, 0.5, "m-1")
    assert (notes.goal, notes.user_turns) == ("Find the bug", 1)
    assert notes.first_ns == stream.steps[0].start_ns
    assert notes.last_ns == stream.steps[-1].end_ns
    assert notes.last_start_ns == stream.steps[-2].start_ns, "a refused call is no sign of life"


def test_nobody_told_of_tokens() -> None:
    assert noted(Stream().model()).tokens is None


def test_recent_calls_are_the_last_24_with_what_became_of_them() -> None:
    stream = Stream()
    for number in range(30):
        stream.call("read", {"path": str(number)}, error=MISSING if number % 2 else None, ok="x")
    recent = noted(stream).recent
    assert [row.number for row in recent] == list(range(7, 31))
    assert recent[-1].error_class == "not_found"
    assert (recent[-1].outcome, recent[-2].outcome) == ("error", "ok")
    assert len({row.signature for row in recent}) == 24
    assert all(row.signature is not None and len(row.signature) == 16 for row in recent)


def test_arguments_that_were_not_recorded_have_no_signature() -> None:
    assert noted(Stream().call("read", None, ok="x")).recent[0].signature is None


def test_failing_paths_are_grouped_by_operation_and_class() -> None:
    stream = Stream()
    for number in range(4):
        stream.call("read", {"path": f"a{number}"}, error=MISSING, after=3.0)
    stream.call("fetch", {"url": "x"}, error=TIMEOUT)
    first, second = noted(stream).paths
    assert (first.tool, first.error_class, first.nature, first.prescription) == (
        "read",
        "not_found",
        "structural",
        "replan",
    )
    assert (first.count, first.run, len(first.signatures), first.recovered_ns) == (4, 4, 4, 0)
    assert (first.first_number, first.last_number, first.arguments, first.error) == (1, 4, "a0", MISSING)
    assert first.rule
    assert second.error_class == "timeout"


def test_a_path_that_recovers_begins_anew() -> None:
    stream = Stream().call("read", {"path": "a"}, error=MISSING).call("read", {"path": "b"}, ok="x")
    assert (recovered := noted(stream).paths[0]).run == 0
    assert recovered.recovered_ns == stream.steps[-1].end_ns
    stream.call("read", {"path": "a"}, error=MISSING)
    (path,) = noted(stream).paths
    assert (path.count, path.run, path.run_first_number, path.recovered_ns) == (2, 1, 3, 0)


def test_repeats_tell_since_when_the_same_comes_back() -> None:
    stream = Stream().call("poll", {"q": 1}, ok="one")
    for _ in range(3):
        stream.call("poll", {"q": 1}, ok="two").call("other", {"n": len(stream.steps)}, ok="x")
    (repeat,) = [row for row in noted(stream).repeats if row.times > 1]
    assert (repeat.times, repeat.same, repeat.run_first_number, repeat.arguments) == (4, 3, 2, "1")


def test_side_effects_are_what_worked_and_did_something() -> None:
    stream = Stream().call("send_email", {"to": "a", "idempotency_key": "k"}, ok="sent")
    stream.call("send_email", {"to": "b"}, error=TIMEOUT).call("read", {"path": "a"}, ok="x")
    stream.call("write_file", {"path": "a"}, ok="done").call("mystery", {"x": 1}, ok="x")
    notes = noted(stream)
    assert [(one.tool, one.level, one.keyed) for one in notes.effects] == [
        ("send_email", "write", True),
        ("write_file", "change", False),
    ]
    assert (notes.looks, notes.unclear, notes.unclear_tools) == (1, 1, ("mystery",))


def test_tools_that_were_offered_and_never_tried() -> None:
    stream = Stream().model(1, offered_tools=("read", "search", "ask_user")).call("read", {"p": 1}, ok="x")
    assert noted(stream).not_tried == ("search", "ask_user")


def test_a_tools_own_word_on_what_it_does_is_heeded() -> None:
    tool = ToolDefinition("send_report", read_only=True)
    offered = ToolDefinitions("h", {"send_report": tool}, 10)
    stream = Stream().model(1, definitions=offered).call("send_report", {"p": 1}, ok="x")
    assert noted(stream).effects == ()


def test_what_looks_while_something_fails_is_a_diagnosis() -> None:
    stream = Stream().call("read", {"path": "z"}, ok="x").call("run", {"a": 1}, error=MISSING)
    stream.call("list_files", {"path": "."}, ok="a b")
    assert noted(stream).diagnoses == ("list_files: .",)


def test_a_run_that_ended_runs_again_with_a_later_step() -> None:
    stream = Stream().call("read", {"p": 1}, ok="x")
    end = RunEnded(stream.session, stream.run, stream.now_ns)
    assert noted(stream, end).ended_ns == stream.now_ns
    stream.call("read", {"p": 2}, ok="x")
    late = StepSeen(stream.steps[-1])
    assert noted(Stream(steps=stream.steps[:1]), end, late).ended_ns == 0


def test_a_call_of_which_more_is_known_is_counted_again() -> None:
    stream = Stream().call("read", {"p": 1}, outcome=Outcome.UNKNOWN)
    told = replace(stream.steps[0], outcome=Outcome.ERROR, error=MISSING, revision=1)
    once = noted(stream, StepAmended(told))
    assert once == noted(stream, StepAmended(told), StepAmended(told))
    assert (once.failures, once.paths[0].count, once.recent[0].outcome) == (1, 1, "error")


def test_tokens_that_come_late_are_counted_once() -> None:
    stream = Stream().model(10)
    told = replace(stream.steps[0], usage=Usage(input_tokens=30, output_tokens=10), revision=1)
    assert noted(stream, StepAmended(told), StepAmended(told)).tokens == 40


def test_the_burn_is_kept_by_the_minute() -> None:
    stream = Stream(now_ns=START_NS)
    stream.model(5, cost=1.0).call("a", {"n": 1}, ok="x", after=61.0).model(7)
    minutes = noted(stream).minutes
    assert [(row.calls, row.tokens, row.cost_usd) for row in minutes] == [(0, 10, 1.0), (1, 14, 0.0)]
    assert minutes[1].start_ns - minutes[0].start_ns == 60 * SECOND_NS


def test_two_names_of_one_session_become_one() -> None:
    whole = (
        Stream()
        .user(text="Do it")
        .call("read", {"p": 1}, error=MISSING)
        .call("read", {"p": 1}, error=MISSING)
    )
    parts = [replace(step, session_id="old" if n < 2 else "s") for n, step in enumerate(whole.steps)]
    book = NotesBook()
    for event in numbered(parts):
        book.apply(event)
    book.apply(SessionsMerged("old", "s"))
    merged = book.notes("s")
    assert merged is not None
    assert book.notes("old") is None
    assert (merged.calls, merged.failures, merged.goal) == (2, 2, "Do it")
    assert (merged.paths[0].count, merged.paths[0].first_ns) == (2, whole.steps[1].start_ns)
    assert book.changed().keys() == {"old", "s", TOOLS}


def test_a_session_that_is_only_a_process_is_not_noted() -> None:
    book = NotesBook()
    for event in numbered(Stream(session="process:web-1").call("read", {"p": 1}, ok="x").steps):
        book.apply(event)
    assert len(book) == 0


def test_the_least_recent_sessions_go_when_there_are_too_many() -> None:
    book = NotesBook(NotesLimits(max_sessions=2))
    for name in ("a", "b", "a", "c"):
        book.apply(StepSeen(Stream(session=name).call("read", {"p": 1}, ok="x").steps[0]))
    assert (book.notes("b"), len(book), book.evicted) == (None, 2, 1)
    assert book.changed()["b"] is None


def test_memory_is_bounded_over_all_sessions() -> None:
    book = NotesBook(NotesLimits(max_bytes=100_000))
    for name in range(60):
        for step in Stream(session=f"s{name}").call("r", {"p": 1}, ok="x").call("r", {"p": 2}, ok="x").steps:
            book.apply(StepSeen(step))
    assert book.estimated_bytes <= 100_000 + 10_000
    assert book.evicted > 0


@pytest.mark.parametrize("limits", [{"max_sessions": 0}, {"max_bytes": -1}])
def test_limits_that_make_no_sense_are_refused(limits: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"notes\."):
        NotesLimits(**limits)


def test_one_session_stays_small_whatever_happens_in_it() -> None:
    stream = Stream().model(1, offered_tools=tuple(f"tool_{n}" for n in range(500)))
    for number in range(300):
        text = "x" * 3000
        stream.user(text=text).call(f"send_{number % 40}", {"text": text, "n": number}, ok=text)
        stream.call(f"tool_{number % 200}", {"text": text, "n": number}, error=f"{text} Error {number}")
    assert len(to_json(noted(stream))) < 60_000


def test_notes_that_are_none_say_so() -> None:
    for payload in ("[]", "{", '{"session_id": "a", "recent": [[1]]}', "{}"):
        with pytest.raises(MalformedNotes, match="notes: "):
            from_json(payload)


def test_what_a_newer_version_adds_is_passed_over() -> None:
    notes = noted(Stream().call("read", {"p": 1}, error=MISSING))
    state = orjson.loads(to_json(notes))
    state["news"] = 1
    state["paths"][0]["news"] = 2
    state["recent"][0].append("news")
    assert from_json(orjson.dumps(state)) == notes


TOOLS_ = st.sampled_from(["read", "send_email", "write_file", "bash", "ask_user", "mystery"])
ERRORS = st.sampled_from([None, None, MISSING, TIMEOUT, "job 12 ended"])
ARGUMENTS: st.SearchStrategy[Json] = st.sampled_from([None, {}, {"command": "ls a"}, {"p": 1}, {"p": 2}])
CALLS = st.lists(
    st.tuples(st.sampled_from(["s", "t"]), st.integers(0, 5), TOOLS_, ARGUMENTS, ERRORS, st.integers(0, 90)),
    max_size=40,
)


def events_of(calls: Sequence[tuple[Any, ...]]) -> list[StepEvent]:
    streams = {name: Stream(session=name) for name in ("s", "t")}
    steps: list[Step] = []
    for name, what, tool, arguments, error, pause in calls:
        stream = streams[name]
        if what == 0:
            stream.model(pause, cost=pause / 100)
        elif what == 1:
            stream.user(text=f"say {pause}")
        else:
            stream.call(tool, arguments, ok=f"result {pause % 3}", error=error, after=float(pause))
        steps.append(replace(stream.steps[-1], step_id=f"{len(steps):048x}"))
    return numbered(steps)


def stored(book: NotesBook) -> dict[str, Any]:
    return {
        key: orjson.loads(orjson.dumps(state)) for key, state in book.changed().items() if state is not None
    }


@given(CALLS, st.integers(0, 40))
def test_a_restored_book_goes_on_as_if_nothing_had_happened(calls: list[Any], at: int) -> None:
    events = events_of(calls)
    straight, first, second = NotesBook(), NotesBook(), NotesBook()
    told = [straight.apply(event) for event in events]
    before = [first.apply(event) for event in events[:at]]
    assert second.restore(stored(first)) == {}
    after = [second.apply(event) for event in events[at:]]
    assert before + after == told
    for name in ("s", "t"):
        assert second.notes(name) == straight.notes(name)
        if (notes := straight.notes(name)) is not None:
            assert from_json(to_json(notes)) == notes


@given(CALLS, st.integers(0, 40), st.integers(0, 40))
def test_what_happens_again_after_a_crash_counts_once(calls: list[Any], mark: int, more: int) -> None:
    """Notes of a session are written with its findings, ahead of the checkpoint of a crash."""
    events = events_of(calls)
    straight, book, again = NotesBook(), NotesBook(), NotesBook()
    told = [straight.apply(event) for event in events]
    facts = [book.apply(event) for event in events[:mark]]
    checkpoint = stored(book)
    ahead = [book.apply(event) for event in events[mark : mark + more]]
    written = orjson.loads(orjson.dumps(book.states(["s"])))
    if written["s"] is not None:
        checkpoint |= written
    assert again.restore(checkpoint) == {}
    replayed = [again.apply(event) for event in events[mark:]]
    for name in ("s", "t"):
        assert again.notes(name) == straight.notes(name)
    kept = {fact.key: fact for some in (*facts, *ahead, *replayed) for fact in some}
    assert kept == {fact.key: fact for some in told for fact in some}
