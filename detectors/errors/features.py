"""What the text model sees of a message: words, pairs of words and pieces of words, without values."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

from detectors.errors.subject import Subject

_MAX_WORDS: Final = 120  # of either end, so that the work is bounded
_PIECE: Final = 4  # characters
_VALUES: Final = re.compile(
    r"(?P<url>https?://\S+)|(?P<path>(?:~|\.{1,2})?/[\w.@+-]+(?:/[\w.@+-]*)*)|(?P<hex>\b0x[0-9a-f]+\b|\b[0-9a-f]{12,}\b)"
    r"|(?P<status>\b[45]\d\d\b)|(?P<number>\d+)",
)
_WORD: Final = re.compile(r"[^\W\d_]+|<\w+>|[45]\d\d")


def _value(match: re.Match[str]) -> str:
    return match[0] if match.lastgroup == "status" else f" <{match.lastgroup}> "


def features_of(subject: Subject) -> frozenset[str]:
    """The features that a message has; a pure function, used to train and to judge.

    >>> sorted(features_of(Subject("Gone 410", "gone 410", "gone 410", None)))
    ['410', 'c:<gon', 'c:gone', 'c:one>', 'gone', 'gone 410', 'tool:unknown']
    """
    words = _WORD.findall(_VALUES.sub(_value, subject.lower))
    if len(words) > 2 * _MAX_WORDS:
        words = words[:_MAX_WORDS] + words[-_MAX_WORDS:]
    tool = {None: "unknown", True: "code", False: "other"}[subject.runs_code]
    found = {f"tool:{tool}", *words}
    found.update(map(" ".join, pairwise(words)))
    for word in set(words):
        if word.isalpha():
            edged = f"<{word[:24]}>"
            found.update("c:" + edged[at : at + _PIECE] for at in range(len(edged) - _PIECE + 1))
    return frozenset(found)
