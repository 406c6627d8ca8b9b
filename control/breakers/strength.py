"""How strong a breaker is after refusals that were ignored: replan, then deny, then halt. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from control.action import Action

if TYPE_CHECKING:
    from control.breakers.settings import BreakerSettings


def strength_after(action: Action, refused: int, settings: BreakerSettings) -> Action:
    """Return the strength after `refused` refusals of a breaker that began with `action`.

    The last of them included. `replan` becomes a `deny` after its budget, `deny` a `halt` after
    `escalate_after`; 0 means never.

    >>> from control.breakers.settings import BreakerSettings
    >>> [strength_after(Action.REPLAN, n, BreakerSettings()).value for n in (1, 2, 3, 5, 6)]
    ['replan', 'replan', 'deny', 'deny', 'halt']
    >>> [strength_after(Action.DENY, n, BreakerSettings(escalate_after=0)).value for n in (1, 99)]
    ['deny', 'deny']
    """
    if action is Action.REPLAN and 0 < settings.replan_budget < refused:
        action, refused = Action.DENY, refused - settings.replan_budget
    if action is Action.DENY and 0 < settings.escalate_after < refused:
        return Action.HALT
    return action
