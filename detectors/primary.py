"""Which findings are about one streak, and which of them speaks for it.

Several detectors may see one streak: a call that repeats is a doom loop, a dead call and no progress at once.
One of them is primary, by the precedence of the design; the others are kept in its evidence under `also`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from detectors.protocol import Finding, Severity
from detectors.scope import Recent

if TYPE_CHECKING:
    from collector.step import Json

PRECEDENCE: Final[Mapping[str, int]] = {
    "cascade": 6,
    "retry_storm": 5,
    "flail": 4,
    "doom_loop": 3,
    "no_progress": 2,
    "known_dead_call": 1,
    "soft_failure": 1,
    "hallucinated_call": 1,
    "parameter_drift": 1,
    "duplicate_side_effect": 1,
    "dependency_missed": 1,
    "schema_drift": 1,
    "oversized_result": 1,
}
"""Kinds that can be about one streak, the strongest highest. All others stand for themselves."""

_KEPT: Final = 128
_ALSO_KEPT: Final = 4


class Primaries:
    """What was said of one session (or one fleet-wide scope) so far."""

    def __init__(self) -> None:
        self._said = Recent[str, Finding](_KEPT)
        self._primary_of = Recent[str, str](_KEPT)

    def __len__(self) -> int:
        return len(self._said)

    def said(self) -> list[Finding]:
        """The latest of each streak."""
        return list(self._said.values())

    def say(self, finding: Finding) -> Finding | None:
        """Take a detector's finding; return what there is to say, None when it only adds to the evidence.

        What was said is never taken back: a revision is at least as severe as the one before, and its kind
        never sinks in precedence.
        """
        primary_id = self._primary_of.get(finding.id) or finding.id
        before = self._said.get(primary_id) or self._same_streak(finding)
        if before is None:
            self._said.put(finding.id, finding)
            return finding
        if before.id != finding.id:
            self._primary_of.put(finding.id, before.id)
        if before.detector == finding.detector:
            return self._keep(_revised(before, finding))
        if _leads(finding, before):
            return self._keep(_taken_over(before, finding))
        beside = _with_also(before, [finding])
        if finding.severity.rank <= before.severity.rank:
            self._said.put(before.id, beside)
            return None
        return self._keep(_carried_on(beside, finding))

    def rename(self, session_id: str, session_ids: tuple[str, ...], old: Primaries) -> list[Finding]:
        """Take over what was said under another session id; return all of it, as revisions."""
        again: list[Finding] = []
        for finding in old.said():
            said = dataclasses.replace(
                finding, session_id=session_id, session_ids=session_ids, revision=finding.revision + 1
            )
            known = self._said.get(said.id)
            if known is None or known.revision < said.revision:
                again.append(self._keep(said))
        for finding_id, primary_id in old._primary_of.items():
            self._primary_of.put(finding_id, primary_id)
        return again

    def json(self) -> Json:
        """All that was said, for a checkpoint."""
        return {
            "said": [_json(finding) for finding in self._said.values()],
            "primary_of": [[one, other] for one, other in self._primary_of.items()],
        }

    @staticmethod
    def load(state: Any) -> Primaries:  # noqa: ANN401 - JSON that `json` wrote
        """Read what `json` wrote."""
        primaries = Primaries()
        for stored in state["said"]:
            primaries._said.put(stored["id"], _finding(stored))
        for finding_id, primary_id in state["primary_of"]:
            primaries._primary_of.put(finding_id, primary_id)
        return primaries

    def _keep(self, finding: Finding) -> Finding:
        self._said.put(finding.id, finding)
        return finding

    def _same_streak(self, finding: Finding) -> Finding | None:
        """What another detector said of the streak that a finding is about."""
        if finding.kind not in PRECEDENCE:
            return None
        candidates = [said for said in self._said.values() if are_one_streak(said, finding)]
        return max(candidates, key=lambda said: (PRECEDENCE[said.kind], said.detected_at), default=None)


def are_one_streak(said: Finding, finding: Finding) -> bool:
    """Whether two findings of different detectors speak of one streak.

    They do when they share a step that they name as evidence, or when they are of the same tool of the same
    agent and the times that they speak of overlap. Shadows are only compared with shadows, and two single
    calls have nothing to do with each other unless they are the same one.
    """
    if said.detector == finding.detector or not {said.kind, finding.kind} <= PRECEDENCE.keys():
        return False
    if bool(said.evidence.get("shadow")) != bool(finding.evidence.get("shadow")):
        return False
    if _spans(said) & _spans(finding):
        return True
    if PRECEDENCE[said.kind] == PRECEDENCE[finding.kind]:
        return False
    if (said.agent, said.tool) != (finding.agent, finding.tool):
        return False
    return said.started_at <= finding.detected_at and finding.started_at <= said.detected_at


def _spans(finding: Finding) -> set[object]:
    told = finding.evidence.get("span_ids")
    listed = told if isinstance(told, (list, tuple)) else ()
    return {
        span for span in (finding.first_span_id, finding.span_id, *listed) if isinstance(span, str) and span
    }


def _leads(finding: Finding, before: Finding) -> bool:
    """Whether a finding speaks for the streak from now on. A note does not speak for an alarm."""
    if PRECEDENCE.get(finding.kind, 0) <= PRECEDENCE.get(before.kind, 0):
        return False
    return finding.severity.rank >= min(before.severity.rank, Severity.WARNING.rank)


def _as_sure(finding: Finding, before: Finding) -> Finding:
    """The finding, no less severe than what was said before; with the severity goes what it stands on."""
    if finding.severity.rank >= before.severity.rank:
        return finding
    missing = before.evidence.get("missing") or []
    return dataclasses.replace(
        finding, severity=before.severity, evidence={**finding.evidence, "missing": missing}
    )


def _revised(before: Finding, finding: Finding) -> Finding:
    """The same detector goes on."""
    finding = dataclasses.replace(
        _as_sure(finding, before),
        id=before.id,
        revision=max(finding.revision, before.revision + 1),
    )
    also = before.evidence.get("also")
    return dataclasses.replace(finding, evidence={**finding.evidence, "also": also}) if also else finding


def _taken_over(before: Finding, finding: Finding) -> Finding:
    """A stronger kind speaks for the streak; its identity and its beginning stay."""
    earlier = before.started_at <= finding.started_at
    finding = _as_sure(finding, before)
    taken = dataclasses.replace(
        finding,
        id=before.id,
        revision=before.revision + 1,
        started_at=min(before.started_at, finding.started_at),
        first_span_id=before.first_span_id if earlier else finding.first_span_id,
        evidence={**finding.evidence, "also": before.evidence.get("also") or []},
    )
    return _with_also(taken, [before])


def _carried_on(before: Finding, finding: Finding) -> Finding:
    """A weaker kind is surer of it: the primary becomes as severe, at the step that showed it."""
    return dataclasses.replace(
        before,
        severity=finding.severity,
        revision=before.revision + 1,
        trace_id=finding.trace_id,
        span_id=finding.span_id,
        step_id=finding.step_id,
        detected_at=finding.detected_at,
        evidence={**before.evidence, "missing": finding.evidence.get("missing") or []},
    )


def _with_also(finding: Finding, others: Iterable[Finding]) -> Finding:
    """The finding with what other detectors say of its streak, the latest of each."""
    told: Any = finding.evidence.get("also") or []
    also: dict[str, Json] = {one["kind"]: one for one in told}
    for other in others:
        if other.kind != finding.kind:
            also.pop(other.kind, None)
            also[other.kind] = {
                "kind": other.kind,
                "severity": other.severity.value,
                "occurrences": other.occurrences,
                "summary": other.summary[:160],
            }
    kept: list[Json] = list(also.values())[-_ALSO_KEPT:]
    return dataclasses.replace(finding, evidence={**finding.evidence, "also": kept})


def _json(finding: Finding) -> dict[str, Json]:
    """A finding as JSON, fields by name."""
    return {
        field.name: list(value) if isinstance(value, tuple) else value
        for field in dataclasses.fields(finding)
        for value in [getattr(finding, field.name)]
    }


def _finding(stored: Mapping[str, Any]) -> Finding:
    return Finding(
        **{
            **stored,
            "severity": Severity(stored["severity"]),
            "session_ids": tuple(stored["session_ids"]),
        },
    )
