"""Hand-off reports: each field out of its evidence, or unknown; short forms; what is kept."""

from __future__ import annotations

import unicodedata
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.step import Outcome, RunEnded, StepSeen
from control.action import Action
from control.actor import Actor
from control.alerts.record import Alert
from control.alerts.states import AlertState
from control.breakers.states import Event
from control.burn import burn_of
from control.handoff import FIELDS, MAX_BRIEF, brief, brief_of, build, forget, keep, kept, to_markdown
from control.handoff.forms import UNKNOWN, to_dict
from control.handoff.reports import HandoffDuty, Reports
from control.notices import notice
from control.scope import Scope
from detectors.notes import Notes, Repeat
from detectors.notes_book import NotesBook
from detectors.protocol import Finding, Severity
from tests.control.support import STUCK, ManualClock, Parts, Spool, another
from tests.detectors.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from control.breakers.record import Breaker

SOMEBODY = Actor(type="person", id="somebody")
MISSING = "FileNotFoundError: [Errno 2] No such file or directory: 'a.py'"
SCHEMA = "Invalid arguments: 'limit' is a required property"
TIMEOUT = "Request timed out after 30 s"
AUTH = "401 Unauthorized: token expired"


def book_of(stream: Stream, *found: Finding) -> NotesBook:
    book = NotesBook()
    for step in stream.steps:
        book.apply(StepSeen(step))
    for finding in found:
        book.found(finding)
    return book


def notes_of(stream: Stream, *found: Finding) -> Notes:
    notes = book_of(stream, *found).notes(stream.session)
    assert notes is not None
    return notes


def finding_on(stream: Stream, *calls: int, **changes: Any) -> Finding:  # noqa: ANN401 - any fields
    """A finding whose streak are these steps of a stream."""
    steps = [stream.steps[call] for call in calls]
    told = replace(
        STUCK,
        session_id=stream.session,
        session_ids=(stream.session,),
        tool=steps[-1].tool,
        span_id=steps[-1].span_id,
        first_span_id=steps[0].span_id,
        step_id=steps[-1].step_id,
        started_at=steps[0].start_ns,
        detected_at=steps[-1].end_ns,
        occurrences=len(calls),
        evidence={"span_ids": [step.span_id for step in steps]},
    )
    return replace(told, **changes)


def alert_of(finding: Finding) -> Alert:
    return Alert(
        id=f"al_{finding.id}",
        state=AlertState.FIRING,
        episode=1,
        finding=finding,
        fired_at=finding.detected_at,
        updated_at=finding.detected_at,
        key="key",
    )


def failing(count: int, error: str, tool: str = "read", *, same: bool = False) -> Stream:
    stream = Stream().user(text="Find the bug")
    for number in range(count):
        stream.call(tool, {"path": "a" if same else f"a{number}"}, error=error)
    return stream


def report(stream: Stream, *found: Finding) -> Any:  # noqa: ANN401 - JSON
    return to_dict(build(notes_of(stream, *found), found, (), stream.now_ns))


def test_nothing_known_is_no_report() -> None:
    with pytest.raises(ValueError, match="nothing"):
        build(None, (), (), 0)


def test_what_nobody_recorded_is_unknown_and_unfilled() -> None:
    made = build(Notes(session_id="s"), (), (), 0)
    assert set(made.unknown) == set(FIELDS)
    assert made.filled() == 0.0
    told = to_dict(made)
    assert all(told[name] == UNKNOWN for name in FIELDS)
    assert to_markdown(told).count(f"\n{UNKNOWN}\n") == len(FIELDS)


def test_a_finding_alone_says_a_little() -> None:
    made = build(None, (STUCK,), (), 0)
    assert set(made.unknown) == {"goal", "failing_paths", "side_effects", "not_tried", "cost"}
    assert made.onset is not None
    assert (made.onset.number, made.onset.at_ns, made.onset.span_id) == (
        0,
        STUCK.started_at,
        STUCK.first_span_id,
    )


