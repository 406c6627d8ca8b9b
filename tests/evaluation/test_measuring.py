from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import orjson
import polars as pl
import pytest

from evaluation import plots
from evaluation.measuring import (
    ALL,
    RECLOSER,
    RUN_SCHEMA,
    Measured,
    alarmed,
    by_first_kind,
    rates,
    row_of,
    run_row,
    share_of,
)
from evaluation.scoring import Alarm, first_alarms, score_cases
from evaluation.shared import (
    CASES,
    GROUPS,
    REPORTED,
    SHARED,
    TUNED,
    converter,
    half,
    identical_at,
    load,
    path_of,
)
from evaluation.streams import SCHEMA, SOFT_SCHEMA, judged

LOADED = SHARED.exists()


def test_a_run_belongs_to_the_half_that_its_id_says() -> None:
    for run_id in ("a", "b", "c", "intercode/1"):
        even = int(hashlib.sha256(run_id.encode()).hexdigest()[-1], 16) % 2 == 0
        assert half(run_id) == (TUNED if even else REPORTED)
    assert {half(str(n)) for n in range(8)} == {TUNED, REPORTED}


def test_five_identical_calls_are_counted_with_numbers_as_texts() -> None:
    def call(n: object, times: int = 1) -> dict[str, object]:
        return {"tool": "t", "args": {"n": n}, "repeat": times}

    assert identical_at({"calls": [call(1), call(2, 2), call("2", 2), call(2.0)]}) == 6
    assert identical_at({"calls": [call(2, 4), call(3), call(2, 4)]}) is None


def test_groups_go_by_the_judge_of_their_set() -> None:
    def groups(name: str, *labels: str) -> list[str]:
        run = {"id": "x", "labels": list(labels), "calls": []}
        return [group.name for group in GROUPS if group.set == name and group.member(run)]

    assert groups("intercode", "env:ic_sql", "reward:1") == ["reward 1"]
    assert groups("intercode", "reward:0.67") == ["in between"]
    assert groups("tau", "reward:0.0") == ["reward 0"]
    assert groups("livemcp", 'judge:{"judge": "success", "judge_reason": ""}') == ["success"]
    assert groups("whowhen_magentic", "dup_of:whowhen") == []


def measured() -> Measured:
    def run(run_id: str, which: str, calls: int, tokens: list[int]) -> dict[str, object]:
        return {
            "set": "s",
            "id": run_id,
            "half": which,
            "calls": calls,
            "ok": calls,
            "tokens": tokens,
            "five_at": 4,
        }

    rows = [run("a", REPORTED, 4, [1, 2, 4, 8]), run("b", TUNED, 10, []), run("c", REPORTED, 6, [])]
    return Measured(
        runs=pl.DataFrame(rows, schema=dict(RUN_SCHEMA)),
        findings=pl.DataFrame(schema=SCHEMA),
        soft=pl.DataFrame(schema=SOFT_SCHEMA),
        members={"tau reward 1": ["a", "b"], "tau reward 0": ["c"]},
        alarms={RECLOSER: {"a": Alarm(2, ("flail",)), "c": Alarm(6, ("flail",))}, "eager": {"b": Alarm(1)}},
    )


def test_rates_count_what_was_spent_after_the_first_alarm() -> None:
    of = rates(alarmed(measured()))
    good = row_of(of, RECLOSER, "tau reward 1", ALL)
    assert (good["runs"], good["alarmed"], good["calls"], good["calls_after"]) == (2, 1, 14, 2)
    assert (good["tokens"], good["tokens_after"], good["metered"], good["by_sixth"]) == (15, 12, 1, 1)
    assert share_of(of, RECLOSER, "tau reward 1", TUNED).hits == 0
    assert share_of(of, "eager", "tau reward 1", TUNED).hits == 1
    assert share_of(of, RECLOSER, "tau reward 0", TUNED).total == 0
    assert row_of(of, RECLOSER, "tau reward 0", REPORTED)["by_sixth"] == 0


def test_what_a_stop_saves_is_told_by_kind() -> None:
    assert list(by_first_kind(measured()).iter_rows()) == [("flail", 2, 1, 2, 12)]


def test_a_run_is_counted_in_calls_and_tokens() -> None:
    calls = [{"tool": "t", "args": {}, "ok": True, "tokens": 3, "repeat": 2}, {"event": "user_turn"}]
    row = run_row("s", {"id": "x", "calls": calls})
    assert (row["calls"], row["ok"], row["tokens"], row["five_at"]) == (2, 2, [3, 3], None)


def test_plots_are_the_same_bytes_every_time(tmp_path: Path) -> None:
    drawn = []
    for name in ("one", "two"):
        folder = tmp_path / name
        plots.alarm_rates(folder / "a.svg", ["s"], {"ours": [0.5], "theirs": [1.0]})
        plots.scatter(folder / "b.svg", {"p": {"ours": [("r", 0.5, 1.0), ("s", 0.5, 1.0)]}})
        plots.delays(folder / "c.svg", {"p": [-20, 0, 3, 30]})
        plots.savings(folder / "d.svg", ["s", "t"], [0.5, 0.1], [None, 0.2])
        drawn.append({path.name: path.read_bytes() for path in sorted(folder.iterdir())})
    assert drawn[0] == drawn[1]
    assert sorted(drawn[0]) == ["a.svg", "b.svg", "c.svg", "d.svg"]
    assert b"<dc:date>" not in b"".join(drawn[0].values())


@pytest.mark.shared
@pytest.mark.skipif(not LOADED, reason="the shared cases are not beside the project")
def test_cases_are_counted_as_the_shared_scorer_counts_them(tmp_path: Path) -> None:
    cases = load(CASES)
    table = pl.DataFrame(judged(CASES, cases, converter()).findings, schema=SCHEMA)
    rows = [
        {"kind": kind, "severity": severity, "session_id": run, "span_id": converter().span_id(run, at)}
        for run, at, kind, severity in table.select("id", "at", "kind", "severity").iter_rows()
    ]
    said = tmp_path / "findings.jsonl"
    said.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    scorer = SHARED / "tools/score_findings.py"
    run = subprocess.run(
        [sys.executable, str(scorer), str(path_of(CASES)), str(said)],
        capture_output=True,
        text=True,
        check=True,
    )
    score = score_cases(cases, first_alarms(table))
    assert run.stdout.splitlines()[-1] == (
        f"positives in time {score.in_time}/{score.positives}  right kind {score.right_kind}"
        f"  too early {score.early}  traps alarmed {score.trapped}/{score.traps}"
    )
