"""How much may be opened by itself: beyond it something is wrong with us, or with everything.

Source: ops_anchors §2.2, Envoy's `max_ejection_percent`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from control.breakers.timing import NS, within

if TYPE_CHECKING:
    from control.breakers.settings import BreakerSettings
    from control.db import Transaction
    from control.scope import Scope

ACTIVE_S: Final = 600.0
"""A session that asked within this time is active, and one that was opened within it counts."""
_MINUTE: Final = 60

_SCOPES: Final = """
    SELECT count(DISTINCT breaker_id) AS n FROM breaker_events
    WHERE event = 'trip' AND created_ns BETWEEN ? AND ? AND NOT json_extract(payload, '$.by_hand')
"""
_SESSIONS: Final = """
    SELECT DISTINCT json_extract(payload, '$.scope.session') AS session FROM breaker_events
    WHERE event = 'trip' AND created_ns BETWEEN ? AND ? AND NOT json_extract(payload, '$.by_hand')
    AND json_extract(payload, '$.scope.session') IS NOT NULL
"""


def too_much(
    tx: Transaction, scope: Scope, now_ns: int, settings: BreakerSettings, active_sessions: int | None
) -> str | None:
    """Say why no more may be opened automatically now; None when it may. None active sessions: not known."""
    if settings.blast_per_minute:
        row = tx.one(_SCOPES, within(_MINUTE, now_ns))
        if row is not None and row["n"] >= settings.blast_per_minute:
            return f"{row['n']} breakers were opened automatically within a minute"
    if scope.session is None or active_sessions is None or not settings.blast_share:
        return None
    limit = max(settings.blast_min, int(settings.blast_share * active_sessions))
    rows = tx.execute(_SESSIONS, within(ACTIVE_S, now_ns))
    sessions = {row["session"] for row in rows}
    if scope.session in sessions or len(sessions) < limit:
        return None
    return (
        f"{len(sessions)} of {active_sessions} active sessions were stopped automatically within 10 minutes"
    )


class Activity:
    """Which sessions asked lately, counted in steps of a turn. For one thread."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}
        self._heard = False

    def note(self, sessions: dict[str, None], now_ns: int) -> None:
        """Take the sessions that asked since the last turn."""
        self._heard = self._heard or bool(sessions)
        for session in tuple(sessions):  # one who asks right now may still add to it
            self._last.pop(session, None)
            self._last[session] = now_ns
        before = now_ns - int(ACTIVE_S * NS)
        while self._last:
            oldest = next(iter(self._last))
            if self._last[oldest] >= before:
                break
            del self._last[oldest]

    def count(self) -> int | None:
        """Return how many sessions are active; None when none ever asked: they are stopped in other ways."""
        return len(self._last) if self._heard else None
