"""When an alert is over by itself. Pure: the alert, the notes of its session, the time."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from control.alerts.inhibition import storm_goes_on_ns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from control.alerts.record import Alert
    from control.alerts.settings import AlertSettings
    from detectors.notes import Notes, Recent
    from detectors.protocol import Finding

STILL_RUNNING: Final = "still_running"
_NS: Final = 1_000_000_000
_FAILED: Final = frozenset({"error", "soft_error"})
_DENIED: Final = "denied"
_BY_FAILING: Final = frozenset({"flail", "retry_storm", "known_dead_call", "cascade", "soft_failure"})
"""Kinds whose calls fail: one of the same tool that works is no repeat."""
_BY_OTHER_MEANS: Final = frozenset(
    {
        "flapping",
        "breaker_flapping",
        "breaker_capped",
        "no_data",
        "ingest_lag",
        "delivery_lag",
        "destination_disabled",
    }
)
"""Alerts about Recloser itself: what raised them says when they are over."""


class Over(StrEnum):
    """Why an alert is over."""

    RUN_ENDED = "run_ended"
    USER_SPOKE = "user_spoke"
    STREAK_OVER = "streak_over"
    IDLE = "idle"


def over(alert: Alert, notes: Notes | None, now_ns: int, settings: AlertSettings) -> Over | None:
    """Say why an alert is over now, None when it goes on.

    The run ended after the finding; or a person spoke to the agent since (a person looks after it); or the
    last `quiet_calls` tool calls since the finding repeat neither the failing tool nor the same call; or
    nothing was heard for `idle_s`. Calls that a brake refused are no sign of anything, unless they are
    repeats. Without notes only the last one can be told. The end of a run and a person's words end nothing
    that is seen to repeat after them.
    """
    finding = alert.finding
    if finding.kind in _BY_OTHER_MEANS:
        return None
    idle_ns, heard_ns = int(settings.idle_s * _NS), alert.heard_at
    if not finding.session_id:
        idle_ns = max(idle_ns, storm_goes_on_ns(finding))
    elif alert.run_ended_at and not _goes_on_after(finding, notes, alert.run_ended_at):
        return Over.RUN_ENDED
    elif notes is not None:
        told = _told_by(finding, notes, settings.quiet_calls)
        if told is not None:
            return told
        heard_ns = max(heard_ns, notes.last_ns)
    return Over.IDLE if now_ns - heard_ns > idle_ns else None


def goes_on(alert: Alert, notes: Notes | None) -> bool:
    """Tell whether anything happened to an alert since the one that spoke for it ended."""
    if not alert.released_at or alert.heard_at > alert.released_at:
        return True
    return notes is None or notes.last_ns >= alert.released_at


def signatures_of(finding: Finding) -> frozenset[str]:
    """The calls that a finding is about, as far as it says: 16 hex digits each."""
    one, many = finding.evidence.get("signature"), finding.evidence.get("signatures")
    named = [one, *(many if isinstance(many, (list, tuple)) else ())]
    return frozenset(text for text in named if isinstance(text, str))


def _told_by(finding: Finding, notes: Notes, quiet_calls: int) -> Over | None:
    """What the notes say: the run ended, a person spoke, the agent does other things."""
    same_run = not finding.run_id or not notes.run_id or finding.run_id == notes.run_id
    if same_run and notes.ended_ns and notes.ended_ns >= finding.detected_at:
        return Over.RUN_ENDED
    if finding.kind == STILL_RUNNING:
        return None
    if notes.last_user_ns > finding.detected_at and not _goes_on_after(finding, notes, notes.last_user_ns):
        return Over.USER_SPOKE
    return Over.STREAK_OVER if _streak_over(finding, notes.recent, quiet_calls) else None


def _goes_on_after(finding: Finding, notes: Notes | None, moment_ns: int) -> bool:
    """Tell whether a call that began after a moment repeats what was found."""
    signatures = signatures_of(finding)
    return notes is not None and any(
        call.start_ns > moment_ns and _is_of(call, finding) and _repeats(call, finding, signatures)
        for call in notes.recent
    )


def _streak_over(finding: Finding, recent: Sequence[Recent], quiet_calls: int) -> bool:
    signatures = signatures_of(finding)
    if finding.tool is None and not signatures:
        return False  # nothing to compare calls with
    since = [call for call in recent if call.end_ns > finding.detected_at and _is_of(call, finding)]
    judged = [call for call in since if call.outcome != _DENIED or _repeats(call, finding, signatures)]
    last = judged[-quiet_calls:]
    return len(last) >= quiet_calls and not any(_repeats(call, finding, signatures) for call in last)


def _is_of(call: Recent, finding: Finding) -> bool:
    """Tell whether a call is of the finding's agent, as far as that is known."""
    return finding.agent is None or call.agent is None or call.agent == finding.agent


def _repeats(call: Recent, finding: Finding, signatures: frozenset[str]) -> bool:
    if call.signature is not None and call.signature in signatures:
        return True
    if call.tool != finding.tool:
        return False
    if call.outcome in _FAILED or (call.outcome == _DENIED and not signatures):
        return True
    alike_as_far_as_known = not signatures or call.signature is None
    return alike_as_far_as_known and finding.kind not in _BY_FAILING
