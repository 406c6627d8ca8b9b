"""Which of the breakers that cover a call answers for it. Pure.

1. A forced-closed breaker takes away every open and half-open one whose scope is equal to its own or wider.
   It takes away no forced-open one, and no automatic one of a narrower scope or one that only overlaps: an
   exception for a tool does not let a stopped session go on.
2. Of the open and forced-open ones that are left the strongest answers (halt > deny > replan; of equal ones
   the forced one, then the narrower one).
3. Else half-open ones answer: the call goes through as a leased probe, or is refused.
4. Else it is allowed. When 1. took something away, the answer names the forced-closed breaker.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from control.breakers.states import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from control.action import Action
    from control.breakers.record import Breaker


@dataclass(frozen=True, slots=True)
class Outcome:
    """What precedence leaves: the one that refuses, else the half-open ones; and the override that helped."""

    refusing: Breaker | None = None
    half_open: tuple[Breaker, ...] = ()
    override: Breaker | None = None


NOTHING = Outcome()


def decide(covering: Sequence[Breaker], strength: Callable[[Breaker], Action]) -> Outcome:
    """Choose among the breakers that cover one call; `strength` is how strong each is for this caller."""
    overrides = [b for b in covering if b.state is State.FORCED_CLOSED]
    override: Breaker | None = None
    refusing: Breaker | None = None
    half_open: list[Breaker] = []
    for breaker in covering:
        if breaker.state not in _SPEAK:
            continue
        if breaker.state is not State.FORCED_OPEN:
            exception = _strongest_exception(breaker, overrides)
            if exception is not None:
                override = exception
                continue
        if breaker.state is State.HALF_OPEN:
            half_open.append(breaker)
        elif refusing is None or rank(breaker, strength) > rank(refusing, strength):
            refusing = breaker
    if refusing is not None:
        return Outcome(refusing)
    return Outcome(None, tuple(half_open), override)


def rank(breaker: Breaker, strength: Callable[[Breaker], Action]) -> tuple[int, bool, int, str]:
    """Order refusing breakers; the greatest answers."""
    return (
        strength(breaker).rank,
        breaker.state is State.FORCED_OPEN,
        -breaker.scope.width,
        breaker.id,
    )


def _strongest_exception(breaker: Breaker, overrides: Iterable[Breaker]) -> Breaker | None:
    meant = [override for override in overrides if breaker.scope.contains(override.scope)]
    return min(meant, key=lambda override: (override.scope.width, override.id)) if meant else None


_SPEAK = frozenset({State.OPEN, State.HALF_OPEN, State.FORCED_OPEN})
