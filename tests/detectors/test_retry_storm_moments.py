"""Streams of failing attempts, and the exact call at which a retry storm is alarmed and confirmed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.step import Json, Kind, Outcome
from detectors.catalog import build
from detectors.engine import Engine
from detectors.protocol import Severity
from detectors.reading import Reading
from detectors.retry_storm import RetryStorm, RetryStormConfig
from detectors.tuning import Tuned
from tests.detectors.stream import Stream, first, judged

URL: dict[str, Json] = {"url": "https://api.ex.org/things"}
BUSY = "503 Service Unavailable"


def tight() -> Stream:
    return Stream().times(12, "http_get", URL, error=BUSY, after=0.5)


def slow_but_steady() -> Stream:
    return Stream().times(12, "http_get", URL, error=BUSY, after=20.0)


def other_arguments_each_time() -> Stream:
    stream = Stream()
    for n in range(12):
        stream.call("http_get", {"url": f"https://api.ex.org/{n}", "q": n}, error="429 Too Many Requests")
    return stream


def in_band() -> Stream:
    return Stream().times(12, "bash", {"command": "curl -s https://up.ex.org/q"}, ok=BUSY, after=1.0)


def one_success_in_between() -> Stream:
    stream = Stream().times(4, "http_get", URL, error="read timed out", after=1.0)
    return stream.call("http_get", URL, ok="{}", after=1.0).times(
        8, "http_get", URL, error="read timed out", after=1.0
    )


def sooner_than_asked() -> Stream:
    return Stream().times(12, "chat", {"q": 1}, error="429: retry after 2s", after=0.2)


def a_model_that_is_overloaded() -> Stream:
    stream = Stream()
    for _ in range(12):
        stream.model(5, outcome=Outcome.ERROR, error="529 overloaded", provider="anthropic")
    return stream


def new_runs_at_once() -> Stream:
    stream = Stream()
    for n in range(12):
        stream.run = f"run-{n}"
        stream.call("http_get", URL, error=BUSY, after=1.0)
    return stream


def busy_with_other_things_in_between() -> Stream:
    stream = Stream().times(3, "load", {"file": "a.wav"}, ok="Tool call timed out.")
    stream.call("stat", {"path": "a.wav"}, ok="4485198 bytes").call("route", {"q": 1}, ok="three tools")
    return stream.times(9, "load", {"file": "a.wav", "seconds": 30}, ok="Tool call timed out.")


@pytest.mark.parametrize(
    ("build", "alarm", "confirmed"),
    [
        (tight, 6, 10),
        (slow_but_steady, 7, 10),
        (other_arguments_each_time, 5, 10),
        (in_band, 6, 10),
        (one_success_in_between, 7, 11),
        (sooner_than_asked, 6, 10),
        (new_runs_at_once, 6, 10),
        (busy_with_other_things_in_between, 7, 12),
    ],
)
def test_a_storm_is_seen_at(build: Callable[[], Stream], alarm: int, confirmed: int) -> None:
    found = judged(build().steps, RetryStorm())
    assert first(found, "warning", "critical") == alarm
    assert first(found, "critical") == confirmed


def test_a_model_call_counts_like_any_other() -> None:
    found = judged(a_model_that_is_overloaded().steps, RetryStorm())
    assert [finding.severity for _, finding in found] == ["warning", "warning", "critical"]
    assert found[0][1].evidence["endpoint"] == "anthropic"
    assert [finding.occurrences for _, finding in found] == [5, 8, 10]


def retry_after_honoured() -> Stream:
    return Stream().times(20, "chat", {"q": 1}, error="429: please retry after 30s", after=30.0)


def growing_pauses() -> Stream:
    stream = Stream()
    for n in range(9):
        stream.call("http_get", URL, error=BUSY, after=float(2**n))
    return stream


def back_off_with_a_ceiling() -> Stream:
    stream = Stream()
    for pause in (1, 2, 4, 8, 16, 32, 32, 32, 30, 33, 31, 32, 32):
        stream.call("http_get", URL, error=BUSY, after=float(pause))
    return stream


def one_retry_each() -> Stream:
    stream = Stream()
    for n in range(10):
        url: Json = {"url": f"https://e{n}.ex.org/"}
        stream.call("http_get", url, error=BUSY).call("http_get", url, ok=f"page {n}")
    return stream


def a_flaky_server_that_answers_every_third_time() -> Stream:
    stream = Stream()
    for _ in range(10):
        stream.times(2, "http_get", URL, error=BUSY, after=1.0).call("http_get", URL, ok="{}", after=1.0)
    return stream


def a_person_asks_again() -> Stream:
    stream = Stream()
    for _ in range(10):
        stream.user().call("ssh", {"host": "db-2"}, error="connect: Connection timed out", after=1.0)
    return stream


def one_parallel_message() -> Stream:
    stream = Stream()
    for n in range(12):
        stream.call("http_get", {"url": f"https://x.org/{n}"}, error=BUSY, attempt_id="m1", after=0.0)
    return stream


def once_an_hour() -> Stream:
    return Stream().times(12, "http_get", URL, error=BUSY, after=400.0)


def a_test_that_times_out_between_edits() -> Stream:
    stream = Stream()
    for n in range(10):
        stream.call("edit", {"path": "a.py", "new": f"x = {n}"}, ok=f"edit {n} applied", after=1.0)
        stream.call("bash", {"command": "pytest -q"}, error="TimeoutError: read timed out", after=1.0)
    return stream


def errors_that_say_nothing_of_the_server() -> Stream:
    stream = Stream()
    for n in range(12):
        stream.call("read_file", {"path": f"{n}.py"}, error=f"no such file: {n}.py", after=1.0)
    return stream


def documents_about_timeouts() -> Stream:
    text = "How to tune connection timeouts in the client, and what 503 means. " * 5
    return Stream().times(12, "fetch", URL, ok=text, after=1.0)


@pytest.mark.parametrize(
    "build",
    [
        retry_after_honoured,
        growing_pauses,
        back_off_with_a_ceiling,
        one_retry_each,
        a_flaky_server_that_answers_every_third_time,
        a_person_asks_again,
        one_parallel_message,
        once_an_hour,
        a_test_that_times_out_between_edits,
        errors_that_say_nothing_of_the_server,
        documents_about_timeouts,
    ],
)
def test_it_is_no_storm(build: Callable[[], Stream]) -> None:
    assert judged(build().steps, RetryStorm()) == []


def test_retries_of_what_cannot_go_away_are_said_at_the_tenth() -> None:
    steps = Stream().times(12, "read_file", {"path": "a.py"}, error="no such file: a.py").steps
    found = judged(steps, RetryStorm())
    assert [at for at, _ in found] == [10]
    evidence = found[0][1].evidence
    assert (evidence["rule"], evidence["can_go_away"]) == ("structural", False)
    assert "cannot go away" in found[0][1].summary


def test_the_evidence_names_the_target_the_pace_and_what_was_ignored() -> None:
    (_, finding), *_ = judged(sooner_than_asked().steps, RetryStorm())
    evidence = finding.evidence
    assert (evidence["count"], evidence["threshold"], evidence["error_class"]) == (6, 6, "rate_limit")
    assert (evidence["asked_s"], evidence["asked_ignored"]) == (2.0, 5)
    assert (evidence["attempts"], evidence["amplification"], evidence["failed_share"]) == (6, 6.0, 1.0)
    assert evidence["gaps_s"] == [0.2] * 5
    assert evidence["span_ids"] == [f"span-{n}" for n in range(1, 7)]


def test_servers_that_are_told_apart_have_their_own_count() -> None:
    stream = Stream()
    for n in range(8):
        stream.call("query", {"q": n}, error=BUSY, target=f"db-{n % 2}", after=1.0)
    assert judged(stream.steps, RetryStorm()) == []


def test_without_a_session_it_is_never_critical() -> None:
    stream = Stream(session="process:web-1")
    found = judged(stream.times(30, "http_get", URL, error=BUSY, after=0.5).steps, RetryStorm())
    assert {finding.severity for _, finding in found} == {Severity.WARNING}
    assert all(finding.evidence["missing"] == ["session"] for _, finding in found)


def test_an_outcome_that_comes_later_counts() -> None:
    storm = RetryStorm()
    steps = Stream().times(6, "http_get", URL, error=BUSY, after=0.5).steps
    unknown = Stream().times(6, "http_get", URL, outcome=Outcome.UNKNOWN, after=0.5).steps
    assert judged(unknown, storm) == []
    found = [finding for step in steps for finding in storm.amend(Reading(step))]
    assert [finding.occurrences for finding in found] == [6]
    assert [finding for step in steps for finding in storm.amend(Reading(step))] == []


def test_two_sessions_that_are_one_add_up() -> None:
    steps = tight().steps
    past, present = RetryStorm(), RetryStorm()
    assert judged(steps[:3], past) == []
    assert judged(steps[3:4], present) == []
    present.absorb(past.snapshot())
    found = judged(steps[4:6], present)
    assert [(finding.occurrences, finding.first_span_id) for _, finding in found] == [(6, "span-1")]


def test_a_tool_can_have_its_own_limits() -> None:
    tuned = Tuned(RetryStormConfig(), {"http_get": RetryStormConfig(errors=9)})
    assert first(judged(tight().steps, RetryStorm(tuned)), "warning", "critical") == 10


@pytest.mark.parametrize(
    "setting",
    [{"errors": 1}, {"share": 0.0}, {"share": 1.1}, {"amplification": 0.5}, {"window_s": float("nan")}],
)
def test_settings_out_of_range_are_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=rf"retry_storm\.{next(iter(setting))} must be"):
        RetryStormConfig(**setting)


@given(st.lists(st.floats(0.0, 60.0), min_size=4, max_size=30), st.floats(1.0, 30.0))
def test_who_waits_as_long_as_asked_is_never_alarmed(more: list[float], asked: float) -> None:
    stream = Stream()
    for extra in more:
        stream.call("chat", {"q": 1}, error=f"429: retry after {asked:.3f} s", after=asked + extra)
    assert judged(stream.steps, RetryStorm()) == []


@given(st.integers(6, 40), st.floats(0.0, 1.9), st.booleans())
def test_who_does_not_wait_is_always_alarmed(count: int, pause: float, other: bool) -> None:  # noqa: FBT001 - drawn
    stream = Stream()
    for n in range(count):
        stream.call("http_get", {**URL, "q": n} if other else URL, error=BUSY, after=pause)
    assert first(judged(stream.steps, RetryStorm()), "warning") == (5 if other else 6)


def test_one_call_again_and_again_is_a_doom_loop_first_and_a_storm_when_it_goes_on() -> None:
    engine = Engine({name: build()[name] for name in ("doom_loop", "retry_storm")})
    found = [finding for step in tight().steps for finding in engine.observe(step)]
    alarms = [finding for finding in found if finding.severity is not Severity.INFO]
    assert (alarms[0].kind, alarms[-1].kind) == ("doom_loop", "retry_storm")
    assert len({finding.id for finding in found}) == 1


def test_compactions_are_attempts_at_the_model() -> None:
    stream = Stream()
    for _ in range(6):
        stream.model(kind=Kind.COMPACTION, outcome=Outcome.ERROR, error=BUSY, model="m")
    assert [finding.evidence["endpoint"] for _, finding in judged(stream.steps, RetryStorm())] == ["m"]


def test_a_compaction_without_a_ceiling_is_critical_at_the_fourth_failure_however_slow() -> None:
    stream = Stream()
    for n in range(6):
        stream.model(9, provider="p", model="m").model(9, provider="p", model="m")
        stream.now_ns += 600_000_000_000
        error = f"prompt is too long: {200_000 + n} tokens > 200000 maximum"
        stream.model(kind=Kind.COMPACTION, outcome=Outcome.ERROR, error=error, provider="p", model="m")
    found = [finding for _, finding in judged(stream.steps, RetryStorm())]
    assert [(finding.severity, finding.occurrences) for finding in found] == [(Severity.CRITICAL, 4)]
    assert found[0].evidence["rule"] == "structural"


def test_a_compaction_that_works_again_ends_it() -> None:
    stream = Stream()
    for n in range(12):
        failed = n % 4 != 3
        outcome, error = (Outcome.ERROR, "prompt is too long") if failed else (Outcome.OK, None)
        stream.model(kind=Kind.COMPACTION, outcome=outcome, error=error, provider="p", model="m")
    assert judged(stream.steps, RetryStorm()) == []
