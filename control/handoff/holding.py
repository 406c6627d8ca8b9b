"""Which breakers hold a session at a moment: its own, and wider ones that cover its calls."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from control.breakers.record import from_json
from control.breakers.states import State
from control.handoff.record import Held
from control.scope import PARTS

if TYPE_CHECKING:
    from control.breakers.record import Breaker
    from control.db import Transaction
    from control.scope import Scope
    from detectors.notes import Notes

SHOWN: Final = 12
WIDE_READ: Final = 500
_HOLDING: Final = frozenset({State.OPEN, State.HALF_OPEN, State.FORCED_OPEN})
_WIDE: Final = (
    "SELECT payload FROM breakers WHERE state IN ('open', 'half_open', 'forced_open') "
    "AND json_extract(payload, '$.scope.session') IS NULL ORDER BY revision DESC LIMIT ?"
)


def held_by(notes: Notes, breakers: Iterable[Breaker]) -> tuple[Held, ...]:
    """Those of `breakers` that hold the session now, the strongest first, the last opened first."""
    known = {one.id: one for one in breakers if one.state in _HOLDING and _concerns(one.scope, notes)}
    told = sorted(known.values(), key=lambda one: (-one.action.rank, -one.opened_at))
    return tuple(
        Held(
            id=one.id,
            state=one.state.value,
            action=one.action.value,
            scope={part: value for part in PARTS if (value := getattr(one.scope, part)) is not None},
            since_ns=one.opened_at,
        )
        for one in told[:SHOWN]
    )


def wide_breakers(connection: sqlite3.Connection | Transaction) -> list[Breaker]:
    """Return the breakers that hold more than one session, the last changed first."""
    return [from_json(row["payload"]) for row in connection.execute(_WIDE, (WIDE_READ,)).fetchall()]


def _concerns(scope: Scope, notes: Notes) -> bool:
    """Whether a scope covers calls that the session may make, as far as its notes tell.

    A wide one over a tool concerns only who was offered that tool or has called it.
    """
    agents = {notes.agent, *notes.agents}
    tools = {*notes.offered, *notes.tried}
    return (
        scope.session in (None, notes.session_id)
        and scope.service in (None, notes.service)
        and scope.run in (None, notes.run_id)
        and (scope.agent is None or bool({scope.agent, scope.agent.rpartition("@")[0]} & agents))
        and (scope.session is not None or scope.tool is None or scope.tool in tools)
    )
