"""The states of a breaker and every legal way between them, in one table."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class State(StrEnum):
    """What a breaker does with the calls that it covers.

    `closed` lets them through. `open` refuses them, and `half_open` all but leased probes. `forced_open`
    refuses and `forced_closed` lets through because a person says so. `shadow`: it would have opened;
    nothing is refused.
    """

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"
    FORCED_OPEN = "forced_open"
    FORCED_CLOSED = "forced_closed"
    SHADOW = "shadow"

    @property
    def refuses(self) -> bool:
        """Whether calls are refused without exception."""
        return self in (State.OPEN, State.FORCED_OPEN)

    @property
    def forced(self) -> bool:
        """Whether a person holds it there."""
        return self in (State.FORCED_OPEN, State.FORCED_CLOSED)


class Event(StrEnum):
    """What can happen to a breaker.

    `latch`: it opens for good because it went to and fro. `resume`: what a person held goes on as it was
    before. The others say what they do.
    """

    TRIP = "trip"
    SHADOW_TRIP = "shadow_trip"
    ESCALATE = "escalate"
    LATCH = "latch"
    COOL_DOWN = "cool_down"
    PROBE_OK = "probe_ok"
    PROBE_FAILED = "probe_failed"
    RESET = "reset"
    EXPIRE = "expire"
    FORCE_OPEN = "force_open"
    FORCE_CLOSE = "force_close"
    RELEASE = "release"
    RESUME = "resume"
    SHADOW = "shadow"


TRANSITIONS: Final[Mapping[tuple[State, Event], State]] = MappingProxyType(
    {
        (State.CLOSED, Event.TRIP): State.OPEN,
        (State.CLOSED, Event.SHADOW_TRIP): State.SHADOW,
        (State.CLOSED, Event.FORCE_OPEN): State.FORCED_OPEN,
        (State.CLOSED, Event.FORCE_CLOSE): State.FORCED_CLOSED,
        (State.CLOSED, Event.SHADOW): State.SHADOW,
        (State.OPEN, Event.ESCALATE): State.OPEN,
        (State.OPEN, Event.LATCH): State.OPEN,
        (State.OPEN, Event.COOL_DOWN): State.HALF_OPEN,
        (State.OPEN, Event.RESET): State.CLOSED,
        (State.OPEN, Event.EXPIRE): State.CLOSED,
        (State.OPEN, Event.FORCE_OPEN): State.FORCED_OPEN,
        (State.OPEN, Event.FORCE_CLOSE): State.FORCED_CLOSED,
        (State.OPEN, Event.SHADOW): State.SHADOW,
        (State.HALF_OPEN, Event.TRIP): State.OPEN,
        (State.HALF_OPEN, Event.PROBE_OK): State.CLOSED,
        (State.HALF_OPEN, Event.PROBE_FAILED): State.OPEN,
        (State.HALF_OPEN, Event.RESET): State.CLOSED,
        (State.HALF_OPEN, Event.EXPIRE): State.CLOSED,
        (State.HALF_OPEN, Event.FORCE_OPEN): State.FORCED_OPEN,
        (State.HALF_OPEN, Event.FORCE_CLOSE): State.FORCED_CLOSED,
        (State.HALF_OPEN, Event.SHADOW): State.SHADOW,
        (State.FORCED_OPEN, Event.ESCALATE): State.FORCED_OPEN,
        (State.FORCED_OPEN, Event.EXPIRE): State.CLOSED,
        (State.FORCED_OPEN, Event.RELEASE): State.CLOSED,
        (State.FORCED_OPEN, Event.RESUME): State.OPEN,
        (State.FORCED_OPEN, Event.FORCE_OPEN): State.FORCED_OPEN,
        (State.FORCED_OPEN, Event.FORCE_CLOSE): State.FORCED_CLOSED,
        (State.FORCED_CLOSED, Event.EXPIRE): State.CLOSED,
        (State.FORCED_CLOSED, Event.RELEASE): State.CLOSED,
        (State.FORCED_CLOSED, Event.RESUME): State.OPEN,
        (State.FORCED_CLOSED, Event.FORCE_OPEN): State.FORCED_OPEN,
        (State.FORCED_CLOSED, Event.FORCE_CLOSE): State.FORCED_CLOSED,
        (State.SHADOW, Event.TRIP): State.OPEN,
        (State.SHADOW, Event.RESET): State.CLOSED,
        (State.SHADOW, Event.EXPIRE): State.CLOSED,
        (State.SHADOW, Event.FORCE_OPEN): State.FORCED_OPEN,
        (State.SHADOW, Event.FORCE_CLOSE): State.FORCED_CLOSED,
    }
)
"""Every legal transition. What is not here is refused."""


_HINTS: Final = MappingProxyType(
    {
        (State.OPEN, Event.TRIP): ": it refuses calls already",
        (State.FORCED_OPEN, Event.TRIP): ": it refuses calls already",
        (State.FORCED_CLOSED, Event.TRIP): ": release it first",
        (State.CLOSED, Event.RESET): ": it lets calls through already",
        (State.FORCED_OPEN, Event.RESET): ": release it first",
        (State.FORCED_CLOSED, Event.RESET): ": release it first",
        (State.CLOSED, Event.RELEASE): ": nobody holds it",
        (State.OPEN, Event.RELEASE): ": nobody holds it; reset it",
    }
)


class IllegalTransition(Exception):  # noqa: N818 - the name says what was tried
    """The event means nothing in the breaker's state."""

    def __init__(self, state: State, event: Event) -> None:
        super().__init__(
            f"a breaker that is {state.value} cannot {event.value}{_HINTS.get((state, event), '')}"
        )
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
