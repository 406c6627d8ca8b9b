"""How fast a session uses calls, tokens and money: one figure for messages and reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from detectors.notes import Minute, Notes

_WINDOW_NS: Final = 300 * 10**9
_MINUTE_NS: Final = 60 * 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Burn:
    """What a session used a minute, lately; None where nobody told."""

    calls: float | None
    tokens: float | None
    usd: float | None


def burn_of(notes: Notes, now_ns: int) -> Burn:
    """Reckon over the last five minutes before `now_ns` (unix ns), or of the run when it has ended.

    A run that is younger is reckoned over its own time, but never over less than a minute: what was used in
    its first seconds says nothing of the minutes to come. Of the oldest minute that is kept only the share
    within the five counts.
    """
    if not notes.minutes:
        return Burn(calls=None, tokens=None, usd=None)
    until = min(now_ns, notes.last_ns) if notes.ended_ns else max(now_ns, notes.last_ns)
    since = max(until - _WINDOW_NS, notes.first_ns)
    minutes = max(1.0, (until - since) / _MINUTE_NS)
    parts = [(_share(one, notes.first_ns, since), one) for one in notes.minutes]
    tokens = sum(share * one.tokens for share, one in parts) / minutes
    usd = sum(share * one.cost_usd for share, one in parts) / minutes
    return Burn(
        calls=sum(share * one.calls for share, one in parts) / minutes,
        tokens=None if notes.tokens is None else tokens,
        usd=None if notes.cost_usd is None else usd,
    )


def _share(minute: Minute, first_ns: int, since_ns: int) -> float:
    """How much of a minute of the run, which began at `first_ns`, lies after a moment: 0 to 1."""
    end = minute.start_ns + _MINUTE_NS
    start = max(minute.start_ns, min(first_ns, end - 1))
    return max(0.0, min(1.0, (end - since_ns) / (end - start)))
