"""Calls that one session made more than once, and how often they brought back the same."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from detectors.excerpts import shown
from detectors.notes_paths import ARGUMENT_CHARS

if TYPE_CHECKING:
    from collector.step import Json
    from detectors.reading import Reading

KEPT: Final = 24

_Row: TypeAlias = "tuple[Any, ...]"


class Repeats:
    """See the module. Rows are in the order of `detectors.notes.Repeat`, the most recent call last.

    The least recent call that was made once goes when there are too many. Rows are plain tuples, because
    those of numbers and texts are not walked through in the search for garbage.
    """

    __slots__ = ("_once", "_rows")

    def __init__(self, rows: Iterable[Iterable[Any]] = ()) -> None:
        self._rows: dict[int, _Row] = {}  # of calls that were made again
        self._once: dict[int, _Row] = {}
        for told in rows:
            row = tuple(told)
            (self._once if row[3] == 1 else self._rows)[int(row[0], 16)] = row[1:]

    def __len__(self) -> int:
        return len(self._rows) + len(self._once)

    def add(self, reading: Reading, number: int, last_user_ns: int) -> None:
        """Take a call in, the session's call `number`."""
        step, signature, information = reading.step, reading.call.signature, reading.information
        step_id, span_id, start_ns, end_ns = step.step_id, step.span_id, step.start_ns, step.end_ns
        row = self._once.pop(signature, None) or self._rows.pop(signature, None)
        if row is None:
            self._once[signature] = (
                *(step.tool, "", 1, 1, reading.went_wrong, start_ns, end_ns, information),
                *(start_ns, number, step_id, span_id, number, step_id, span_id),
            )
            if len(self._once) + len(self._rows) > KEPT:
                self._bound()
            return
        tool, arguments, times, same, _, first_ns, last_ns, before, *run = row
        if before == information and last_ns >= last_user_ns:
            same, run = same + 1, run[:4]
        else:
            same, run = 1, [start_ns, number, step_id, span_id]
        self._rows[signature] = (
            *(tool, arguments or shown(step.arguments, ARGUMENT_CHARS), times + 1, same),
            *(reading.went_wrong, first_ns, end_ns, information, *run, number, step_id, span_id),
        )

    def absorb(self, past: Repeats) -> None:
        """Take over the calls that were made before under another name, if they were not made since."""
        self._rows = {**past._rows, **self._rows}
        self._once = {
            signature: row
            for signature, row in {**past._once, **self._once}.items()
            if signature not in self._rows
        }
        self._bound()

    def state(self) -> list[Json]:
        """All rows."""
        return [
            [f"{signature:016x}", *row]
            for rows in (self._once, self._rows)
            for signature, row in rows.items()
        ]

    def _bound(self) -> None:
        while len(self) > KEPT:
            rows = self._once or self._rows
            del rows[next(iter(rows))]
