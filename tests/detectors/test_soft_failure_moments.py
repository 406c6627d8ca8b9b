"""Successes that are none: which results say so, and at which call it is an alarm."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.step import Outcome
from detectors.role import Role
from detectors.soft_failure import SoftFailure
from detectors.soft_text import soft_failure_in
from tests.detectors.stream import Stream, judged

CORPUS = Path(__file__).parents[1] / "testdata" / "errors" / "real-error-messages-with-their-class.jsonl"
BAD = '{"error": "No presentation is currently loaded"}'


def reported_ok() -> list[str]:
    rows = map(json.loads, CORPUS.read_text(encoding="utf-8").splitlines())
    return [row["message"] for row in rows if row["reported_ok"]]


@pytest.mark.parametrize("message", reported_ok())
def test_real_messages_that_were_reported_as_successes_are_known(message: str) -> None:
    assert soft_failure_in(message, Role.OTHER) is not None


@pytest.mark.parametrize(
    ("result", "rule"),
    [
        ('{"isError": true, "content": [{"type": "text", "text": "x"}]}', "error flag"),
        ('[{"type": "text", "text": "{\\"isError\\": true, \\"content\\": []}"}]', "error flag"),
        ("{'success': False}", "error flag"),
        ('{"result": "{\\"ok\\": false}"}', "error flag"),
        (BAD, "error field"),
        ('{"data": null, "errors": [{"message": "bad id"}]}', "error field"),
        ('{"statusCode": 503, "message": "try later"}', "error status"),
        ('{"status": "failed", "id": 7}', "error status"),
        ('{"content": [{"type": "text", "text": "Tool call timed out."}]}', "error text"),
        ("Error: connection refused", "error text"),
        ("HTTP 502 from upstream", "error text"),
        ("Failed to fetch the page", "error text"),
        ("cat: a.txt: No such file or directory", "shell error"),
        ("bash: line 1: foo: command not found", "shell error"),
        ("<!DOCTYPE html><html><head><title>403 Forbidden</title></head></html>", "error page"),
        ("<html><head><title>Just a moment...</title>", "error page"),
        ("Traceback (most recent call last):\n" + '  File "a.py", line 3, in f\n' * 20, "traceback"),
        ('{"items": [{"id": 1, "name": "alpha"}, {"id": 2, "na', "truncated JSON"),
    ],
)
def test_these_results_say_that_the_call_failed(result: str, rule: str) -> None:
    found = soft_failure_in(result, Role.LOOK)
    assert found is not None
    assert found.rule == rule


@pytest.mark.parametrize(
    "result",
    [
        "",
        "400.0",
        "404 rows",
        "0 errors",
        "No errors found",
        "Error handling is described in chapter 3.",
        '{"error": null, "rows": []}',
        '{"error": "", "response": "{}"}',
        '{"errors": [], "data": {"x": 1}}',
        '{"status": "failed", "a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "f": 6}',
        '{"code": 17, "status": "open"}',
        '[{"status": 500, "path": "/a"}, {"status": 200, "path": "/b"}]',
        "Order 12 was cancelled successfully; the failed payment was refunded.",
        "<html><head><title>Errata of the second edition</title>",
        "ERROR 2024-01-02 a line of a log that was read\n" * 20,
        '{"items": [1, 2, 3',
        '{"a": "' + "x" * 1993,
        '{"items": [{"id": 1}, {"id"...',
        "502:    def has_view_permission(self):",
    ],
)
def test_these_results_are_in_order(result: str) -> None:
    found = soft_failure_in(result, Role.LOOK)
    assert found is None or (found.rule == "truncated JSON" and result.startswith('{"items": [1'))


@pytest.mark.parametrize(
    ("result", "says"),
    [
        ("Traceback (most recent call last):\n  File", False),
        ("Error: a script says so\nand goes on\nfor long", False),
        ("rm: cannot remove 'a': No such file or directory\n", True),
        ("Error executing query: no sql code", True),
    ],
)
def test_what_a_shell_prints_is_mostly_the_programs_own(result: str, *, says: bool) -> None:
    assert (soft_failure_in(result, Role.OTHER, shell=True) is not None) is says


@given(st.text(max_size=400) | st.text(alphabet="{}[]\"':,0 error", max_size=200))
def test_any_text_can_be_judged(text: str) -> None:
    found = soft_failure_in(text, Role.OTHER)
    assert found == soft_failure_in(text, Role.OTHER)
    assert found is None or (found.words and len(found.words) <= 100)


@pytest.mark.parametrize("depth", [3, 50, 5000])
def test_envelopes_of_any_depth_end(depth: int) -> None:
    assert soft_failure_in('{"result":' * depth + "1" + "}" * depth, Role.OTHER) is None


def told(stream: Stream) -> list[tuple[int, str]]:
    return [(at, found.severity.value) for at, found in judged(stream.steps, SoftFailure())]


def test_the_first_is_a_note_and_three_in_a_row_are_an_alarm() -> None:
    assert told(Stream().times(4, "slides", {}, ok=BAD)) == [(1, "info"), (3, "warning")]


def test_a_good_result_of_the_tool_starts_anew() -> None:
    stream = (
        Stream().times(2, "slides", {}, ok=BAD).call("slides", {}, ok="done").times(2, "slides", {}, ok=BAD)
    )
    assert told(stream) == [(1, "info"), (4, "info")]


def test_other_tools_have_their_own_count() -> None:
    stream = Stream()
    for _ in range(2):
        stream.call("slides", {}, ok=BAD).call("mail", {}, ok=BAD).call("look", {}, ok="fine")
    assert told(stream) == [(1, "info"), (2, "info")]


def test_what_is_recorded_as_failed_or_refused_is_no_soft_failure() -> None:
    stream = Stream().times(5, "slides", {}, ok=BAD, outcome=Outcome.ERROR)
    assert told(stream.times(5, "slides", {}, ok=BAD, outcome=Outcome.DENIED)) == []
