"""How long a message asks to wait."""

from __future__ import annotations

import re
from typing import Final

from detectors.errors.subject import bounded

_NUMBER: Final = r"\d{1,9}(?:\.\d{1,9})?"
_UNIT: Final = r"(?:milliseconds?|msecs?|ms|seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h|days?|d)(?![a-z])"
_AMOUNT: Final = re.compile(rf"({_NUMBER})\s*({_UNIT})")
_ASKS: Final = re.compile(
    r"(?:(?:try|retry|retrying|available|wait|resets?)(?: again)?(?: your request)?"
    r"(?: (?:in|after|for|at least|about|another)){0,3}:?"
    r"|retry[-_ ]?(?:after|delay|in)[\"']?(?:[:=]|\s)+[\"']?)\s*"
    rf"(?P<span>(?:{_NUMBER}\s*{_UNIT}[\s,]{{0,3}}(?:and )?){{1,4}})",
)
_HEADER: Final = re.compile(
    rf"retry[-_ ]?after(?P<ms>[-_ ]?ms)?[\"']?\s*[:=]?\s*[\"']?(?P<number>{_NUMBER})(?![\d-])",
)
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def retry_after_s(message: str) -> float | None:
    """The seconds that a message asks to wait before the next attempt, None if it does not say.

    A bare `Retry-After` number is in seconds (RFC 9110, 10.2.3), that of `retry-after-ms` in milliseconds.

    >>> retry_after_s("Retry-After: 30"), retry_after_s("try again in 1m30s."), retry_after_s("wait 250ms")
    (30.0, 90.0, 0.25)
    >>> retry_after_s("please try again") is None
    True
    """
    text = bounded(message).lower()
    asked = _ASKS.search(text)
    if asked is not None:
        return sum(float(number) * _seconds(unit) for number, unit in _AMOUNT.findall(asked["span"]))
    header = _HEADER.search(text)
    if header is None:
        return None
    return float(header["number"]) * (_SECONDS["ms"] if header["ms"] else 1.0)


def _seconds(unit: str) -> float:
    return _SECONDS["ms" if unit.startswith(("ms", "milli")) else unit[0]]
