"""Since which call a session is stuck."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from control.handoff.record import Onset
from detectors.protocol import Severity

if TYPE_CHECKING:
    from detectors.notes import Found, Notes
    from detectors.protocol import Finding

STREAK: Final = 3  # failures or equal results in a row that are one without any finding
_IN_A_ROW: Final = "three in a row"


def onset_of(notes: Notes, findings: Sequence[Finding]) -> Onset | None:
    """The onset of the earliest alarm, else of the earliest note, else of what goes on by the notes."""
    alarms = [one for one in notes.found if Severity(one.severity).rank]
    found = min(alarms or notes.found, key=lambda one: one.number, default=None)
    if found is not None:
        return _onset_found(notes, found, findings)
    return _onset_noted(notes) or _onset_told(findings)


def _onset_found(notes: Notes, found: Found, findings: Sequence[Finding]) -> Onset:
    finding = next((one for one in findings if one.id == found.finding_id), None)
    return Onset(
        number=found.onset_number,
        at_ns=found.onset_ns,
        step_id=found.onset_step_id,
        span_id=found.onset_span_id,
        trace_id=finding.trace_id if finding is not None else trace_of(notes),
        rule=found.kind,
        began_number=found.began_number,
        began_ns=found.began_ns,
        found_number=found.number,
        found_ns=found.at_ns,
        latest_number=found.number if finding is None else call_of(notes, finding),
        latest_ns=found.at_ns if finding is None else finding.detected_at,
    )


def call_of(notes: Notes, finding: Finding) -> int:
    """The number of the call at which the newest revision of a finding was made; 0 when it is not known."""
    for call in reversed(notes.recent):
        if call.span_id and call.span_id == finding.span_id:
            return call.number
    found = next((one for one in notes.found if one.finding_id == finding.id), None)
    if found is not None and found.at_ns == finding.detected_at:
        return found.number
    before = [call.number for call in notes.recent if call.end_ns <= finding.detected_at]
    return max(before, default=0)


def _onset_noted(notes: Notes) -> Onset | None:
    """What has failed, or come back the same, three times in a row, though nothing was found."""
    places = [
        (path.run_first_number, path.run_first_ns, path.run_first_step_id, path.run_first_span_id)
        for path in notes.paths
        if path.run >= STREAK
    ]
    places += [
        (one.run_first_number, one.run_first_ns, one.run_first_step_id, one.run_first_span_id)
        for one in notes.repeats
        if one.same >= STREAK
    ]
    if not places:
        return None
    number, at_ns, step_id, span_id = min(places)
    third = next((call for call in notes.recent if call.number == number + STREAK - 1), None)
    if third is not None:
        number, at_ns, step_id, span_id = third.number, third.start_ns, third.step_id, third.span_id
    began_number, began_ns, *_ = min(places)
    return Onset(
        number=number,
        at_ns=at_ns,
        step_id=step_id,
        span_id=span_id,
        trace_id=trace_of(notes),
        rule=_IN_A_ROW,
        began_number=began_number,
        began_ns=began_ns,
    )


def _onset_told(findings: Sequence[Finding]) -> Onset | None:
    """Without notes all that is known is when the first streak began."""
    first = min(findings, key=lambda one: one.started_at, default=None)
    if first is None:
        return None
    return Onset(
        number=0,
        at_ns=first.started_at,
        step_id=str(first.evidence.get("first_step_id") or ""),
        span_id=first.first_span_id,
        trace_id=first.trace_id,
        rule=first.kind,
        began_ns=first.started_at,
        found_ns=first.detected_at,
    )


def trace_of(notes: Notes) -> str:
    """The trace of a session that has only one; empty for all others."""
    return notes.trace_ids[0] if len(notes.trace_ids) == 1 else ""
