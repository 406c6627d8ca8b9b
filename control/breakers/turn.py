"""What breakers do by the clock, as a duty of the control loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from control.breakers.book import Breakers
    from control.breakers.thresholds import Thresholds
    from control.budgets import Budgets
    from control.db import ControlDb
    from control.dead_calls import DeadCalls
    from control.policy import PolicyHolder

WATCH_EVERY: Final = 4
TIDY_EVERY: Final = 240


class BreakerTurn:
    """Four times a second: take over the policy in force, cool down, end holds, count silent probes.

    Once a second halted runs are looked at, once a minute what expired of budgets and rows is tidied up.
    """

    name: Final = "breakers"

    def __init__(
        self,
        *,
        db: ControlDb,
        breakers: Breakers,
        policies: PolicyHolder,
        dead_calls: DeadCalls,
        thresholds: Thresholds,
        budgets: Budgets,
        every_s: float = 0.25,
    ) -> None:
        self._db = db
        self._breakers = breakers
        self._policies = policies
        self._dead_calls = dead_calls
        self._thresholds = thresholds
        self._budgets = budgets
        self._turns = 0
        self.every_s = every_s

    def turn(self) -> None:
        """Do what is due."""
        policy = self._policies.current
        self._breakers.configure(policy.breakers)
        self._breakers.index.dead_calls = self._dead_calls if policy.check.known_dead_calls else None
        self._breakers.tick()
        self._turns += 1
        if self._turns % WATCH_EVERY == 0:
            self._breakers.watches.turn()
        if self._turns % TIDY_EVERY == 0:
            self._budgets.tidy()
            with self._db.transaction() as tx:
                self._thresholds.forget(tx)
