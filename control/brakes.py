"""All that stops agents, put together: breakers, what opens them besides findings, budgets, dead calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from control.breakers.book import Breakers
from control.breakers.index import BreakerIndex
from control.breakers.thresholds import Thresholds
from control.breakers.turn import BreakerTurn
from control.budgets import Budgets
from control.dead_calls import DeadCalls

if TYPE_CHECKING:
    from collections.abc import Callable

    from control.db import ControlDb
    from control.facts import SpoolFacts, Taker
    from control.policy import PolicyHolder
    from detectors.notes import Notes


SAME_TURN_S: Final = 0.05
"""Calls that are refused so soon after each other were made together, as a guard counts them, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Brakes:
    """The parts. `takers` learn from facts, in this order; `turn` is a duty of the control loop.

    `recall` learns anew, after a restart, what was only kept in memory (`FactsDuty`).
    """

    breakers: Breakers
    budgets: Budgets
    dead_calls: DeadCalls
    thresholds: Thresholds
    turn: BreakerTurn
    takers: tuple[Taker, ...]
    recall: Callable[[SpoolFacts, int], None]


def brakes_of(
    db: ControlDb,
    policies: PolicyHolder,
    notes: Callable[[str], Notes | None],
    now_ns: Callable[[], int],
    active_sessions: Callable[[int], int | None] = lambda _: None,
) -> Brakes:
    """Put the parts together under the policy in force, whichever that is at each moment.

    `active_sessions` tells how many sessions had a step lately as of a moment (unix ns), None: not known.
    """
    index = BreakerIndex(settings=policies.current.breakers, same_turn_s=SAME_TURN_S)
    breakers = Breakers(db, index, now_ns, notes=notes, active_sessions=lambda: active_sessions(now_ns()))
    budgets = Budgets(db, now_ns, lambda: policies.current.budgets)
    dead_calls = DeadCalls()
    thresholds = Thresholds(breakers, lambda: policies.current.thresholds, now_ns)
    return Brakes(
        breakers=breakers,
        budgets=budgets,
        dead_calls=dead_calls,
        thresholds=thresholds,
        turn=BreakerTurn(
            db=db,
            breakers=breakers,
            policies=policies,
            dead_calls=dead_calls,
            thresholds=thresholds,
            budgets=budgets,
        ),
        takers=(breakers.probes.take, thresholds.take, dead_calls.take),
        recall=lambda source, upto: dead_calls.recall(source, upto, now_ns()),
    )
