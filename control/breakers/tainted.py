"""Which steps of a run a stuck agent should drop from its memory, and where it was still sound. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from collector.step import Json
    from detectors.notes import Notes
    from detectors.protocol import Finding

_MAX_STEPS: Final = 64


def quarantine_of(finding: Finding, notes: Notes | None) -> Mapping[str, Json]:
    """Name the tainted steps and the last clean one, None where nothing tells it.

    Tainted are the calls of the finding's tool since its streak began, as far as the notes of the session go
    back, else the spans that its evidence names.
    """
    tainted: list[Json] = []
    clean: str | None = None
    for recent in () if notes is None else sorted(notes.recent):
        if recent.end_ns < finding.started_at:
            clean = recent.step_id
        elif finding.tool in (None, recent.tool):
            tainted.append(recent.step_id)
    if not tainted:
        spans = finding.evidence.get("span_ids")
        tainted = list(spans) if isinstance(spans, list | tuple) else []
    return {"tainted_steps": tainted[-_MAX_STEPS:], "last_clean_step": clean}
