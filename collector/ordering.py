"""The window in which records wait for those that belong before them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from collector.conventions.observation import Observation, Telling
from collector.weighing import weight_of_observation

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


def scopes_of(observation: Observation) -> tuple[str, ...]:
    """What a record has to be in order with: its trace, its session; its process when that is its session."""
    trace, session = observation.trace_id, observation.session
    if session:
        return (trace, f"s:{session}") if trace else (f"s:{session}",)
    alone = observation.is_log or (
        not observation.parent_span_id and observation.telling in (Telling.MODEL, Telling.TOOL)
    )
    if trace:
        return (trace, f"p:{observation.process}") if alone else (trace,)
    return (f"p:{observation.process}",)


@dataclass(frozen=True, slots=True)
class Held:
    """A record that waits: since when by the reader's clock, its size in bytes, what it is in order with."""

    arrived_ns: int
    end_ns: int
    weight: int
    scopes: tuple[str, ...]
    observation: Observation


@dataclass(slots=True)
class Window:
    """Records that arrived less than `hold_ns` ago; None holds them until `limit` or until all are wanted.

    Times of arrival are the reader's clock in nanoseconds and never go back. What leaves the window leaves in
    the order of `chronological`, together with everything of its scopes that is still waiting and ended
    before it. Looking costs as much as there is waiting: it is done once for all that arrived within a tenth
    of `hold_ns`, by the clock's own tenths, so that it depends on nothing but what came when. More than
    `limit` records, or `max_bytes` by estimate, do not wait.
    """

    hold_ns: int | None
    limit: int
    max_bytes: int
    waiting: list[Held] = field(default_factory=list)
    weight: int = 0
    overflowed: int = 0

    def add(self, observation: Observation, now_ns: int) -> None:
        """Let a record wait."""
        weight = weight_of_observation(observation)
        self.weight += weight
        self.waiting.append(Held(now_ns, observation.end_ns, weight, scopes_of(observation), observation))

    @property
    def full(self) -> bool:
        """Whether more waits than may."""
        return len(self.waiting) > self.limit or self.weight > self.max_bytes

    def due_ns(self) -> int | None:
        """When the next records leave; None when none will by themselves."""
        if self.hold_ns is None or not self.waiting:
            return None
        tick_ns = self._tick_ns(self.hold_ns)
        return -(-self.waiting[0].arrived_ns // tick_ns) * tick_ns + self.hold_ns

    def due(self, now_ns: int) -> list[Observation]:
        """Let out what has waited long enough."""
        if self.hold_ns is None:
            return []
        tick_ns = self._tick_ns(self.hold_ns)
        border = (now_ns - self.hold_ns) // tick_ns * tick_ns
        old = [held for held in self.waiting if held.arrived_ns <= border]
        young = [held for held in self.waiting if held.arrived_ns > border]
        before, young = _ended_before(old, young)
        return self._let_out(old + before, young)

    def overflow(self) -> list[Observation]:
        """Let out the older half, by traces so that none is torn; everything when that takes time anyway."""
        self.overflowed += 1
        if self.hold_ns is not None:
            return self.all()
        half = {
            held.observation.trace_id or held.observation.process
            for held in self.waiting[: (min(self.limit, len(self.waiting)) + 1) // 2]
        }
        out: list[Held] = []
        rest: list[Held] = []
        for held in self.waiting:
            gone = (held.observation.trace_id or held.observation.process) in half
            (out if gone else rest).append(held)
        return self._let_out(out, rest)

    def all(self) -> list[Observation]:
        """Let out everything."""
        return self._let_out(self.waiting, [])

    def restore(self, waiting: list[Held]) -> None:
        """Let records wait that waited before."""
        self.waiting = waiting
        self.weight = sum(held.weight for held in waiting)

    @staticmethod
    def _tick_ns(hold_ns: int) -> int:
        return max(1, hold_ns // TICKS)

    def _let_out(self, out: list[Held], rest: list[Held]) -> list[Observation]:
        self.waiting = rest
        self.weight -= sum([held.weight for held in out])
        return sorted([held.observation for held in out], key=chronological)


def _ended_before(old: list[Held], young: list[Held]) -> tuple[list[Held], list[Held]]:
    """Part the young: those that ended before something old (or something that goes with it), the others."""
    newest = max((held.end_ns for held in old), default=0)
    candidates = [held for held in young if held.end_ns <= newest]
    if not candidates:
        return [], young
    latest: dict[str, int] = {}
    for held in old:
        _note(latest, held)
    candidates.sort(key=lambda held: held.end_ns, reverse=True)  # so that one look finds all
    before: list[Held] = []
    for held in candidates:
        if any(held.end_ns <= latest.get(scope, -1) for scope in held.scopes):
            _note(latest, held)
            before.append(held)
    gone = {id(held) for held in before}
    return before, [held for held in young if id(held) not in gone]


def _note(latest: dict[str, int], held: Held) -> None:
    for scope in held.scopes:
        if held.end_ns > latest.get(scope, -1):
            latest[scope] = held.end_ns
