"""Perturbations: attempts at one thing with other arguments, each with the same outcome."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from detectors.churn import Churn
from detectors.streaks import SPANS_KEPT, Mark, Reported, Spent

if TYPE_CHECKING:
    from collector.step import Json

SIGNATURES_KEPT: Final = 32
_NAMED_KEPT: Final = 32
TRIES_KEPT: Final = 12
"""Over how many of a tool's latest perturbations its hit rate is taken."""


@dataclass(slots=True)
class Tries:
    """How the latest perturbations of one tool went: 1 a hit, 0 a miss."""

    failing: bool = False
    outcomes: list[int] = field(default_factory=list)

    def add(self, *, hit: bool) -> None:
        """Take in one more."""
        self.outcomes = [*self.outcomes, int(hit)][-TRIES_KEPT:]

    def rate(self) -> float:
        """The share of hits, 0 to 1; 0 for none."""
        return sum(self.outcomes) / len(self.outcomes) if self.outcomes else 0.0


@dataclass(slots=True)
class Perturbed:
    """Attempts with one outcome: one error family, or one information.

    `tried` holds the distinct calls of the streak and `count` its attempts; `since` and `recent` are the same
    since the last diagnosis or new information. `named` is what the error named so far, `low` the fewest
    things that it counted. `attempt` and `turn` are the place of the latest one, `turns` those of the latest
    few; `row` is how many came back to back, of whatever arguments.
    """

    first: Mark
    onset: Spent
    attempt: int
    turn: int
    churn: Churn
    since: list[int] = field(default_factory=list)
    count: int = 0
    recent: int = 0
    tried: list[int] = field(default_factory=list)
    named: list[int] = field(default_factory=list)
    low: int | None = None
    template: str = ""
    row: int = 0
    turns: list[int] = field(default_factory=list)
    spans: list[str] = field(default_factory=list)
    reported: Reported = field(default_factory=Reported)

    def names_more(self, named: tuple[int, ...], amount: int | None) -> bool:
        """Take in what an error names and counts; tell whether it named something new, or counted fewer."""
        new = [what for what in named if what not in self.named]
        first = not self.count
        self.named = [*self.named, *new][-_NAMED_KEPT:]
        lower = amount is not None and (self.low is None or amount < self.low)
        if lower:
            self.low = amount
        return not first and (bool(new) or lower)

    def add(self, signature: int, arguments: Json, mark: Mark) -> None:
        """Take in one attempt."""
        self.count += 1
        self.recent += 1
        if signature not in self.since:
            self.since = [*self.since, signature][-SIGNATURES_KEPT:]
        if signature not in self.tried:
            self.tried = [*self.tried, signature][-SIGNATURES_KEPT:]
        self.churn.add(arguments)
        self.spans.append(mark.span_id)
        if len(self.spans) > SPANS_KEPT:
            del self.spans[SPANS_KEPT // 2]

    def within(self, turns: int) -> int:
        """How many of the latest attempts lie within so many turns, up to the latest; take that one in."""
        kept = [turn for turn in self.turns if self.turn - turn < turns][-TRIES_KEPT:]
        self.turns = [*kept, self.turn]
        return len(self.turns)

    def begin_anew(self) -> None:
        """Something was learned: what follows is counted from here."""
        self.since = []
        self.recent = 0

    def json(self) -> Json:
        """The streak for a checkpoint; `load` reads it."""
        return [
            list(self.first),
            list(self.onset),
            self.attempt,
            self.turn,
            self.churn.json(),
            list(self.since),
            self.count,
            self.recent,
            list(self.tried),
            list(self.named),
            self.low,
            self.template,
            self.row,
            list(self.turns),
            list(self.spans),
            [self.reported.rank, self.reported.next_count, self.reported.revision],
        ]

    @staticmethod
    def load(state: Any) -> Perturbed:  # noqa: ANN401 - JSON that `json` wrote
        """Read what `json` wrote."""
        return Perturbed(
            Mark(*state[0]),
            Spent(*state[1]),
            state[2],
            state[3],
            Churn.load(state[4]),
            list(state[5]),
            state[6],
            state[7],
            list(state[8]),
            list(state[9]),
            state[10],
            state[11],
            state[12],
            list(state[13]),
            list(state[14]),
            Reported(*state[15]),
        )
