from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from api.classify import classify_file
from api.cli import app


def _run(path: Path) -> tuple[int, list[dict[str, object]], str]:
    out, err = io.StringIO(), io.StringIO()
    status = classify_file(path, out, err)
    return status, [json.loads(line) for line in out.getvalue().splitlines()], err.getvalue()


def test_each_message_gets_a_line_with_all_that_a_verdict_says(tmp_path: Path) -> None:
    path = tmp_path / "errors.jsonl"
    path.write_text(
        '{"id": "a", "message": "429 Too Many Requests"}\n\n{"id": 7, "message": "", "tool": "x"}\n'
    )
    status, lines, err = _run(path)
    assert (status, err) == (0, "")
    assert lines[0] == {
        "id": "a",
        "class": "rate_limit",
        "nature": "transient",
        "retry": True,
        "change_arguments": False,
        "change_plan": False,
        "prescription": "backoff_retry",
        "source": "rule",
        "rule": "rate-limit",
        "confidence": 0.97,
    }
    assert (lines[1]["id"], lines[1]["class"]) == (7, "ambiguous")


def test_the_tool_decides_whose_exception_it_is(tmp_path: Path) -> None:
    path = tmp_path / "errors.jsonl"
    message = "Error: 'NoneType' object has no attribute 'x'"
    lines = [{"id": tool, "message": message, "tool": tool} for tool in ("bash", "write_fix")]
    path.write_text("\n".join(map(json.dumps, lines)))
    assert [line["class"] for line in _run(path)[1]] == ["application", "tool_bug"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ("\udcff", "is no JSON"),
        ("[1]", "is no JSON object"),
        ('{"message": "x"}', "`id` must be a string or a whole number"),
        ('{"id": true, "message": "x"}', "`id` must be a string or a whole number"),
        ('{"id": "a"}', "`message` must be a string"),
        ('{"id": "a", "message": 3}', "`message` must be a string"),
        ('{"id": "a", "message": "x", "tool": 1}', "`tool` must be a string"),
    ],
)
def test_a_bad_line_is_named_and_the_good_ones_are_classed_all_the_same(
    line: str, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "errors.jsonl"
    good = '{"id": "g", "message": "No such file or directory"}'
    path.write_bytes(f"{good}\n{line}\n{good}\n".encode(errors="surrogateescape"))
    status, lines, err = _run(path)
    assert status == 2
    assert [answer["class"] for answer in lines] == ["not_found", "not_found"]
    assert err == f"recloser: {path}:2: {reason}\n"


def test_a_file_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    status, lines, err = _run(tmp_path / "none.jsonl")
    assert (status, lines) == (2, [])
    assert err == f"recloser: {tmp_path / 'none.jsonl'}: No such file or directory\n"


def test_the_command_reads_standard_input() -> None:
    result = CliRunner().invoke(app, ["classify", "-"], input='{"id": "a", "message": "Read timed out"}\n')
    assert result.exit_code == 0
    assert json.loads(result.stdout)["class"] == "timeout"


def test_the_command_ends_with_2_on_bad_input() -> None:
    result = CliRunner().invoke(app, ["classify", "-"], input="no json\n")
    assert result.exit_code == 2
    assert "standard input:1: is no JSON" in result.stderr
