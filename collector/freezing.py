"""State as JSON and back: dataclasses by name and fields, everything else as it is."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Final, cast

from collector.step import Json

_KIND: Final = "~"


def freeze(value: object) -> Json:  # noqa: PLR0911 - one line a kind of value
    """Turn a state into JSON. Knows dataclasses, mappings, sequences, sets, enums and plain values."""
    if value is None or isinstance(value, bool | int | float) or type(value) is str:
        return cast("Json", value)
    if isinstance(value, Enum):
        return {_KIND: type(value).__name__, "v": cast("Json", value.value)}
    if isinstance(value, tuple):
        return {_KIND: "tuple", "v": [freeze(item) for item in value]}
    if isinstance(value, list):
        return [freeze(item) for item in value]
    if isinstance(value, set | frozenset):
        return {_KIND: "set", "v": [freeze(item) for item in sorted(value)]}
    if isinstance(value, deque):
        return {_KIND: "deque", "v": [freeze(item) for item in value], "n": value.maxlen}
    if isinstance(value, Mapping):
        kind = "ordered" if isinstance(value, OrderedDict) else "dict"
        return {_KIND: kind, "v": [[freeze(key), freeze(item)] for key, item in value.items()]}
    if is_dataclass(value) and not isinstance(value, type):
        return {
            _KIND: type(value).__name__,
            "v": [freeze(getattr(value, each.name)) for each in fields(value) if each.init],
        }
    raise TypeError(f"cannot keep a {type(value).__name__} across a restart")


class Thawing:
    """Turns JSON that `freeze` wrote back into state made of the given classes."""

    def __init__(self, *classes: type) -> None:
        self._classes = {each.__name__: each for each in classes}

    def thaw(self, value: Json) -> Any:  # noqa: ANN401 - whatever was frozen
        """Build what was frozen. Raises ValueError for a class that is not known."""
        if isinstance(value, list):
            return [self.thaw(item) for item in value]
        if not isinstance(value, Mapping):
            return value
        kind, inner = value.get(_KIND), value.get("v")
        items = [self.thaw(item) for item in inner] if isinstance(inner, list) else inner
        if isinstance(kind, str) and kind in _PLAIN and isinstance(items, list):
            return (
                deque(items, cast("int | None", value.get("n"))) if kind == "deque" else _PLAIN[kind](items)
            )
        made = self._classes.get(kind) if isinstance(kind, str) else None
        if made is None:
            raise ValueError(f"a snapshot holds a {kind}, which is not known here")
        if issubclass(made, Enum):
            return made(items)
        names = [each for each in fields(cast("Any", made)) if each.init]
        if not isinstance(items, list) or len(items) != len(names):
            raise ValueError(f"a snapshot's {kind} has other fields")
        return made(**{each.name: item for each, item in zip(names, items, strict=True)})


_PLAIN: Final[dict[str, Callable[[list[Any]], Any]]] = {
    "tuple": tuple, "set": set, "deque": deque, "dict": dict, "ordered": OrderedDict,
}  # fmt: skip
