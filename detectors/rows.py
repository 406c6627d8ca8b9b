"""A row of steps that go on in one way: how many, since when, what they cost, what was said of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from detectors.bounds import is_unknown_session
from detectors.protocol import Finding, Severity, finding_id
from detectors.streaks import SPANS_KEPT, Mark, Reported, Spent

if TYPE_CHECKING:
    from collector.step import Json, Step

_SEVERITIES = tuple(Severity)


@dataclass(slots=True)
class Row:
    """Steps in a row. `first` is None while there are none; `onset` is what was spent before it began."""

    count: int = 0
    first: Mark | None = None
    onset: Spent = field(default_factory=Spent)
    spans: list[str] = field(default_factory=list)
    reported: Reported = field(default_factory=Reported)

    def add(self, step: Step, spent: Spent) -> None:
        """Count a step in; `spent` is what the scope had used before it, and is kept of the first one."""
        self.add_mark(Mark.of(step), spent)

    def add_mark(self, mark: Mark, spent: Spent) -> None:
        """Count in what was kept of a step. Spans are evidence: the first half and the last half of a row."""
        if self.first is None:
            self.first, self.onset = mark, spent
        self.count += 1
        self.spans.append(mark.span_id)
        if len(self.spans) > SPANS_KEPT:
            del self.spans[SPANS_KEPT // 2]

    def end(self) -> None:
        """Nothing of it goes on."""
        if self.first is not None:
            self.count, self.first, self.onset = 0, None, Spent()
            self.spans, self.reported = [], Reported()

    def json(self) -> Json:
        """The row for a checkpoint; `load` reads it."""
        said = self.reported
        return [
            self.count,
            list(self.first) if self.first is not None else None,
            list(self.onset),
            list(self.spans),
            [said.rank, said.next_count, said.revision],
        ]

    @staticmethod
    def load(state: Any) -> Row:  # noqa: ANN401 - JSON that `json` wrote
        """Read what `json` wrote."""
        count, first, onset, spans, said = state
        marked = Mark(*first) if first is not None else None
        return Row(count, marked, Spent(*onset), list(spans), Reported(*said))


def told(rule: str, row: Row, step: Step, summary: str, evidence: Mapping[str, Json]) -> Finding:
    """The finding that a row gives at a step, whose severity is the highest that was said of it.

    `rule` is a rule's kind and version, as `no_progress/1`. `evidence` has what all findings have besides the
    spans: `rule`, `count`, `threshold`, `missing`, `resets`, `since_onset`.
    """
    kind = rule.partition("/")[0]
    first = row.first or Mark.of(step)
    return Finding(
        id=finding_id(rule, first.step_id),
        kind=kind,
        severity=_SEVERITIES[row.reported.rank],
        revision=row.reported.revision,
        session_id=step.session_id,
        session_ids=(step.session_id,),
        run_id=step.run_id,
        service=step.service,
        agent=step.agent,
        tool=step.tool,
        trace_id=step.trace_id,
        span_id=step.span_id,
        first_span_id=first.span_id,
        step_id=step.step_id,
        started_at=min(first.start_ns, step.end_ns),
        detected_at=step.end_ns,
        occurrences=row.count,
        summary=summary,
        detector=kind,
        evidence={**evidence, "span_ids": list(row.spans)},
    )


def rank_of(count: int, warning: int, critical: int, missing: list[Json]) -> int:
    """Rank of severity of a count; -1 for none. What lacks evidence is a warning at most.

    >>> rank_of(3, 4, 8, []), rank_of(4, 4, 8, []), rank_of(8, 4, 8, []), rank_of(8, 4, 8, ["session"])
    (-1, 1, 2, 1)
    """
    if count < warning:
        return -1
    return Severity.CRITICAL.rank if count >= critical and not missing else Severity.WARNING.rank


def missing_of(step: Step, *, arguments: bool = True) -> list[Json]:
    """Which evidence a step lacks: the session, and the arguments where they count."""
    missing: list[Json] = []
    if arguments and step.arguments is None:
        missing.append("arguments")
    if is_unknown_session(step.session_id):
        missing.append("session")
    return missing
