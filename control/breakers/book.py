"""Changes breakers: truth is in `control.db`, `BreakerIndex` is the copy in memory that checks use.

Every change is an event whose position is the breaker's new revision, so revisions are global and only grow.
A doomed run stays stopped until a person resets its breaker; one that nobody ran into for weeks expires.
Wider ones try again by themselves, after longer and longer times.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from control.actor import EXPIRY, Actor
from control.breakers import byhand, capping, changing, leases, store
from control.breakers.blast import Activity, too_much
from control.breakers.cause import Cause
from control.breakers.changes import KEPT, Change
from control.breakers.escalating import Escalation
from control.breakers.hooks import Hooks, tell
from control.breakers.probing import Probes
from control.breakers.record import Breaker, breaker_id, from_json
from control.breakers.states import TRANSITIONS, Event, State
from control.breakers.store import breakers_of, get_breaker, list_breakers
from control.breakers.tainted import quarantine_of
from control.breakers.timing import CLOCK_SLACK_NS, within
from control.breakers.watching import Watches
from control.breakers.writer import Writer
from control.guidance import for_human, for_model

if TYPE_CHECKING:
    from collections.abc import Callable

    from control.action import Action
    from control.breakers.index import BreakerIndex
    from control.breakers.leases import Lease
    from control.breakers.settings import BreakerSettings
    from control.db import ControlDb, Transaction
    from control.policy import Trip
    from control.scope import Scope
    from detectors.notes import Notes
    from detectors.protocol import Finding

__all__ = ["Breakers", "breakers_of", "get_breaker", "list_breakers"]

COOLING: Final = Actor(type="system", id="cooling")
LATCHING: Final = Actor(type="system", id="oscillation")
_WIDEST: Final = 7
_UNUSED: Final = """
    SELECT payload FROM breakers WHERE state IN ('open', 'half_open', 'shadow')
    AND max(seen_ns, json_extract(payload, '$.updated_at')) < ?
    AND NOT coalesce(json_extract(payload, '$.latched') OR json_extract(payload, '$.by_hand'), 0)
    ORDER BY revision LIMIT ?
"""
_TRIPS: Final = """
    SELECT count(*) AS n FROM breaker_events
    WHERE breaker_id = ? AND event = 'trip' AND created_ns BETWEEN ? AND ?
