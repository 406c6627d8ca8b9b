"""Recorded cases read live, stored, and judged again out of the store under other settings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from case_otlp import CASE_SPACING_NS, EPOCH_NS, case_to_request
from typer.testing import CliRunner

from api.backtest import backtest, propose
from api.build import build_decode, build_engine, build_reader
from api.cli import app
from api.config import ConfigError, Settings
from api.judging import Judge
from collector.batch import Batch, Signal
from collector.step import RunEnded, SessionsMerged, Step, StepAmended, StepEvent, StepSeen
from detectors.protocol import Finding
from storage.client import StoreClient, connect
from storage.history import History
from storage.migrate import migrate
from storage.writer import Writer
from tests.detectors.case_steps import read_cases
from tests.storage.store_process import SECRET, StoreProcess

WANTED = (
    "dl-separate-messages",
    "dl-missing-param",
    "dl-edit-already-applied",
    "fl-id-guess-404",
    "tr-three-tries-then-green",
    "tr-once-per-user-turn",
)
SECOND = 10**9
NOW = datetime(2025, 1, 8, tzinfo=UTC)
WINDOW = "2025-01-01..2025-01-08"


@dataclass
class Lived:
    """What a live engine saw and said, now in a store."""

    client: StoreClient
    settings: Settings
    events: list[StepEvent]
    findings: list[Finding]

    @property
    def steps(self) -> list[Step]:
        return [event.step for event in self.events if isinstance(event, StepSeen)]


def batches() -> Iterator[tuple[Batch, int]]:
    """Each case as one body, and when it arrived."""
    decode = build_decode(Settings())
    cases = {case["id"]: case for case in read_cases()}
    for number, name in enumerate(WANTED):
        start_ns = EPOCH_NS + number * CASE_SPACING_NS
        batch = decode(Signal.TRACES, "json", orjson.dumps(case_to_request(cases[name], start_ns))).batch
        assert batch is not None
        yield batch, start_ns + CASE_SPACING_NS // 2


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lived]:
    process = StoreProcess(tmp_path_factory.mktemp("store"))
    process.start()
    client = connect(process.target)
    migrate(client)
    settings = Settings(clickhouse={"url": process.target.url, "password": SECRET})
    reader, judge, writer = build_reader(settings), Judge(build_engine(settings), fail), Writer(client)
    events: list[StepEvent] = []
    for number, (batch, at_ns) in enumerate(batches()):
        events += reader.push(batch, at_ns) + reader.advance(at_ns + 60 * SECOND)
        writer.insert_spans(batch.columns, f"spans {number}")
    findings = [finding for event in events for finding, _ in judge.apply(event)]
    said = [event.step for event in events if isinstance(event, StepSeen | StepAmended)]
    writer.insert_steps(said, "steps")
    writer.insert_session_merges([each for each in events if isinstance(each, SessionsMerged)], "merges")
    writer.insert_findings(findings, "findings")
    yield Lived(client, settings, events, findings)
    client.close()
    process.stop()


def fail(what: str, error: Exception) -> None:
    raise AssertionError(what) from error


def tried(
    lived: Lived, folder: Path, capsys: pytest.CaptureFixture[str], toml: str, window: str = WINDOW
) -> Any:  # noqa: ANN401 - JSON
    """What the command prints of these settings, as JSON."""
    config = folder / "new.toml"
    config.write_text(toml)
    status = backtest(
        lived.settings,
        lived.settings,
        config,
        now=NOW,
        since="7d",
        within=window,
        warm_up="6h",
        output="json",
        prices=None,
    )
    printed = capsys.readouterr()
    assert (status, printed.err) == (0, "")
    return json.loads(printed.out)


def of(result: Any, change: str) -> list[tuple[str, str, int]]:  # noqa: ANN401 - JSON
    """Session, kind and call of the findings that differ in this way."""
    sides = [
        (each["then"] or each["now"])
        for each in result["findings"]["differences"]
        if change in each["changes"]
    ]
    return [(side["session"], side["kind"], side["call"]) for side in sides]


@pytest.mark.store
def test_the_store_tells_the_steps_in_the_order_in_which_they_were_said(lived: Lived) -> None:
    history = History(lived.client, EPOCH_NS, EPOCH_NS + 7 * CASE_SPACING_NS, page_bytes=2_000)
    again = list(history.events())
    assert [event.step for event in again if isinstance(event, StepSeen)] == lived.steps
    assert history.count() == len(lived.steps) > 64
    ends = [event for event in again if isinstance(event, RunEnded)]
    assert ends == [event for event in lived.events if isinstance(event, RunEnded)]
    assert len(ends) > len(WANTED)
    for end in ends:
        before = again[: again.index(end)]
        steps = [
            event.step for event in again if isinstance(event, StepSeen) and event.step.run_id == end.run_id
        ]
        assert isinstance(before[-1], StepSeen)
        assert before[-1].step == steps[-1]


@pytest.mark.store
def test_a_window_and_later_knowledge_of_steps_and_sessions(lived: Lived) -> None:
    first = replace(
        lived.steps[0], start_ns=SECOND, end_ns=2 * SECOND, trace_id="", run_id="", parent_span_id=""
    )
    steps = [
        replace(first, step_id="a", session_id="trace", engine_seq=1),
        replace(first, step_id="b", session_id="real", engine_seq=2),
        replace(first, step_id="a", session_id="trace", engine_seq=1, revision=1, text="more"),
        replace(first, step_id="c", session_id="real", engine_seq=3, start_ns=9 * SECOND),
    ]
    writer = Writer(lived.client)
    writer.insert_steps(steps, "window")
    writer.insert_session_merges(
        [SessionsMerged("trace", "middle"), SessionsMerged("middle", "real")], "window"
    )
    told = [
        (event.step.step_id, event.step.session_id, event.step.text)
        for event in History(lived.client, SECOND, 9 * SECOND).events()
        if isinstance(event, StepSeen)
    ]
    assert told == [("a", "real", "more"), ("b", "real", first.text)]


@pytest.mark.store
def test_the_same_settings_change_nothing_and_make_the_stored_findings_again(
    lived: Lived, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = tried(lived, tmp_path, capsys, "[detectors.doom_loop]\nerrors = 4\n")
    assert result["findings"]["differences"] == []
    ids = {finding.id for finding in lived.findings}
    assert len(ids) == 4
    assert result["reproduced"] == {
        "stored": len(ids),
        "again": len(ids),
        "differing": 0,
        "began_before": 0,
        "missing": [],
        "extra": [],
    }
    assert result["stops"]["now"] == result["stops"]["then"]


@pytest.mark.store
def test_lower_thresholds_show_what_they_find_and_spare(
    lived: Lived, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    toml = "[detectors.doom_loop]\nrepeated_errors = 2\nerrors = 3\n"
    result = tried(lived, tmp_path, capsys, toml)
    assert tried(lived, tmp_path, capsys, toml) == result
    differences = result["findings"]["differences"]
    assert [(each["changes"], each["now"]["call"], each["then"]["call"]) for each in differences] == [
        (["earlier"], 3, 2),
        (["earlier"], 4, 3),
    ]
    assert of(result, "earlier") == [
        ("dl-missing-param", "doom_loop", 2),
        ("dl-edit-already-applied", "doom_loop", 3),
    ]
    assert result["settings"] == {"detectors.doom_loop.errors": 3, "detectors.doom_loop.repeated_errors": 2}
    now, then = result["stops"]["now"], result["stops"]["then"]
    assert (now["policy_assumed"], now["spared"]["calls"], then["spared"]["calls"]) == (True, 12, 14)
    assert then["spared"]["tokens"] is then["spared"]["usd"] is None
    assert [(each["session"], each["call"], each["spared"]["calls"]) for each in then["sessions"]] == [
        ("dl-missing-param", 3, 5),
        ("dl-edit-already-applied", 4, 4),
        ("dl-separate-messages", 5, 3),
        ("fl-id-guess-404", 6, 2),
    ]
    assert [each["session"] for each in then["good_runs"]] == ["dl-separate-messages"]


@pytest.mark.store
def test_a_detector_that_is_off_leaves_its_streaks_to_others(
    lived: Lived, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = tried(lived, tmp_path, capsys, "[detectors.doom_loop]\nenabled = false\n")
    assert of(result, "vanished") == [("dl-separate-messages", "doom_loop", 4)]
    assert of(result, "kind") == [
        ("dl-missing-param", "known_dead_call", 4),
        ("dl-edit-already-applied", "known_dead_call", 5),
    ]
    assert of(result, "appeared") == []


@pytest.mark.store
def test_a_policy_may_be_tried_too(lived: Lived, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = tried(lived, tmp_path, capsys, '[[policy]]\nkinds = ["flail"]\nscope = "session_tool"\n')
    assert result["findings"]["differences"] == []
    then = result["stops"]["then"]
    assert [(each["session"], each["tools"]) for each in then["sessions"]] == [
        ("fl-id-guess-404", ["issues_get"])
    ]
    assert then["spared"]["calls"] == 2
    assert then["spared"]["model_calls"] == 0


@pytest.mark.store
def test_what_was_found_in_the_warm_up_does_not_count(
    lived: Lived, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    toml = "[detectors.doom_loop]\nerrors = 3\n"
    result = tried(lived, tmp_path, capsys, toml, "2025-01-01T04:00:35..2025-01-01T08:00")
    assert result["warm_up_steps"] > 0
    # The alarms at the third and the fourth call lie before and after the half minute.
    assert of(result, "earlier") == []
    assert (result["reproduced"]["stored"], result["reproduced"]["again"]) == (1, 1)
    assert [each["spared"]["calls"] for each in result["stops"]["then"]["sessions"]] == [3, 0]


@pytest.mark.store
def test_a_person_reads_it_in_a_table(lived: Lived, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "new.toml").write_text("[detectors.doom_loop]\nrepeated_errors = 2\nerrors = 3\n")
    monkeypatch.setenv("RECLOSER_CLICKHOUSE__PASSWORD", SECRET)
    arguments = ["--config", str(tmp_path / "new.toml"), "--clickhouse", str(lived.settings.clickhouse.url)]
    told = CliRunner().invoke(app, ["backtest", *arguments, "--window", WINDOW])
    assert told.exit_code == 0, told.output
    words = " ".join(told.stdout.split())
    assert "make 4 of 4 stored findings again." in words
    assert "doom_loop 3 3 - - 2 - - -" in words
    assert (
        "dl-missing-param ReadFile 3 → 2 critical doom_loop: ReadFile: same call, same error 8 times" in words
    )
    assert "then 4 14 14 not recorded not priced" in words
    assert "then: 4 runs stopped: 1 good, 3 not good, 0 not recorded" in words


@pytest.mark.parametrize(
    ("toml", "told"),
    [
        ("[detectors.doom_loop]\nerrorz = 3\n", "unknown setting detectors.doom_loop.errorz"),
        ("[detectors.doom_lop]\n", "unknown detector detectors.doom_lop"),
        ("[detectors.doom_loop]\nerrors = 0\n", "doom_loop.errors must be"),
        ("[[policy]]\nkinds = ['doom']\n", "policy.1.kinds.1: no detector finds 'doom'"),
        ("[detector]\n", "detector: Extra inputs are not permitted"),
        ("errors =", "Invalid value"),
    ],
)
def test_a_file_that_makes_no_sense_is_named_with_the_key(tmp_path: Path, toml: str, told: str) -> None:
    config = tmp_path / "new.toml"
    config.write_text(toml)
    with pytest.raises(ConfigError) as caught:
        propose(Settings(), config)
    assert str(caught.value).startswith(f"{config}: ")
    assert told in str(caught.value)


def test_what_the_file_does_not_say_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECLOSER_DETECTORS__DOOM_LOOP__ERRORS", "5")
    current = Settings(detectors={"doom_loop": {"errors": 6, "polls": 9}}, escalate_after=7)
    config = tmp_path / "new.toml"
    config.write_text("[detectors.doom_loop]\nerrors = 3\n")
    proposal = propose(current, config)
    assert proposal.current == current
    assert proposal.proposed.detectors == {"doom_loop": {"errors": 3, "polls": 9}}
    assert proposal.proposed.escalate_after == 7


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--since", "soon"], "'soon' is no time"),
        (["--warm-up", "2100-01-01"], "--warm-up 2100-01-01 ends after the window begins"),
        ([], "nothing is stored in"),
    ],
)
def test_what_cannot_be_run_is_said(tmp_path: Path, arguments: list[str], told: str) -> None:
    (tmp_path / "new.toml").write_text("")
    base = ["backtest", "--config", str(tmp_path / "new.toml"), "--data-dir", str(tmp_path / "none")]
    answer = CliRunner().invoke(app, [*base, *arguments])
    assert answer.exit_code == 2
    assert told in answer.stderr
