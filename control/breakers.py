"""Breakers: named switches over a scope. Closed lets calls through, open refuses them.

Truth is in `control.db`; `BreakerIndex` is the copy in memory that checks are answered from. Every change
is an event whose position is the breaker's new revision, so revisions are global and only grow.
A doomed run stays stopped until a person resets its breaker; one that nobody ran into for weeks expires.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import orjson

from control.guidance import for_human, for_model, halt_instead
from control.policy import Action, Scope

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable

    from control.db import ControlDb, Transaction
    from control.policy import Trip
    from detectors.protocol import Finding


class State(StrEnum):
    """`shadow`: it would have opened; nothing is refused."""

    CLOSED = "closed"
    OPEN = "open"
    SHADOW = "shadow"


class Event(StrEnum):
    """What can happen to a breaker."""

    TRIP = "trip"
    SHADOW_TRIP = "shadow_trip"
    ESCALATE = "escalate"
    RESET = "reset"
    EXPIRE = "expire"


TRANSITIONS: Final[Mapping[tuple[State, Event], State]] = MappingProxyType(
    {
        (State.CLOSED, Event.TRIP): State.OPEN,
        (State.CLOSED, Event.SHADOW_TRIP): State.SHADOW,
        (State.SHADOW, Event.TRIP): State.OPEN,
        (State.SHADOW, Event.RESET): State.CLOSED,
        (State.OPEN, Event.ESCALATE): State.OPEN,
        (State.OPEN, Event.RESET): State.CLOSED,
        (State.OPEN, Event.EXPIRE): State.CLOSED,
    }
)
"""Every legal transition. What is not here is refused."""


class IllegalTransition(Exception):  # noqa: N818 - the name says what was tried
    """The event means nothing in the breaker's state."""

    def __init__(self, state: State, event: Event) -> None:
        super().__init__(f"a breaker that is {state.value} cannot {event.value}")
        self.state = state
        self.event = event


class UnknownBreaker(Exception):  # noqa: N818 - the name says what is missing
    """No breaker has this id."""


