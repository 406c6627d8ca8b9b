"""Repetition of a sequence: how many laps of the same two to six attempts have just been made."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from detectors.streaks import Mark, Reported, Spent

if TYPE_CHECKING:
    from collector.step import Json

PERIODS = range(2, 7)
_MASK = 2**64 - 1


@dataclass(slots=True)
class Attempt:
    """The calls of one model message, as one element of a sequence.

    `signature` does not depend on their order; `any_flags` and `all_flags` are what holds for some and for
    all.
    """

    signature: int
    any_flags: int
    all_flags: int
    first: Mark

    def json(self) -> Json:
        """The attempt for a checkpoint."""
        return [self.signature, self.any_flags, self.all_flags, list(self.first)]

    @staticmethod
    def load(state: Any) -> Attempt:  # noqa: ANN401 - JSON that `json` wrote
        """Read what `json` wrote."""
        return Attempt(state[0], state[1], state[2], Mark(*state[3]))


@dataclass(slots=True)
class Cycle:
    """How many attempts in a row have equalled the one `period` attempts before them."""

    run: int
    first: Mark
    onset: Spent
    reported: Reported = field(default_factory=Reported)

    def json(self) -> Json:
        """The cycle for a checkpoint."""
        said = self.reported
        return [self.run, list(self.first), list(self.onset), [said.rank, said.next_count, said.revision]]

    @staticmethod
    def load(state: Any) -> Cycle:  # noqa: ANN401 - JSON that `json` wrote
        """Read what `json` wrote."""
        return Cycle(state[0], Mark(*state[1]), Spent(*state[2]), Reported(*state[3]))


class Laps(NamedTuple):
    """The sequence right now: `attempts` that go round in `lap`, whose state is `cycle`."""

    attempts: int
    lap: list[Attempt]
    cycle: Cycle


class Cycles:
    """Follows the attempts of one scope. State is the last six attempts and one counter a period."""

    __slots__ = ("_current", "_cycles", "_tail")

    def __init__(self) -> None:
        self._tail: deque[Attempt] = deque(maxlen=max(PERIODS))
        self._current: Attempt | None = None
        self._cycles: dict[int, Cycle] = {}

    def clear(self) -> None:
        """Forget the sequence."""
        self._tail.clear()
        self._cycles.clear()
        self._current = None

    def reported(self) -> bool:
        """Tell whether a cycle that goes on has been reported."""
        return any(cycle.reported.rank >= 0 for cycle in self._cycles.values())

    def close(self, onset: Spent) -> None:
        """The attempt is over: carry on, or end, what it continues at each period."""
        attempt, tail = self._current, self._tail
        if attempt is None:
            return
        signature, length = attempt.signature, len(tail)
        if not self._cycles and all(before.signature != signature for before in tail):
            tail.append(attempt)
            self._current = None
            return
        for period in PERIODS:
            if length >= period and tail[-period].signature == signature:
                cycle = self._cycles.get(period)
                if cycle is None:
                    self._cycles[period] = Cycle(1, tail[-period].first, onset)
                else:
                    cycle.run += 1
            elif period in self._cycles:
                del self._cycles[period]
        tail.append(attempt)
        self._current = None

    def add(self, signature: int, flags: int, mark: Mark) -> None:
        """Add a call to the attempt that is under way."""
        current = self._current
        if current is None:
            self._current = Attempt(signature, flags, flags, mark)
        elif current.signature != signature:
            current.signature = (current.signature + signature) & _MASK
            current.any_flags |= flags
            current.all_flags &= flags

    def laps(self, least: int) -> Laps | None:
        """At least `least` complete laps that the attempt under way continues, at the shortest period."""
        current, tail = self._current, self._tail
        if current is None or not self._cycles:
            return None
        for period, cycle in sorted(self._cycles.items()):
            attempts = cycle.run + 1 + period
            if attempts < least * period or tail[-period].signature != current.signature:
                continue
            lap = [*list(tail)[len(tail) - period + 1 :], current]
            if any(attempt.signature != current.signature for attempt in lap):
                return Laps(attempts, lap, cycle)
        return None

    def json(self) -> Json:
        """The sequence for a checkpoint."""
        return {
            "tail": [attempt.json() for attempt in self._tail],
            "current": self._current.json() if self._current is not None else None,
            "cycles": [[period, cycle.json()] for period, cycle in self._cycles.items()],
        }

    @staticmethod
    def load(state: Any) -> Cycles:  # noqa: ANN401 - JSON that `json` wrote
        """Read what `json` wrote."""
        cycles = Cycles()
        cycles._tail.extend(Attempt.load(attempt) for attempt in state["tail"])
        cycles._current = Attempt.load(state["current"]) if state["current"] is not None else None
        cycles._cycles = {period: Cycle.load(cycle) for period, cycle in state["cycles"]}
        return cycles
