"""Streams and the exact call at which each is noted, alarmed and confirmed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from collector.step import Json, Kind, Outcome
from detectors.doom_loop import DoomLoop, DoomLoopConfig
from detectors.protocol import Finding, Severity
from detectors.reading import Reading
from detectors.tool_policy import ToolPolicy
from detectors.tuning import Tuned
from tests.detectors.stream import Stream, first, judged

READ: Json = {"path": "a.py"}
EDIT: Json = {"path": "a.py", "old": "x", "new": "y"}


def repeated_reads() -> Stream:
    return Stream().times(9, "read_file", READ, ok="x = 1")


def repeated_errors() -> Stream:
    return Stream().times(9, "read_file", READ, error="no such file")


def refusals() -> Stream:
    return Stream().times(9, "shell", {"command": "rm -rf build"}, outcome=Outcome.DENIED)


def refusals_of_a_failing_call() -> Stream:
    stream = Stream().times(3, "fetch", READ, error="bad host")
    return stream.times(3, "fetch", READ, outcome=Outcome.DENIED)


def alternation() -> Stream:
    stream = Stream()
    for _ in range(6):
        stream.call("grep", {"q": "a"}, ok="one").call("grep", {"q": "b"}, ok="two")
    return stream


def cycle_of_six() -> Stream:
    stream = Stream()
    for _ in range(5):
        for n in range(6):
            stream.call(f"step_{n}", {"n": n}, ok=f"r{n}")
    return stream


def interleaved_with_other_reads() -> Stream:
    stream = Stream()
    for n in range(12):
        stream.call("read_file", READ, ok="x = 1").call("read_file", {"path": f"{n}.py"}, ok=f"y = {n}")
    return stream


def one_stranger_in_between() -> Stream:
    stream = Stream().times(2, "read_file", READ, ok="x = 1").call("read_file", {"path": "b.py"}, ok="y")
    return stream.times(4, "read_file", READ, ok="x = 1")


def overloaded_service_hammered() -> Stream:
    return Stream().times(
        9, "http_get", {"url": "https://ex.org"}, error="503 Service Unavailable", after=0.5
    )


def overloaded_service_asked_patiently() -> Stream:
    return Stream().times(
        13, "http_get", {"url": "https://ex.org"}, error="503 Service Unavailable", after=10
    )


def poll_of_a_running_job() -> Stream:
    return Stream().times(25, "job_status", {"id": 1}, ok='{"state": "running"}', after=10)


def poll_of_an_ended_job() -> Stream:
    return Stream().times(9, "job_status", {"id": 1}, ok='{"state": "completed"}', after=10)


def clock_in_the_result() -> Stream:
    stream = Stream()
    for n in range(9):
        stream.call("get_time", {}, ok=f"2026-05-01T10:20:{n:02}Z")
    return stream


def request_id_in_the_arguments() -> Stream:
    stream = Stream()
    for n in range(9):
        stream.call("search", {"q": "x", "request_id": f"abc{n}"}, ok=f"nothing for abc{n}")
    return stream


def errors_without_text() -> Stream:
    return Stream().times(9, "fetch_page", READ, outcome=Outcome.ERROR)


def nothing_known_but_arguments() -> Stream:
    return Stream().times(9, "fetch_page", READ, outcome=Outcome.UNKNOWN)


def arguments_unknown() -> Stream:
    return Stream().times(9, "fetch_page", None, error="no such host")


def sweep_that_wraps() -> Stream:
    stream = Stream()
    for lap in range(3):
        for page in range(10):
            arguments: Json = {"path": "a.rs", "offset": 1 + 40 * page + 5 * lap, "limit": 40}
            stream.call("read_file", arguments, ok=f"lines of lap {lap} page {page}")
    return stream


def same_three_calls_in_every_message() -> Stream:
    stream = Stream()
    for n in range(6):
        for path in ("a", "b", "c"):
            stream.call("read_file", {"path": path}, ok=path, attempt_id=f"m{n}", after=0)
    return stream


def messages_with_fresh_ids() -> Stream:
    stream = Stream()
    for n in range(9):
        stream.call("send_message", {"to": "ops", "text": "done"}, ok=f'{{"ok": true, "id": {n}}}')
    return stream


def thoughts_in_between() -> Stream:
    stream = Stream()
    for n in range(9):
        stream.call("read_file", READ, ok="x = 1").call("think", {"thought": f"hm {n}"}, ok="noted")
    return stream


def results_handed_over_as_user_turns() -> Stream:
    stream = Stream()
    for _ in range(9):
        stream.call("fetch_page", READ, error="bad host").user(after=0.0)
    return stream


def attempt_in_the_url() -> Stream:
    stream = Stream()
    for n in range(9):
        url = f"https://ex.org/status?try={n}"
        stream.call("fetch_page", {"url": url}, error=f"HTTP 500 from {url}", after=0.1)
    return stream


def workers_started_again() -> Stream:
    stream = Stream()
    for n in range(9):
        stream.call("spawn_agent", {"prompt": "explore"}, ok=f"started agent-{n}, 1 in background")
    return stream


def compaction_that_fails() -> Stream:
    stream = Stream()
    for _ in range(9):
        stream.model(kind=Kind.COMPACTION, outcome=Outcome.ERROR, error="prompt is too long")
    return stream


def error_that_calls_itself_a_success() -> Stream:
    return Stream().times(9, "run_status", {"id": 1}, ok="Error: no such run, still waiting for it")


# stream, first note, first warning, first critical: numbers of calls, None for never
SEEN = [
    (repeated_reads, 3, 4, 5),
    (repeated_errors, None, 3, 4),
    (refusals, None, 3, 4),
    (refusals_of_a_failing_call, None, 3, 4),
    (alternation, None, 6, 8),
    (cycle_of_six, None, 19, 25),
    (interleaved_with_other_reads, None, 9, 17),
    (one_stranger_in_between, 4, 5, 6),
    (overloaded_service_hammered, 3, 5, 6),
    (overloaded_service_asked_patiently, 3, 6, 9),
    (poll_of_a_running_job, None, 10, 20),
    (poll_of_an_ended_job, 3, 4, 5),
    (clock_in_the_result, 3, 4, 5),
    (request_id_in_the_arguments, 3, 4, 5),
    (errors_without_text, 3, 4, None),
    (nothing_known_but_arguments, 3, 5, None),
    (arguments_unknown, 3, None, None),
    (sweep_that_wraps, None, 16, 22),
    (same_three_calls_in_every_message, 7, 10, 13),
    (messages_with_fresh_ids, 3, 4, 5),
    (thoughts_in_between, 5, 7, 9),
    (results_handed_over_as_user_turns, None, 3, 4),
    (attempt_in_the_url, 3, 5, 6),
    (workers_started_again, 3, 4, 5),
    (error_that_calls_itself_a_success, None, 3, 4),
]


@pytest.mark.parametrize(
    ("stream", "note", "warning", "critical"), SEEN, ids=lambda value: getattr(value, "__name__", "")
)
def test_a_loop_is_seen_at_the_moment(
    stream: Callable[[], Stream],
    note: int | None,
    warning: int | None,
    critical: int | None,
) -> None:
    found = judged(stream().steps)
    moments = (first(found, "info"), first(found, "warning"), first(found, "critical"))
    assert moments == (note, warning, critical)
    assert {finding.kind for _, finding in found} == {"doom_loop"}


def edits_between_runs() -> Stream:
    stream = Stream()
    for n in range(12):
        stream.call("edit", {"path": "a.py", "old": f"{n}", "new": f"{n + 1}"}, ok="1 edit applied")
        stream.call("bash", {"command": "pytest -q"}, error="1 failed: assert 3 == 4")
    return stream


def heredocs_between_runs() -> Stream:
    stream = Stream()
    for n in range(4):
        stream.call("bash", {"command": f"cat > fix.py <<'EOF'\nx = {n}\nEOF"}, ok="")
        stream.call("bash", {"command": "python reproduce.py"}, ok="still wrong")
    return stream


def progress_in_a_poll() -> Stream:
    stream = Stream()
    for n in range(30):
        stream.call("job_status", {"id": 1}, ok=f'{{"state": "running", "progress": {n}}}', after=10)
    return stream


def poll_far_apart() -> Stream:
    return Stream().times(30, "check_inbox", {}, ok="no new mail", after=1800)


def poll_that_backs_off() -> Stream:
    stream = Stream()
    for n in range(14):
        stream.call("job_status", {"id": 1}, ok='{"state": "running"}', after=1.5**n + 2)
    return stream


def retry_after_honoured() -> Stream:
    error = "429 Too Many Requests, retry after 20s"
    return Stream().times(20, "http_get", {"url": "https://ex.org"}, error=error, after=20)


def one_call_a_user_turn() -> Stream:
    stream = Stream()
    for _ in range(12):
        stream.user().call("bash", {"command": "python demo.py"}, ok="42")
    return stream


def one_call_a_run() -> Stream:
    stream = Stream()
    for n in range(12):
        stream.run = f"run-{n}"
        stream.call("bash", {"command": "git status"}, ok="clean")
    return stream


def sweep_in_one_message() -> Stream:
    stream = Stream()
    for _ in range(8):
        stream.call("shell", {"command": "make"}, outcome=Outcome.DENIED, attempt_id="m1", after=0)
    return stream


def overlapping_calls_without_a_message() -> Stream:
    stream = Stream()
    for _ in range(8):
        stream.now_ns = Stream().now_ns
        stream.call("read_file", READ, ok="x")
    return stream


def first_pass_over_a_file() -> Stream:
    stream = Stream()
    for page in range(60):
        stream.call("read_file", {"path": "a", "offset": 40 * page, "limit": 40}, ok=f"page {page}")
    return stream


def waiting_between_looks() -> Stream:
    stream = Stream()
    for n in range(20):
        stream.call("wait", {"seconds": 3}, ok="").call("extract", {"what": "rows"}, ok=f"{n} rows")
    return stream


def clicks_and_opaque_screenshots() -> Stream:
    stream = Stream()
    for n in range(20):
        stream.call("screenshot", {}, ok="[image]").call("click", {"x": 10 * n}, ok="ok")
    return stream


def tabs_through_a_form() -> Stream:
    return Stream().times(9, "press_key", {"key": "Tab"}, ok="ok")


def queue_of_ids_that_are_used() -> Stream:
    stream = Stream()
    for n in range(12):
        item = f"00000000-0000-4000-8000-{n:012x}"
        stream.call("next_item", {}, ok=f'{{"id": "{item}"}}').call("get_item", {"id": item}, ok="paid")
    return stream


def ticker() -> Stream:
    stream = Stream()
    for n in range(20):
        stream.call("get_price", {"sym": "X"}, ok=f"{100 + n % 3} at 12:00:{n:02}", after=60)
    return stream


def sleeps_within_the_command() -> Stream:
    command = "sleep 30; kubectl get pods"
    return Stream().times(8, "bash", {"command": command}, ok="web 0/1 Creating")


QUIET = [
    sleeps_within_the_command,
    edits_between_runs,
    heredocs_between_runs,
    progress_in_a_poll,
    poll_far_apart,
    poll_that_backs_off,
    retry_after_honoured,
    one_call_a_user_turn,
    one_call_a_run,
    sweep_in_one_message,
    overlapping_calls_without_a_message,
    first_pass_over_a_file,
    waiting_between_looks,
    clicks_and_opaque_screenshots,
    tabs_through_a_form,
    queue_of_ids_that_are_used,
    ticker,
]


@pytest.mark.parametrize("stream", QUIET, ids=lambda stream: stream.__name__)
def test_a_healthy_stream_is_left_alone(stream: Callable[[], Stream]) -> None:
    assert first(judged(stream().steps), "warning", "critical") is None


def test_a_compaction_that_keeps_failing_is_a_loop_until_it_succeeds() -> None:
    stream = compaction_that_fails()
    severities = [finding.severity.value for finding in (found for _, found in judged(stream.steps))]
    assert severities == ["info", "critical", "critical"]
    healed = Stream()
    for _ in range(9):
        healed.model(outcome=Outcome.ERROR, error="prompt is too long").model(outcome=Outcome.OK)
    assert judged(healed.steps) == []


def test_a_streak_is_one_finding_that_is_said_again_when_it_doubles() -> None:
    found = judged(Stream().times(70, "read_file", READ, ok="x = 1").steps)
    assert len({finding.id for _, finding in found}) == 1
    assert [(at, finding.severity.value, finding.revision) for at, finding in found] == [
        (3, "info", 0),
        (4, "warning", 1),
        (5, "critical", 2),
        (8, "critical", 3),
        (16, "critical", 4),
        (32, "critical", 5),
        (64, "critical", 6),
    ]
    assert {finding.first_span_id for _, finding in found} == {"span-1"}


def test_a_changed_answer_begins_another_streak() -> None:
    stream = Stream().times(5, "read_file", READ, ok="old").call("edit", EDIT, ok="ok")
    found = judged(stream.times(5, "read_file", READ, ok="new").steps)
    assert len({finding.id for _, finding in found}) == 2


def test_the_evidence_says_what_and_why() -> None:
    stream = Stream()
    for _ in range(5):
        stream.model(100, cost=0.01).call("read_file", READ, ok="x = 1")
    finding = judged(stream.steps)[-1][1]
    evidence = finding.evidence
    assert finding.severity is Severity.CRITICAL
    assert finding.occurrences == 5
    assert evidence["rule"] == "repeat"
    assert evidence["threshold"] == 5
    assert evidence["missing"] == []
    assert evidence["since_onset"] == {
        "calls": 4,
        "input_tokens": 400,
        "output_tokens": 400,
        "cost_usd": 0.04,
    }
    assert evidence["span_ids"] == ["span-2", "span-4", "span-6", "span-8", "span-10"]


def test_missing_arguments_are_said_and_never_alarm() -> None:
    found = judged(arguments_unknown().steps)
    assert {finding.severity for _, finding in found} == {Severity.INFO}
    assert all(finding.evidence["missing"] == ["arguments"] for _, finding in found)


def test_the_span_ids_of_a_long_streak_are_bounded() -> None:
    found = judged(Stream().times(200, "read_file", READ, ok="x").steps)
    spans = found[-1][1].evidence["span_ids"]
    assert isinstance(spans, list)
    assert len(spans) == 8
    assert spans[0] == "span-1"


def test_a_late_step_ends_nothing() -> None:
    stream = Stream().times(4, "read_file", READ, ok="x")
    stream.call("edit", EDIT, ok="1 edit applied", late=True).call("read_file", READ, ok="x")
    assert first(judged(stream.steps), "critical") == 6


def test_a_late_step_counts_when_it_is_the_same() -> None:
    stream = Stream().times(4, "read_file", READ, ok="x").call("read_file", READ, ok="x", late=True)
    assert first(judged(stream.steps), "critical") == 5


def test_results_that_come_later_raise_the_verdict() -> None:
    detector = DoomLoop()
    found: list[Finding] = []
    for step in Stream().times(5, "read_file", READ, outcome=Outcome.OK).steps:
        found += detector.observe(Reading(step))
        found += detector.amend(Reading(dataclasses.replace(step, result="x = 1", revision=1)))
    assert [finding.severity.value for finding in found] == ["info", "warning", "critical"]
    assert found[-1].evidence["missing"] == []


def test_results_that_come_later_and_differ_end_the_streak() -> None:
    detector = DoomLoop()
    found: list[Finding] = []
    for n, step in enumerate(Stream().times(20, "read_file", READ, outcome=Outcome.OK).steps):
        found += detector.observe(Reading(step))
        found += detector.amend(Reading(dataclasses.replace(step, result=f"x = {n}", revision=1)))
    assert found == []


def test_arguments_that_come_later_raise_the_verdict() -> None:
    detector = DoomLoop()
    found: list[Finding] = []
    for step in Stream().times(5, "read_file", None, ok="x = 1").steps:
        found += detector.observe(Reading(step))
        found += detector.amend(Reading(dataclasses.replace(step, arguments=READ, revision=1)))
    assert found[-1].severity is Severity.CRITICAL
    assert found[-1].evidence["missing"] == []


def test_tools_can_be_named_as_polls() -> None:
    policy = ToolPolicy(poll=("read_file",))
    assert first(judged(repeated_reads().steps, DoomLoop(), policy), "warning", "critical") is None


def test_one_tool_can_have_settings_of_its_own() -> None:
    patient = Tuned(DoomLoopConfig(), {"read_file": DoomLoopConfig(successes=9)})
    assert (
        first(judged(Stream().times(9, "read_file", READ, ok="x").steps, DoomLoop(patient)), "critical") == 9
    )
    assert (
        first(judged(Stream().times(9, "view_file", READ, ok="x").steps, DoomLoop(patient)), "critical") == 5
    )


def test_arguments_can_be_named_as_volatile() -> None:
    stream = Stream()
    for n in range(5):
        stream.call("search", {"q": "x", "turnNo": n}, ok="nothing")
    assert judged(stream.steps) == []
    assert judged(stream.steps, DoomLoop(), ToolPolicy(volatile_arguments=("turn_no",))) != []


@pytest.mark.parametrize(("name", "value"), [("errors", 1), ("window", 0), ("patience_s", 0.0)])
def test_a_setting_out_of_range_is_named(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"doom_loop.{name}"):
        DoomLoopConfig(**{name: value})  # type: ignore[arg-type]
