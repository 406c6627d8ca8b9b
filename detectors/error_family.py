"""Which errors are of one family: the same message with other values in it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from detectors.signature import hash64

if TYPE_CHECKING:
    from collector.step import Json

_JUDGED_CHARS = 1000
_VALUE_CHARS = 3
_QUOTED = re.compile(r"'[^'\n]{1,200}'|\"[^\"\n]{1,200}\"|`[^`\n]{1,200}`|\[[^\]\n]{1,200}\]")
_PATH = re.compile(r"[\w.~-]*(?:/[\w.~-]+)+/?")
_NUMBER = re.compile(r"0x[0-9a-f]+|\b[0-9a-f]{8,}\b|\d+(?:\.\d+)?")
_SPACE = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Family:
    """An error's family: `template` is its text with every value replaced, `hash` 64 bits of that."""

    hash: int
    template: str


def family_of(text: str, arguments: Json = None) -> Family:
    """The family of an error that a call with these arguments brought.

    >>> a = family_of("column 'flight_no' does not exist", {"sql": "select flight_no from f"})
    >>> b = family_of("column 'flight_num' does not exist", {"sql": "select flight_num from f"})
    >>> a == b, a.template
    (True, 'column # does not exist')
    """
    text = text[:_JUDGED_CHARS]
    for value in sorted(set(_values(arguments)), key=lambda value: (-len(value), value)):
        text = text.replace(value, "#")
    text = _QUOTED.sub("#", text.lower())
    text = _NUMBER.sub("0", _PATH.sub("#", text))
    template = _SPACE.sub(" ", text).strip()
    return Family(hash64(template), template)


def _values(arguments: Json) -> Iterator[str]:
    """The texts among the arguments that are long enough to stand for themselves."""
    if isinstance(arguments, str):
        if len(arguments) >= _VALUE_CHARS:
            yield arguments
    elif isinstance(arguments, Mapping):
        for value in arguments.values():
            yield from _values(value)
    elif isinstance(arguments, list):
        for value in arguments:
            yield from _values(value)
