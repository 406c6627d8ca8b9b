"""From an error's text to a verdict: rules first, the text model for what no rule knows, then nobody."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from detectors.errors.kinds import ErrorClass, Nature, Source, Verdict, verdict_of
from detectors.errors.model import shipped
from detectors.errors.rules import first_match
from detectors.errors.subject import Subject, bounded, focus, subject_of

_REMEMBERED: Final = 4096  # messages; each at most 4,003 characters


def classify(message: str, *, tool: str | None = None) -> Verdict:
    """What a failed call's text says about why it failed, and what would help.

    Only the first 1,500 and the last 2,500 characters are read. Pure and deterministic; raises nothing.

    >>> verdict = classify("429 Too Many Requests")
    >>> verdict.error_class.value, verdict.retry, verdict.prescription.value
    ('rate_limit', True, 'backoff_retry')
    >>> classify("HTTP 401: PermissionDenied").error_class.value
    'auth'
    >>> classify("flurble").prescription.value
    'escalate'
    """
    return _classify(bounded(message), tool or None)


@lru_cache(maxsize=_REMEMBERED)
def _classify(text: str, tool: str | None) -> Verdict:
    ends = focus(text)
    found = first_match(subject_of(ends, tool))
    if found is None and ends is not text:
        found = first_match(subject_of(text, tool))
    if found is not None:
        rule, error_class = found
        return verdict_of(error_class, "rule", rule.name, rule.confidence)
    return _guess(subject_of(ends, tool))


def _guess(subject: Subject) -> Verdict:
    guess, confidence = shipped().class_of(subject)
    source: Source = "none" if guess is ErrorClass.UNKNOWN else "model"
    return verdict_of(guess, source, "", confidence)


def forget() -> None:
    """Drop the remembered verdicts: for those who measure."""
    _classify.cache_clear()


def is_transient(verdict: Verdict) -> bool:
    """Tell whether the failure may go away by itself.

    >>> is_transient(classify("Read timed out")), is_transient(classify("unknown option -z"))
    (True, False)
    """
    return verdict.nature is Nature.TRANSIENT
