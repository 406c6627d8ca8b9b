"""A policy as a policy file would say it: for showing what is in force."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from api.policykeys import (
    BudgetKeys,
    CheckKeys,
    FileKeys,
    ModeKeys,
    RuleKeys,
    ThresholdKeys,
    TripKeys,
    WhenKeys,
)
from control.policy import BudgetRule, ModeRule, Policy, Rule, Threshold
from detectors.protocol import Severity


def keys_of(policy: Policy) -> FileKeys:
    """Write a policy as the keys of a file; compiled again, they make an equal policy."""
    breaker: Any = asdict(policy.breakers)
    return FileKeys(
        rule=tuple(map(rule_keys, policy.rules)),
        threshold=tuple(map(_threshold, policy.thresholds)),
        budget=tuple(map(_budget, policy.budgets)),
        mode=tuple(map(_mode, policy.modes)),
        breaker=breaker,
        check=CheckKeys(known_dead_calls=policy.check.known_dead_calls),
    )


def rule_keys(rule: Rule) -> RuleKeys:
    """Write one rule as the keys of a file."""
    trip = None
    if rule.reach is not None:
        trip = TripKeys(
            scope=rule.reach.value,
            action=rule.action.value,
            open_s=rule.open_s,
            quarantine=rule.quarantine,
            shadow=rule.trip_in_shadow,
        )
    return RuleKeys(
        name=rule.name,
        kinds=tuple(sorted(rule.kinds)),
        severities=tuple(each.value for each in Severity if each in rule.severities),
        min_severity=None if rule.severities else rule.min_severity.value,
        services=rule.services,
        agents=rule.agents,
        tools=rule.tools,
        sessions=rule.sessions,
        hours=() if rule.hours is None else rule.hours.spelled,
        timezone="UTC" if rule.hours is None else rule.hours.zone.key,
        alert=rule.alert,
        trip=trip,
        shadow=rule.shadow,
        stop=rule.stop,
    )


def _threshold(threshold: Threshold) -> ThresholdKeys:
    scope: Any = threshold.reach.value
    return ThresholdKeys(
        name=threshold.name,
        scope=scope,
        failures=threshold.failures,
        sessions=threshold.quorum,
        nature=tuple(sorted(threshold.natures)),
        services=threshold.services,
        agents=threshold.agents,
        tools=threshold.tools,
        open_s=threshold.open_s,
        action=threshold.action.value,
        shadow=threshold.shadow,
    )


def _budget(budget: BudgetRule) -> BudgetKeys:
    return BudgetKeys(
        name=budget.name,
        per=budget.per.value,
        unit=budget.unit.value,
        limit=budget.limit,
        window_s=budget.window_s,
        ttl_s=budget.ttl_s,
    )


def _mode(rule: ModeRule) -> ModeKeys:
    mode: Any = rule.mode.value
    return ModeKeys(
        name=rule.name,
        agent=rule.agents,
        services=rule.services,
        tools=rule.tool_patterns,
        when=WhenKeys(kind=rule.kind, tools=rule.tools),
        mode=mode,
        hold_s=rule.hold_s,
    )
