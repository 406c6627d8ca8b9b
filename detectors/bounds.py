"""What a finding may be, whoever says it: of the right types, of bounded size, no surer than its evidence."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import orjson

from detectors.protocol import Finding, Severity

if TYPE_CHECKING:
    from collector.step import Json

MAX_SUMMARY: Final = 500  # characters
MAX_NAME: Final = 1024  # characters of an id or a name, as many as the API takes
MAX_EVIDENCE: Final = 4096  # bytes as JSON

_NAMES: Final = ("kind", "session_id", "run_id", "service", "agent", "tool", "detector")
_IDS: Final = ("id", "trace_id", "span_id", "first_span_id", "step_id")
_NUMBERS: Final = ("started_at", "detected_at", "occurrences", "revision")
_FIRST_KEPT: Final = ("missing", "shadow", "rule", "count", "threshold", "signature")
_UNKNOWN_SESSION: Final = "process:"


def is_unknown_session(session_id: str) -> bool:
    """Tell whether a session id only says which process a call without trace and session came from.

    Users of one server share it, so that calls under it need not have anything to do with each other.

    >>> is_unknown_session("process:web-1"), is_unknown_session("conversation-42")
    (True, False)
    """
    return session_id.startswith(_UNKNOWN_SESSION)


def bounded(finding: Finding) -> Finding:
    """Return the finding with its texts and its evidence cut to what the tables and messages have room for.

    What it misses bounds its severity: a note at most without arguments, a warning without anything else.

    A name that is cut ends in its hash, so that different ones stay different. Raises `TypeError` for what is
    no finding, or has a field of another type than the protocol's.
    """
    _check(finding)
    changes: dict[str, Any] = {}
    for name in (*_NAMES, *_IDS):
        value = getattr(finding, name)
        if value is not None and (short := _short(name, value)) != value:
            changes[name] = short
    sessions = tuple(_short("session_ids", session) for session in finding.session_ids)
    if sessions != finding.session_ids:
        changes["session_ids"] = sessions
    if len(_text("summary", finding.summary)) > MAX_SUMMARY:
        changes["summary"] = f"{finding.summary[: MAX_SUMMARY - 1]}…"
    evidence = _evidence(finding.evidence)
    if evidence is not finding.evidence:
        changes["evidence"] = evidence
    if (ceiling := _ceiling(finding.evidence)).rank < finding.severity.rank:
        changes["severity"] = ceiling
    return dataclasses.replace(finding, **changes) if changes else finding


def _ceiling(evidence: Mapping[str, Json]) -> Severity:
    """The most that a finding may say with what is missing from its evidence."""
    missing = evidence.get("missing")
    if not missing or not isinstance(missing, (list, tuple)):
        return Severity.CRITICAL
    return Severity.INFO if "arguments" in missing else Severity.WARNING


def without_session(finding: Finding) -> Finding:
    """Return the finding as one whose session is not known: `warning` at most, and it says so."""
    told = finding.evidence.get("missing")
    missing = list(told) if isinstance(told, (list, tuple)) else []
    if "session" not in missing:
        missing.append("session")
    severity = Severity.WARNING if finding.severity is Severity.CRITICAL else finding.severity
    return dataclasses.replace(finding, severity=severity, evidence={**finding.evidence, "missing": missing})


def _check(finding: object) -> None:
    if not isinstance(finding, Finding):
        raise TypeError(f"a finding was expected, not {type(finding).__name__}")
    if not isinstance(finding.severity, Severity):
        raise TypeError(f"severity must be a Severity, not {finding.severity!r}"[:MAX_SUMMARY])
    for number in _NUMBERS:
        if type(getattr(finding, number)) is not int:
            raise TypeError(f"{number} must be a whole number")
    if not isinstance(finding.evidence, Mapping):
        raise TypeError(f"evidence must be an object, not {type(finding.evidence).__name__}")


def _text(field: str, value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{field} must be text, not {type(value).__name__}")
    return value


def _short(field: str, value: object) -> str:
    text = _text(field, value)
    if len(text) <= MAX_NAME:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{text[: MAX_NAME - len(digest) - 1]}~{digest}"


def _evidence(evidence: Mapping[str, Json]) -> Mapping[str, Json]:
    """Keep what there is room for, what a policy looks at first."""
    if len(orjson.dumps(evidence)) <= MAX_EVIDENCE:
        return evidence
    kept: dict[str, Json] = {"truncated": True}
    size = len(orjson.dumps(kept))
    for key in sorted(evidence, key=lambda key: key not in _FIRST_KEPT):
        # With the comma; braces have been counted.
        more = len(orjson.dumps({key: evidence[key]})) - 1
        if size + more <= MAX_EVIDENCE:
            kept[key] = evidence[key]
            size += more
    return kept