def test_goal_paths_causes_and_cost_are_those_of_the_notes() -> None:
    stream = failing(4, MISSING).model(100, cost=0.25)
    told = report(stream)
    assert told["goal"] == "Find the bug"
    (path,) = told["failing_paths"]
    assert (path["failures"], path["in_a_row"], path["different"], path["recovered"]) == (4, 4, 4, False)
    (cause,) = told["causes"]["confirmed"]
    assert "is asked for something that is not there" in cause["text"]
    assert cause["evidence"].startswith("4 failures, calls 1 to 4")
    assert (told["cost"]["tokens"], told["cost"]["usd"], told["cost"]["calls"]) == (200, 0.25, 4)
    assert told["unknown"] == []


def test_what_works_again_is_only_suspected() -> None:
    stream = failing(3, MISSING).call("read", {"path": "b"}, ok="text")
    told = report(stream)
    assert told["causes"]["confirmed"] == []
    assert told["failing_paths"][0]["recovered"] is True
    assert told["next_step"]["text"].startswith("read has worked since")


def test_what_happened_once_is_no_cause() -> None:
    assert report(failing(1, MISSING))["causes"] == UNKNOWN


def test_what_only_one_record_tells_is_suspected_and_what_two_compare_is_confirmed() -> None:
    stream = failing(1, "job 12 ended")
    doubtful = finding_on(stream, 1, id="01", kind="no_progress")
    proven = finding_on(stream, 1, id="02", kind="hallucinated_call")
    told = report(stream, doubtful, proven)["causes"]
    assert [cause["finding_id"] for cause in told["confirmed"]] == ["02"]
    assert [cause["finding_id"] for cause in told["suspected"]] == ["01"]


def test_equal_results_are_a_path_that_leads_nowhere() -> None:
    stream = Stream()
    for _ in range(4):
        stream.call("search", {"q": "x"}, ok="nothing")
    told = report(stream)
    (path,) = told["failing_paths"]
    assert (path["error_class"], path["failures"]) == ("no_news", 4)
    assert told["onset"]["number"] == 3
    assert told["not_tried"][0]["what"] == "a plan without search(x)"


ONSETS = {
    "the third of the same": (STUCK.kind, {}, (1, 2, 3, 4, 5), 3),
    "the call after three attempts": ("flail", {}, (1, 2, 3, 4, 5), 4),
    "found before there was a third": (STUCK.kind, {}, (1, 2), 2),
    "the third lap": (STUCK.kind, {"period": 2}, (1, 2, 3, 4, 5, 6), 5),
}


@pytest.mark.parametrize("name", ONSETS)
def test_the_onset_is_where_it_is_stuck_without_excuse(name: str) -> None:
    kind, more, calls, wanted = ONSETS[name]
    stream = failing(6, MISSING)
    found = finding_on(stream, *calls, kind=kind)
    found = replace(found, evidence={**found.evidence, **more})
    onset = report(stream, found)["onset"]
    assert (onset["number"], onset["began_number"], onset["rule"]) == (wanted, 1, kind)
    step = stream.steps[wanted]
    assert (onset["step_id"], onset["span_id"], onset["at_ns"]) == (step.step_id, step.span_id, step.start_ns)


def test_the_onset_of_a_streak_that_began_long_ago_is_that_of_its_path() -> None:
    stream = failing(40, MISSING)
    onset = report(stream, finding_on(stream, 1, 40, kind="flail"))["onset"]
    assert (onset["began_number"], onset["number"]) == (1, 3)


def test_an_alarm_speaks_before_an_earlier_note() -> None:
    stream = failing(6, MISSING)
    note = finding_on(stream, 1, 2, id="01", severity=Severity.INFO)
    alarm = finding_on(stream, 2, 3, 4, 5, id="02")
    assert report(stream, note, alarm)["onset"]["number"] == 4


def test_what_is_in_shadow_is_not_told() -> None:
    stream = failing(2, MISSING)
    found = finding_on(stream, 1, 2)
    shadow = replace(found, evidence={**found.evidence, "shadow": True})
    assert report(stream, shadow)["kind"] == ""


UNTRIED = {
    "waiting": (failing(3, TIMEOUT), "waiting longer between tries"),
    "other arguments": (failing(3, SCHEMA, same=True), "other arguments"),
    "credentials": (failing(3, AUTH), "fresh credentials"),
    "another tool": (
        failing(3, MISSING, "write_file")
        .call("read", {"path": "b"}, ok="x")
        .call("grep", {"q": "b"}, ok="x"),
        "another tool than write_file",
    ),
    "another plan": (failing(3, MISSING), "a plan without read"),
    "looking": (failing(2, MISSING), "looking for the cause"),
    "offered tools": (
        failing(2, MISSING).model(1, offered_tools=("read", "search")),
        "tools that were offered: search",
    ),
    "asking": (Stream().call("read", {"path": "a"}, ok="x"), "asking a person"),
}


