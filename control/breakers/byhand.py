"""What persons may do with breakers. Detectors and rules open them, but hold and close none."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from control.action import Action
from control.breakers import changing, store
from control.breakers.record import Breaker, StaleRevision, UnknownBreaker, breaker_id
from control.breakers.states import Event, IllegalTransition, State
from control.breakers.timing import NS
from control.scope import Scope

if TYPE_CHECKING:
    from control.actor import Actor
    from control.db import Transaction

EVENTS: Final = (
    Event.TRIP,
    Event.RESET,
    Event.FORCE_OPEN,
    Event.FORCE_CLOSE,
    Event.RELEASE,
    Event.SHADOW,
)
MAX_TTL_S: Final = 30 * 86_400.0
MAX_REASON: Final = 2000
_WITH_TTL: Final = frozenset({Event.TRIP, Event.FORCE_OPEN, Event.FORCE_CLOSE, Event.SHADOW})
_WITH_ACTION: Final = frozenset({Event.TRIP, Event.FORCE_OPEN})
_MAKES_ONE: Final = _WITH_TTL
_PERSON: Final = "person"
_SPELLED: Final = MappingProxyType({event: event.value for event in EVENTS})


class ForbiddenActor(Exception):  # noqa: N818 - the name says who it is
    """Only persons do this."""


def check(event: Event, actor: Actor, reason: str, ttl_s: float | None, action: Action | None) -> None:
    """Raise `ForbiddenActor`, or `ValueError` that names the key, when this can never be done."""
    if event not in _SPELLED:
        raise ValueError(f"event: {event.value} happens by itself")
    if actor.type != _PERSON:
        raise ForbiddenActor(f"{event.value} is for persons, not for {actor.type} {actor.id}")
    if not reason.strip():
        raise ValueError("reason: say why")
    if len(reason) > MAX_REASON:
        raise ValueError(f"reason: at most {MAX_REASON} characters")
    if ttl_s is None and event is Event.FORCE_CLOSE:
        raise ValueError("ttl_s: what lets calls through must end by itself; say after how many seconds")
    if ttl_s is not None and event not in _WITH_TTL:
        raise ValueError(f"ttl_s: {event.value} has no end")
    if ttl_s is not None and not (math.isfinite(ttl_s) and 0 < ttl_s <= MAX_TTL_S):
        raise ValueError(f"ttl_s: must be more than 0 seconds, and {MAX_TTL_S:.0f} at most")
    if action is not None and event not in _WITH_ACTION:
        raise ValueError(f"action: {event.value} has no strength")


def find(
    tx: Transaction, target: str | Scope, event: Event, now_ns: int, if_match: int | None
) -> tuple[Breaker | None, Breaker]:
    """Return the breaker that is known, and the one to begin with: a closed one for a scope that has none.

    Raises `UnknownBreaker`, `StaleRevision`, and `ValueError` naming an empty part of the scope.
    """
    key = target if isinstance(target, str) else breaker_id(target)
    known = store.fetch(tx, key)
    revision = 0 if known is None else known.revision
    if known is None and (isinstance(target, str) or event not in _MAKES_ONE):
        raise UnknownBreaker(key)
    if if_match is not None and if_match != revision:
        raise StaleRevision(if_match, revision)
    if known is not None:
        return known, known
    if isinstance(target, str):
        raise UnknownBreaker(key)
    target.check()
    return None, changing.blank(target, now_ns)


def after(
    before: Breaker,
    event: Event,
    actor: Actor,
    *,
    reason: str,
    ttl_s: float | None,
    action: Action | None,
    now_ns: int,
) -> tuple[Event, Breaker]:
    """Return what happens to a breaker, and how it looks then. Raises `IllegalTransition`."""
    ends = None if ttl_s is None else now_ns + int(ttl_s * NS)
    if event is Event.RESET:
        return event, changing.closed(before, event, actor, reason, denied=before.denied, now_ns=now_ns)
    if event is Event.RELEASE:
        return let_go(before, event, actor, reason, now_ns)
    if event is Event.SHADOW:
        return event, changing.shadowed(before, actor, reason, ends, now_ns)
    if event is Event.TRIP:
        return _tripped(before, actor, reason=reason, action=action or Action.DENY, ends=ends, now_ns=now_ns)
    strength = action or _as_strong(before, event)
    held = changing.held(before, event, actor, reason=reason, action=strength, ends=ends, now_ns=now_ns)
    return event, held


def let_go(before: Breaker, event: Event, actor: Actor, note: str, now_ns: int) -> tuple[Event, Breaker]:
    """End a hold: what was open before it is open again, all else is closed."""
    if before.state.forced and before.resumes is State.OPEN:
        return Event.RESUME, changing.resumed(before, actor, note, now_ns)
    return event, changing.closed(before, event, actor, note, denied=before.denied, now_ns=now_ns)


def _tripped(
    before: Breaker, actor: Actor, *, reason: str, action: Action, ends: int | None, now_ns: int
) -> tuple[Event, Breaker]:
    if before.state is not State.OPEN:
        opened = changing.tripped_by_hand(
            before, actor, reason=reason, action=action, ends=ends, now_ns=now_ns
        )
        return Event.TRIP, opened
    if action.rank <= before.action.rank:
        raise IllegalTransition(before.state, Event.TRIP)
    stronger = changing.made_stronger_by_hand(
        before, actor, reason=reason, action=action, ends=ends, now_ns=now_ns
    )
    return Event.ESCALATE, stronger


def _as_strong(before: Breaker, event: Event) -> Action:
    """A hold without a strength is no weaker than what it holds."""
    if event is Event.FORCE_CLOSE or before.state in (State.OPEN, State.FORCED_OPEN):
        return before.action
    return Action.DENY
