"""Breakers in `control.db`: written with their events, and read back."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from control import audit
from control.action import Action
from control.breakers.record import UnknownBreaker, from_json, to_json
from control.breakers.states import State

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

    from collector.step import Json
    from control.breakers.record import Breaker
    from control.breakers.states import Event
    from control.db import Transaction

_STORE: Final = (
    "INSERT INTO breakers (id, state, session_id, revision, denied, until_ns, payload) "
    "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET state = excluded.state, "
    "session_id = excluded.session_id, revision = excluded.revision, denied = excluded.denied, "
    "until_ns = excluded.until_ns, payload = excluded.payload"
)


def write(tx: Transaction, event: Event, before: Breaker | None, breaker: Breaker) -> Breaker:
    """Append the event, whose position is the new revision; store the breaker under it, and audit it."""
    seq = tx.insert(
        "INSERT INTO breaker_events (breaker_id, event, payload, created_ns) VALUES (?, ?, '', ?)",
        (breaker.id, event.value, breaker.updated_at),
    )
    after = replace(breaker, revision=seq)
    payload = to_json(after)
    tx.execute("UPDATE breaker_events SET payload = ? WHERE seq = ?", (payload, seq))
    row = (after.id, after.state.value, session_of(after), seq, after.denied, after.until, payload)
    tx.execute(_STORE, row)
    audit.record(
        tx,
        at_ns=after.updated_at,
        actor=after.actor,
        verb=f"breaker.{event.value}",
        subject=after.id,
        reason=after.note or after.reason,
        before=None if before is None else _audited(before),
        after=_audited(after),
        extra={"scope": str(after.scope), "rule": after.rule, "finding_id": after.finding_id},
    )
    return after


def session_of(breaker: Breaker) -> str:
    """The session that a breaker is listed under: its scope's, else that of its finding."""
    return breaker.scope.session or breaker.session_id


def fetch(tx: Transaction, breaker_id: str) -> Breaker | None:
    """Return a breaker as it is within a transaction."""
    row = tx.one("SELECT payload FROM breakers WHERE id = ?", (breaker_id,))
    return None if row is None else from_json(row["payload"])


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
    """Return the breakers that a finding of a session opened last."""
    rows = tx.execute("SELECT payload FROM breakers WHERE session_id = ? ORDER BY revision", (session_id,))
    return [b for b in map(from_json, (row["payload"] for row in rows)) if b.finding_id == finding_id]


def halts_session(tx: Transaction, session_id: str) -> bool:
    """Whether a breaker over the session, all of it, halts it already."""
    rows = tx.execute(
        "SELECT payload FROM breakers WHERE session_id = ? AND state IN ('open', 'forced_open')",
        (session_id,),
    )
    return any(
        one.action is Action.HALT
        and one.scope.session == session_id
        and (one.scope.agent, one.scope.tool, one.scope.args, one.scope.model) == (None,) * 4
        for one in map(from_json, (row["payload"] for row in rows))
    )


def _audited(breaker: Breaker) -> dict[str, Json]:
    return {
        "state": breaker.state.value,
        "action": breaker.action.value,
        "revision": breaker.revision,
        "episode": breaker.episode,
        "denied": breaker.denied,
        "until": breaker.until,
        "flap_level": breaker.flap_level,
        "latched": breaker.latched,
    }
