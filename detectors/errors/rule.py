"""What a rule is: a name, words that must occur, and how it decides."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from detectors.errors.kinds import ErrorClass
from detectors.errors.subject import Subject

Decide = Callable[[Subject], ErrorClass | None]

CODE: Final = 0.97  # confidence in a code or a fixed phrase of a known program
WORDS: Final = 0.85  # confidence in words that other texts hold too


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of message.

    `needles` are lower-case texts of which one must occur before `decide` is asked (empty: always asked).
    They keep a judgement cheap: most rules cost a few substring searches.
    """

    name: str
    needles: tuple[str, ...]
    decide: Decide
    confidence: float


def says(
    name: str,
    error_class: ErrorClass,
    needles: str,
    pattern: str | None = None,
    *,
    confidence: float = CODE,
) -> Rule:
    """A rule of one class: one of the needles (plain texts, separated by |) and, if given, the pattern."""
    found = None if pattern is None else re.compile(pattern, re.DOTALL).search

    def decide(subject: Subject) -> ErrorClass | None:
        return error_class if found is None or found(subject.lower) else None

    return Rule(name, tuple(needles.split("|")), decide, confidence)


def decides(name: str, needles: str, decide: Decide, *, confidence: float = CODE) -> Rule:
    """A rule with a function of its own; needles as in `says`, none when empty."""
    return Rule(name, tuple(needles.split("|")) if needles else (), decide, confidence)
