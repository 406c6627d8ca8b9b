"""One streak, one finding: which detector speaks for it, and what becomes of what the others say."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from detectors.bounds import bounded
from detectors.primary import PRECEDENCE, Primaries, are_one_streak
from detectors.protocol import Finding, Severity, finding_id

INFO, WARNING, CRITICAL = Severity.INFO, Severity.WARNING, Severity.CRITICAL


def finding(kind: str, severity: Severity = WARNING, *, at: int = 10, since: int = 1, **more: Any) -> Finding:  # noqa: ANN401 - fields of Finding
    values: dict[str, Any] = {
        "id": finding_id(f"{kind}/1", f"step-{since}"),
        "kind": kind,
        "detector": kind,
        "severity": severity,
        "session_id": "s",
        "agent": "main",
        "tool": "bash",
        "started_at": since,
        "detected_at": at,
        "span_id": f"span-{at}",
        "first_span_id": f"span-{since}",
        "occurrences": at - since + 1,
        "summary": f"{kind} at {at}",
        "evidence": {"missing": []},
    }
    return Finding(**{**values, **more})


def also(said: Finding | None) -> list[str]:
    assert said is not None
    told: Any = said.evidence.get("also", [])
    return [one["kind"] for one in told]


def test_a_stronger_kind_takes_a_streak_over_and_keeps_its_identity() -> None:
    primaries = Primaries()
    loop = primaries.say(finding("doom_loop", at=4, since=1))
    flail = primaries.say(finding("flail", at=6, since=2))
    assert loop is not None
    assert flail is not None
    assert (flail.id, flail.revision, flail.kind) == (loop.id, 1, "flail")
    assert (flail.started_at, flail.first_span_id) == (1, "span-1")
    assert also(flail) == ["doom_loop"]


def test_a_weaker_kind_adds_to_the_evidence_and_says_nothing() -> None:
    primaries = Primaries()
    primaries.say(finding("flail", at=6))
    assert primaries.say(finding("doom_loop", at=7)) is None
    again = primaries.say(finding("flail", at=8, revision=1))
    assert also(again) == ["doom_loop"]


def test_a_weaker_kind_that_is_surer_raises_the_severity_at_its_own_step() -> None:
    primaries = Primaries()
    primaries.say(finding("flail", WARNING, at=6))
    said = primaries.say(finding("doom_loop", CRITICAL, at=7))
    assert said is not None
    assert (said.kind, said.severity, said.span_id, said.revision) == ("flail", CRITICAL, "span-7", 1)


def test_a_note_does_not_speak_for_an_alarm_but_an_alarm_for_a_note() -> None:
    primaries = Primaries()
    primaries.say(finding("doom_loop", WARNING, at=5))
    assert primaries.say(finding("flail", INFO, at=6)) is None
    primaries = Primaries()
    primaries.say(finding("doom_loop", INFO, at=5))
    said = primaries.say(finding("flail", WARNING, at=6))
    assert said is not None
    assert said.kind == "flail"


def test_what_was_said_is_never_taken_back() -> None:
    primaries = Primaries()
    primaries.say(finding("doom_loop", CRITICAL, at=5))
    said = primaries.say(finding("flail", WARNING, at=6))
    assert said is not None
    assert (said.kind, said.severity) == ("flail", CRITICAL)


def test_the_detector_that_lost_a_streak_goes_on_adding_to_it() -> None:
    primaries = Primaries()
    first = primaries.say(finding("doom_loop", INFO, at=3))
    primaries.say(finding("flail", CRITICAL, at=6))
    assert first is not None
    assert primaries.say(finding("doom_loop", CRITICAL, at=8, id=first.id, revision=1)) is None
    assert len(primaries) == 1


@pytest.mark.parametrize(
    ("more", "same"),
    [
        ({}, True),
        ({"tool": "grep"}, False),
        ({"agent": "other"}, False),
        ({"tool": "grep", "evidence": {"span_ids": ["span-4"]}}, True),
        ({"evidence": {"shadow": True}}, False),
        ({"kind": "budget"}, False),
        ({"started_at": 20, "detected_at": 30, "span_id": "x", "first_span_id": "y"}, False),
    ],
)
def test_findings_are_about_one_streak_by_tool_and_time_or_by_a_common_span(
    more: dict[str, Any], *, same: bool
) -> None:
    said = finding("no_progress", at=4)
    other = dataclasses.replace(finding("flail", at=9, since=3), **more)
    assert are_one_streak(said, other) is same
    assert are_one_streak(other, said) is same


def test_the_same_detector_tells_its_own_streaks_apart() -> None:
    primaries = Primaries()
    one, other = primaries.say(finding("doom_loop", since=1)), primaries.say(finding("doom_loop", since=2))
    assert one is not None
    assert other is not None
    assert one.id != other.id


def test_single_calls_of_one_tool_are_findings_of_their_own() -> None:
    primaries = Primaries()
    assert primaries.say(finding("soft_failure", at=3, since=3)) is not None
    assert primaries.say(finding("oversized_result", at=5, since=5)) is not None
    assert len(primaries) == 2


def test_it_goes_on_from_a_checkpoint_as_if_nothing_had_happened() -> None:
    kinds = [*PRECEDENCE, "budget"]
    stream = [
        finding(kinds[n * 7 % len(kinds)], list(Severity)[n % 3], at=n + 1, since=max(1, n - 3), revision=n)
        for n in range(40)
    ]
    whole = Primaries()
    expected = [whole.say(one) for one in stream]
    found = []
    primaries = Primaries()
    for one in stream:
        found.append(primaries.say(one))
        primaries = Primaries.load(json.loads(json.dumps(primaries.json())))
    assert found == expected


def test_evidence_of_a_streak_names_each_kind_once() -> None:
    primaries = Primaries()
    primaries.say(finding("cascade", at=5))
    for n in range(6, 20):
        for kind in ("flail", "doom_loop", "no_progress", "known_dead_call", "soft_failure"):
            primaries.say(finding(kind, at=n, since=n - 4, evidence={"span_ids": ["span-5"]}))
    said = primaries.say(finding("cascade", at=30, revision=1))
    assert len(also(said)) == len(set(also(said))) == 4


@pytest.mark.parametrize("kind", ["doom_loop", "flail"])
def test_what_was_sure_stays_so_with_what_it_stood_on(kind: str) -> None:
    """The same detector goes on, or a stronger one takes over, with less evidence: nothing is taken back."""
    primaries = Primaries()
    primaries.say(finding("doom_loop", CRITICAL, at=4))
    said = primaries.say(finding(kind, WARNING, at=5, evidence={"missing": ["result"]}))
    assert said is not None
    assert (said.kind, said.severity, said.evidence["missing"]) == (kind, CRITICAL, [])
    assert bounded(said).severity is CRITICAL
