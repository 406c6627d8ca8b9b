from __future__ import annotations

from pathlib import Path

import pytest

from api.analyze import analyze
from api.config import Settings
from detectors.catalog import BUILT_IN

ROOT = Path(__file__).parents[2]
CAPTURES = ROOT / "tests/testdata/captures"
EMPTY = '{"resourceSpans":[]}'


def test_a_person_sees_what_is_stuck_and_how_many_in_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert analyze([CAPTURES / "agno"], "table", None, Settings()) == 0
    seen = " ".join(capsys.readouterr().out.split())
    # What began as a doom loop of one tool has become a storm upon its server: the later one is told.
    assert "critical 6 example.invalid: asked 6 times through unavailable errors" in seen
    assert "retry_storm, ops_agent, session sess-agno-1" in seen
    assert seen.endswith("info")


@pytest.mark.parametrize(("fail_on", "status"), [(None, 0), ("critical", 0), ("warning", 1), ("info", 1)])
def test_the_status_follows_the_worst_finding(
    fail_on: str | None, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [CAPTURES / "crewai/openinference-guard"]
    assert analyze(paths, "findings-jsonl", fail_on, Settings()) == status
    assert capsys.readouterr().err == ""


def test_a_finding_in_shadow_is_marked_and_fails_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    shadows = {name: {"shadow": True} for name in BUILT_IN}
    settings = Settings(detectors=shadows)
    assert analyze([CAPTURES / "agno"], "table", "info", settings) == 0
    seen = " ".join(capsys.readouterr().out.split())
    assert "retry_storm, in shadow, ops_agent, session sess-agno-1" in seen


def test_a_folder_without_traces_does_not_pass_for_a_clean_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert analyze([tmp_path], "table", "critical", Settings()) == 2
    assert capsys.readouterr().err == f"recloser: {tmp_path}: no recorded traces in it\n"


def test_traces_of_no_agent_are_said_to_be_unjudged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "traces.json").write_text(EMPTY)
    assert analyze([tmp_path], "table", "critical", Settings()) == 0
    assert "nothing was judged" in capsys.readouterr().err
