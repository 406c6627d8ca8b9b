from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from collector.batch import Signal
from collector.receivers.files import guess_signal, read_files, signal_of_name

SPANS = {"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "a"}]}]}]}
LOGS: dict[str, object] = {"resourceLogs": [{"scopeLogs": [{"logRecords": []}]}]}
RECORDED = Path(__file__).parent.parent / "testdata" / "captures"


class Problems(list[tuple[str, int, str]]):
    def __call__(self, path: Path, line: int, reason: str) -> None:
        self.append((path.name, line, reason))


def test_json_lines_are_one_request_each_and_bad_ones_are_told_and_left_out(tmp_path: Path) -> None:
    file = tmp_path / "export.json"
    file.write_text(f"{json.dumps(SPANS)}\n\nnot json\n{json.dumps(LOGS)}\n{json.dumps({'other': 1})}\n")
    problems = Problems()
    bodies = list(read_files([file], problems))
    assert [(signal, encoding, source) for signal, encoding, _, source in bodies] == [
        (Signal.TRACES, "json", f"{file}:1"),
        (Signal.LOGS, "json", f"{file}:4"),
    ]
    assert [(name, line) for name, line, _ in problems] == [("export.json", 3), ("export.json", 5)]


def test_the_last_line_needs_no_newline_and_lines_may_be_compressed(tmp_path: Path) -> None:
    file = tmp_path / "export.jsonl.gz"
    file.write_bytes(gzip.compress(f"{json.dumps(SPANS)}\n{json.dumps(LOGS)}".encode()))
    assert [body[0] for body in read_files([file], Problems())] == [Signal.TRACES, Signal.LOGS]


def test_a_body_over_several_lines_is_one_request(tmp_path: Path) -> None:
    file = tmp_path / "body.json"
    file.write_text(json.dumps(SPANS, indent=2))
    assert [body[:2] for body in read_files([file], Problems())] == [(Signal.TRACES, "json")]


def test_one_object_with_two_signals_is_given_for_each(tmp_path: Path) -> None:
    file = tmp_path / "both.json"
    file.write_text(json.dumps({**SPANS, **LOGS}))
    assert [body[0] for body in read_files([file], Problems())] == [Signal.TRACES, Signal.LOGS]


def test_folders_are_read_in_order_and_leave_out_what_is_no_recording(tmp_path: Path) -> None:
    for name in (
        "b/002-logs.json",
        "a/001-traces.json",
        "b/meta.json",
        ".hidden/003-traces.json",
        "a/notes.md",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(json.dumps(LOGS if "logs" in name else SPANS))
    problems = Problems()
    assert [Path(body[3]).name for body in read_files([tmp_path], problems)] == [
        "001-traces.json",
        "002-logs.json",
    ]
    assert not problems


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"\xff\xfe no recording", "neither"),
        (b"\x1f\x8b\x08\x00 not gzip", "cannot be read"),
        (b"{ broken", "not JSON"),
    ],
)
def test_bad_input_is_told_and_the_rest_is_read(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "1.bin").write_bytes(content)
    (tmp_path / "2.json").write_text(json.dumps(SPANS))
    problems = Problems()
    assert [body[0] for body in read_files([tmp_path, tmp_path / "absent"], problems)] == [Signal.TRACES]
    assert [name for name, _, _ in problems] == ["1.bin", "absent"]
    assert reason in problems[0][2]


def test_the_last_word_of_a_name_tells_the_signal() -> None:
    assert signal_of_name("logs-of-the-trace-service/001-logs.pb") is Signal.LOGS
    assert signal_of_name("catalog-traces.pb.gz") is Signal.TRACES
    assert signal_of_name("metrics.json") is Signal.METRICS
    assert signal_of_name("001.pb") is None


def test_protobuf_without_a_telling_name_is_recognised_by_its_records() -> None:
    seen = set()
    for file in sorted(RECORDED.glob("*/*/*.pb*")):
        body = file.read_bytes()
        body = gzip.decompress(body) if file.suffix == ".gz" else body
        expected = signal_of_name(file.name)
        assert guess_signal(body) is expected, file
        seen.add(expected)
    assert Signal.TRACES in seen
    assert guess_signal(b"") is None
    assert guess_signal(b"\x0a\x05hello") is None
