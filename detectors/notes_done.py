"""What one session did to the world: calls that worked and changed something, the gravest ones kept."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from detectors.excerpts import shown
from detectors.notes import SideEffect
from detectors.notes_paths import ARGUMENT_CHARS
from detectors.role import Role
from detectors.side_effects import Level, effect_of, idempotency_key

if TYPE_CHECKING:
    from collector.step import Json, ToolDefinition
    from detectors.reading import Reading

KEPT: Final = 24
_QUERY: Final = re.compile(
    r"(?is)\s*(?:select|show|desc|describe|explain)\b(?!.*\binto\s+(?:out|dump)file\b)[^;]*;?\s*"
)
_QUERY_KEYS: Final = ("query", "sql", "statement", "command", "cmd", "code")
CHANGE: Final = "change"


class Done:
    """See the module. `forgotten` counts those that went for lack of room: mere changes before all others."""

    __slots__ = ("_done", "forgotten")

    def __init__(self, done: Iterable[SideEffect] = (), forgotten: int = 0) -> None:
        self._done = {(one.tool, one.level, one.arguments): one for one in done}
        self.forgotten = forgotten

    def __len__(self) -> int:
        return len(self._done)

    def __iter__(self) -> Iterator[SideEffect]:
        return iter(self._done.values())

    def worked(self, reading: Reading, number: int, definition: ToolDefinition | None) -> bool:
        """Take a call in that worked; tell whether it did something to the world."""
        tool = reading.step.tool or ""
        effect = effect_of(tool, reading.policy, definition)
        if effect.level is not Level.READ:
            self._add(reading, number, effect.level.value, effect.source)
        elif reading.role is Role.CHANGE and not (definition is not None and definition.read_only):
            self._add(reading, number, CHANGE, "inferred")
        else:
            return False
        return True

    def absorb(self, past: Done) -> None:
        """Take over what was done before under another name."""
        for key, one in past._done.items():
            known = self._done.get(key)
            if known is None:
                self._done[key] = one
            else:
                self._done[key] = replace(
                    known,
                    count=known.count + one.count,
                    first_ns=min(known.first_ns, one.first_ns),
                    keyed=known.keyed and one.keyed,
                )
        self.forgotten += past.forgotten
        self._bound()

    def _add(self, reading: Reading, number: int, level: str, source: str) -> None:
        step = reading.step
        tool, arguments = step.tool or "", shown(step.arguments, ARGUMENT_CHARS)
        keyed = idempotency_key(step.arguments) is not None
        known = self._done.get((tool, level, arguments))
        if known is not None:
            self._done[tool, level, arguments] = replace(
                known, count=known.count + 1, last_ns=step.end_ns, keyed=known.keyed and keyed
            )
            return
        self._done[tool, level, arguments] = SideEffect(
            tool=tool,
            level=level,
            source=source,
            arguments=arguments,
            count=1,
            first_ns=step.start_ns,
            last_ns=step.end_ns,
            first_number=number,
            step_id=step.step_id,
            span_id=step.span_id,
            keyed=keyed,
        )
        self._bound()

    def _bound(self) -> None:
        while len(self._done) > KEPT:
            weakest = min(self._done, key=lambda key: (key[1] != CHANGE, self._done[key].last_ns))
            del self._done[weakest]
            self.forgotten += 1


def only_asks(arguments: Json) -> bool:
    """Tell whether a call's arguments are one question in SQL, which changes nothing.

    >>> only_asks({"command": "SELECT a FROM b;"}), only_asks({"sql": "select 1; drop table b"})
    (True, False)
    """
    if isinstance(arguments, str):
        return _QUERY.fullmatch(arguments) is not None
    if not isinstance(arguments, Mapping):
        return False
    told = next((arguments[key] for key in _QUERY_KEYS if key in arguments), None)
    return isinstance(told, str) and _QUERY.fullmatch(told) is not None
