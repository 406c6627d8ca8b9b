"""Calls that one session made more than once, and how often they brought back the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from detectors.excerpts import shown
from detectors.notes_paths import ARGUMENT_CHARS

if TYPE_CHECKING:
    from collector.step import Json
    from detectors.reading import Reading

KEPT: Final = 16
END_NS, START_NS, AGENT, TOOL, SIGNATURE, OUTCOME, ERROR_CLASS, STEP_ID, SPAN_ID, NUMBER = range(10)
"""Where things are in a row of the latest calls: the order of `detectors.notes.Recent`."""

Row: TypeAlias = "tuple[Any, ...]"


class Repeats:
    """See the module. Rows are in the order of `detectors.notes.Repeat`, the most recent call last.

    A call is a repeat when it was made among the latest calls, or is a repeat already; the least recent
    repeat goes when there are too many. Calls that were made once are known by their row among the latest
    calls, and what they brought back.
    """

    __slots__ = ("_once", "_rows")

    def __init__(self, rows: Iterable[Sequence[Any]] = ()) -> None:
        self._rows: dict[int, Row] = {int(row[0], 16): tuple(row[1:]) for row in rows}
        self._once: dict[int, tuple[Row, int]] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, reading: Reading, call: Row, last_user_ns: int) -> None:
        """Take a call in, which is about to be among the latest ones."""
        signature, information = call[SIGNATURE], reading.information
        row = self._rows.pop(signature, None)
        if row is None:
            once = self._once.get(signature)
            if once is None:
                self._once[signature] = (call, information)
                return
            del self._once[signature]
            row = _begun(*once)
        tool, arguments, times, same, _, first_ns, last_ns, before, *run = row
        end_ns, start_ns, number, step_id, span_id = (
            call[END_NS],
            call[START_NS],
            call[NUMBER],
            call[STEP_ID],
            call[SPAN_ID],
        )
        if before == information and last_ns >= last_user_ns:
            same, run = same + 1, run[:4]
        else:
            same, run = 1, [start_ns, number, step_id, span_id]
        arguments = arguments or shown(reading.step.arguments, ARGUMENT_CHARS)
        self._rows[signature] = (
            *(tool, arguments, times + 1, same, reading.went_wrong, first_ns, end_ns, information),
            *(*run, number, step_id, span_id),
        )
        if len(self._rows) > KEPT:
            del self._rows[next(iter(self._rows))]

    def left(self, call: Row) -> None:
        """A call is not among the latest ones any more."""
        once = self._once.get(call[SIGNATURE])
        if once is not None and once[0] is call:
            del self._once[call[SIGNATURE]]

    def absorb(self, past: Repeats) -> None:
        """Take over the repeats of before under another name, if they were not made since."""
        rows = [*{**past._rows, **self._rows}.items()]
        self._rows = dict(rows[-KEPT:])
        self._once = {name: once for name, once in self._once.items() if name not in self._rows}

    def state(self) -> list[Json]:
        """All repeats."""
        return [[f"{signature:016x}", *row] for signature, row in self._rows.items()]

    def once(self) -> list[Json]:
        """The number of each call that was made once, and what it brought back."""
        return [[call[NUMBER], information] for call, information in self._once.values()]

    def know_once(self, told: Iterable[Sequence[int]], calls: Mapping[int, Row]) -> None:
        """Take over what `once` gave; `calls` are the latest ones by number."""
        for number, information in told:
            call = calls.get(number)
            if call is not None:
                self._once[call[SIGNATURE]] = (call, information)


def _begun(call: Row, information: int) -> Row:
    """A row of a call that was made once."""
    failed = call[ERROR_CLASS] is not None
    place = (call[NUMBER], call[STEP_ID], call[SPAN_ID])
    head = (call[TOOL], "", 1, 1, failed, call[START_NS], call[END_NS], information)
    return (*head, call[START_NS], *place, *place)
