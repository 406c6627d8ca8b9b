"""State as JSON and back, fast: a dataclass is the list of its fields, everything else is what JSON has.

Writing is `orjson`'s, which asks here only for what it does not know. Reading needs to be told what to build:
a `Shape` for each dataclass, with a reader for each field that is not plain JSON.
"""

from __future__ import annotations

import json
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from operator import attrgetter
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast

import orjson

from collector.definitions import key_of
from collector.step import ToolDefinitions

T = TypeVar("T")
Thaw: TypeAlias = Callable[[Any], Any]

_SLOW: Final = b" "
_FIELDS: Final[dict[type, Callable[[Any], tuple[Any, ...] | str]]] = {}


def freeze(value: object) -> bytes:
    """Turn a state into JSON. Knows dataclasses, mappings by text, sequences, sets, enums, plain values.

    Definitions of tools become their key: whoever writes a state writes them once, see `keeping`.
    Raises TypeError for anything else. Arguments may hold integers of more than 64 bits and halves of
    characters, which the fast way cannot write: then the slow one does, and says so by a leading space.
    """
    try:
        return orjson.dumps(value, default=_plain, option=orjson.OPT_PASSTHROUGH_DATACLASS)
    except orjson.JSONEncodeError:
        return _SLOW + json.dumps(value, default=_plain).encode()


def parsed(frozen: bytes) -> Any:  # noqa: ANN401 - JSON
    """Read the JSON that `freeze` wrote. Raises ValueError when it is none."""
    return json.loads(frozen) if frozen.startswith(_SLOW) else orjson.loads(frozen)


def field_names(kind: type) -> tuple[str, ...]:
    """The fields of a dataclass, in the order in which `freeze` writes them."""
    return tuple(each.name for each in fields(cast("Any", kind)))


def _plain(value: object) -> object:
    kind = type(value)
    listed = _FIELDS.get(kind)
    if listed is None:
        listed = _FIELDS[kind] = _listing(kind)
    return listed(value)


def _listing(kind: type) -> Callable[[Any], tuple[Any, ...] | str]:
    if kind is deque:
        return tuple
    if kind is set:
        return lambda value: tuple(sorted(value))
    if kind is ToolDefinitions:
        return key_of
    if is_dataclass(kind):
        return cast("Callable[[Any], tuple[Any, ...]]", attrgetter(*field_names(kind)))
    raise TypeError(f"cannot keep a {kind.__name__} across a restart")


class Shape(Generic[T]):
    """Builds a dataclass out of the list that `freeze` wrote; `readers` by field, others are plain JSON.

    >>> from dataclasses import dataclass
    >>> Point = dataclass(type("Point", (), {"__annotations__": {"x": "int", "y": "tuple[int, ...]"}}))
    >>> shape = Shape(Point, y=tuple)
    >>> shape(orjson.loads(freeze(Point(1, (2, 3)))))
    Point(x=1, y=(2, 3))
    """

    def __init__(self, made: type[T], /, **readers: Thaw) -> None:
        self._kind = made
        self._names = field_names(made)
        self._readers = [(self._names.index(name), read) for name, read in readers.items()]

    @property
    def described(self) -> str:
        """The dataclass and its fields: what a state of another version differs in."""
        return f"{self._kind.__name__}({','.join(self._names)})"

    def __call__(self, values: Any) -> T:  # noqa: ANN401 - JSON that may be of any make
        """Build it. Raises ValueError for what `freeze` did not make of this class."""
        if not isinstance(values, list) or len(values) != len(self._names):
            raise ValueError(f"a state's {self._kind.__name__} has other fields")
        for place, read in self._readers:
            values[place] = read(values[place])
        return self._kind(**dict(zip(self._names, values, strict=True)))


def maybe(read: Thaw) -> Thaw:
    """What `read` reads, or None."""
    return lambda value: None if value is None else read(value)


def each_of(read: Thaw, into: Callable[[Iterable[Any]], Any] = list) -> Thaw:
    """A sequence of what `read` reads."""
    return lambda values: into([read(value) for value in values])


def by_name(read: Thaw) -> Thaw:
    """An ordered mapping from text to what `read` reads."""
    return lambda values: OrderedDict((name, read(value)) for name, value in values.items())


def recent(limit: int) -> Thaw:
    """The latest values, at most `limit`."""
    return lambda values: deque(values, limit)
