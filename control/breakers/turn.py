"""What breakers do by the clock, as a duty of the control loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from control.breakers.book import Breakers


class BreakerTurn:
    """Cool down, end holds, count silent probes, four times a second; look at halted runs once a second."""

    name: Final = "breakers"

    def __init__(self, breakers: Breakers, every_s: float = 0.25, watch_every: int = 4) -> None:
        self._breakers = breakers
        self._watch_every = watch_every
        self._turns = 0
        self.every_s = every_s

    def turn(self) -> None:
        """Do what is due."""
        self._breakers.tick()
        self._turns += 1
        if self._turns % self._watch_every == 0:
            self._breakers.watches.turn()
