"""Makes things fit. Lengths of texts are counted in UTF-16 units, the strictest way of counting."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from collector.step import Json

_MAX_TEXT: Final = 2000
_MAX_SHORT_TEXT: Final = 150
_HALF_ENTITY: Final = re.compile(r"&[a-z]{0,3}\Z")


def length(text: str) -> int:
    """Count UTF-16 units.

    >>> length("é"), length("😀")
    (1, 2)
    """
    return len(text) + sum(character > "\uffff" for character in text)


def cut(text: str, limit: int) -> str:
    """Cut a text to at most `limit` units, `…` included, never inside a character or an escape like `&lt;`.

    >>> cut("abcdef", 4), cut("ab&lt;", 5), cut("😀😀", 3)
    ('abc…', 'ab…', '😀…')
    """
    if length(text) <= limit:
        return text
    kept, used = [], 1
    for character in text:
        used += 2 if character > "\uffff" else 1
        if used > limit:
            break
        kept.append(character)
    return f"{_HALF_ENTITY.sub('', ''.join(kept))}…" if limit > 0 else ""


def shortened(data: Mapping[str, Json], *, text: int = _MAX_TEXT) -> dict[str, Json]:
    """Keep every field, with long texts and lists cut."""
    return {key: _cut(value, text) for key, value in data.items()} | {"truncated": True}


def bare(data: Mapping[str, Json]) -> dict[str, Json]:
    """Keep the plain fields only, all short."""
    plain = {
        key: value for key, value in data.items() if value is None or isinstance(value, str | int | float)
    }
    return {key: _cut(value, _MAX_SHORT_TEXT) for key, value in plain.items()} | {"truncated": True}


def _cut(value: Json, limit: int) -> Json:
    if isinstance(value, str):
        return value if len(value) <= limit else f"{value[: limit - 1]}…"
    if isinstance(value, list):
        return [_cut(item, _MAX_SHORT_TEXT) for item in value[:5]]
    if value is None or isinstance(value, bool | int | float):
        return value
    return {key[:_MAX_SHORT_TEXT]: _cut(item, _MAX_SHORT_TEXT) for key, item in list(value.items())[:20]}
