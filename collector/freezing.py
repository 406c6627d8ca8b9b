"""State as JSON and back, fast: every container is a list that begins with what it is.

A dataclass is `["Name", field, ...]`, a mapping `["{", [key, value], ...]`, a list `["[", ...]` and so on;
text, numbers, booleans and None are themselves.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import Enum
from operator import attrgetter
from typing import Any, Final, TypeAlias, cast

from collector.step import Json

Freeze: TypeAlias = Callable[[Any], Json]

_ATOMS: Final = frozenset({str, int, float, bool, type(None)})


def freeze(value: object) -> Json:
    """Turn a state into JSON. Knows dataclasses, mappings, sequences, sets, enums and plain values."""
    kind = type(value)
    if kind in _ATOMS:
        return cast("Json", value)
    freezer = _FREEZERS.get(kind)
    if freezer is None:
        freezer = _FREEZERS[kind] = _freezer_of(kind)
    return freezer(value)


def _freezer_of(kind: type) -> Freeze:
    if issubclass(kind, Enum):
        return lambda value: [kind.__name__, value.value]
    if not is_dataclass(kind):
        raise TypeError(f"cannot keep a {kind.__name__} across a restart")
    names = _names(kind)
    get = attrgetter(*names)
    if len(names) == 1:
        return lambda value: [kind.__name__, freeze(get(value))]
    return lambda value: [kind.__name__, *map(freeze, get(value))]


def _names(kind: type) -> tuple[str, ...]:
    return tuple(each.name for each in fields(cast("Any", kind)) if each.init)


def _mapping(mark: str) -> Freeze:
    return lambda value: [mark, *([freeze(key), freeze(item)] for key, item in value.items())]


_FREEZERS: Final[dict[type, Freeze]] = {
    list: lambda value: ["[", *map(freeze, value)],
    tuple: lambda value: ["(", *map(freeze, value)],
    set: lambda value: ["<", *map(freeze, sorted(value))],
    deque: lambda value: ["|", value.maxlen, *map(freeze, value)],
    dict: _mapping("{"),
    OrderedDict: _mapping("{{"),
}

_THAWERS: Final[dict[str, Callable[[list[Any]], object]]] = {
    "[": list,
    "(": tuple,
    "<": set,
    "|": lambda items: deque(items[1:], items[0]),
}


class Thawing:
    """Turns JSON that `freeze` wrote back into state made of the given classes."""

    def __init__(self, *classes: type) -> None:
        self._classes = {each.__name__: each for each in classes}
        self._widths = {each.__name__: len(_names(each)) for each in classes if is_dataclass(each)}

    def thaw(self, value: Json) -> Any:  # noqa: ANN401 - whatever was frozen
        """Build what was frozen. Raises ValueError for a class that is not known, or has other fields."""
        if not isinstance(value, list):
            return value
        mark, *items = value
        if mark in {"{", "{{"}:
            pairs = [(self.thaw(key), self.thaw(item)) for key, item in cast("list[list[Json]]", items)]
            return dict(pairs) if mark == "{" else OrderedDict(pairs)
        thawed = [self.thaw(item) for item in items]
        plain = _THAWERS.get(cast("str", mark))
        if plain is not None:
            return plain(thawed)
        made = self._classes.get(cast("str", mark))
        if made is None:
            raise ValueError(f"a snapshot holds a {mark}, which is not known here")
        if self._widths.get(made.__name__, 1) != len(thawed):
            raise ValueError(f"a snapshot's {mark} has other fields")
        return made(**dict(zip(_names(made), thawed, strict=True))) if is_dataclass(made) else made(*thawed)
