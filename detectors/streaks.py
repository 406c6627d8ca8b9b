"""A streak: occurrences of one call with one information, and what was said of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collector.step import Json, Step

N = TypeVar("N", int, float)

SPANS_KEPT = 8
"""How many span ids a finding shows: the first half and the last half of its streak."""
FIRST_DOUBLING = 8
"""The count from which a streak that goes on is reported again, at every doubling."""


class Mark(NamedTuple):
    """One step as evidence: what a finding says of it."""

    step_id: str
    span_id: str
    start_ns: int
    tool: str

    @staticmethod
    def of(step: Step) -> Mark:
        """What is kept of a step."""
        return Mark(step.step_id, step.span_id, step.start_ns, step.tool or "")


class Spent(NamedTuple):
    """What a scope has used so far: tool calls, tokens (None: none told yet), US dollars."""

    calls: int = 0
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None

    def plus_call(self) -> Spent:
        """Add a tool call."""
        return Spent(self.calls + 1, self.input_tokens, self.output_tokens, self.cost_usd)

    def plus_model(self, step: Step) -> Spent:
        """Add what a model call used."""
        usage = step.usage
        return Spent(
            self.calls,
            _plus(self.input_tokens, usage.input_tokens),
            _plus(self.output_tokens, usage.output_tokens),
            _plus(self.cost_usd, step.cost_usd),
        )

    def since(self, onset: Spent) -> dict[str, Json]:
        """What was used since `onset`, without what was not told."""
        used: dict[str, Json] = {"calls": self.calls - onset.calls}
        if self.input_tokens is not None:
            used["input_tokens"] = self.input_tokens - (onset.input_tokens or 0)
        if self.output_tokens is not None:
            used["output_tokens"] = self.output_tokens - (onset.output_tokens or 0)
        if self.cost_usd is not None:
            used["cost_usd"] = round(self.cost_usd - (onset.cost_usd or 0.0), 6)
        return used


def _plus(total: N | None, more: N | None) -> N | None:
    return total if more is None else more if total is None else total + more


@dataclass(slots=True)
class Reported:
    """What was said of a streak already: the highest rank of severity, and the revision."""

    rank: int = -1
    next_count: int = FIRST_DOUBLING
    revision: int = -1

    def due(self, rank: int, count: int) -> bool:
        """Tell whether this severity or count is worth a (further) finding, and remember it as said.

        >>> said = Reported()
        >>> [said.due(rank, count) for rank, count in ((-1, 2), (0, 3), (0, 4), (2, 5), (2, 8), (2, 9))]
        [False, True, False, True, True, False]
        """
        if rank < 0 or not (rank > self.rank or count >= self.next_count):
            return False
        self.rank = max(self.rank, rank)
        while self.next_count <= count:
            self.next_count *= 2
        self.revision += 1
        return True

    def json(self) -> list[Json]:
        """What was said, for a checkpoint: `Reported(*state)` reads it."""
        return [self.rank, self.next_count, self.revision]


@dataclass(slots=True)
class Streak:
    """Occurrences of one call with one information.

    `flags` are those of the latest occurrence, `attempt` and `turn` its place, `idle_ns` the scope's idle
    time when it came. `foreign` counts the attempts of other calls in between, `unknown` the occurrences
    without a recorded result.
    """

    information: int
    flags: int
    first: Mark
    onset: Spent
    attempt: int
    turn: int
    idle_ns: int
    idle_at_first_ns: int
    unknown: int = 0
    count: int = 1
    foreign: int = 0
    longest_gap_ns: int = 0
    spans: list[str] = field(default_factory=list)
    reported: Reported | None = None

    def said(self) -> Reported:
        """What was said of it, to be added to."""
        if self.reported is None:
            self.reported = Reported()
        return self.reported

    def keep(self, span_id: str) -> None:
        """Add the span of an occurrence to the evidence."""
        if not self.spans:
            self.spans.append(self.first.span_id)
        self.spans.append(span_id)
        if len(self.spans) > SPANS_KEPT:
            del self.spans[SPANS_KEPT // 2]

    def json(self) -> Json:
        """The streak for a checkpoint; `load` reads it."""
        said = self.reported
        return [
            self.information,
            self.flags,
            list(self.first),
            list(self.onset),
            self.attempt,
            self.turn,
            self.idle_ns,
            self.idle_at_first_ns,
            self.unknown,
            self.count,
            self.foreign,
            self.longest_gap_ns,
            list(self.spans),
            None if said is None else said.json(),
        ]

    @staticmethod
    def load(state: Any) -> Streak:  # noqa: ANN401 - JSON that `json` wrote
        """Read what `json` wrote."""
        streak = Streak(state[0], state[1], Mark(*state[2]), Spent(*state[3]), *state[4:12])
        streak.spans = list(state[12])
        streak.reported = None if state[13] is None else Reported(*state[13])
        return streak
