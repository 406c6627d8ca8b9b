"""Policy: which findings alert whom and trip what. Data and pure functions; files are read in `api`."""

from __future__ import annotations

from control.policy.holder import PolicyHolder, Source
from control.policy.hours import Hours
from control.policy.policy import Policy, Ruling, Trip, is_shadow
from control.policy.reach import Reach, Target, scope_of, target_of
from control.policy.rules import BudgetRule, CheckSettings, Mode, ModeRule, Per, Rule, Threshold, Unit

__all__ = [
    "BudgetRule",
    "CheckSettings",
    "Hours",
    "Mode",
    "ModeRule",
    "Per",
    "Policy",
    "PolicyHolder",
    "Reach",
    "Rule",
    "Ruling",
    "Source",
    "Target",
    "Threshold",
    "Trip",
    "Unit",
    "is_shadow",
    "scope_of",
    "target_of",
]
