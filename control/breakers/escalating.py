"""Refusals that go on: counted by checks, brought onto the disk here, and answered with more strength."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from control.action import Action
from control.breakers import capping, changing, store
from control.breakers.blast import too_much
from control.breakers.cause import Cause
from control.breakers.record import breaker_id
from control.breakers.states import TRANSITIONS, Event, State
from control.guidance import ignored_for_model
from control.policy import Trip
from control.scope import Scope

if TYPE_CHECKING:
    from collections.abc import Callable

    from control.breakers.record import Breaker
    from control.breakers.watching import Watches
    from control.breakers.writer import Writer
    from control.db import ControlDb, Transaction

_AT_ONCE: Final = 64
"""Sessions that are halted in one turn; the others follow in the next ones."""
_COUNT: Final = """
    UPDATE breakers SET denied = ?1, seen_ns = ?3, payload = json_set(payload, '$.denied', ?1)
    WHERE id = ?2 AND state IN ('open', 'forced_open')
"""


class Escalation:
    """Makes breakers stronger that are ignored."""

    def __init__(
        self,
        db: ControlDb,
        writer: Writer,
        watches: Watches,
        active_sessions: Callable[[], int | None],
    ) -> None:
        self._db = db
        self._writer = writer
        self._watches = watches
        self._active_sessions = active_sessions
        self._capped = False

    def settle(self) -> list[Breaker]:
        """Write what was counted since the last time; return the breakers that became stronger by it."""
        index = self._writer.index
        counts = index.unwritten()
        if not counts and not index.sparing:
            return []
        self._capped = False
        with self._db.transaction() as tx:
            found = [self._counted(tx, key, denied) for key, denied in counts.items()]
            found += [self._halt(tx, wide, session) for wide, session in index.ignoring()[:_AT_ONCE]]
            tx.after_commit(lambda: index.written(counts))
        index.sparing = self._capped
        return [breaker for breaker in found if breaker is not None]

    def _counted(self, tx: Transaction, key: str, denied: int) -> Breaker | None:
        index, now = self._writer.index, self._writer.now_ns()
        tx.execute(_COUNT, (denied, key, now))
        breaker = store.fetch(tx, key)
        if breaker is None or not breaker.state.refuses:
            return None
        action, stronger = index.strength(breaker), None
        if action.rank > breaker.action.rank:
            spent = index.settings.replan_budget if breaker.action is Action.REPLAN else 0
            after = changing.escalated(
                breaker,
                action,
                changing.ESCALATION,
                denied=denied,
                denied_before=breaker.denied_before + spent,
                now_ns=now,
            )
            breaker = stronger = self._writer.write(tx, Event.ESCALATE, breaker, after)
        self._watches.told(tx, breaker)
        return stronger

    def _halt(self, tx: Transaction, wide: Breaker, session: str) -> Breaker | None:
        """Halt one session that goes on against a breaker that is not its own.

        Not one whose breaker a person has made a shadow, and not when too much was stopped by itself: then
        it is only refused until that has passed.
        """
        index = self._writer.index
        scope = Scope(tenant=wide.scope.tenant, session=session)
        trip = Trip(rule=wide.rule, scope=scope, action=Action.HALT, shadow=False)
        known, now = store.fetch(tx, breaker_id(scope)), self._writer.now_ns()
        before = known or changing.blank(scope, now)
        opens = before.state is not State.OPEN and (before.state, Event.TRIP) in TRANSITIONS
        opens = opens and not (before.by_hand and before.state is State.SHADOW)
        why = too_much(tx, scope, now, index.settings, self._active_sessions()) if opens else None
        if why is not None:
            self._capped = True
            capping.capped(self._writer, tx, trip, known, why)
            return None
        tx.after_commit(lambda: index.halted(wide.id, session))
        if before.state is State.OPEN and before.action is not Action.HALT:
            denied = index.denied(before.id, before.denied)
            after = changing.escalated(
                before,
                Action.HALT,
                changing.ESCALATION,
                denied=denied,
                denied_before=denied,
                now_ns=now,
            )
            return self._writer.write(tx, Event.ESCALATE, before, after)
        if not opens:
            return None
        cause = Cause(
            reason=wide.reason,
            message_for_model=ignored_for_model(wide.scope),
            message_for_human=f"Run halted: it went on against {wide.id} ({wide.scope})",
            finding_id=wide.finding_id,
            finding_revision=wide.finding_revision,
            session_id=session,
        )
        after = changing.opened(
            before, Event.TRIP, trip=trip, cause=cause, now_ns=now, settings=index.settings
        )
        return self._writer.write(tx, Event.TRIP, known, replace(after, actor=changing.ESCALATION))
