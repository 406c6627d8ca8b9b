"""What a session has used, and how fast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from control.handoff.record import Cost

if TYPE_CHECKING:
    from control.handoff.record import Onset
    from detectors.notes import Notes

_BURN_NS: Final = 300 * 10**9
_MINUTE_NS: Final = 60 * 10**9


def cost_of(notes: Notes, onset: Onset | None, now_ns: int) -> Cost | None:
    """Sums, and rates over the last five minutes; None when nothing was called."""
    if not notes.calls and not notes.model_calls:
        return None
    until = min(now_ns, notes.last_ns) if notes.ended_ns else max(now_ns, notes.last_ns)
    since = max(until - _BURN_NS, notes.first_ns)
    minutes = max(1.0, (until - since) / _MINUTE_NS)
    recent = [one for one in notes.minutes if one.start_ns + _MINUTE_NS > since]
    tokens = sum(one.tokens for one in recent) / minutes if notes.tokens is not None else None
    usd = sum(one.cost_usd for one in recent) / minutes if notes.cost_usd is not None else None
    return Cost(
        calls=notes.calls,
        model_calls=notes.model_calls,
        failures=notes.failures,
        denied=notes.denied,
        tokens=notes.tokens,
        usd=None if notes.cost_usd is None else round(notes.cost_usd, 6),
        seconds=max(0, notes.last_ns - notes.first_ns) / 1e9,
        calls_since_onset=notes.calls - onset.number + 1 if onset is not None and onset.number else None,
        calls_per_minute=round(sum(one.calls for one in recent) / minutes, 2),
        tokens_per_minute=None if tokens is None else round(tokens, 1),
        usd_per_minute=None if usd is None else round(usd, 6),
    )
