"""What becomes of failed calls: each response worked out by hand, and what must hold for any stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
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
    StepAmended,
    StepEvent,
    StepSeen,
)
from detectors.errors import ErrorClass, classify
from detectors.recovery import Config, Recovery, Response
from detectors.recovery_book import RecoveryBook
from tests.detectors.stream import SECOND_NS, Stream

TIMEOUT = "Request timed out after 30 s"
SCHEMA = "Invalid arguments: 'limit' is a required property"
AUTH = "401 Unauthorized: token expired"
MISSING = "FileNotFoundError: [Errno 2] No such file or directory: 'a.py'"
STRANGE = "job 12 ended"


def book_of(events: Sequence[StepEvent], config: Config | None = None) -> list[Recovery]:
    book = RecoveryBook(config or Config())
    return [told for event in events for told in book.apply(event)]


def settled(stream: Stream, config: Config | None = None, *, end: bool = True) -> list[Recovery]:
    """What becomes of the failures of a stream whose run then ends."""
    events: list[StepEvent] = [StepSeen(step) for step in stream.steps]
    if end:
        events.append(RunEnded(stream.session, stream.run, stream.now_ns))
    return book_of(events, config)


def first(stream: Stream, config: Config | None = None) -> Recovery:
    """What becomes of the first failure of a stream."""
    told = settled(stream, config)
    return next(one for one in told if one.step_id == stream.steps[0].step_id)


def failing(error: str = TIMEOUT, tool: str = "fetch", **arguments: Json) -> Stream:
    return Stream().call(tool, arguments or {"q": 1}, error=error)


def test_one_error_is_of_no_known_class() -> None:
    assert classify(STRANGE, tool="fetch").error_class is ErrorClass.UNKNOWN


RESPONSES = {
    "retry": (failing().model().call("fetch", {"q": 1}, ok="fine"), "retry", "recovered"),
    "perturb": (failing().call("fetch", {"q": 2}, ok="fine"), "perturb", "recovered"),
    "replan": (failing().call("search", {"q": 1}, ok="fine"), "replan", "abandoned"),
    "replan and back": (
        failing().call("search", {"q": 1}, ok="fine").call("fetch", {"q": 1}, ok="fine"),
        "replan",
        "recovered",
    ),
    "asks with a tool": (failing().call("ask_user", {"q": "how?"}, ok="fine"), "escalate", "escalate"),
    "asks and goes on": (
        failing().call("ask_user", {"q": "how?"}, ok="fine").call("fetch", {"q": 3}, ok="fine"),
        "escalate",
        "recovered",
    ),
    "says that it cannot": (failing().model(text="I was unable to fetch the page."), "escalate", "escalate"),
    "says that it is done": (failing().model(text="All done."), "none", "abandoned"),
    "user's turn": (failing().model().user(), "escalate", "escalate"),
    "user's turn after it was done": (failing().model(text="All done.").user(), "none", "abandoned"),
    "user's turn after something else": (
        failing().call("search", {"q": 1}, ok="fine").model().user(),
        "replan",
        "abandoned",
    ),
    "user's turn after retries": (
        failing().call("fetch", {"q": 1}, error=TIMEOUT).user(),
        "retry",
        "escalate",
    ),
    "nothing": (failing(), "none", "abandoned"),
    "thinks, then retries": (
        failing().call("think", {"thought": "hm"}, ok="fine").call("fetch", {"q": 1}, ok="fine"),
        "retry",
        "recovered",
    ),
    "waits, then retries": (
        failing().call("wait", {"seconds": 5}, ok="fine").call("fetch", {"q": 1}, ok="fine"),
        "retry",
        "recovered",
    ),
    "a refused retry": (
        failing().call("fetch", {"q": 1}, outcome=Outcome.DENIED),
        "retry",
        "abandoned",
    ),
    "a retry that only says ok": (
        failing().call("fetch", {"q": 1}, ok="Error: the server is not there"),
        "retry",
        "abandoned",
    ),
}


@pytest.mark.parametrize("name", RESPONSES)
def test_the_response_is(name: str) -> None:
    stream, response, final = RESPONSES[name]
    told = first(stream)
    assert (told.first_response, told.response) == (response, final)
    assert told.recovered == (final == "recovered")


SHELLS = {
    "a path variant is the same operation": ("cat a.py", "cat src/a.py", "perturb", "recovered"),
    "another file is another attempt": ("cat a.py", "cat b.py", "perturb", "abandoned"),
    "another subcommand is another plan": ("git commit -m x", "git add .", "replan", "abandoned"),
    "the same program another way": ("pytest a.py", "python -m pytest -x a.py", "perturb", "recovered"),
    "another success of the shell says nothing": ("pytest a.py", "ls", "replan", "abandoned"),
}


@pytest.mark.parametrize("name", SHELLS)
def test_of_a_shell(name: str) -> None:
    one, other, response, final = SHELLS[name]
    told = first(failing(tool="bash", command=one).call("bash", {"command": other}, ok="fine"))
    assert (told.first_response, told.response) == (response, final)


def test_the_moment_and_the_cost_of_a_recovery() -> None:
    stream = failing().model(100, cost=0.5).call("look", {}, ok="fine").model(50, cost=0.25)
    stream.call("fetch", {"q": 2}, ok="fine").model(1000)
    told = settled(stream, end=False)
    book = RecoveryBook()
    moments = [index for index, step in enumerate(stream.steps) if book.apply(StepSeen(step))]
    assert moments == [4]
    [one] = told
    assert one.calls_to_recovery == 1
    assert one.ns_to_recovery == stream.steps[4].end_ns - stream.steps[0].end_ns
    assert (one.calls_spent, one.tokens_spent, one.cost_usd) == (2, 300, 0.75)
    assert (one.retries, one.perturbations) == (0, 1)


def test_what_an_abandoned_failure_cost_ends_with_its_last_attempt() -> None:
    stream = (
        failing().model(100).call("fetch", {"q": 1}, error=TIMEOUT).model(50).call("other", {}, ok="fine")
    )
    told = first(stream)
    assert (told.calls_spent, told.tokens_spent, told.cost_usd) == (1, 200, None)
    assert first(failing().model(100).call("other", {}, ok="fine")).tokens_spent is None


@pytest.mark.parametrize(("failures", "recovered"), [(0, True), (1, True), (2, True), (3, False)])
def test_at_most_three_retries(failures: int, *, recovered: bool) -> None:
    stream = failing().times(failures, "fetch", {"q": 1}, error=TIMEOUT).call("fetch", {"q": 1}, ok="fine")
    told = first(stream)
    assert told.recovered is recovered
    assert told.retries == failures + 1


@pytest.mark.parametrize(("failures", "recovered"), [(3, True), (4, True), (5, False)])
def test_within_five_calls_of_the_operation(failures: int, *, recovered: bool) -> None:
    stream = failing(SCHEMA)
    for number in range(failures):
        stream.call("fetch", {"q": number + 10}, error=SCHEMA).call("other", {}, ok="fine")
    told = first(stream.call("fetch", {"q": 99}, ok="fine"))
    assert told.recovered is recovered
    assert told.calls_to_recovery == (failures + 1 if recovered else None)


def test_every_failure_of_a_streak_has_its_own_budget() -> None:
    stream = failing().times(4, "fetch", {"q": 1}, error=TIMEOUT).call("fetch", {"q": 1}, ok="fine")
    told = sorted(settled(stream), key=lambda one: one.failed_ns)
    assert [one.recovered for one in told] == [False, False, True, True, True]
    assert [one.earlier for one in told] == [0, 1, 2, 3, 3]
    assert [one.calls_to_recovery for one in told] == [None, None, 3, 2, 1]


def test_a_failure_that_nobody_comes_back_to_is_abandoned() -> None:
    config = Config(horizon_calls=3)
    stream = failing().times(3, "other", {}, ok="fine").call("fetch", {"q": 1}, ok="fine")
    assert first(stream, config).response is Response.ABANDONED
    stream = failing().times(2, "other", {}, ok="fine").call("fetch", {"q": 1}, ok="fine")
    assert first(stream, config).response is Response.RECOVERED


def test_idle_time_ends_what_is_open() -> None:
    stream = failing().call("fetch", {"q": 1}, after=1801.0, ok="fine")
    assert first(stream).response is Response.ABANDONED
    assert first(failing().call("fetch", {"q": 1}, after=1799.0, ok="fine")).recovered


def test_calls_of_one_message_are_one_attempt() -> None:
    stream = Stream()
    for query in (1, 2):
        stream.call("fetch", {"q": query}, error=TIMEOUT, attempt_id="m1")
    stream.call("fetch", {"q": 3}, attempt_id="m1", ok="fine")
    for query in (1, 2):
        stream.call("fetch", {"q": query}, error=TIMEOUT, attempt_id="m2")
    stream.call("fetch", {"q": 1}, attempt_id="m3", ok="fine")
    told = sorted(settled(stream), key=lambda one: one.failed_ns)
    assert [one.calls_to_recovery for one in told] == [2, 2, 1, 1]
    assert [(one.retries, one.perturbations) for one in told] == [(2, 1), (1, 2), (1, 0), (0, 1)]
    assert [one.earlier for one in told] == [0, 1, 2, 3]


def test_calls_that_overlap_are_one_attempt_when_messages_are_not_known() -> None:
    stream = failing()
    beside = replace(stream.steps[0], step_id="beside", outcome=Outcome.OK, error=None, arguments={"q": 2})
    later = replace(beside, step_id="later", start_ns=beside.end_ns, end_ns=beside.end_ns + 1)
    assert book_of([StepSeen(stream.steps[0]), StepSeen(beside)]) == []
    [told] = book_of([StepSeen(step) for step in (stream.steps[0], beside, later)])
    assert (told.calls_to_recovery, told.first_response) == (1, "perturb")


def test_of_several_calls_in_the_first_attempt_the_retry_counts() -> None:
    stream = Stream().call("fetch", {"q": 1}, error=TIMEOUT, attempt_id="m1")
    stream.call("other", {}, attempt_id="m2", ok="fine").call(
        "fetch", {"q": 1}, attempt_id="m2", error=TIMEOUT
    )
    assert first(stream).first_response is Response.RETRY


FOLLOWED = {
    "backed off": (failing(TIMEOUT).call("fetch", {"q": 1}, after=2.5, ok="fine"), True),
    "hammered": (failing(TIMEOUT).call("fetch", {"q": 1}, after=0.5, ok="fine"), False),
    "waited as told": (
        failing("429: retry after 10 seconds").call("fetch", {"q": 1}, after=10.5, ok="fine"),
        True,
    ),
    "did not wait": (
        failing("429: retry after 10 seconds").call("fetch", {"q": 1}, after=5.0, ok="fine"),
        False,
    ),
    "rewritten": (failing(SCHEMA).call("fetch", {"q": 2}, ok="fine"), True),
    "not rewritten": (failing(SCHEMA).call("fetch", {"q": 1}, ok="fine"), False),
    "refreshed": (failing(AUTH).call("login", {}, ok="fine").call("fetch", {"q": 1}, ok="fine"), True),
    "not refreshed": (failing(AUTH).call("fetch", {"q": 1}, ok="fine"), False),
    "refreshed, not retried": (failing(AUTH).call("login", {}, ok="fine"), False),
    "planned anew": (failing(MISSING).call("list_files", {}, ok="fine"), True),
    "not planned anew": (failing(MISSING).call("fetch", {"q": 2}, ok="fine"), False),
    "asked": (failing(STRANGE).call("ask_user", {}, ok="fine"), True),
    "did not ask": (failing(STRANGE).call("fetch", {"q": 1}, ok="fine"), False),
    "did nothing": (failing(SCHEMA), None),
    "arguments not known": (Stream().call("fetch", error=SCHEMA).call("fetch", ok="fine"), None),
    "arguments not known, another tool": (
        Stream().call("fetch", error=MISSING).call("other", ok="fine"),
        True,
    ),
}


@pytest.mark.parametrize("name", FOLLOWED)
def test_what_was_prescribed(name: str) -> None:
    stream, followed = FOLLOWED[name]
    assert first(stream).followed is followed


def test_growing_gaps_are_back_off() -> None:
    stream = failing().call("fetch", {"q": 1}, error=TIMEOUT, after=0.5)
    stream.call("fetch", {"q": 1}, error=TIMEOUT, after=1.0).call("fetch", {"q": 1}, after=1.0, ok="fine")
    told = sorted(settled(stream), key=lambda one: one.failed_ns)
    assert [one.followed for one in told] == [False, True, False]


FED_BACK = {
    "a model call, then the same failure": (
        failing().model().call("fetch", {"q": 1}, error=TIMEOUT),
        True,
        True,
    ),
    "no model call": (failing().call("fetch", {"q": 1}, error=TIMEOUT).model(), False, False),
    "another failure": (failing().model().call("fetch", {"q": 1}, error=SCHEMA), True, False),
    "other arguments": (failing().model().call("fetch", {"q": 2}, error=TIMEOUT), True, False),
    "it worked": (failing().model().call("fetch", {"q": 1}, ok="fine"), True, False),
    "arguments not known": (
        Stream().call("fetch", error=TIMEOUT).model().call("fetch", error=TIMEOUT),
        True,
        False,
    ),
}


@pytest.mark.parametrize("name", FED_BACK)
def test_fed_back(name: str) -> None:
    stream, fed_back, ure = FED_BACK[name]
    told = first(stream)
    assert (told.fed_back, told.ure) == (fed_back, ure)


def test_a_model_call_around_the_failing_call_feeds_nothing_back() -> None:
    [call] = failing().steps
    around = Stream().model().steps[0]
    around = replace(around, step_id="around", start_ns=call.start_ns - 5, end_ns=call.end_ns + 5)
    [told] = book_of([StepSeen(call), StepSeen(around), RunEnded("s", "run-1", 0)])
    assert not told.fed_back


def test_a_record_says_whose_it_was() -> None:
    stream = Stream().model(1, model="gpt-x")
    stream.call("fetch", {"q": 1}, error=TIMEOUT, service="web", service_version="1.2", target="h:1")
    [told] = settled(stream)
    assert (told.session_id, told.agent, told.run_id) == ("s", "main", "run-1")
    assert (told.service, told.service_version, told.target, told.model) == ("web", "1.2", "h:1", "gpt-x")
    assert (told.tool, told.operation, told.error_class) == ("fetch", "fetch", "timeout")
    assert (told.nature, told.source, told.prescription) == ("transient", "rule", "backoff_retry")


def test_refusals_and_good_calls_are_no_failures() -> None:
    stream = (
        Stream()
        .call("fetch", {}, outcome=Outcome.DENIED)
        .call("fetch", {}, ok="fine")
        .call("fetch", {}, ok="")
    )
    assert settled(stream) == []


def test_other_runs_and_other_agents_are_left_alone() -> None:
    stream = failing()
    other = Stream(agent="helper").call("fetch", {"q": 1}, ok="fine")
    events: list[StepEvent] = [StepSeen(step) for step in (*stream.steps, *other.steps)]
    assert book_of([*events, RunEnded("s", "run-2", 0), RunEnded("t", "run-1", 0)]) == []


def test_a_users_turn_of_no_agent_is_everybodys() -> None:
    stream = failing()
    turn = replace(Stream().user(agent=None).steps[0], start_ns=stream.now_ns + 9 * SECOND_NS, step_id="u")
    turn = replace(turn, end_ns=turn.start_ns)
    [told] = book_of([StepSeen(stream.steps[0]), StepSeen(turn)])
    assert told.response is Response.ESCALATE


def test_a_session_that_is_only_a_process_has_no_recovery() -> None:
    assert settled(Stream(session="process:web-1").call("fetch", {}, error=TIMEOUT)) == []


def test_what_becomes_known_of_an_open_failure_counts() -> None:
    stream = failing("Error")
    known = replace(stream.steps[0], revision=1, error=TIMEOUT, target="h")
    [told] = book_of([StepSeen(stream.steps[0]), StepAmended(known), RunEnded("s", "run-1", 0)])
    assert (told.error_class, told.target, told.revision) == ("timeout", "h", 0)


def test_what_becomes_known_of_a_settled_failure_is_said_again() -> None:
    stream = failing(STRANGE).call("fetch", {"q": 1}, ok="fine")
    known = replace(stream.steps[0], revision=1, error=TIMEOUT)
    told = book_of([*map(StepSeen, stream.steps), StepAmended(known), StepAmended(known)])
    assert [(one.revision, one.error_class, one.recovered) for one in told] == [
        (0, "unknown", True),
        (1, "timeout", True),
    ]


def test_an_outcome_that_comes_later_settles_or_opens() -> None:
    stream = failing().call("fetch", {"q": 1}, outcome=Outcome.UNKNOWN)
    fine = replace(stream.steps[1], revision=1, outcome=Outcome.OK)
    [told] = book_of([*map(StepSeen, stream.steps), StepAmended(fine)])
    assert (told.recovered, told.calls_to_recovery) == (True, 1)
    failed = replace(stream.steps[1], revision=1, outcome=Outcome.ERROR, error=TIMEOUT)
    told_both = book_of([*map(StepSeen, stream.steps), StepAmended(failed), RunEnded("s", "run-1", 0)])
    assert {one.step_id for one in told_both} == {step.step_id for step in stream.steps}


def test_a_failure_that_turns_out_to_be_none_is_dropped() -> None:
    stream = failing()
    fine = replace(stream.steps[0], revision=1, outcome=Outcome.OK)
    assert book_of([StepSeen(stream.steps[0]), StepAmended(fine), RunEnded("s", "run-1", 0)]) == []


def test_merged_sessions_go_on_as_one() -> None:
    stream = failing().call("fetch", {"q": 2}, error=TIMEOUT).call("fetch", {"q": 2}, ok="fine")
    moved = [replace(step, session_id="new") for step in stream.steps]
    merge = SessionsMerged("s", "new")
    told = book_of([StepSeen(stream.steps[0]), merge, *map(StepSeen, moved[1:])])
    assert [(one.session_id, one.recovered, one.revision) for one in told] == [("new", True, 0)] * 2
    again = book_of([*map(StepSeen, stream.steps), merge])
    assert [(one.session_id, one.revision) for one in again[2:]] == [("new", 1)] * 2
    both = book_of([StepSeen(stream.steps[0]), StepSeen(moved[1]), merge, StepSeen(moved[2])])
    assert [one.calls_to_recovery for one in both] == [1, 1]


def test_the_bounds_hold_and_nothing_is_lost_by_them() -> None:
    stream = Stream()
    for number in range(40):
        stream.call(f"tool_{number}", {}, error=TIMEOUT)
    told = settled(stream, Config(max_open=4), end=False)
    assert [one.step_id for one in told] == [step.step_id for step in stream.steps[:36]]
    book = RecoveryBook(Config(max_scopes=3))
    lost = [
        one
        for n in range(10)
        for one in book.apply(StepSeen(Stream(session=f"s{n}").call("a", {}, error="x").steps[0]))
    ]
    assert [one.session_id for one in lost] == [f"s{n}" for n in range(7)]
    assert len(book) == 3
    book = RecoveryBook(Config(max_failures=3))
    for n in range(10):
        book.apply(StepSeen(Stream(session=f"s{n}").call("a", {}, error="x").steps[0]))
    assert len(book) == 3


def test_idle_scopes_are_let_go() -> None:
    book = RecoveryBook()
    book.apply(StepSeen(failing().steps[0]))
    fresh = Stream(session="fresh", now_ns=failing().now_ns + 3600 * SECOND_NS)
    told = [one for step in fresh.times(1100, "a", {}, ok="fine").steps for one in book.apply(StepSeen(step))]
    assert [(one.session_id, one.response) for one in told] == [("s", "abandoned")]


@pytest.mark.parametrize("field", [field.name for field in fields(Config)])
def test_nonsense_is_refused(field: str) -> None:
    with pytest.raises(ValueError, match=f"recovery.{field} must be"):
        Config(**{field: -1})


@st.composite
def histories(draw: st.DrawFn) -> list[StepEvent]:
    stream = Stream()
    events: list[StepEvent] = []
    for _ in range(draw(st.integers(1, 25))):
        what = draw(st.sampled_from(["call", "call", "call", "model", "user", "end", "merge", "amend"]))
        session = draw(st.sampled_from(["s", "t"]))
        if what == "end":
            events.append(RunEnded(session, "run-1", 0))
        elif what == "merge":
            events.append(SessionsMerged("t", "s"))
        elif what == "amend" and stream.steps:
            step = draw(st.sampled_from(stream.steps))
            outcome = draw(st.sampled_from(Outcome))
            events.append(StepAmended(replace(step, revision=step.revision + 1, outcome=outcome)))
        else:
            if what == "model":
                stream.model(draw(st.none() | st.integers(0, 9)), cost=draw(st.none() | st.just(0.1)))
            elif what == "user":
                stream.user(agent=draw(st.sampled_from(["main", None])))
            else:
                stream.call(
                    draw(st.sampled_from(["fetch", "bash", "ask_user", "wait"])),
                    draw(st.none() | st.fixed_dictionaries({"command": st.sampled_from(["cat a", "cat b"])})),
                    outcome=draw(st.sampled_from(Outcome)),
                    error=draw(st.sampled_from([TIMEOUT, SCHEMA, "Error"])),
                    attempt_id=draw(st.sampled_from([None, "m1", "m2", "m3"])),
                    after=draw(st.sampled_from([0.0, 1.0, 5.0, 2000.0])),
                )
            stream.steps[-1] = replace(stream.steps[-1], session_id=session)
            events.append(StepSeen(stream.steps[-1]))
    return events


@given(events=histories(), data=st.data())
def test_a_restart_anywhere_changes_nothing(events: list[StepEvent], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(events)))
    bounds = data.draw(st.sampled_from([{}, {"max_scopes": 2}, {"max_failures": 4}]))
    config = Config(max_open=3, horizon_calls=4, **bounds)
    whole, one = RecoveryBook(config), RecoveryBook(config)
    said = [whole.apply(event) for event in events]
    kept: dict[str, Json] = {}
    again = []
    for index, event in enumerate(events):
        if index <= cut:
            for key, state in one.changed().items():
                kept.pop(key, None)
                if state is not None:
                    kept[key] = state
        if index == cut:
            other = RecoveryBook(config)
            other.restore(orjson.loads(orjson.dumps(kept)))
            one = other
        again.append(one.apply(event))
    assert again == said


def test_after_a_restart_the_same_scope_goes_for_lack_of_room() -> None:
    """The one that was used last stays, though its clock is behind."""
    config = Config(max_scopes=2)
    whole, restarted = RecoveryBook(config), RecoveryBook(config)
    for session, at in (("ahead", 9), ("behind", 1)):
        [step] = Stream(session=session, now_ns=at * 10**15).call("t", {}, error="Error").steps
        assert whole.apply(StepSeen(step)) == restarted.apply(StepSeen(step)) == []
    kept = orjson.loads(orjson.dumps(restarted.changed()))
    restarted = RecoveryBook(config)
    assert restarted.restore(kept) == {}
    [step] = Stream(session="third").call("t", {}, error="Error").steps
    gone = whole.apply(StepSeen(step))
    assert [one.session_id for one in gone] == ["ahead"]
    assert restarted.apply(StepSeen(step)) == gone


def test_a_state_that_cannot_be_read_is_told_and_the_others_are_restored() -> None:
    book = RecoveryBook()
    book.apply(StepSeen(failing("Error").steps[0]))
    again = RecoveryBook()
    left = again.restore({"of": {"another": "version"}, **book.changed()})
    assert (list(left), len(again)) == (["of"], 1)


@given(events=histories())
def test_every_failure_is_settled_once_and_within_bounds(events: list[StepEvent]) -> None:
    book = RecoveryBook(Config(max_open=3))
    told = [one for event in events for one in book.apply(event)]
    told += [one for session in "st" for one in book.apply(RunEnded(session, "run-1", 0))]
    assert len({(one.step_id, one.revision) for one in told}) == len(told)
    seen = {event.step.step_id for event in events if isinstance(event, (StepSeen, StepAmended))}
    for one in told:
        assert one.step_id in seen
        assert one.recovered == (one.response is Response.RECOVERED) == (one.calls_to_recovery is not None)
        assert not one.recovered or (one.retries <= 3 and (one.calls_to_recovery or 0) <= 5)
        assert one.fed_back or not one.ure
    snapshots: list[Any] = [state for state in book.changed().values() if state is not None]
    assert all(len(state["tracker"]["open"]) <= 3 for state in snapshots)


def test_results_are_not_kept() -> None:
    book = RecoveryBook()
    book.apply(StepSeen(failing("x" * 100_000).steps[0]))
    [state] = book.changed().values()
    assert len(orjson.dumps(state)) < 2_000
