"""The rules that stand in the settings (`[[policy]]`) as control takes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from api.policycompile import Compiler
from api.policyfile import spelled
from api.policykeys import RuleKeys, TripKeys
from control.breakers.settings import BreakerSettings
from control.notifiers.catalog import KINDS
from control.policy import Policy

_TRIP: Final = ("scope", "action", "open_s", "quarantine")
_DESTINATIONS: Final = tuple(kind.SECTION for kind in KINDS)
"""The lists of the settings whose members can be told of an alert."""


def policy_of(
    rules: Sequence[Mapping[str, Any]], escalate_after: int, destinations: Iterable[str] | None = None
) -> Policy:
    """The policy that settings spell. Raises `ValueError` that names each key that makes no sense.

    `destinations`: names that may be told, None: any.
    """
    compiler = Compiler(destinations)
    made = [
        compiler.rule(("policy", number - 1), number, _keys(rule))
        for number, rule in enumerate(rules, start=1)
    ]
    if compiler.problems:
        raise ValueError("\n".join(f"{spelled(each.path)}: {each.message}" for each in compiler.problems))
    return Policy(rules=tuple(made), breakers=BreakerSettings(escalate_after=escalate_after))


def destinations_of(settings: Mapping[str, Any]) -> frozenset[str]:
    """The names of everybody who can be told of an alert, by the settings as plain data."""
    return frozenset(each["name"] for section in _DESTINATIONS for each in settings.get(section, ()))


def _keys(given: Mapping[str, Any]) -> RuleKeys:
    trip = TripKeys(**{key: given[key] for key in _TRIP})
    return RuleKeys(**{key: value for key, value in given.items() if key not in _TRIP}, trip=trip)
