"""Rounds of change and run: edits that differ, and the same failures after each of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from detectors.streaks import SPANS_KEPT, Mark, Reported, Spent

if TYPE_CHECKING:
    from collector.step import Json
    from detectors.failing_set import FailingSet

_SEEN_KEPT: Final = 8


@dataclass(slots=True)
class Rounds:
    """The runs of one operation, each after an edit, with failures that do not get fewer.

    `count` is the rounds since the last progress, `edits` the value of the scope's counter of edits at the
    latest run, `best` the fewest failures so far, `most` the most tests so far, `seen` the failing sets so
    far, `looks` how many diagnoses lay between, `text` the first run's output, 0 once another one came;
    `fails` is False for runs that do not fail and say the same of an error each time.
    """

    first: Mark
    onset: Spent
    edits: int
    best: int | None
    most: int
    seen: list[int]
    count: int = 0
    looks: int = 0
    text: int = 0
    fails: bool = True
    spans: list[str] = field(default_factory=list)
    reported: Reported = field(default_factory=Reported)

    def run(self, failing: FailingSet, edits: int, mark: Mark, spent: Spent) -> bool:
        """Take in a run that failed; tell whether it was one more round without progress.

        Tests that are not there any more count as failing. Fewer failures than ever, or failures that were
        never seen, begin anew; what is worse than it was (more fail, or it does not run at all) neither
        begins anew nor is a round. Without an edit in between there is no round.
        """
        wrong = failing.wrong
        if wrong is not None and failing.total is not None:
            wrong += max(0, self.most - failing.total)
            self.most = max(self.most, failing.total)
        lower = wrong is not None and (self.best is None or wrong < self.best)
        known = failing.signature in self.seen
        if not known:
            self.seen = [*self.seen, failing.signature][-_SEEN_KEPT:]
        if lower:
            self.best = wrong
        edited, self.edits = edits > self.edits, edits
        worse = self.best is not None and (wrong is None or wrong > self.best)
        if not known and worse:
            return False
        if lower or not known:
            self.first, self.onset, self.count, self.looks = mark, spent, 0, 0
            self.text = failing.text
            self.spans = [mark.span_id]
            self.reported = Reported()
            return False
        if failing.text != self.text:
            self.text = 0
        if not edited:
            return False
        self.count += 1
        self.spans.append(mark.span_id)
        if len(self.spans) > SPANS_KEPT:
            del self.spans[SPANS_KEPT // 2]
        return True

    def json(self) -> Json:
        """The rounds for a checkpoint; `load` reads it."""
        return [
            list(self.first),
            list(self.onset),
            self.edits,
            self.best,
            self.most,
            list(self.seen),
            self.count,
            self.looks,
            self.text,
            self.fails,
            list(self.spans),
            [self.reported.rank, self.reported.next_count, self.reported.revision],
        ]

    @staticmethod
    def load(state: Any) -> Rounds:  # noqa: ANN401 - JSON that `json` wrote
        """Read what `json` wrote."""
        first, onset, edits, best, most, seen, count, looks, text, fails, spans, said = state
        return Rounds(
            Mark(*first),
            Spent(*onset),
            edits,
            best,
            most,
            list(seen),
            count,
            looks,
            text,
            fails,
            list(spans),
            Reported(*said),
        )
