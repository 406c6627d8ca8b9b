"""Short texts for people: of arguments, and of errors, whose end says more than their middle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collector.step import Json

_PARTS: Final = 6
_CUT: Final = " … "


def one_line(text: str, limit: int) -> str:
    r"""The beginning of a text on one line, `limit` characters at most.

    >>> one_line("a\n  b", 10), one_line("abcdef", 4)
    ('a b', 'abc…')
    """
    line = " ".join(text[: 2 * limit + 64].split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def both_ends(text: str, limit: int) -> str:
    r"""Beginning and end of a text on one line: what went wrong stands at the end of a traceback.

    >>> both_ends("Traceback: " + "x" * 100 + " KeyError: 'a'", 40)
    "Traceback: x … xxxxxxxxxxx KeyError: 'a'"
    """
    line = " ".join(text.split()) if len(text) <= 4 * limit else ""
    if line and len(line) <= limit:
        return line
    head = (limit - len(_CUT)) // 3
    tail = limit - len(_CUT) - head
    begin, end = (line, line) if line else (one_line(text, 4 * head), " ".join(text[-4 * tail :].split()))
    return f"{begin[:head]}{_CUT}{end[-tail:]}"


def error_of(body: str, limit: int) -> str:
    r"""What a failed call said, in a few words; once where error and result say the same.

    `body` is that of `detectors.evidence.body_of`: the error, and after a separator the result.

    >>> error_of("exit 1\x1eno such file; exit 1", 80), error_of("exit 1\x1eno such file", 80)
    ('no such file; exit 1', 'exit 1: no such file')
    """
    error, found, result = body.partition("\x1e")
    if not found or result.strip() in error:
        return both_ends(error, limit)
    if error.strip() in result:
        return both_ends(result, limit)
    head = one_line(error, limit // 2)
    return f"{head}: {both_ends(result, limit - len(head) - 2)}"


def shown(arguments: Json, limit: int) -> str:
    """What a call was asked, in a few words: names and the beginnings of values.

    >>> shown({"path": "a.py", "limit": 3}, 80), shown({"command": "ls"}, 80), shown(None, 80)
    ('path=a.py, limit=3', 'ls', '')
    """
    if arguments is None:
        return ""
    if not isinstance(arguments, Mapping):
        return one_line(str(arguments), limit)
    if len(arguments) == 1:
        return one_line(_value(next(iter(arguments.values())), limit), limit)
    parts = []
    for position, (name, value) in enumerate(arguments.items()):
        if position == _PARTS:
            parts.append("…")
            break
        parts.append(f"{name[:40]}={one_line(_value(value, limit), max(20, limit // 2))}")
    return one_line(", ".join(parts), limit)


def _value(value: Json, limit: int) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (list, Mapping)) and len(value) > limit:
        return f"{len(value)} items"
    return str(value)[: 2 * limit]
