"""Tokens that look drawn at random: an id in a result that no key, uuid or clock gives away."""

from __future__ import annotations

import re
from typing import Final

_JUDGED_CHARS: Final = 2000
_WORDS_LEFT: Final = 3
_PIECE_CHARS: Final = 2.5
_PIECE_CHARS_WITH_DIGITS: Final = 3.0
_TOKEN: Final = re.compile(r"[A-Za-z0-9]{8,}")
_PIECE: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_NUMBER: Final = re.compile(r"\d[\d.,]*")
_WORD: Final = re.compile(r"[A-Za-z]{2,}")


def without_random_ids(text: str) -> str | None:
    """Return a text with what looks drawn at random masked; None: nothing does, or little else is left.

    A name has words in it, of three letters or more by and large; what is drawn at random changes between
    letters, capitals and digits at every other character. That is a guess: use it only to tell whether two
    results are the same but for such tokens, never to make two calls one.

    >>> without_random_ids("No such file: settings.toml (call tc_mGnpfp9AYN)")
    'No such file: settings.toml (call tc_#)'
    >>> without_random_ids("getUserById failed in test_module12") is None
    True
    """
    if len(text) > _JUDGED_CHARS:
        return None
    masked = _TOKEN.sub(_mask, text)
    if masked == text or len(_WORD.findall(masked)) < _WORDS_LEFT:
        return None
    return masked


def without_numbers(text: str) -> str | None:
    """Return a text with its numbers masked; None: there are none, or little else is left.

    >>> without_numbers("the prompt is too long: 203118 tokens > 200000 maximum")
    'the prompt is too long: # tokens > # maximum'
    >>> without_numbers("exit 1") is None
    True
    """
    if len(text) > _JUDGED_CHARS:
        return None
    masked = _NUMBER.sub("#", text)
    if masked == text or len(_WORD.findall(masked)) < _WORDS_LEFT:
        return None
    return masked


def _mask(found: re.Match[str]) -> str:
    token = found.group()
    pieces = len(_PIECE.findall(token))
    limit = _PIECE_CHARS if token.isalpha() else _PIECE_CHARS_WITH_DIGITS
    return "#" if pieces and len(token) / pieces < limit else token
