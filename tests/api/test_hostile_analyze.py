"""Recordings that are broken, locked, endless or nobody's, and readers that stop reading."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from api.joining import GROUP_BODIES, groups, joined
from collector.batch import Signal

RECLOSER = Path(sys.executable).parent / "recloser"
STEPS = ("--format", "steps-jsonl")


def line(number: int, *, looping: bool = False) -> str:
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "fetch_page",
        "gen_ai.tool.call.id": f"call {number}",
        "gen_ai.tool.call.arguments": json.dumps({"url": "the same" if looping else number}),
        "gen_ai.tool.call.result": "the same" if looping else str(number),
        "gen_ai.conversation.id": "a conversation",
    }
    span = {
        "traceId": f"{1:032x}",
        "spanId": f"{number + 1:016x}",
        "name": "execute_tool fetch_page",
        "startTimeUnixNano": str(10**18 + number * 10**9),
        "endTimeUnixNano": str(10**18 + number * 10**9 + 10**6),
        "attributes": [{"key": k, "value": {"stringValue": v}} for k, v in attributes.items()],
    }
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]})


def lines(count: int, *, looping: bool = False) -> str:
    return "".join(line(number, looping=looping) + "\n" for number in range(count))


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [RECLOSER, "analyze", *arguments], capture_output=True, text=True, check=False, timeout=60
    )


def steps(run: subprocess.CompletedProcess[str]) -> int:
    return len(run.stdout.splitlines())


def test_every_bad_file_is_told_with_its_reason_and_the_rest_is_analyzed(tmp_path: Path) -> None:
    folder = tmp_path / "recorded"
    folder.mkdir()
    (folder / "empty.jsonl").touch()
    (folder / "garbage.bin").write_bytes(bytes(range(255, 0, -1)) * 20)
    whole = gzip.compress(lines(2000).encode())
    (folder / "cut.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    (folder / "half.jsonl").write_text(f"{{broken\n{line(0)}\nnull\n")
    (folder / "good.jsonl").write_text(lines(20))
    os.mkfifo(folder / "pipe.jsonl")
    (folder / "dangling.jsonl").symlink_to("nowhere")
    (folder / "round.d").symlink_to(".")
    missing = tmp_path / "missing"
    run = analyze(folder, missing, *STEPS)
    assert run.returncode == 2
    assert "Traceback" not in run.stderr
    for bad in ("empty.jsonl", "garbage.bin", "cut.jsonl.gz", "half.jsonl:1", "half.jsonl:3", "pipe.jsonl"):
        assert run.stderr.count(f"recloser: {folder / bad}: ") == 1
    assert f"recloser: {folder / 'dangling.jsonl'}: no such file" in run.stderr
    assert f"recloser: {missing}: no such file" in run.stderr
    assert steps(run) >= 20


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "good.jsonl").write_text(lines(3))
    (tmp_path / "locked.jsonl").write_text(lines(3))
    (tmp_path / "locked.jsonl").chmod(0)
    (tmp_path / "closed").mkdir(mode=0)
    run = analyze(tmp_path, *STEPS)
    (tmp_path / "closed").chmod(0o700)
    assert run.returncode == 2
    assert run.stderr.count("Permission denied") == 2
    assert steps(run) == 3


def test_a_reader_that_stops_ends_the_analysis_without_a_word(tmp_path: Path) -> None:
    recorded = tmp_path / "many.jsonl"
    recorded.write_text(lines(1500))
    run = subprocess.Popen(
        [RECLOSER, "analyze", recorded, *STEPS], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert run.stdout is not None
    assert run.stderr is not None
    assert run.stdout.readline()
    run.stdout.close()
    assert run.stderr.read() == b""
    run.stderr.close()
    assert run.wait(60) == -signal.SIGPIPE


def test_a_finding_of_the_severity_is_status_one(tmp_path: Path) -> None:
    recorded = tmp_path / "stuck.jsonl"
    recorded.write_text(lines(12, looping=True))
    found = analyze(recorded, "--format", "findings-jsonl")
    assert found.returncode == 0
    assert found.stdout
    assert analyze(recorded, "--fail-on", "info").returncode == 1
    (tmp_path / "empty.jsonl").touch()
    assert analyze(tmp_path, "--fail-on", "info").returncode == 2


def test_small_requests_are_decoded_together_and_tell_the_same(tmp_path: Path) -> None:
    one_by_one = tmp_path / "apart"
    one_by_one.mkdir()
    recorded = tmp_path / "together.jsonl"
    recorded.write_text(lines(40, looping=True))
    spans = [json.loads(line(number, looping=True))["resourceSpans"][0] for number in range(40)]
    for number, resource in enumerate(spans):
        other = {"resourceSpans": [resource], "comment": "nothing is joined with what says more"}
        (one_by_one / f"{number:03}.json").write_text(json.dumps(other))
    together, apart = analyze(recorded, *STEPS), analyze(one_by_one, *STEPS)
    assert steps(together) == 40
    assert together.stdout == apart.stdout


def test_a_bad_span_among_many_lines_is_told_with_its_line(tmp_path: Path) -> None:
    bad = line(3).replace(f"{1:032x}", "12")
    recorded = tmp_path / "one bad.jsonl"
    recorded.write_text("\n".join([*(line(n) for n in range(3)), bad, line(4)]))
    run = analyze(recorded, *STEPS)
    assert run.returncode == 2
    assert f"recloser: {recorded}:4: " in run.stderr
    assert steps(run) == 4


def test_groups_keep_the_order_and_their_bounds() -> None:
    bodies = [
        (Signal.TRACES, "json", b'{"resourceSpans":[%d]}' % n, f"f:{n}") for n in range(GROUP_BODIES + 1)
    ]
    bodies.insert(5, (Signal.LOGS, "json", b'{"resourceLogs":[1]}', "f:x"))
    bodies.insert(9, (Signal.TRACES, "protobuf", b"", "f:y"))
    made = list(groups(bodies))
    assert [body for group in made for body in group] == bodies
    assert [len(group) for group in made] == [5, 1, 3, 1, GROUP_BODIES + 1 - 8]
    assert joined(made[0]) == b'{"resourceSpans":[0,1,2,3,4]}'


@pytest.mark.parametrize("other", [b"[]", b"{}", b'{"resourceSpans":5}', b'{"resourceLogs":[]}', b"{", b"1"])
def test_what_is_no_plain_request_is_not_joined(other: bytes) -> None:
    plain = (Signal.TRACES, "json", b'{"resourceSpans":[]}', "f:1")
    assert joined([plain, (Signal.TRACES, "json", other, "f:2")]) is None
