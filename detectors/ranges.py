"""Ranged reads: which parts of a resource have been read, so that reading them again is seen as such.

No result of a sweep at shifted offsets equals an earlier one, and yet nothing in it is new. The first pass
over a resource is free, whatever its length.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from detectors.scope import Recent
from detectors.signature import normal_name
from detectors.streaks import Mark, Reported, Spent

if TYPE_CHECKING:
    from collector.step import Json

RESOURCES_KEPT = 16
INTERVALS_KEPT = 64
_MOSTLY = 0.8
_STARTS = frozenset({"offset", "start", "startline", "linestart", "fromline", "begin", "startlineoneindexed"})
_ENDS = frozenset({"end", "endline", "lineend", "toline", "endlineoneindexedinclusive"})
_LENGTHS = frozenset({"limit", "length", "count", "numlines", "maxlines", "lines"})
_PAIRS = frozenset({"viewrange", "range", "linerange"})
_BEGIN = _STARTS | _PAIRS


class Range(NamedTuple):
    """What part of a resource a call asks for.

    From `start` to `end`, the end excluded; `rest` are the other arguments, which name the resource.
    """

    start: int
    end: int
    rest: dict[str, Json]


def range_of(arguments: Json) -> Range | None:
    """Read a range out of a call's arguments.

    >>> range_of({"path": "a", "offset": 41, "limit": 40})
    Range(start=41, end=81, rest={'path': 'a'})
    >>> range_of({"path": "a", "start_line": 1, "end_line": "40"})
    Range(start=1, end=41, rest={'path': 'a'})
    >>> range_of({"path": "a"}) is None
    True
    """
    if not isinstance(arguments, Mapping) or len(arguments) < 2:  # noqa: PLR2004 - a resource and a range
        return None
    if not any(normal_name(key) in _BEGIN for key in arguments):
        return None
    start = end = length = None
    rest: dict[str, Json] = {}
    for key, value in arguments.items():
        name = normal_name(key)
        if name in _STARTS:
            start = _integer(value)
        elif name in _ENDS:
            end = _integer(value)
        elif name in _LENGTHS:
            length = _integer(value)
        elif name in _PAIRS and isinstance(value, list) and len(value) == 2:  # noqa: PLR2004 - from, to
            start, end = _integer(value[0]), _integer(value[1])
        else:
            rest[key] = value
    if start is None or not rest:
        return None
    if end is not None:
        return Range(start, end + 1, rest) if end >= start else None
    return Range(start, start + length, rest) if length is not None and length > 0 else None


def _integer(value: Json) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str) and len(value) < 10 and value.isdecimal():  # noqa: PLR2004 - no line number is longer
        return int(value)
    return None


@dataclass(slots=True)
class Sweep:
    """What of one resource was read, and the reads in a row that brought nothing of it that was new."""

    intervals: list[tuple[int, int]] = field(default_factory=list)
    again: int = 0
    last_call: int = 0
    turn: int = 0
    first: Mark | None = None
    onset: Spent = field(default_factory=Spent)
    reported: Reported = field(default_factory=Reported)

    def covered(self, start: int, end: int) -> float:
        """The share of a range that was read before, 0 to 1."""
        inside = sum(max(0, min(end, high) - max(start, low)) for low, high in self.intervals)
        return inside / (end - start)

    def cover(self, start: int, end: int) -> None:
        """Add a range; what overlaps or touches becomes one."""
        merged: list[tuple[int, int]] = []
        for low, high in self.intervals:
            if high < start or low > end:
                merged.append((low, high))
            else:
                start, end = min(start, low), max(end, high)
        merged.append((start, end))
        self.intervals = sorted(merged)[-INTERVALS_KEPT:]


class Ranges:
    """The sweeps of one scope, by resource."""

    __slots__ = ("_sweeps", "turn")

    def __init__(self) -> None:
        self.turn = 0
        self._sweeps = Recent[int, Sweep](RESOURCES_KEPT)

    def clear(self) -> None:
        """Something changed: what was read may read otherwise now."""
        self._sweeps.clear()

    def read(self, resource: int, asked: Range, call: int) -> Sweep | None:
        """Take a read in; return its sweep when nothing of it was new, without `first` when it begins a row.

        `call` is the signature of the call: the same read twice is a repeat, not a sweep. Other calls in
        between end a row of reads: `turn` tells, which the owner keeps up to date.
        """
        turn = self.turn
        sweep = self._sweeps.touch(resource)
        if sweep is None:
            sweep = Sweep()
            self._sweeps.put(resource, sweep)
        new = sweep.covered(asked.start, asked.end) < _MOSTLY
        in_a_row = turn - sweep.turn <= 2  # noqa: PLR2004 - one stranger is no interruption
        sweep.cover(asked.start, asked.end)
        sweep.turn = turn
        if sweep.last_call == call:
            return None
        sweep.last_call = call
        if new or not in_a_row:
            sweep.again, sweep.first, sweep.reported = 0, None, Reported()
        if new:
            return None
        sweep.again += 1
        return sweep

    def json(self) -> Json:
        """The sweeps for a checkpoint."""
        return [
            [
                resource,
                [list(interval) for interval in sweep.intervals],
                sweep.again,
                sweep.last_call,
                sweep.turn,
                list(sweep.first) if sweep.first is not None else None,
                list(sweep.onset),
                [sweep.reported.rank, sweep.reported.next_count, sweep.reported.revision],
            ]
            for resource, sweep in self._sweeps.items()
        ]

    @staticmethod
    def load(state: Any) -> Ranges:  # noqa: ANN401 - JSON that `json` wrote
        """Read what `json` wrote."""
        ranges = Ranges()
        for resource, intervals, again, last_call, turn, first, onset, said in state:
            sweep = Sweep([(low, high) for low, high in intervals], again, last_call, turn)
            sweep.first = Mark(*first) if first is not None else None
            sweep.onset, sweep.reported = Spent(*onset), Reported(*said)
            ranges._sweeps.put(resource, sweep)
        return ranges
