"""Changes breakers: truth is in `control.db`, `BreakerIndex` is the copy in memory that checks use.

Every change is an event whose position is the breaker's new revision, so revisions are global and only grow.
A doomed run stays stopped until a person resets its breaker; one that nobody ran into for weeks expires.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from control.action import Action
from control.actor import EXPIRY, Actor
from control.breakers.record import Breaker, UnknownBreaker, breaker_id, from_json, to_json
from control.breakers.states import TRANSITIONS, Event, State, transition
from control.guidance import for_human, for_model, halt_instead

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable

    from control.breakers.index import BreakerIndex
    from control.db import ControlDb, Transaction
    from control.policy import Trip
    from detectors.protocol import Finding

_COUNT: Final = """
    UPDATE breakers SET denied = ?1, seen_ns = ?3, payload = json_set(payload, '$.denied', ?1)
    WHERE id = ?2 AND state = 'open'
"""
_UNUSED: Final = """
    SELECT payload FROM breakers
    WHERE state = 'open' AND max(seen_ns, json_extract(payload, '$.updated_at')) < ?
    ORDER BY revision LIMIT ?
"""


class Breakers:
    """Changes breakers: each change and its event in one transaction, then in the index."""

    def __init__(self, db: ControlDb, index: BreakerIndex, now_ns: Callable[[], int]) -> None:
        self._db = db
        self._now_ns = now_ns
        self.index = index
        self._load()

    def trip(self, tx: Transaction, trip: Trip, finding: Finding, found_ns: int) -> Breaker | None:
        """Open the breaker that a policy's rule asks for; None when there is nothing to change.

        `found_ns` is when the finding's revision was written: what was found before a person reset the
        breaker does not open it again, a revision found after that does.
        """
        event = Event.SHADOW_TRIP if trip.shadow else Event.TRIP
        before = _fetch(tx, breaker_id(trip.scope))
        if before is None:
            return self._write(tx, event, _opened(trip, finding, event, None, self._now_ns()))
        if before.closed_at is not None and found_ns <= before.closed_at:
            return None
        if (before.state, event) in TRANSITIONS:
            return self._write(tx, event, _opened(trip, finding, event, before, self._now_ns()))
        if before.state is State.OPEN and not trip.shadow and trip.action.rank > before.action.rank:
            actor = Actor(type="rule", id=trip.rule)
            return self._write(tx, Event.ESCALATE, _halted(before, actor, self._now_ns()))
        tx.execute("UPDATE breakers SET seen_ns = ? WHERE id = ?", (self._now_ns(), before.id))
        return None

    def reset(self, breaker_id: str, actor: Actor, note: str) -> Breaker:
        """Close a breaker because a person says so.

        Raises `UnknownBreaker`, or `IllegalTransition` when it is closed already.
        """
        with self._db.transaction() as tx:
            before = _fetch(tx, breaker_id)
            if before is None:
                raise UnknownBreaker(breaker_id)
            return self._close(tx, Event.RESET, before, actor, note)

    def expire(self, unused_since_ns: int, limit: int) -> list[Breaker]:
        """Close up to `limit` breakers that were of no use since a moment (unix ns)."""
        with self._db.transaction() as tx:
            rows = tx.execute(_UNUSED, (unused_since_ns, limit)).fetchall()
            counting = self.index.unwritten()
            unused = [b for b in (from_json(row["payload"]) for row in rows) if b.id not in counting]
            return [self._close(tx, Event.EXPIRE, b, EXPIRY, "unused for long") for b in unused]

    def settle(self) -> list[Breaker]:
        """Bring what checks counted onto the disk; return the breakers that became a `halt` by it."""
        counts = self.index.unwritten()
        if not counts:
            return []
        escalated: list[Breaker] = []
        with self._db.transaction() as tx:
            for key, denied in counts.items():
                tx.execute(_COUNT, (denied, key, self._now_ns()))
            for ignored in filter(self.index.must_halt, self.index.open_breakers()):
                before = _fetch(tx, ignored.id)
                if before is not None and (before.state, before.action) == (State.OPEN, Action.DENY):
                    actor = Actor(type="escalation", id="ignored_refusals")
                    escalated.append(self._write(tx, Event.ESCALATE, _halted(before, actor, self._now_ns())))
            tx.after_commit(lambda: self.index.written(counts))
        return escalated

    def _close(self, tx: Transaction, event: Event, before: Breaker, actor: Actor, note: str) -> Breaker:
        now = self._now_ns()
        after = replace(
            before,
            state=transition(before.state, event),
            actor=actor,
            note=note,
            closed_at=now,
            updated_at=now,
            denied=self.index.denied(before.id, before.denied),
        )
        return self._write(tx, event, after)

    def _write(self, tx: Transaction, event: Event, breaker: Breaker) -> Breaker:
        """Append the event, whose position is the new revision, and store the breaker under it."""
        seq = tx.insert(
            "INSERT INTO breaker_events (breaker_id, event, payload, created_ns) VALUES (?, ?, '', ?)",
            (breaker.id, event.value, breaker.updated_at),
        )
        after = replace(breaker, revision=seq)
        tx.execute("UPDATE breaker_events SET payload = ? WHERE seq = ?", (to_json(after), seq))
        _store(tx, after)
        tx.after_commit(lambda: self.index.put(after))
        return after

    def _load(self) -> None:
        with self._db.transaction() as tx:
            newest = tx.one("SELECT seq FROM sqlite_sequence WHERE name = 'breaker_events'")
            rows = tx.execute("SELECT payload FROM breakers WHERE state = ?", (State.OPEN.value,)).fetchall()
        for row in rows:
            self.index.put(from_json(row["payload"]))
        self.index.revision = max(self.index.revision, newest["seq"] if newest is not None else 0)


def list_breakers(
    connection: sqlite3.Connection,
    *,
    session_id: str | None,
    state: State | None,
    before: int | None,
    limit: int,
) -> list[Breaker]:
    """Return breakers, the last changed first; `before` is a revision to go on from (exclusive)."""
    rows: Iterable[sqlite3.Row] = connection.execute(
        "SELECT payload FROM breakers WHERE (?1 IS NULL OR session_id = ?1) AND (?2 IS NULL OR state = ?2) "
        "AND (?3 IS NULL OR revision < ?3) ORDER BY revision DESC LIMIT ?4",
        (session_id, None if state is None else state.value, before, limit),
    )
    return [from_json(row["payload"]) for row in rows]


def get_breaker(connection: sqlite3.Connection, breaker_id: str) -> Breaker:
    """Return one breaker; raises `UnknownBreaker`."""
    row = connection.execute("SELECT payload FROM breakers WHERE id = ?", (breaker_id,)).fetchone()
    if row is None:
        raise UnknownBreaker(breaker_id)
    return from_json(row["payload"])


def breakers_of(tx: Transaction, session_id: str, finding_id: str) -> list[Breaker]:
    """Return the breakers of a session that a finding opened last."""
    rows = tx.execute("SELECT payload FROM breakers WHERE session_id = ? ORDER BY revision", (session_id,))
    return [b for b in map(from_json, (row["payload"] for row in rows)) if b.finding_id == finding_id]


def _fetch(tx: Transaction, breaker_id: str) -> Breaker | None:
    row = tx.one("SELECT payload FROM breakers WHERE id = ?", (breaker_id,))
    return None if row is None else from_json(row["payload"])


def _store(tx: Transaction, breaker: Breaker) -> None:
    tx.execute(
        "INSERT INTO breakers (id, state, session_id, revision, denied, payload) VALUES (?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (id) DO UPDATE SET state = excluded.state, revision = excluded.revision, "
        "denied = excluded.denied, payload = excluded.payload",
        (
            breaker.id,
            breaker.state.value,
            breaker.scope.session,
            breaker.revision,
            breaker.denied,
            to_json(breaker),
        ),
    )


def _opened(trip: Trip, finding: Finding, event: Event, before: Breaker | None, now_ns: int) -> Breaker:
    state = transition(State.CLOSED if before is None else before.state, event)
    return Breaker(
        id=breaker_id(trip.scope),
        scope=trip.scope,
        state=state,
        action=trip.action,
        revision=0,
        episode=1 if before is None else before.episode + 1,
        reason=finding.kind,
        message_for_model=for_model(finding, trip.scope, trip.action),
        message_for_human=for_human(finding, trip.action),
        finding_id=finding.id,
        finding_revision=finding.revision,
        rule=trip.rule,
        actor=Actor(type="rule", id=trip.rule),
        opened_at=now_ns,
        updated_at=now_ns,
        closed_at=None if before is None else before.closed_at,
    )


def _halted(before: Breaker, actor: Actor, now_ns: int) -> Breaker:
    return replace(
        before,
        state=transition(before.state, Event.ESCALATE),
        action=Action.HALT,
        message_for_model=halt_instead(before.message_for_model),
        actor=actor,
        updated_at=now_ns,
    )
