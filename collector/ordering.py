"""The window in which records wait for those that belong before them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from collector.conventions.observation import Observation, Telling

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
    `chronological`, together with everything that is still waiting and ended before it.
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
        border = now_ns - self.hold_ns
        if self.waiting[0][0] > border and len(self.waiting) <= self.limit:
            return []
        old = [observation for arrived, observation in self.waiting if arrived <= border]
        if len(self.waiting) - len(old) > self.limit:
            return self.all()
        latest: dict[str, int] = {}
        for observation in old:
            latest[observation.process] = max(latest.get(observation.process, 0), observation.end_ns)
        out = old
        keep = []
        for arrived, observation in self.waiting:
            if arrived > border:
                if observation.end_ns <= latest.get(observation.process, 0):
                    out.append(observation)
                else:
                    keep.append((arrived, observation))
        self.waiting = keep
        out.sort(key=chronological)
        return out

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
