"""Keyed state with bounds: the only machinery that detectors share."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import TYPE_CHECKING, Generic, TypeVar

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterator

    from collector.step import Json

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_BYTES_PER_JSON_BYTE = 5


class Recent(Generic[K, V]):
    """A mapping that keeps the `limit` most recently touched keys.

    >>> recent = Recent[str, int](2)
    >>> recent.put("a", 1); recent.put("b", 2); _ = recent.touch("a"); recent.put("c", 3)
    >>> list(recent.items())
    [('a', 1), ('c', 3)]
    """

    __slots__ = ("_items", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._items: OrderedDict[K, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[K]:
        return iter(self._items)

    def __contains__(self, key: object) -> bool:
        return key in self._items

    def get(self, key: K) -> V | None:
        """Look at a value without touching it."""
        return self._items.get(key)

    def touch(self, key: K) -> V | None:
        """Return a value and make its key the most recent one."""
        value = self._items.get(key)
        if value is not None:
            self._items.move_to_end(key)
        return value

    def put(self, key: K, value: V) -> None:
        """Set a value as the most recent one; the least recent one goes when there are too many."""
        self._items[key] = value
        self._items.move_to_end(key)
        if len(self._items) > self.limit:
            self._items.popitem(last=False)

    def pop(self, key: K) -> V | None:
        """Remove a key and return its value."""
        return self._items.pop(key, None)

    def clear(self) -> None:
        """Remove all."""
        self._items.clear()

    def items(self) -> Iterator[tuple[K, V]]:
        """All pairs, least recent first."""
        return iter(self._items.items())

    def values(self) -> Iterator[V]:
        """All values, least recent first."""
        return iter(self._items.values())

    def oldest(self) -> tuple[K, V] | None:
        """The least recently touched pair."""
        return next(iter(self._items.items()), None)


def estimated_bytes(state: Json) -> int:
    """Roughly what a JSON state takes in memory as Python objects, in bytes.

    Python objects take about five times their JSON text (measured: 66 KB for 13 KB of a full scope).

    >>> estimated_bytes({"a": [1, 2, 3]}) > estimated_bytes([])
    True
    """
    return _BYTES_PER_JSON_BYTE * len(orjson.dumps(state))