def transition(state: State, event: Event) -> State:
    """Return the state after `event`, or raise `IllegalTransition`.

    >>> transition(State.OPEN, Event.RESET).value
    'closed'
    """
    after = TRANSITIONS.get((state, event))
    if after is None:
        raise IllegalTransition(state, event)
    return after


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Who changed it: a `rule`, the `escalation`, a `person` (a token's name), or the `system` by itself."""

    type: str
    id: str


EXPIRY: Final = Actor(type="system", id="expiry")


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """One switch as it stands after its change number `revision`.

    `reason` is the kind of the finding that opened it; `episode` counts how often it opened; times are unix
    ns (`closed_at`: when it was closed last, None when it never was). `denied` counts checks refused in this
    episode, `note` is what the person who reset it said.
    """

    id: str
    scope: Scope
    state: State
    action: Action
    revision: int
    episode: int
    reason: str
    message_for_model: str
    message_for_human: str
    finding_id: str
    finding_revision: int
    rule: str
    actor: Actor
    opened_at: int
    updated_at: int
    closed_at: int | None = None
    denied: int = 0
    note: str = ""


def breaker_id(scope: Scope) -> str:
    """Name the one breaker of a scope: equal scopes, equal ids, on every machine.

    >>> breaker_id(Scope(session="s")) == breaker_id(Scope(session="s", tool=None))
    True
    """
    key = orjson.dumps([scope.tenant, scope.service, scope.session, scope.tool])
    return f"br_{hashlib.sha256(key).hexdigest()[:16]}"


def to_json(breaker: Breaker) -> str:
    """Write a breaker as it is kept in `breakers` and `breaker_events`: its fields by name."""
    return orjson.dumps(breaker).decode()


def from_json(payload: str) -> Breaker:
    """Read back what `to_json` wrote."""
    fields: dict[str, Any] = orjson.loads(payload)
    fields["scope"] = Scope(**fields["scope"])
    fields["actor"] = Actor(**fields["actor"])
    fields["state"] = State(fields["state"])
    fields["action"] = Action(fields["action"])
    return Breaker(**fields)


class Decision(StrEnum):
    """The answer to a check."""

    ALLOW = "allow"
    DENY = "deny"
    HALT = "halt"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The whole answer to a check.

    `message` is for the model, empty when allowed; `revision` is that of the newest breaker change known;
    `ttl_ms` says how long a client may reuse the answer.
    """

    decision: Decision
    message: str
    breaker_id: str | None
    revision: int
    ttl_ms: int


_TTL_MS: Final = MappingProxyType({Decision.ALLOW: 250, Decision.DENY: 0, Decision.HALT: 1000})
# A refusal is never reused: each one that is asked for again counts towards the halt.


class BreakerIndex:
    """The open breakers in memory: answers checks without touching the disk.

    `check` and `check_all` belong to one thread (the event loop); all else is called with the database's
    transaction lock held. Single dictionary operations are what the two sides share.
    """

    def __init__(self, escalate_after: int) -> None:
        self._escalate_after = escalate_after
        self._by_session: dict[str, tuple[Breaker, ...]] = {}
        self._denied: dict[str, int] = {}
        self._written: dict[str, int] = {}
        self.revision = 0

    def check(self, session_id: str, tool: str | None) -> Verdict:
        """Answer for one call: the most restrictive open breaker that covers it, else allow."""
        strictest = self._strictest(session_id, tool)
        if strictest is None:
            return self._allow()
        self._count(strictest.id)
        return self._refuse(strictest)

    def check_all(self, calls: Iterable[tuple[str, str | None]]) -> list[Verdict]:
        """Answer for the (session, tool) of calls that are made together: they count as one refusal."""
        found = [self._strictest(session_id, tool) for session_id, tool in calls]
        for refusing in {breaker.id for breaker in found if breaker is not None}:
            self._count(refusing)
        return [self._allow() if breaker is None else self._refuse(breaker) for breaker in found]

    def put(self, breaker: Breaker) -> None:
        """Take over a breaker's newest state."""
        session = breaker.scope.session
        known = self._by_session.get(session, ())
        others = tuple(b for b in known if b.id != breaker.id)
        if breaker.state is State.OPEN:
            if all(b.id != breaker.id or b.episode != breaker.episode for b in known):
                self._denied[breaker.id] = self._written[breaker.id] = breaker.denied
            self._by_session[session] = (*others, breaker)
        else:
            if others:
                self._by_session[session] = others
            else:
                self._by_session.pop(session, None)
            self._denied.pop(breaker.id, None)
            self._written.pop(breaker.id, None)
        self.revision = max(self.revision, breaker.revision)

    def open_breakers(self) -> list[Breaker]:
        """Return all open breakers, in no order."""
        return [breaker for breakers in self._by_session.copy().values() for breaker in breakers]

    def denied(self, breaker_id: str, otherwise: int = 0) -> int:
        """Return how many checks an open breaker has refused in this episode."""
        return self._denied.get(breaker_id, otherwise)

    def unwritten(self) -> dict[str, int]:
        """Return the counts of refused checks that the database does not know yet, by breaker."""
        return {key: n for key, n in self._denied.copy().items() if n != self._written.get(key, 0)}

    def written(self, counts: Mapping[str, int]) -> None:
        """Note which counts of refused checks are in the database now."""
        self._written.update((key, n) for key, n in counts.items() if key in self._denied)

    def must_halt(self, breaker: Breaker) -> bool:
        """Tell whether a refusing breaker was ignored so often that it answers `halt` by now."""
        return (
            breaker.action is Action.DENY
            and self._escalate_after > 0
            and self._denied.get(breaker.id, 0) > self._escalate_after
        )

    def _strictest(self, session_id: str, tool: str | None) -> Breaker | None:
        covering = [b for b in self._by_session.get(session_id, ()) if b.scope.covers(tool)]
        return max(covering, key=lambda b: b.action.rank) if covering else None

    def _count(self, breaker_id: str) -> None:
        self._denied[breaker_id] = self._denied.get(breaker_id, 0) + 1

    def _allow(self) -> Verdict:
        return Verdict(Decision.ALLOW, "", None, self.revision, _TTL_MS[Decision.ALLOW])

    def _refuse(self, breaker: Breaker) -> Verdict:
        message = breaker.message_for_model
        if breaker.action is Action.HALT:
            decision = Decision.HALT
        elif self.must_halt(breaker):
            decision, message = Decision.HALT, halt_instead(message)
        else:
            decision = Decision.DENY
        return Verdict(decision, message, breaker.id, self.revision, _TTL_MS[decision])


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
