"""The life of an alert: its states, what can happen to it, and the one table of what may follow what."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class AlertState(StrEnum):
    """`pending`: seen, and not yet for long enough to fire; `firing`; `resolved`."""

    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"


class AlertEvent(StrEnum):
    """What can happen to an alert.

    `pend`: it begins to wait. `fire`, `cover`, `flap`: an episode begins, on its own, or spoken for by the
    alert of its root, or by the one alert that says that it flaps. `update`: its finding has a new revision.
    `hold`: what speaks for it changed. `tell`: what was held back is announced now. `ack`: a person has seen
    it. `resolve`, `expire`: it is over.
    """

    PEND = "pend"
    FIRE = "fire"
    COVER = "cover"
    FLAP = "flap"
    UPDATE = "update"
    HOLD = "hold"
    TELL = "tell"
    ACK = "ack"
    RESOLVE = "resolve"
    EXPIRE = "expire"


_P, _F, _R = AlertState.PENDING, AlertState.FIRING, AlertState.RESOLVED
ALERT_TRANSITIONS: Final[Mapping[tuple[AlertState | None, AlertEvent], AlertState]] = MappingProxyType(
    {
        (None, AlertEvent.PEND): _P,
        (None, AlertEvent.FIRE): _F,
        (None, AlertEvent.COVER): _F,
        (None, AlertEvent.FLAP): _F,
        (_P, AlertEvent.FIRE): _F,
        (_P, AlertEvent.COVER): _F,
        (_P, AlertEvent.FLAP): _F,
        (_P, AlertEvent.UPDATE): _P,
        (_P, AlertEvent.RESOLVE): _R,
        (_P, AlertEvent.EXPIRE): _R,
        (_F, AlertEvent.UPDATE): _F,
        (_F, AlertEvent.HOLD): _F,
        (_F, AlertEvent.TELL): _F,
        (_F, AlertEvent.ACK): _F,
        (_F, AlertEvent.RESOLVE): _R,
        (_F, AlertEvent.EXPIRE): _R,
        (_R, AlertEvent.PEND): _P,
        (_R, AlertEvent.FIRE): _F,
        (_R, AlertEvent.COVER): _F,
        (_R, AlertEvent.FLAP): _F,
        (_R, AlertEvent.UPDATE): _R,
    }
)
"""Every legal transition; None is "no alert yet". What is not here is refused."""

BEGINNINGS: Final = frozenset({AlertEvent.FIRE, AlertEvent.COVER, AlertEvent.FLAP})
"""Events with which an episode begins."""


class IllegalAlertTransition(Exception):  # noqa: N818 - the name says what was tried
    """The event means nothing in the alert's state."""


def follow(state: AlertState | None, event: AlertEvent) -> AlertState:
    """Return the state after an event; raises `IllegalAlertTransition`.

    >>> follow(AlertState.RESOLVED, AlertEvent.FIRE).value
    'firing'
    """
    after = ALERT_TRANSITIONS.get((state, event))
    if after is None:
        known = "unknown" if state is None else state.value
        raise IllegalAlertTransition(f"an alert that is {known} cannot {event.value}")
    return after
