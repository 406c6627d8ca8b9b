"""Classes of errors, and what each class calls for.

A recovery layer takes a failure and returns four things: class, retry, change the arguments, change the plan.
Transient errors are retried with growing gaps, structural ones are never sent again unchanged, environmental
ones need another channel or fresh credentials, and what nobody knows goes to a person: an unknown error is
never retried.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Literal


class ErrorClass(StrEnum):
    """Why a call failed."""

    TIMEOUT = "timeout"
    RATE_LIMIT = "rate_limit"
    NETWORK = "network"
    UNAVAILABLE = "unavailable"
    SCHEMA = "schema"
    NOT_FOUND = "not_found"
    PERMISSION = "permission"
    AUTH = "auth"
    ENVIRONMENT = "environment"
    RESOURCE_EXHAUSTED = "resource_exhausted"
    AMBIGUOUS = "ambiguous"
    TOOL_BUG = "tool_bug"
    APPLICATION = "application"
    UNKNOWN = "unknown"


class Nature(StrEnum):
    """What kind of obstacle an error is: the coarse level above the class."""

    TRANSIENT = "transient"
    STRUCTURAL = "structural"
    ENVIRONMENTAL = "environmental"
    SEMANTIC = "semantic"
    UNKNOWN = "unknown"


class Prescription(StrEnum):
    """What would help after an error."""

    BACKOFF_RETRY = "backoff_retry"
    REWRITE_ARGUMENTS = "rewrite_arguments"
    REFRESH_THEN_RETRY = "refresh_then_retry"
    SWITCH_CHANNEL = "switch_channel"
    REPLAN = "replan"
    ESCALATE = "escalate"


Source = Literal["rule", "model", "none"]


@dataclass(frozen=True, slots=True)
class Advice:
    """What a class of errors calls for; `retry` means: the same call may succeed later (after a refresh)."""

    nature: Nature
    retry: bool
    change_arguments: bool
    change_plan: bool
    prescription: Prescription


def _advice(nature: Nature, prescription: Prescription) -> Advice:
    return Advice(
        nature=nature,
        retry=prescription in {Prescription.BACKOFF_RETRY, Prescription.REFRESH_THEN_RETRY},
        change_arguments=prescription is Prescription.REWRITE_ARGUMENTS,
        change_plan=prescription in {Prescription.REPLAN, Prescription.SWITCH_CHANNEL},
        prescription=prescription,
    )


ADVICE: Final[Mapping[ErrorClass, Advice]] = MappingProxyType(
    {
        ErrorClass.TIMEOUT: _advice(Nature.TRANSIENT, Prescription.BACKOFF_RETRY),
        ErrorClass.RATE_LIMIT: _advice(Nature.TRANSIENT, Prescription.BACKOFF_RETRY),
        ErrorClass.NETWORK: _advice(Nature.TRANSIENT, Prescription.BACKOFF_RETRY),
        ErrorClass.UNAVAILABLE: _advice(Nature.TRANSIENT, Prescription.BACKOFF_RETRY),
        ErrorClass.SCHEMA: _advice(Nature.STRUCTURAL, Prescription.REWRITE_ARGUMENTS),
        ErrorClass.NOT_FOUND: _advice(Nature.STRUCTURAL, Prescription.REPLAN),
        ErrorClass.PERMISSION: _advice(Nature.STRUCTURAL, Prescription.REPLAN),
        ErrorClass.AUTH: _advice(Nature.ENVIRONMENTAL, Prescription.REFRESH_THEN_RETRY),
        ErrorClass.ENVIRONMENT: _advice(Nature.ENVIRONMENTAL, Prescription.SWITCH_CHANNEL),
        ErrorClass.RESOURCE_EXHAUSTED: _advice(Nature.ENVIRONMENTAL, Prescription.REPLAN),
        ErrorClass.AMBIGUOUS: _advice(Nature.UNKNOWN, Prescription.REPLAN),
        ErrorClass.TOOL_BUG: _advice(Nature.ENVIRONMENTAL, Prescription.SWITCH_CHANNEL),
        ErrorClass.APPLICATION: _advice(Nature.SEMANTIC, Prescription.REPLAN),
        ErrorClass.UNKNOWN: _advice(Nature.UNKNOWN, Prescription.ESCALATE),
    },
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a failure is and what it calls for.

    `source` says who decided: a rule (`rule` is its name), the text model, or nobody. `confidence` is 0..1.
    """

    error_class: ErrorClass
    nature: Nature
    retry: bool
    change_arguments: bool
    change_plan: bool
    prescription: Prescription
    source: Source
    rule: str
    confidence: float


def verdict_of(error_class: ErrorClass, source: Source, rule: str, confidence: float) -> Verdict:
    """The verdict of a class, with the advice that belongs to it.

    >>> verdict_of(ErrorClass.UNKNOWN, "none", "", 0.0).retry
    False
    """
    advice = ADVICE[error_class]
    return Verdict(
        error_class=error_class,
        nature=advice.nature,
        retry=advice.retry,
        change_arguments=advice.change_arguments,
        change_plan=advice.change_plan,
        prescription=advice.prescription,
        source=source,
        rule=rule,
        confidence=confidence,
    )
