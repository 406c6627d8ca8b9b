"""The breakers in memory, found by what their scopes name: no loop over all of them, no lock to read.

One thread changes an index, any thread reads it: what readers follow is replaced whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from typing import Any, Callable, NamedTuple

from recloser_guard.record import (
    DECIDING,
    FORCED_CLOSED,
    FORCED_OPEN,
    HALF_OPEN,
    OPEN,
    PARTS,
    Breaker,
)

AGENT, ARGS = PARTS.index("agent"), PARTS.index("args")
_VERSIONED = len(PARTS)  # where a call has its agent with its version


class Call(NamedTuple):
    """The call that is asked about; None where it does not say. `args` is the sidecar's 16-hex signature.

    A breaker whose scope names a part that the call does not say does not cover it.
    """

    tenant: str | None
    service: str | None
    agent: str | None
    session: str | None
    run: str | None
    tool: str | None
    args: str | None
    model: str | None
    agent_at_version: str | None = None


class Found(NamedTuple):
    """What the index knows of a call.

    `breaker` is the one that decides, None when none refuses; `override` the one that holds it closed;
    `ask` tells that a breaker over certain arguments covers the rest of the call: only the sidecar can say.
    """

    breaker: Breaker | None
    override: Breaker | None
    ask: bool


NOTHING = Found(None, None, ask=False)


class _Shape:
    """All breakers whose scopes name the same parts, by the values of these."""

    __slots__ = ("by_value", "names_args", "parts", "take")

    def __init__(self, parts: tuple[int, ...]) -> None:
        self.parts = parts
        self.names_args = ARGS in parts
        self.take: Callable[[Any], Any] = itemgetter(*parts)
        self.by_value: dict[Any, tuple[Breaker, ...]] = {}

    @property
    def parts_but_args(self) -> tuple[int, ...]:
        """The parts that can be compared without knowing the arguments' signature."""
        return tuple(part for part in self.parts if part != ARGS)

    def put(self, key: object, breaker: Breaker) -> None:
        """Put a breaker in, in place of its older state."""
        others = (b for b in self.by_value.get(key, ()) if b.id != breaker.id)
        self.by_value[key] = (*others, breaker)

    def remove(self, key: object, breaker: Breaker) -> None:
        """Take a breaker out."""
        others = tuple(b for b in self.by_value.get(key, ()) if b.id != breaker.id)
        if others:
            self.by_value[key] = others
        else:
            self.by_value.pop(key, None)


class Index:
    """The breakers that say anything about calls, by scope."""

    def __init__(self, breakers: Iterable[Breaker] = (), revision: int = 0) -> None:
        self._known: dict[str, Breaker] = {}
        self._shapes: tuple[_Shape, ...] = ()
        self._of_args: tuple[_Shape, ...] = ()
        self.revision = revision
        for breaker in breakers:
            self.put(breaker)

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Any:
        return iter(list(self._known.values()))

    def get(self, breaker_id: str) -> Breaker | None:
        """Return a breaker that decides, None when it is closed or unknown."""
        return self._known.get(breaker_id)

    def put(self, breaker: Breaker) -> None:
        """Take over a breaker's newest state; an older one than is known changes nothing.

        A reader finds the old state or the new one, never none.
        """
        known = self._known.get(breaker.id)
        if known is not None and known.revision > breaker.revision:
            return
        if breaker.state in DECIDING:
            self._known[breaker.id] = breaker
            self._put_in(breaker)
        elif known is not None:
            self._take_out(known)
        self.revision = max(self.revision, breaker.revision)

    def remove(self, breaker_id: str, revision: int) -> None:
        """Forget a breaker that is closed since `revision`."""
        known = self._known.get(breaker_id)
        if known is not None and known.revision <= revision:
            self._take_out(known)
        self.revision = max(self.revision, revision)

    def find(self, call: Call) -> Found:
        """Return what the breakers that cover a call say, the most restrictive first."""
        covering: list[Breaker] | None = None
        for shape in self._shapes:
            hit = shape.by_value.get(shape.take(call))
            if hit is not None:
                covering = [*hit] if covering is None else [*covering, *hit]
        ask = False
        for shape in self._of_args if call.args is None else ():
            hit = shape.by_value.get(shape.take(call))
            ask = ask or hit is not None
        if covering is None:
            return Found(None, None, ask=True) if ask else NOTHING
        breaker, override = decide(covering)
        return Found(breaker, override, ask)

    def _put_in(self, breaker: Breaker) -> None:
        for parts, key in _places(breaker):
            shape = next((s for s in self._shapes if s.parts == parts), None)
            if shape is None:
                shape = _Shape(parts)
                shape.put(key, breaker)
                self._shapes = (*self._shapes, shape)
            else:
                shape.put(key, breaker)
            if shape.names_args:
                self._ask_for(shape, breaker)

    def _take_out(self, breaker: Breaker) -> None:
        del self._known[breaker.id]
        for parts, key in _places(breaker):
            shape = next(s for s in self._shapes if s.parts == parts)
            shape.remove(key, breaker)
            if not shape.by_value:
                self._shapes = tuple(s for s in self._shapes if s is not shape)
            if shape.names_args:
                self._ask_no_more_for(shape, breaker)

    def _ask_for(self, shape: _Shape, breaker: Breaker) -> None:
        """Know a breaker over certain arguments by the rest of its scope."""
        parts = shape.parts_but_args
        rest = next((s for s in self._of_args if s.parts == parts), None)
        if rest is None:
            rest = _Shape(parts)
            self._of_args = (*self._of_args, rest)
        rest.put(_key(parts, breaker.scope), breaker)

    def _ask_no_more_for(self, shape: _Shape, breaker: Breaker) -> None:
        rest = next(s for s in self._of_args if s.parts == shape.parts_but_args)
        rest.remove(_key(rest.parts, breaker.scope), breaker)
        if not rest.by_value:
            self._of_args = tuple(s for s in self._of_args if s is not rest)


