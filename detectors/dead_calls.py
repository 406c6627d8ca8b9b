"""Calls that are known to fail: an error memory, and what makes it forget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from detectors.evidence import DENIED, FAILED, NOOP
from detectors.occurrence import is_compound
from detectors.role import Role
from detectors.streaks import SPANS_KEPT, Mark, Reported, Spent

if TYPE_CHECKING:
    from collector.step import Json
    from detectors.reading import Reading


@dataclass(slots=True)
class Dead:
    """A call that failed for good, and what was known then.

    `family` is its error's, `epoch` the scope's count of effective changes, `attempt` the latest attempt that
    made it, `turn` the count of model calls after which it failed, `repeats` how often it was made again.
    """

    family: int
    first: Mark
    onset: Spent
    epoch: int
    turn: int
    attempt: str
    end_ns: int
    last_spent: Spent
    repeats: int
    spans: list[str]
    said: Reported

    def again(self, step_id: str, span_id: str, end_ns: int) -> None:
        """The call was made again, to the same end."""
        self.attempt, self.end_ns = step_id, end_ns
        self.repeats += 1
        self.spans.append(span_id)
        if len(self.spans) > SPANS_KEPT:
            del self.spans[SPANS_KEPT // 2]

    def json(self) -> Json:
        """For a checkpoint; `load` reads it."""
        said = self.said
        return [
            self.family,
            list(self.first),
            list(self.onset),
            self.epoch,
            self.turn,
            self.attempt,
            self.end_ns,
            list(self.last_spent),
            self.repeats,
            list(self.spans),
            [said.rank, said.next_count, said.revision],
        ]

    @staticmethod
    def load(state: Any) -> Dead:  # noqa: ANN401 - JSON that `json` wrote
        """Read what `json` wrote."""
        family, first, onset, epoch, turn, attempt, end_ns, last_spent, repeats, spans, said = state
        return Dead(
            family,
            Mark(*first),
            Spent(*onset),
            epoch,
            turn,
            attempt,
            end_ns,
            Spent(*last_spent),
            repeats,
            list(spans),
            Reported(*said),
        )


def may_have_changed(reading: Reading) -> bool:
    """Tell whether a call may have changed what another call finds.

    A change that went well, also one of which nothing tells what it is for; a failed one if it has several
    parts, of which one may have worked. Looking, waiting and thinking change nothing.
    """
    flags = reading.flags
    if flags & (DENIED | NOOP):
        return False
    if reading.role is Role.CHANGE:
        return not flags & FAILED or is_compound(reading.step.arguments)
    return reading.role is Role.OTHER and not flags & FAILED
