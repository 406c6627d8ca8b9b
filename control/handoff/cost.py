"""What a session has used, and how fast."""

from __future__ import annotations

from typing import TYPE_CHECKING

from control.burn import burn_of
from control.handoff.record import Cost

if TYPE_CHECKING:
    from control.handoff.record import Onset
    from detectors.notes import Notes


def cost_of(notes: Notes, onset: Onset | None, now_ns: int) -> Cost | None:
    """Sums, and rates as `control.burn` reckons them; None when nothing was called."""
    if not notes.calls and not notes.model_calls:
        return None
    burn = burn_of(notes, now_ns)
    return Cost(
        calls=notes.calls,
        model_calls=notes.model_calls,
        failures=notes.failures,
        denied=notes.denied,
        tokens=notes.tokens,
        usd=None if notes.cost_usd is None else round(notes.cost_usd, 6),
        seconds=max(0, notes.last_ns - notes.first_ns) / 1e9,
        calls_since_onset=notes.calls - onset.number + 1 if onset is not None and onset.number else None,
        calls_per_minute=None if burn.calls is None else round(burn.calls, 2),
        tokens_per_minute=None if burn.tokens is None else round(burn.tokens, 1),
        usd_per_minute=None if burn.usd is None else round(burn.usd, 6),
    )