@pytest.mark.parametrize("name", UNTRIED)
def test_what_was_not_tried_comes_with_how_that_is_known(name: str) -> None:
    stream, wanted = UNTRIED[name]
    told = report(stream)["not_tried"]
    assert wanted in [one["what"] for one in told]
    assert all(one["evidence"] for one in told)


def test_that_nobody_was_asked_alone_does_not_fill_the_field() -> None:
    assert "not_tried" in report(Stream().call("read", {"path": "a"}, ok="x"))["unknown"]


PRESCRIBED = {
    TIMEOUT: "backoff_retry",
    SCHEMA: "rewrite_arguments",
    AUTH: "refresh_then_retry",
    MISSING: "replan",
    "job 12 ended": "escalate",
}


@pytest.mark.parametrize("error", PRESCRIBED)
def test_the_next_step_is_the_prescription_of_the_class(error: str) -> None:
    step = report(failing(3, error))["next_step"]
    assert step["prescription"] == PRESCRIBED[error]
    assert error in step["text"]


def test_the_next_step_warns_of_what_must_not_happen_twice() -> None:
    stream = Stream().call("send_email", {"to": "a"}, ok="sent")
    for _ in range(3):
        stream.call("read", {"path": "a"}, error=MISSING)
    told = report(stream)
    assert "send_email worked already and must not happen twice" in told["next_step"]["text"]
    assert told["side_effects"]["done"][0]["repeat_safe"] is False


def test_side_effects_that_are_not_clear_are_shown_and_do_not_fill_the_field() -> None:
    told = report(Stream().call("mystery", {"x": 1}, ok="x"))
    assert "side_effects" in told["unknown"]
    assert told["side_effects"]["unclear_tools"] == ["mystery"]
    only_reads = report(Stream().call("read", {"path": "a"}, ok="x"))
    assert "side_effects" not in only_reads["unknown"]


def test_the_burn_is_that_of_the_last_five_minutes() -> None:
    stream = Stream()
    for _ in range(20):
        stream.model(300).call("read", {"path": "a"}, ok="x", after=60.0)
    cost = report(stream)["cost"]
    assert cost["tokens"] == 20 * 600
    assert cost["tokens_per_minute"] == pytest.approx(600, rel=0.25)
    assert cost["usd_per_minute"] is None


def test_the_burn_of_a_first_second_is_what_was_used_in_it() -> None:
    stream = Stream().model(1883).call("read", {"path": "a"}, ok="x", after=0.9)
    cost = report(stream)["cost"]
    assert (cost["seconds"], cost["tokens_per_minute"], cost["calls_per_minute"]) == (
        pytest.approx(1.1), 3766.0, 1.0,
    )  # fmt: skip


@given(
    pauses=st.lists(st.floats(0.1, 200), min_size=1, max_size=30),
    tokens=st.integers(1, 10_000),
    later=st.integers(0, 600),
)
def test_the_burn_is_never_more_than_what_was_used_and_equal_in_message_and_report(
    pauses: list[float], tokens: int, later: int
) -> None:
    stream = Stream()
    for pause in pauses:
        stream.model(tokens).call("read", {"path": "a"}, ok="x", after=pause)
    notes = notes_of(stream)
    finding = finding_on(stream, 0)
    burn = burn_of(notes, notes.last_ns + later * 10**9)
    assert notes.tokens is not None
    assert burn.tokens is not None
    assert 0 <= burn.tokens <= notes.tokens
    said = notice(alert_of(finding), (), notes=notes).data["burn"]
    cost = brief(finding, notes)["cost"]
    assert said == {"tokens_per_minute": cost["tokens_per_minute"], "usd_per_hour": None}


def test_an_even_burn_is_told_exactly_wherever_the_minute_begins() -> None:
    for begun in range(0, 60, 7):
        stream = Stream(now_ns=1_704_067_200_000_000_000 + begun * 10**9)
        for _ in range(400):
            stream.model(5).call("read", {"path": "a"}, ok="x", after=1.9)
        assert burn_of(notes_of(stream), stream.now_ns).tokens == pytest.approx(60 / 2.1 * 10, rel=0.02)


