"""The rules of the settings as control takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from control.action import Action
from control.breakers.settings import BreakerSettings
from control.policy import Policy, Reach, Rule
from detectors.catalog import unknown_findings
from detectors.protocol import Severity


def policy_of(rules: Sequence[Mapping[str, Any]], escalate_after: int) -> Policy:
    """The policy that settings spell. Raises `ValueError` that names the key that makes no sense."""
    return Policy(
        rules=tuple(_rule(number, rule) for number, rule in enumerate(rules, start=1)),
        breakers=BreakerSettings(escalate_after=escalate_after),
    )


def _rule(number: int, given: Mapping[str, Any]) -> Rule:
    unknown, known = unknown_findings(given["kinds"])
    if unknown:
        wrong, right = ", ".join(map(repr, unknown)), ", ".join(known)
        raise ValueError(f"policy.{number}.kinds: no detector finds {wrong}; there are {right}")
    return Rule(
        name=given["name"] or f"rule-{number}",
        kinds=frozenset(given["kinds"]),
        min_severity=Severity(given["min_severity"]),
        reach=Reach(given["scope"]),
        action=Action(given["action"]),
        shadow=given["shadow"],
    )
