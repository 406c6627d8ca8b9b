"""Why a run is stuck: what its records say themselves, and what they only suggest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from control.handoff.record import Cause, Causes
from detectors.errors import ErrorClass

if TYPE_CHECKING:
    from control.handoff.record import Onset
    from detectors.notes import FailingPath, Notes
    from detectors.protocol import Finding

SHOWN: Final = 5  # of each sort
STEPS_SHOWN: Final = 4
TWICE: Final = 2
_THRICE: Final = 3
_WHY: Final = {
    ErrorClass.TIMEOUT: "does not answer in time",
    ErrorClass.RATE_LIMIT: "is asked more often than it allows",
    ErrorClass.NETWORK: "cannot be reached",
    ErrorClass.UNAVAILABLE: "is out of service",
    ErrorClass.SCHEMA: "is given arguments that it does not take",
    ErrorClass.NOT_FOUND: "is asked for something that is not there",
    ErrorClass.PERMISSION: "is not allowed to do what it is asked",
    ErrorClass.AUTH: "is used without valid credentials",
    ErrorClass.ENVIRONMENT: "lacks something in its environment",
    ErrorClass.RESOURCE_EXHAUSTED: "has run out of a resource",
    ErrorClass.AMBIGUOUS: "fails without saying why",
    ErrorClass.TOOL_BUG: "is broken itself",
    ErrorClass.APPLICATION: "works, but what it runs fails",
    ErrorClass.UNKNOWN: "fails for a reason that is not known",
}
_DOUBTFUL: Final = frozenset({ErrorClass.AMBIGUOUS, ErrorClass.UNKNOWN})
# Kinds of findings that compare two records with each other: what was offered with what was called, ...
_PROVES: Final = frozenset(
    {"hallucinated_call", "schema_drift", "dependency_missed", "tool_degraded", "duplicate_side_effect"}
)
_CASCADE: Final = "cascade"


def of(notes: Notes, findings: Sequence[Finding]) -> Causes:
    """All causes that there is evidence for, the gravest first.

    A failing path is confirmed when a rule, not a guess, read its class out of the error, it failed at least
    twice, and nothing of the kind has worked since. All else that failed twice is suspected, and what was
    found, unless it compares two records with each other.
    """
    confirmed: list[Cause] = []
    suspected: list[Cause] = []
    for path in sorted(notes.paths, key=lambda path: (-path.run, -path.count)):
        if path.count >= TWICE:
            (confirmed if _is_plain(path) else suspected).append(_of_path(path))
    for finding in findings:
        cause = Cause(
            text=_root(finding) or finding.summary,
            evidence=f"finding {finding.kind}, {finding.severity.value}, {finding.occurrences} occurrences",
            step_ids=(finding.step_id,) if finding.step_id else (),
            finding_id=finding.id,
        )
        proven = finding.kind in _PROVES and finding.severity.rank > 0
        (confirmed if proven else suspected).append(cause)
    suspected += [
        Cause(
            text=f"what {one.tool} returns is not used: it is asked for the same again and again",
            evidence=f"{one.same} equal results of {one.tool}({one.arguments}) in a row",
            step_ids=(one.run_first_step_id, one.last_step_id),
        )
        for one in notes.repeats
        if one.same >= _THRICE and not one.failed
    ]
    return Causes(confirmed=tuple(confirmed[:SHOWN]), suspected=tuple(suspected[:SHOWN]))


def reason(notes: Notes, finding: Finding | None, onset: Onset | None) -> FailingPath | None:
    """The failing path that the run is stuck in; None when nothing fails there.

    That is one of the tool of the gravest finding, else the one that has failed most often in a row, if it
    failed at least twice; what failed after the onset goes before what failed earlier.
    """
    since = onset.began_ns or onset.at_ns if onset is not None else 0
    paths = [path for path in notes.paths if path.count >= TWICE or path.run]
    of_tool = [path for path in paths if finding is not None and path.tool == finding.tool]
    told = finding.evidence.get("error_class") if finding is not None else None
    return max(
        of_tool or [path for path in paths if path.count >= TWICE],
        key=lambda path: (path.error_class == told, path.last_ns >= since, path.run, path.count),
        default=None,
    )


def _is_plain(path: FailingPath) -> bool:
    return bool(path.rule) and path.run >= TWICE and ErrorClass(path.error_class) not in _DOUBTFUL


def _of_path(path: FailingPath) -> Cause:
    why = _WHY[ErrorClass(path.error_class)]
    said = f": {path.error}" if path.error else ""
    told = f"by rule {path.rule}" if path.rule else "by the text model or not at all"
    since = f"calls {path.first_number} to {path.last_number}"
    return Cause(
        text=f"{path.operation} {why} ({path.error_class}){said}",
        evidence=f"{path.count} failures, {since}, {path.run} without a success since; class told {told}",
        step_ids=tuple(dict.fromkeys((path.run_first_step_id, path.last_step_id)))[:STEPS_SHOWN],
    )


def _root(finding: Finding) -> str:
    """What a cascade says that it comes from."""
    root = finding.evidence.get("root_excerpt")
    if finding.kind != _CASCADE or not isinstance(root, str) or not root:
        return ""
    return f"one earlier failure that others depend on: {root}"


__all__ = ["Causes", "of", "reason"]
