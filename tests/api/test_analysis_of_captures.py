"""What the analyzer says of real recordings: loops are doom loops, guesses a flail, healthy tools quiet."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from api.analyze import Analysis, Problems
from api.config import Settings
from collector.receivers.files import read_files
from detectors.protocol import Finding, Severity

ROOT = Path(__file__).parents[2]
FOLDERS = (ROOT / "tests/testdata/captures", ROOT.parent / "shared/captures")
LOOPING = "fetch_page"
FLAILING = "run_query"
HEALTHY = "get_weather"
IDENTICAL = 6
VARIED = 6


def captures() -> list[Path]:
    return sorted(meta.parent for folder in FOLDERS for meta in folder.glob("*/*/meta.json"))


def name(folder: Path) -> str:
    return f"{folder.parent.name}/{folder.name}"


def is_scenario(meta: dict[str, object]) -> bool:
    calls = meta.get("expected_tool_calls")
    if not isinstance(calls, list):
        return False
    looping = [
        json.dumps(call.get("args")) for call in calls if call["name"] == LOOPING and call.get("failed")
    ]
    return len(looping) == IDENTICAL and len(set(looping)) == 1


SCENARIO = [folder for folder in captures() if is_scenario(json.loads((folder / "meta.json").read_text()))]


def findings(folder: Path) -> list[Finding]:
    problems = Problems(sys.stderr)
    found = list(Analysis(Settings(), problems).feed(read_files([folder], problems)))
    assert problems.count == 0
    return found


def is_about(finding: Finding, tool: str) -> bool:
    return (finding.tool or "").split("-")[-1] == tool


@pytest.mark.parametrize("folder", SCENARIO, ids=name)
def test_the_first_alarm_on_the_looping_tool_is_doom_loop_and_the_healthy_tool_has_none(folder: Path) -> None:
    meta = json.loads((folder / "meta.json").read_text())
    found = findings(folder)
    alarms = [finding for finding in found if finding.severity is not Severity.INFO]
    assert not [finding for finding in alarms if is_about(finding, HEALTHY)]
    if meta["arguments_recorded"]:
        assert [finding.kind for finding in alarms if is_about(finding, LOOPING)][:1] == ["doom_loop"]
    elif meta["arguments_recorded"] is False:
        assert not alarms
        notes = [finding for finding in found if is_about(finding, LOOPING)]
        assert notes
        assert all("arguments" in str(note.evidence["missing"]) for note in notes)


GUESSING = [
    folder
    for folder in SCENARIO
    if (meta := json.loads((folder / "meta.json").read_text()))["arguments_recorded"]
    and sum(call["name"] == FLAILING for call in meta["expected_tool_calls"]) == VARIED
]


@pytest.mark.parametrize("folder", GUESSING, ids=name)
def test_the_first_alarm_on_the_tool_that_is_called_with_guesses_is_flail(folder: Path) -> None:
    alarms = [finding for finding in findings(folder) if finding.severity is not Severity.INFO]
    flails = [finding for finding in alarms if is_about(finding, FLAILING)]
    assert [finding.kind for finding in flails][:1] == ["flail"]
    assert flails[0].occurrences <= VARIED
    assert not [finding for finding in alarms if is_about(finding, HEALTHY)]


def test_there_are_captures_of_the_scenario() -> None:
    assert len(SCENARIO) > 100
    assert len(GUESSING) > 80
