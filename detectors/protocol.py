"""What a detector is, and what it says."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from collector.step import Json

if TYPE_CHECKING:
    from detectors.reading import Reading


class Severity(StrEnum):
    """`info` is a note, `warning` an alarm, `critical` what a policy may trip on."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """0 for info, 1 for warning, 2 for critical."""
        return ("info", "warning", "critical").index(self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One detector's verdict on one streak, with its evidence.

    `id` is a pure function of the rule version and the identity of the streak's first step (see
    `finding_id`), never of kind or session; `revision` counts up from 0 whenever the same streak is
    reported again with another kind, severity or count. `trace_id`/`span_id` are those of the step that
    completed the pattern in this revision, `first_span_id` those of the streak's first step. Times are
    unix nanoseconds; `occurrences` counts calls of the streak. `evidence` says which threshold was
    crossed, the fingerprints, the span ids (bounded), and under `missing` which evidence was absent
    (`arguments`, `result`, ...): a finding with missing evidence is `info` or `warning`, never `critical`.
    """

    id: str
    kind: str
    severity: Severity
    session_id: str
    started_at: int
    detected_at: int
    occurrences: int
    summary: str
    revision: int = 0
    session_ids: tuple[str, ...] = ()
    run_id: str = ""
    service: str = ""
    agent: str | None = None
    tool: str | None = None
    trace_id: str = ""
    span_id: str = ""
    first_span_id: str = ""
    step_id: str = ""
    detector: str = ""
    evidence: Mapping[str, Json] = field(default_factory=dict)


def finding_id(rule_version: str, first_step_id: str) -> str:
    """The identity of a finding: 16 hex digits, equal for equal evidence, on every machine, every time.

    >>> finding_id("doom_loop/1", "a" * 48) == finding_id("doom_loop/1", "a" * 48)
    True
    """
    return hashlib.sha256(f"{rule_version}\x1f{first_step_id}".encode()).hexdigest()[:16]


class Detector(Protocol):
    """Watches the steps of one scope, most often one (session, agent); see `detectors.keys`.

    The engine makes one instance a scope (the catalog's factory), hands it every step of that scope in
    order, and keeps what `snapshot` returns across restarts. The rules that the conformance suite in
    `tests/contracts/` checks: steps are not changed; the same steps in the same order give the same
    findings; state stays bounded; `restore(snapshot())` goes on as if nothing had happened.
    """

    def observe(self, reading: Reading) -> Sequence[Finding]:
        """Take one step in, read; return what it completes, most often nothing."""
        ...

    def snapshot(self) -> Json:
        """All state, as JSON."""
        ...

    def restore(self, state: Json) -> None:
        """Take over a state that `snapshot` of the same version returned."""
        ...
