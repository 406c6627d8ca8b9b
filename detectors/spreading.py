"""What the parts of the cascade detector have in common: a root, what came of it, and how far it has got."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from detectors.streaks import SPANS_KEPT, Mark, Spent

if TYPE_CHECKING:
    from collector.step import Json, Step

STEPS_KEPT = 12
"""How many steps that came of a root are named: the first half and the last half."""
EXCERPT_CHARS = 80


class Before(NamedTuple):
    """What was known when a step came: the last call that went well, and what had been spent."""

    clean: str
    spent: Spent


@dataclass(slots=True)
class Root:
    """A step that others may have come of.

    `clean` is the id of the last step before it that went well; `steps` and `spans` are what came of it.
    """

    first: Mark
    agent: str
    excerpt: str
    clean: str
    onset: Spent
    spans: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)

    @staticmethod
    def of(step: Step, text: str, before: Before) -> Root:
        """A root that nothing has come of yet."""
        return Root(
            Mark.of(step), step.agent or "", excerpt(text), before.clean, before.spent, [step.span_id]
        )

    def add(self, step: Step) -> None:
        """Take a step in as one that came of it."""
        _keep(self.spans, step.span_id, SPANS_KEPT)
        _keep(self.steps, step.step_id, STEPS_KEPT)

    def json(self) -> Json:
        """For a checkpoint; `load` reads it."""
        return [
            list(self.first),
            self.agent,
            self.excerpt,
            self.clean,
            list(self.onset),
            list(self.spans),
            list(self.steps),
        ]

    @staticmethod
    def load(state: Any) -> Root:  # noqa: ANN401 - JSON that `json` wrote
        """Read what `json` wrote."""
        first, agent, text, clean, onset, spans, steps = state
        return Root(Mark(*first), agent, text, clean, Spent(*onset), list(spans), list(steps))


@dataclass(frozen=True, slots=True)
class Spread:
    """A cascade as far as it has got: what the detector makes a finding of.

    `rule` names the shape; `rank` is a severity's, `count` what was compared with `threshold`; `told` is
    evidence of its own, `resets` what would have ended it.
    """

    rule: str
    root: Root
    rank: int
    count: int
    threshold: int
    summary: str
    told: dict[str, Json]
    resets: tuple[str, ...]


def excerpt(text: str) -> str:
    r"""The beginning of a text on one line.

    >>> excerpt("a\n  b")
    'a b'
    """
    return " ".join(text[: 4 * EXCERPT_CHARS].split())[:EXCERPT_CHARS]


def _keep(kept: list[str], more: str, limit: int) -> None:
    kept.append(more)
    if len(kept) > limit:
        del kept[limit // 2]
