"""Breakers found by scope without looking at all of them.

The parts that a scope sets are its shape. All breakers of one shape are in one table by the values of those
parts, so that a call is looked up once a shape: there are at most 128 of them, most often a handful.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any

from control.scope import PARTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from control.breakers.record import Breaker
    from control.scope import Asked, Scope

_AGENT = PARTS.index("agent")
_ARGS = PARTS.index("args")


class _Shape:
    __slots__ = ("by_agent", "key", "table")

    def __init__(self, positions: tuple[int, ...]) -> None:
        self.key: Callable[[tuple[str | None, ...]], Any] = itemgetter(*positions)
        self.by_agent = _AGENT in positions
        self.table: dict[Any, Breaker] = {}


class Shapes:
    """One breaker a scope. One thread writes, others may read: each sees every single change whole."""

    def __init__(self) -> None:
        self._shapes: dict[tuple[int, ...], _Shape] = {}
        self._searched: tuple[_Shape, ...] = ()

    @property
    def by_args(self) -> bool:
        """Whether any scope names arguments."""
        return any(_ARGS in positions for positions in list(self._shapes))

    def put(self, breaker: Breaker) -> None:
        """Keep the newest state of a breaker."""
        positions = _positions(breaker.scope)
        shape = self._shapes.get(positions)
        if shape is None:
            shape = self._shapes[positions] = _Shape(positions)
        shape.table[shape.key(breaker.scope.key)] = breaker
        if shape not in self._searched:
            self._searched = (*self._searched, shape)

    def remove(self, scope: Scope) -> Breaker | None:
        """Forget the breaker of a scope; return it."""
        positions = _positions(scope)
        shape = self._shapes.get(positions)
        if shape is None:
            return None
        gone = shape.table.pop(shape.key(scope.key), None)
        if not shape.table:
            self._searched = tuple(other for other in self._searched if other is not shape)
            del self._shapes[positions]
        return gone

    def get(self, scope: Scope) -> Breaker | None:
        """Return the breaker of exactly this scope."""
        shape = self._shapes.get(_positions(scope))
        return None if shape is None else shape.table.get(shape.key(scope.key))

    def covering(self, asked: Asked) -> list[Breaker]:
        """Return every breaker whose scope covers a call, in no order."""
        found: list[Breaker] = []
        if not self._searched:
            return found
        parts = (
            asked.tenant, asked.service, asked.agent, asked.session,
            asked.run, asked.tool, asked.args, asked.model,
        )  # fmt: skip
        version = asked.versioned_agent
        of_version = None if version is None else (*parts[:_AGENT], version, *parts[_AGENT + 1 :])
        for shape in self._searched:
            breaker = shape.table.get(shape.key(parts))
            if breaker is not None:
                found.append(breaker)
            if of_version is not None and shape.by_agent:
                breaker = shape.table.get(shape.key(of_version))
                if breaker is not None:
                    found.append(breaker)
        return found

    def __iter__(self) -> Iterator[Breaker]:
        """Go through all of them, as they are now, in no order."""
        for shape in self._searched:
            yield from list(shape.table.values())


def _positions(scope: Scope) -> tuple[int, ...]:
    return (0, *(n for n, value in enumerate(scope.key) if n and value is not None))
