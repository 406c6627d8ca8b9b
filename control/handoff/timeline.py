"""What happened in a session, in the order of time, the middle left out when it is long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from control.handoff.onset import call_of
from control.handoff.record import Moment

if TYPE_CHECKING:
    from control.breakers.record import Breaker
    from control.handoff.record import Onset
    from detectors.notes import Notes
    from detectors.protocol import Finding

MOMENTS_SHOWN: Final = 24
_WORDS: Final = {
    "start": "the session began",
    "first_failure": "first failure",
    "last_success": "last call that worked",
    "user_turn": "the user spoke",
    "compaction": "context was compacted",
}


def timeline_of(
    notes: Notes, findings: Sequence[Finding], breakers: Sequence[Breaker], onset: Onset | None
) -> tuple[Moment, ...]:
    """The marks of the notes, what was found and done about it, the onset, the end."""
    moments = [
        Moment(
            at_ns=mark.at_ns,
            what=mark.what,
            text=_WORDS.get(mark.what, mark.what) + (f": {mark.text}" if mark.text else ""),
            number=mark.number,
            step_id=mark.step_id,
            span_id=mark.span_id,
        )
        for mark in notes.marks
    ]
    moments += [
        Moment(
            at_ns=one.detected_at,
            what="found",
            text=f"{one.kind} ({one.severity.value}): {one.summary}",
            number=call_of(notes, one),
            step_id=one.step_id,
            span_id=one.span_id,
        )
        for one in findings
    ]
    moments += [_opened(one) for one in breakers]
    if onset is not None:
        text = "stuck from here on"
        moments.append(
            Moment(
                at_ns=onset.at_ns,
                what="onset",
                text=text,
                number=onset.number,
                step_id=onset.step_id,
                span_id=onset.span_id,
            )
        )
    if notes.ended_ns:
        moments.append(Moment(at_ns=notes.ended_ns, what="end", text="the run ended", number=notes.calls))
    elif notes.last_ns:
        moments.append(Moment(at_ns=notes.last_ns, what="last_step", text="last step", number=notes.calls))
    moments.sort(key=lambda one: (one.at_ns, one.number))
    if len(moments) > MOMENTS_SHOWN:
        moments = moments[: MOMENTS_SHOWN // 2] + moments[-MOMENTS_SHOWN // 2 :]
    return tuple(moments)


def _opened(breaker: Breaker) -> Moment:
    text = f"breaker {breaker.state.value}: {breaker.message_for_human}"
    return Moment(at_ns=breaker.opened_at, what="breaker", text=text)
