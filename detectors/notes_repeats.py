"""Calls that one session made more than once, and how often they brought back the same."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from detectors.excerpts import shown
from detectors.notes_paths import ARGUMENT_CHARS

if TYPE_CHECKING:
    from collector.step import Json
    from detectors.reading import Reading

KEPT: Final = 24
_ARGUMENTS, _TIMES, _SAME, _FAILED, _LAST_NS, _INFORMATION, _RUN, _LAST = 2, 3, 4, 5, 7, 8, 9, 13


class Repeats:
    """See the module. Rows are lists in the order of `detectors.notes.Repeat`, the most recent call last.

    The least recent call that was made once goes when there are too many.
    """

    __slots__ = ("_rows",)

    def __init__(self, rows: Iterable[list[Any]] = ()) -> None:
        self._rows: dict[str, list[Any]] = {row[0]: row for row in rows}

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, reading: Reading, signature: str, number: int, last_user_ns: int) -> None:
        """Take a call in, the session's call `number`."""
        step, information = reading.step, reading.information
        run = [step.start_ns, number, step.step_id, step.span_id]
        last = [number, step.step_id, step.span_id]
        failed = reading.went_wrong
        row = self._rows.pop(signature, None)
        if row is None:
            head = [signature, step.tool or "", "", 1, 1, failed, step.start_ns, step.end_ns, information]
            self._rows[signature] = [*head, *run, *last]
            self._bound()
            return
        same = row[_INFORMATION] == information and row[_LAST_NS] >= last_user_ns
        row[_ARGUMENTS] = row[_ARGUMENTS] or shown(step.arguments, ARGUMENT_CHARS)
        row[_TIMES] += 1
        row[_SAME] = row[_SAME] + 1 if same else 1
        row[_FAILED], row[_LAST_NS], row[_INFORMATION] = failed, step.end_ns, information
        if not same:
            row[_RUN:_LAST] = run
        row[_LAST:] = last
        self._rows[signature] = row

    def absorb(self, past: Repeats) -> None:
        """Take over the calls that were made before under another name, if they were not made since."""
        self._rows = {**past._rows, **self._rows}
        self._bound()

    def state(self) -> list[Json]:
        """All rows."""
        return list(self._rows.values())

    def _bound(self) -> None:
        while len(self._rows) > KEPT:
            once = next((name for name, row in self._rows.items() if row[_TIMES] == 1), None)
            del self._rows[once if once is not None else next(iter(self._rows))]
