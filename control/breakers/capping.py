"""What becomes of an opening that is one too many: it is noted in shadow, and told to people."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from control.breakers import changing
from control.breakers.cause import Cause
from control.breakers.hooks import tell
from control.breakers.states import TRANSITIONS, Event

if TYPE_CHECKING:
    from control.breakers.record import Breaker
    from control.breakers.writer import Writer
    from control.db import Transaction
    from control.policy import Trip


def capped(writer: Writer, tx: Transaction, trip: Trip, known: Breaker | None, why: str) -> Breaker | None:
    """Note that a breaker would have opened, and why it did not; None when that is noted already."""
    now = writer.now_ns()
    before = known or changing.blank(trip.scope, now)
    if (before.state, Event.SHADOW_TRIP) not in TRANSITIONS:
        return None
    cause = Cause(
        reason=changing.BLAST_RADIUS,
        message_for_model="",
        message_for_human=f"Not opened: {why}",
        session_id=trip.scope.session or "",
    )
    after = changing.opened(
        before,
        Event.SHADOW_TRIP,
        trip=replace(trip, shadow=True),
        cause=cause,
        now_ns=now,
        settings=writer.index.settings,
    )
    written = writer.write(tx, Event.SHADOW_TRIP, known, replace(after, note=why))
    tell(tx, writer.hooks.on_capped, written)
    return written
