"""The order of the rules: the first that decides has the last word.

Specific comes before general, and what only carries another's failure comes after what it carries: a
validator's report beats the words of the field it names (a `timeout_ms` that is no number is no timeout), a
name that does not resolve beats the 500 that a gateway wraps around it, a spent budget beats the 429 it is
sent with, a status beats the words beside it (`401 … PermissionDenied` wants credentials).
"""

from __future__ import annotations

from typing import Final

from detectors.errors import rules_calls, rules_programs, rules_services
from detectors.errors.kinds import ErrorClass
from detectors.errors.rule import Rule
from detectors.errors.subject import Subject

RULES: Final[tuple[Rule, ...]] = (
    *rules_calls.FIRST,
    *rules_programs.TESTS,
    *rules_programs.SHELL_FIRST,
    *rules_programs.CODE_FIRST,
    *rules_services.PROVIDERS[:3],
    *rules_services.PROVIDERS[3:],
    *rules_services.NETWORK,
    *rules_services.TIMEOUTS,
    *rules_calls.CALLS[:4],
    *rules_services.STATUSES,
    *rules_programs.EXCEPTIONS,
    *rules_calls.SQL,
    *rules_programs.SHELL,
    *rules_calls.TOOLS,
    *rules_services.DENIALS,
    *rules_calls.CALLS[4:],
    *rules_calls.NOT_THERE,
    *rules_calls.BUSINESS,
)


def first_match(subject: Subject, rules: tuple[Rule, ...] = RULES) -> tuple[Rule, ErrorClass] | None:
    """The first rule that decides, and what it says."""
    lower = subject.lower
    for rule in rules:
        needles = rule.needles
        if needles:
            for needle in needles:
                if needle in lower:
                    break
            else:
                continue
        decided = rule.decide(subject)
        if decided is not None:
            return rule, decided
    return None
