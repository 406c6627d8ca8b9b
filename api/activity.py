"""How many sessions had a step lately: what a share of the active sessions is a share of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from collector.step import SessionsMerged, StepEvent, StepSeen
from control.breakers.blast import ACTIVE_S
from detectors.bounds import is_unknown_session
from detectors.scope import Recent

SESSIONS_KEPT: Final = 50_000
_ACTIVE_NS: Final = int(ACTIVE_S * 10**9)


class ActiveSessions:
    """Counts sessions by when a step of theirs was received last, at most `SESSIONS_KEPT` (about 10 MB).

    Sessions that are only known by their process do not count. Times are unix nanoseconds.
    """

    def __init__(self) -> None:
        self._last = Recent[str, int](SESSIONS_KEPT)
        self._at_ns = 0

    def take(self, event: StepEvent, received_ns: int) -> None:
        """Take one event in."""
        if type(event) is StepSeen:
            self._at_ns = max(self._at_ns, received_ns)
            if not is_unknown_session(event.step.session_id):
                self._last.put(event.step.session_id, self._at_ns)
        elif isinstance(event, SessionsMerged) and event.old != event.new:
            past = self._last.pop(event.old)
            if past is not None and event.new not in self._last:
                self._last.put(event.new, self._at_ns)

    def state(self) -> dict[str, int]:
        """What is written down: how many sessions were active, and when that was."""
        while (oldest := self._last.oldest()) is not None and oldest[1] < self._at_ns - _ACTIVE_NS:
            self._last.pop(oldest[0])
        return {"at_ns": self._at_ns, "sessions": len(self._last)}

    def restore(self, at_ns: int, sessions: Iterable[tuple[str, int]]) -> None:
        """Go on from when a state was written, with noted sessions and the ends of their last steps."""
        self._at_ns = at_ns
        for ended_ns, session in sorted((min(ended_ns, at_ns), session) for session, ended_ns in sessions):
            self._last.put(session, ended_ns)