def test_a_burn_of_which_nothing_was_kept_is_unknown() -> None:
    burn = burn_of(Notes(session_id="s", calls=3, input_tokens=5), 0)
    assert (burn.calls, burn.tokens, burn.usd) == (None, None, None)


def test_the_timeline_is_in_the_order_of_time_and_bounded() -> None:
    stream = failing(4, MISSING)
    found = [finding_on(stream, 1, 2, 3, id=f"{number:02x}") for number in range(40)]
    moments = build(notes_of(stream, *found), found, (), stream.now_ns).timeline
    assert len(moments) <= 24
    assert [one.at_ns for one in moments] == sorted(one.at_ns for one in moments)


def test_a_run_is_running_stopped_or_ended(tmp_path: Path) -> None:
    stream = failing(3, MISSING)
    notes = notes_of(stream)
    with closing(Parts(tmp_path)) as parts:
        somebody = Actor(type="person", id="somebody")
        halted = parts.breakers.act(Scope(session="s"), Event.TRIP, somebody, "stuck", action=Action.HALT)
    assert build(notes, (), (), 0).state == "running"
    assert build(notes, (), (halted,), 0).state == "stopped"
    book = book_of(stream)
    book.apply(RunEnded(stream.session, stream.run, stream.now_ns))
    ended = book.notes(stream.session)
    assert build(ended, (), (halted,), 0).state == "ended"


def test_the_first_line_says_whose_run_it_is_and_how_it_stands(tmp_path: Path) -> None:
    with closing(Parts(tmp_path)) as parts:
        halt = parts.breakers.act(Scope(session="s"), Event.TRIP, SOMEBODY, "stuck", action=Action.HALT)
    running = Notes(session_id="s", calls=1, agent="buyer", service="shop")

    def first(notes: Notes, *breakers: Breaker) -> str:
        return to_markdown(to_dict(build(notes, (), breakers, 0))).splitlines()[2]

    assert first(running) == "The run of buyer of shop goes on. Nothing was found."
    assert first(running, halt).startswith("The run of buyer of shop is stopped by a breaker. ")
    assert first(replace(running, ended_ns=1)).startswith("The run of buyer of shop has ended. ")
    assert first(replace(running, agent=None)).startswith("The run of an agent of shop goes on. ")
    assert first(Notes(session_id="s", calls=1)).startswith("The run of an agent goes on. ")


def test_what_is_said_now_names_the_call_that_it_is_of() -> None:
    stream = failing(5, MISSING, same=True)
    alarm = finding_on(stream, 1, 2, 3)
    book = book_of(Stream(steps=stream.steps[:4]), alarm)
    book.apply(StepSeen(stream.steps[4]))
    now = replace(finding_on(stream, 1, 2, 3, 4), revision=1, summary="read was called 4 times")
    book.found(now)
    notes = book.notes(stream.session)
    told: Any = to_dict(build(notes, (now,), (), stream.now_ns))
    onset = told["onset"]
    assert (onset["found_number"], onset["latest_number"]) == (3, 4)
    assert onset["latest_ns"] == now.detected_at
    (found,) = [one for one in told["timeline"] if one["what"] == "found"]
    assert (found["number"], found["at_ns"]) == (4, now.detected_at)
    text = to_markdown(told)
    assert "It was found at call 3, " in text
    assert "; what is said of it now is as of call 4, " in text
    before = report(Stream(steps=stream.steps[:4]), alarm)
    assert "what is said of it now" not in to_markdown(before)


HERE = Notes(session_id="s", service="shop", agent="buyer", run_id="r", calls=2, tried=("read",))


