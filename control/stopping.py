"""Stops one session because a person says so, by a link or by hand: the strongest breaker there is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from control import audit
from control.action import Action
from control.breakers.record import UnknownBreaker, breaker_id
from control.breakers.states import Event, IllegalTransition
from control.breakers.store import get_breaker
from control.scope import Scope

if TYPE_CHECKING:
    from collections.abc import Callable

    from control.actor import Actor
    from control.breakers.book import Breakers
    from control.breakers.record import Breaker
    from control.db import ControlDb

_PAUSE_NS = 60_000_000_000


class Stopping:
    """Halts sessions; writes down who came with a link that does not hold, once a minute at most."""

    def __init__(self, db: ControlDb, breakers: Breakers, now_ns: Callable[[], int]) -> None:
        self._db = db
        self._breakers = breakers
        self._now_ns = now_ns
        self._refused_at: int | None = None
        self._unwritten = 0

    def stop(self, session_id: str, actor: Actor, reason: str) -> Breaker | None:
        """Halt a session; None when it is halted already. Raises `ValueError` for what is no session."""
        try:
            return self._breakers.act(
                Scope(session=session_id), Event.TRIP, actor, reason, action=Action.HALT
            )
        except IllegalTransition:
            return None

    def is_stopped(self, session_id: str) -> bool:
        """Whether the breaker over the session halts it already."""
        try:
            with self._db.reading() as connection:
                breaker = get_breaker(connection, breaker_id(Scope(session=session_id)))
        except UnknownBreaker:
            return False
        return breaker.state.refuses and breaker.action is Action.HALT

    def refused(self, session_id: str, actor: Actor, why: str) -> None:
        """Write down that somebody came with a link that does not hold."""
        now = self._now_ns()
        self._unwritten += 1
        if self._refused_at is not None and now - self._refused_at < _PAUSE_NS:
            return
        count, self._unwritten, self._refused_at = self._unwritten, 0, now
        with self._db.transaction() as tx:
            audit.record(
                tx,
                at_ns=now,
                actor=actor,
                verb="stop_link.refused",
                subject=f"session {session_id[:200]}",
                reason=why,
                extra={"count": count},
            )
