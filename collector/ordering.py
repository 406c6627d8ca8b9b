"""The window in which records wait for those that belong before them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from collector.conventions.observation import Observation, Telling

TICKS: Final = 10
_RANK: Final = {Telling.AGENT: 0, Telling.MODEL: 1, Telling.COMPACTION: 1, Telling.USER: 1, Telling.TOOL: 2}


def chronological(observation: Observation) -> tuple[int, int, int, bool, int]:
    """A sorting key: what began first; of what began together, what contains the other."""
    return (
        observation.start_ns,
        -observation.end_ns,
        _RANK.get(observation.telling, 3),
        observation.is_log,
        observation.identity,
    )


@dataclass(slots=True)
class Window:
    """Records that arrived less than `hold_ns` ago; None holds them until `limit` or until all are wanted.

    Times of arrival are the caller's clock in nanoseconds. What leaves the window leaves in the order of
    `chronological`, together with everything of its process that is still waiting and ended before it.
    Looking costs as much as there is waiting: it is done once for all that arrived within a tenth of
    `hold_ns`, by the clock's own tenths, so that it depends on nothing that was not said.
    """

    hold_ns: int | None
    limit: int
    waiting: list[tuple[int, Observation]] = field(default_factory=list)
    overflowed: int = 0

    def add(self, observation: Observation, now_ns: int) -> None:
        """Let a record wait."""
        self.waiting.append((now_ns, observation))

    def due(self, now_ns: int) -> list[Observation]:
        """Let out what has waited long enough."""
        if not self.waiting:
            return []
        if self.hold_ns is None:
            return self._overflow()
        tick_ns = max(1, self.hold_ns // TICKS)
        border = (now_ns - self.hold_ns) // tick_ns * tick_ns
        if self.waiting[0][0] > border and len(self.waiting) <= self.limit:
            return []
        old = [observation for arrived, observation in self.waiting if arrived <= border]
        if len(self.waiting) - len(old) > self.limit:
            return self.all()
        latest: dict[str, int] = {}
        for observation in old:
            if observation.end_ns > latest.get(observation.process, 0):
                latest[observation.process] = observation.end_ns
        keep = []
        for pair in self.waiting:
            if pair[0] > border:
                observation = pair[1]
                if observation.end_ns <= latest.get(observation.process, 0):
                    old.append(observation)
                else:
                    keep.append(pair)
        self.waiting = keep
        old.sort(key=chronological)
        return old

    def _overflow(self) -> list[Observation]:
        """Holding everything has a limit too: then the older half goes, by traces so that none is torn."""
        if len(self.waiting) <= self.limit:
            return []
        self.overflowed += 1
        half = {
            observation.trace_id or observation.process for _, observation in self.waiting[: self.limit // 2]
        }
        out = [each for _, each in self.waiting if (each.trace_id or each.process) in half]
        self.waiting = [pair for pair in self.waiting if (pair[1].trace_id or pair[1].process) not in half]
        out.sort(key=chronological)
        return out

    def all(self) -> list[Observation]:
        """Let out everything."""
        out = [observation for _, observation in self.waiting]
        self.waiting = []
        out.sort(key=chronological)
        return out
