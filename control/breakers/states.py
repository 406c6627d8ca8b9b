"""The states of a breaker and every legal way between them, in one table."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final


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


def transition(state: State, event: Event) -> State:
    """Return the state after `event`, or raise `IllegalTransition`.

    >>> transition(State.OPEN, Event.RESET).value
    'closed'
    """
    after = TRANSITIONS.get((state, event))
    if after is None:
        raise IllegalTransition(state, event)
    return after