@pytest.mark.parametrize(
    ("scope", "holds"),
    [
        (Scope(session="s"), True),
        (Scope(session="s", tool="other"), True),
        (Scope(session="t"), False),
        (Scope(run="r"), True),
        (Scope(run="q"), False),
        (Scope(agent="buyer"), True),
        (Scope(agent="buyer@2"), True),
        (Scope(agent="seller"), False),
        (Scope(service="shop", agent="buyer"), True),
        (Scope(service="other", agent="buyer"), False),
        (Scope(service="shop", tool="read"), True),
        (Scope(service="shop", tool="write"), False),
        (Scope(), True),
    ],
)
def test_breakers_that_hold_a_run_are_named_wide_ones_too(
    tmp_path: Path, scope: Scope, *, holds: bool
) -> None:
    with closing(Parts(tmp_path)) as parts:
        parts.notes["s"] = HERE
        held = parts.breakers.act(scope, Event.FORCE_OPEN, SOMEBODY, "stop", action=Action.HALT)
        told: Any = Reports(parts.db, parts.notes.get, parts.clock).of("s")
    assert [one["id"] for one in told["held_by"]] == ([held.id] if holds else [])
    assert told["state"] == ("stopped" if holds else "running")
    assert (f"- Held by breaker `{held.id}` (halt, forced open) over " in to_markdown(told)) is holds


def test_a_line_says_which_breaker_over_what_since_when(tmp_path: Path) -> None:
    with closing(Parts(tmp_path)) as parts:
        parts.notes["s"] = HERE
        deny = parts.breakers.act(Scope(session="s", tool="read"), Event.TRIP, SOMEBODY, "stuck")
        over = parts.breakers.act(Scope(session="s"), Event.TRIP, SOMEBODY, "stuck")
        parts.breakers.act(over.id, Event.RESET, SOMEBODY, "well")
        every = parts.breakers.act(Scope(), Event.TRIP, SOMEBODY, "all", action=Action.HALT)
        told: Any = Reports(parts.db, parts.notes.get, parts.clock).of("s")
    since = "since 2023-11-14 22:13:20 UTC."
    assert [line for line in to_markdown(told).splitlines() if "Held by" in line] == [
        f"- Held by breaker `{every.id}` (halt) over every agent of tenant `default` {since}",
        f"- Held by breaker `{deny.id}` (deny) over session `s`, tool `read` {since}",
    ]


def test_a_report_of_a_version_that_told_no_breakers_is_shown(tmp_path: Path) -> None:
    told: Any = to_dict(build(HERE, (STUCK,), (), 0))
    del told["held_by"], told["onset"]["latest_ns"], told["onset"]["latest_number"]
    assert "Held by" not in to_markdown(told)
    with closing(Parts(tmp_path)) as parts:
        with parts.db.transaction() as tx:
            keep(tx, "al_1", build(HERE, (), (), 5))
        held = parts.breakers.act(Scope(agent="buyer"), Event.TRIP, SOMEBODY, "stuck")
        again: Any = Reports(parts.db, parts.notes.get, parts.clock).of("s")
    assert (again["made_ns"], [one["id"] for one in again["held_by"]]) == (5, [held.id])


def test_markdown_leaves_foreign_text_without_force() -> None:
    stream = failing(3, "# Owned `code` <script>alert(1)</script>\n- [x](http://evil)")
    text = to_markdown(report(stream))
    assert "\n# Owned" not in text
    assert "\n- [x]" not in text
    outside = "".join(part for position, part in enumerate(text.split("`")) if position % 2 == 0)
    assert "<script>" not in outside.replace("\\<", "")
    assert len(text.splitlines()) < 100


def test_markdown_takes_over_no_terminal() -> None:
    evil = "\x1b[31mred\x1b]0;title\x07 \x00 \x9b2J \u202egnol\u2066 \u2028# new"
    stream = failing(3, evil)
    text = to_markdown(report(stream))
    assert "red" in text
    obeyed = {"Cc", "Cf", "Zl", "Zp"}
    assert not [sign for sign in text.replace("\n", "") if unicodedata.category(sign) in obeyed]


TEXTS = st.text(max_size=3000)


@given(TEXTS, TEXTS, TEXTS, st.integers(1, 30))
def test_a_brief_has_room_for_whatever_was_said(goal: str, error: str, argument: str, count: int) -> None:
    stream = Stream(session=(goal or "s")[:1000].encode("utf-8", "replace").decode()).user(text=goal)
    for number in range(count):
        stream.call(f"tool_{number}", {"text": argument, "n": number}, error=error or "x")
        stream.call(f"send_{number}", {"text": argument, "n": number}, ok=error)
    notes = notes_of(stream)
    told = brief(replace(STUCK, session_id=stream.session), notes)
    assert len(orjson.dumps(told)) <= MAX_BRIEF
    assert told["session_id"]