def decide(covering: list[Breaker]) -> tuple[Breaker | None, Breaker | None]:
    """Choose among the breakers that cover a call: which one decides, and which one holds others closed.

    A forced-closed one takes away every open and half-open one of equal or wider scope. Of the open and
    forced-open ones that are left the strongest decides (of equal ones the forced one, then the narrower);
    without any, the strongest half-open one.
    """
    held = [b for b in covering if b.state == FORCED_CLOSED]
    override: Breaker | None = None
    refusing: list[Breaker] = []
    half_open: list[Breaker] = []
    for breaker in covering:
        if breaker.state == FORCED_OPEN:
            refusing.append(breaker)
        elif breaker.state in (OPEN, HALF_OPEN):
            meant = [by for by in held if _contains(breaker, by)]
            if meant:
                override = min(meant, key=lambda by: (by.wide, by.id))
            elif breaker.state == OPEN:
                refusing.append(breaker)
            else:
                half_open.append(breaker)
    if refusing or half_open:
        return max(refusing or half_open, key=_rank), None
    return None, override


def _rank(breaker: Breaker) -> tuple[int, bool, int, str]:
    return breaker.rank, breaker.state == FORCED_OPEN, -breaker.wide, breaker.id


def _contains(wide: Breaker, narrow: Breaker) -> bool:
    """Tell whether every call that `narrow` covers is covered by `wide`."""
    return all(
        mine is None or mine == theirs or (part == AGENT and _versions_of(mine, theirs))
        for part, (mine, theirs) in enumerate(zip(wide.scope, narrow.scope))
    )


def _versions_of(wide: str, narrow: str | None) -> bool:
    return narrow is not None and "@" not in wide and narrow.startswith(f"{wide}@")


def _places(breaker: Breaker) -> list[tuple[tuple[int, ...], Any]]:
    """Where a breaker stands: the parts that its scope names, and their values."""
    parts = tuple(i for i, value in enumerate(breaker.scope) if value is not None)
    key = _key(parts, breaker.scope)
    agent = breaker.scope[AGENT]
    if agent is None or "@" not in agent:
        return [(parts, key)]
    versioned = tuple(_VERSIONED if part == AGENT else part for part in parts)
    return [(parts, key), (versioned, key)]


def _key(parts: tuple[int, ...], scope: tuple[str | None, ...]) -> Any:
    values = tuple(scope[AGENT if part == _VERSIONED else part] for part in parts)
    return values[0] if len(values) == 1 else values
