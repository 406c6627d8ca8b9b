"""What was found in one session, and since when: the beginning of each streak among the session's calls.

A streak begins with its first call, but nobody calls one failure a loop. Its *onset* is the call from which
on the agent is stuck without excuse, and never one after the call at which it was found: of the same call
again and again the third, in a cycle the first of its third lap; where the arguments were varied, which is
an attempt each time, the call after the third. Three is the ceiling of retries that the detectors start
from; readers of recorded runs call it stuck at about that call, too (docs/handoff.md has the figures).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from detectors.notes import Found
from detectors.notes_paths import REPEATS
from detectors.protocol import Severity

if TYPE_CHECKING:
    from detectors.notes import FailingPath
    from detectors.protocol import Finding

KEPT: Final = 12
_VARIES: Final = "flail"
_START_NS, _STEP_ID, _SPAN_ID, _NUMBER = 1, 7, 8, 9  # in a row of the latest calls


class Findings:
    """See the module. When there are too many, notes go before alarms, and the latest first."""

    __slots__ = ("_found",)

    def __init__(self, found: Iterable[Found] = ()) -> None:
        self._found = {one.finding_id: one for one in found}

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[Found]:
        return iter(self._found.values())

    def take(
        self, finding: Finding, calls: Iterable[tuple[Any, ...]], paths: Iterable[FailingPath], number: int
    ) -> None:
        """Take a finding in; `calls` are rows of `detectors.notes.Recent`, `number` the calls so far."""
        known = self._found.get(finding.id)
        if known is None or Severity(known.severity).rank == 0 < finding.severity.rank:
            now = _found(finding, {row[_SPAN_ID]: row for row in calls}, paths, number)
            if known is not None and known.began_number and not now.began_number:  # it is too long ago now
                now = known._replace(at_ns=now.at_ns, number=now.number)
            known = now
        self._found[finding.id] = known._replace(
            kind=finding.kind,
            severity=finding.severity.value,
            revision=finding.revision,
            summary=finding.summary[:200],
        )
        if len(self._found) > KEPT:
            weakest = min(self._found.values(), key=lambda one: (Severity(one.severity).rank, -one.at_ns))
            del self._found[weakest.finding_id]

    def absorb(self, past: Findings) -> None:
        """Take over what was found before under another name."""
        self._found = dict(list({**past._found, **self._found}.items())[:KEPT])


def _found(
    finding: Finding, calls: Mapping[str, tuple[Any, ...]], paths: Iterable[FailingPath], number: int
) -> Found:
    began = calls.get(finding.first_span_id)
    onset = _onset(finding, calls)
    found = Found(
        finding_id=finding.id,
        kind=finding.kind,
        severity=finding.severity.value,
        revision=finding.revision,
        summary="",
        at_ns=finding.detected_at,
        number=number,
        began_ns=finding.started_at,
        began_number=began[_NUMBER] if began is not None else 0,
        began_step_id=began[_STEP_ID] if began is not None else "",
        began_span_id=finding.first_span_id,
        onset_ns=onset[_START_NS] if onset is not None else finding.detected_at,
        onset_number=onset[_NUMBER] if onset is not None else number,
        onset_step_id=onset[_STEP_ID] if onset is not None else finding.step_id,
        onset_span_id=onset[_SPAN_ID] if onset is not None else finding.span_id,
    )
    return found if began is not None else _began_before(found, finding, paths)


def _began_before(found: Found, finding: Finding, paths: Iterable[FailingPath]) -> Found:
    """The same for a streak that began before the latest calls: by the failing path that began with it."""
    for path in paths:
        if path.tool != finding.tool or not path.stuck_number or path.stuck_number > found.onset_number:
            continue
        if finding.first_span_id in (path.first_span_id, path.run_first_span_id):
            return found._replace(
                began_number=path.run_first_number,
                began_step_id=path.run_first_step_id,
                onset_ns=path.stuck_ns,
                onset_number=path.stuck_number,
                onset_step_id=path.stuck_step_id,
                onset_span_id=path.stuck_span_id,
            )
    return found


def _onset(finding: Finding, calls: Mapping[str, tuple[Any, ...]]) -> tuple[Any, ...] | None:
    """The call of the streak's onset, None when it is not among the latest ones."""
    told = finding.evidence.get("span_ids")
    spans = [span for span in told if isinstance(span, str)] if isinstance(told, (list, tuple)) else []
    period = finding.evidence.get("period")
    began, last = calls.get(finding.first_span_id), calls.get(finding.span_id)
    if isinstance(period, int) and began is not None:
        wanted = began[_NUMBER] + REPEATS * period
        third = next((row for row in calls.values() if row[_NUMBER] == wanted), None)
    elif len(spans) > REPEATS and spans[0] == finding.first_span_id:
        third = calls.get(spans[REPEATS])
    else:
        third = None
    if third is not None and finding.kind == _VARIES:
        third = next((row for row in calls.values() if row[_NUMBER] == third[_NUMBER] + 1), third)
    if third is None or (last is not None and third[_NUMBER] > last[_NUMBER]):
        return last
    return third