def test_a_brief_says_the_most_telling_of_each() -> None:
    told = brief_of(build(notes_of(failing(4, MISSING)), (STUCK,), (), 0))
    assert told["goal"] == "Find the bug"
    assert told["next_step"]["prescription"] == "replan"
    assert "timeline" not in told


def test_denied_calls_are_counted_as_refused() -> None:
    stream = failing(3, MISSING).call("read", {"path": "a"}, outcome=Outcome.DENIED)
    assert (report(stream)["cost"]["denied"], report(stream)["cost"]["failures"]) == (1, 3)


def test_notes_without_any_call_that_was_repeated() -> None:
    row = Repeat("00" * 8, "t", "", 1, 1, False, 0, 0, 0, 0, 1, "", "", 1, "", "")  # noqa: FBT003 - a row
    assert build(Notes(session_id="s", calls=1, repeats=(row,)), (), (), 0).failing_paths == ()


@pytest.fixture
def parts(tmp_path: Path, clock: ManualClock) -> Iterator[Parts]:
    with closing(Parts(tmp_path, clock=clock)) as made:
        yield made


def stored(parts: Parts, subject: str) -> Any:  # noqa: ANN401 - JSON
    with parts.db.reading() as connection:
        return kept(connection, subject)


def test_a_report_is_kept_and_a_later_one_takes_its_place(parts: Parts) -> None:
    for number in (1, 2):
        with parts.db.transaction() as tx:
            keep(tx, "al_1", build(Notes(session_id="s", calls=number), (), (), number))
    assert stored(parts, "al_1")["made_ns"] == 2
    with parts.db.transaction() as tx:
        forget(tx, 3)
    assert stored(parts, "al_1") is None


def duty_of(parts: Parts) -> HandoffDuty:
    return HandoffDuty(parts.db, Reports(parts.db, parts.notes.get, parts.clock), parts.clock)


def test_a_report_is_kept_when_an_alert_fires_and_when_a_breaker_trips(parts: Parts, spool: Spool) -> None:
    parts.notes["session-1"] = Notes(session_id="session-1", goal="Buy", calls=7)
    spool.add(STUCK)
    parts.decide_all()
    somebody = Actor(type="person", id="somebody")
    breaker = parts.breakers.act(Scope(session="session-1"), Event.TRIP, somebody, "stuck")
    duty = duty_of(parts)
    duty.turn()
    assert stored(parts, f"al_{STUCK.id}")["goal"] == "Buy"
    assert stored(parts, breaker.id)["session_id"] == "session-1"


def test_each_event_is_followed_once_over_restarts_too(parts: Parts, spool: Spool) -> None:
    parts.notes["session-1"] = Notes(session_id="session-1", goal="First", calls=7)
    spool.add(STUCK)
    parts.decide_all()
    duty_of(parts).turn()
    parts.notes["session-1"] = Notes(session_id="session-1", goal="Second", calls=8)
    duty_of(parts).turn()
    assert stored(parts, f"al_{STUCK.id}")["goal"] == "First"


def test_alerts_of_the_fleet_have_no_report(parts: Parts, spool: Spool) -> None:
    spool.add(another(9, session_id="", session_ids=()))
    parts.decide_all()
    duty_of(parts).turn()
    assert stored(parts, f"al_{9:016x}") is None


def test_old_reports_are_forgotten(parts: Parts) -> None:
    with parts.db.transaction() as tx:
        keep(tx, "al_1", build(Notes(session_id="s", calls=1), (), (), parts.clock.now - 31 * 86_400 * 10**9))
    duty_of(parts).turn()
    assert stored(parts, "al_1") is None


def test_a_session_without_notes_shows_what_was_kept(parts: Parts, spool: Spool) -> None:
    parts.notes["session-1"] = Notes(session_id="session-1", goal="Buy", calls=7)
    spool.add(STUCK)
    parts.decide_all()
    duty_of(parts).turn()
    parts.notes.clear()
    reports = Reports(parts.db, parts.notes.get, parts.clock)
    told = reports.of("session-1")
    assert told is not None
    assert told["goal"] == "Buy"
    assert reports.of("nobody") is None