"""


class Breakers:
    """Changes breakers: each change and its event in one transaction, then in the index.

    `notes` gives what is known of a session. `active_sessions` returns how many sessions had a step lately,
    None when that is not known; those that ask are counted here, and the greater number holds.
    """

    def __init__(
        self,
        db: ControlDb,
        index: BreakerIndex,
        now_ns: Callable[[], int],
        *,
        notes: Callable[[str], Notes | None] = lambda _: None,
        hooks: Hooks | None = None,
        active_sessions: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._db = db
        self._now_ns = now_ns
        self._notes = notes
        self._activity = Activity()
        self._ticked_ns = sys.maxsize
        self._traced_sessions = active_sessions
        self.index = index
        self.hooks = hooks or Hooks()
        self.watches = Watches(db, self.hooks, notes, now_ns, lambda: index.settings)
        self._writer = Writer(index, self.hooks, self.watches, now_ns)
        self._escalation = Escalation(db, self._writer, self.watches, self._active_sessions)
        self.probes = Probes(db, self._writer)
        index.clock(now_ns)
        self._load()

    def configure(self, settings: BreakerSettings) -> None:
        """Behave by other settings from now on; what is open already keeps its times."""
        self.index.settings = settings

    def trip(self, tx: Transaction, trip: Trip, finding: Finding, found_ns: int) -> Breaker | None:
        """Open the breaker that a policy's rule asks for; None when there is nothing to change.

        `found_ns` is when the finding's revision was written: what was found before a person reset the
        breaker does not open it again, a revision found after that does.
        """

        def cause() -> Cause:
            notes = self._notes(finding.session_id) if finding.session_id else None
            return Cause(
                reason=finding.kind,
                message_for_model=for_model(finding, trip.scope, trip.action, notes),
                message_for_human=for_human(finding, trip.action),
                finding_id=finding.id,
                finding_revision=finding.revision,
                session_id=finding.session_id,
                quarantine=quarantine_of(finding, notes) if trip.quarantine else None,
            )

        return self.open(tx, trip, cause, found_ns)

    def open(self, tx: Transaction, trip: Trip, cause: Callable[[], Cause], found_ns: int) -> Breaker | None:
        """Open a breaker automatically, unless that is never done or too much was opened lately.

        `cause` is asked for only when something changes. None when nothing does.
        """
        if not self._may_trip(trip):
            return None
        now = self._now_ns()
        event = Event.SHADOW_TRIP if trip.shadow else Event.TRIP
        known = store.fetch(tx, breaker_id(trip.scope))
        before = known or changing.blank(trip.scope, now)
        if _old_news(before, found_ns):
            return None
        if (before.state, event) in TRANSITIONS and not (before.by_hand and before.state is State.SHADOW):
            return self._open(tx, event, trip, known, cause)
        if before.state is State.OPEN and not trip.shadow and trip.action.rank > before.action.rank:
            denied = self.index.denied(before.id, before.denied)
            actor = Actor(type="rule", id=trip.rule)
            after = changing.escalated(
                before, trip.action, actor, denied=denied, denied_before=denied, now_ns=now
            )
            if trip.quarantine:
                after = replace(after, quarantine=cause().quarantine)
            return self._writer.write(tx, Event.ESCALATE, before, after)
        tx.execute("UPDATE breakers SET seen_ns = ? WHERE id = ?", (now, before.id))
        return None

    def act(
        self,
        target: str | Scope,
        event: Event,
        actor: Actor,
        reason: str,
        *,
        ttl_s: float | None = None,
        action: Action | None = None,
        if_match: int | None = None,
    ) -> Breaker:
        """Do what a person wants with a breaker: trip, reset, force_open, force_close, release, shadow.

        `target` is its id, or a scope, which gets a breaker if it has none. `ttl_s`: seconds until it ends
        by itself. `if_match`: the revision that the person has seen, 0 for none yet.

        Raises `UnknownBreaker`, `IllegalTransition`, `StaleRevision`, `ForbiddenActor`, and `ValueError`
        that names the key.
        """
        byhand.check(event, actor, reason, ttl_s, action)
        with self._db.transaction() as tx:
            now = self._now_ns()
            known, before = byhand.find(tx, target, event, now, if_match)
            denied = self.index.denied(before.id, before.denied)
            happened, after = byhand.after(
                replace(before, denied=denied),
                event,
                actor,
                reason=reason,
                ttl_s=ttl_s,
                action=action,
                now_ns=now,
            )
            if before.state is State.HALF_OPEN:
                leases.void(tx, before.id, now)
            return self._writer.write(tx, happened, known, after)

    def reset(self, breaker_id: str, actor: Actor, note: str) -> Breaker:
        """Close a breaker because a person says so: `act` with the event `reset`."""
        return self.act(breaker_id, Event.RESET, actor, note)

    def grant_lease(self, breaker_id: str, client: str) -> Lease | None:
        """Let `client` try one call through a half-open breaker; None when it may not now.

        Raises `UnknownBreaker`.
        """
        return self.probes.grant(breaker_id, client)

    def finish_lease(self, lease_id: str, *, ok: bool) -> Breaker:
        """Take the outcome of a probe. Raises `UnknownLease`, or `LeaseOver` when it is too late."""
        return self.probes.finish(lease_id, ok=ok)

    def expire(self, unused_since_ns: int, limit: int) -> list[Breaker]:
        """Close up to `limit` breakers that were of no use since a moment (unix ns).

        Not those that a person opened, holds or must reset.
        """
        with self._db.transaction() as tx:
            leases.forget(tx, unused_since_ns)
            rows = tx.execute(_UNUSED, (unused_since_ns, limit)).fetchall()
            counting = self.index.unwritten()
            unused = [b for b in (from_json(row["payload"]) for row in rows) if b.id not in counting]
            return [self._close(tx, Event.EXPIRE, b, EXPIRY, "unused for long") for b in unused]

    def settle(self) -> list[Breaker]:
        """Bring what checks counted onto the disk; return the breakers that became stronger by it."""
        return self._escalation.settle()

    def tick(self) -> None:
        """Do what is due by the clock: cool down, end what a person held, count silent probes as failed."""
        now = self._now_ns()
        self._activity.note(self.index.take_seen(), now)
        due = self.index.due(now) + self._later_than_now(now)
        if due:
            with self._db.transaction() as tx:
                for key in due:
                    breaker = store.fetch(tx, key)
                    if breaker is not None and (
                        (breaker.until is not None and breaker.until <= now) or _set_ahead(breaker, now)
                    ):
                        self._is_due(tx, breaker, now)
        if self.index.any_half_open:
            self.probes.expire()

    def _later_than_now(self, now: int) -> list[str]:
        """Return those to be tried now, at the first turn and whenever the clock was set back.

        Opened by a clock that was ahead, they would stay open for as long as that was.
        """
        back, self._ticked_ns = now < self._ticked_ns - CLOCK_SLACK_NS, now
        return [b.id for b in self.index.open_breakers() if _set_ahead(b, now)] if back else []

    def _active_sessions(self) -> int | None:
        known = [n for n in (self._activity.count(), self._traced_sessions()) if n is not None]
        return max(known, default=None)

    def _open(
        self, tx: Transaction, event: Event, trip: Trip, known: Breaker | None, cause: Callable[[], Cause]
    ) -> Breaker | None:
        now, settings = self._now_ns(), self.index.settings
        before = known or changing.blank(trip.scope, now)
        if event is Event.TRIP:
            why = too_much(tx, trip.scope, now, settings, self._active_sessions())
            if why is not None:
                return capping.capped(self._writer, tx, trip, known, why)
        if before.state is State.HALF_OPEN:
            leases.void(tx, before.id, now)
        after = changing.opened(before, event, trip=trip, cause=cause(), now_ns=now, settings=settings)
        written = self._writer.write(tx, event, known, after)
        return self._latched(tx, written) if event is Event.TRIP else written

    def _latched(self, tx: Transaction, breaker: Breaker) -> Breaker:
        settings, now = self.index.settings, self._now_ns()
        row = tx.one(_TRIPS, (breaker.id, *within(settings.flap_window_s, now)))
        if row is None or row["n"] < settings.flap_trips:
            return breaker
        after = self._writer.write(tx, Event.LATCH, breaker, changing.latched(breaker, LATCHING, now))
        tell(tx, self.hooks.on_flapping, after)
        return after

    def _is_due(self, tx: Transaction, breaker: Breaker, now: int) -> None:
        if breaker.state.forced:
            note = "the time of the hold is over"
            event, after = byhand.let_go(breaker, Event.EXPIRE, EXPIRY, note, now)
            self._writer.write(tx, event, breaker, after)
        elif breaker.state is State.OPEN and not breaker.scope.of_one_run:
            self._writer.write(tx, Event.COOL_DOWN, breaker, changing.cooled(breaker, COOLING, now))
        else:
            self._close(tx, Event.EXPIRE, breaker, EXPIRY, "its time is over")

    def _close(self, tx: Transaction, event: Event, before: Breaker, actor: Actor, note: str) -> Breaker:
        denied = self.index.denied(before.id, before.denied)
        after = changing.closed(before, event, actor, note, denied=denied, now_ns=self._now_ns())
        if before.state is State.HALF_OPEN:
            leases.void(tx, before.id, self._now_ns())
        return self._writer.write(tx, event, before, after)

    def _may_trip(self, trip: Trip) -> bool:
        why = "a whole tenant is never stopped automatically" if trip.scope.width == _WIDEST else ""
        if not why:
            try:
                trip.scope.check()
            except ValueError as error:
                why = str(error)
        if why:
            self.hooks.on_refused(trip.scope, trip.rule, why)
        return not why

    def _load(self) -> None:
        with self._db.transaction() as tx:
            newest = tx.one("SELECT seq FROM sqlite_sequence WHERE name = 'breaker_events'")
            rows = tx.execute("SELECT payload FROM breakers WHERE state <> 'closed'").fetchall()
            last = tx.execute(
                "SELECT seq, payload FROM breaker_events ORDER BY seq DESC LIMIT ?", (KEPT,)
            ).fetchall()
            known = [from_json(row["payload"]) for row in rows]
            given = {b.id: leases.under_way(tx, b) for b in known if b.state is State.HALF_OPEN}
        for breaker in known:
            self.index.put(breaker)
            self.index.leases(breaker.id, given.get(breaker.id, 0))
        self.index.revision = max(self.index.revision, newest["seq"] if newest is not None else 0)
        self.index.changes.begin(last[-1]["seq"] - 1 if last else self.index.revision)
        for breaker in (from_json(row["payload"]) for row in reversed(last)):
            kept = None if breaker.state is State.CLOSED else breaker
            self.index.changes.add(Change(breaker.revision, breaker.id, kept))


def _set_ahead(breaker: Breaker, now: int) -> bool:
    """Whether a rule opened it for a time, by a clock that was ahead of what it says now."""
    return (
        breaker.state is State.OPEN
        and breaker.until is not None
        and not (breaker.by_hand or breaker.scope.of_one_run)
        and breaker.updated_at > now + CLOCK_SLACK_NS
    )


def _old_news(before: Breaker, found_ns: int) -> bool:
    """Whether it was found before a person reset the breaker, or before it began to try again."""
    if before.state is State.HALF_OPEN and found_ns <= before.updated_at:
        return True
    return before.closed_at is not None and found_ns <= before.closed_at
