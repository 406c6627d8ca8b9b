"""Edits and the runs after them: which operation has failed in the same things for how many rounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from detectors.failing_set import FailingSet, failing_set_in
from detectors.learned import is_unsettled, reported
from detectors.role import Role
from detectors.rounds import Rounds
from detectors.scope import Recent
from detectors.streaks import Mark
from detectors.tool_role import role_of_name

if TYPE_CHECKING:
    from collector.step import Json
    from detectors.reading import Reading
    from detectors.streaks import Spent

_UNCHANGED: Final = "="


@dataclass(frozen=True, slots=True)
class RoundLimits:
    """How many rounds are an alarm; see `detectors.flail_config.FlailConfig`."""

    rounds: int
    rounds_with_looks: int
    verbatim: int
    verbatim_with_looks: int
    unchanged: int


class EditRounds:
    """The edits of a scope, and by operation the rounds of its runs."""

    def __init__(self, kept: int) -> None:
        self._rounds = Recent[str, Rounds](kept)
        self._edits = 0

    def forget(self) -> None:
        """A new beginning."""
        self._rounds.clear()

    def change(self, reading: Reading) -> None:
        """Count an edit. What version control does is none."""
        if role_of_name(reading.step.tool or "") is None and ":git " in reading.operation:
            return
        self._edits += 1

    def look(self) -> None:
        """Something new was looked at."""
        for rounds in self._rounds.values():
            rounds.looks += 1

    def report(self, reading: Reading) -> FailingSet | None:
        """What a call that did not fail says fails; None when that is nothing, or not its business."""
        return reported(reading) if self._edits or reading.role is Role.CHANGE else None

    def passes(self, reading: Reading) -> None:
        """A call went well: its rounds are over."""
        if self._rounds:
            self._rounds.pop(reading.operation)

    def fails(self, reading: Reading, spent: Spent) -> Rounds | None:
        """Take in a call that failed; return its rounds when it was one more without progress."""
        if not self._edits or reading.role is Role.CHANGE:
            return None
        return self.run(reading, failing_set_in(reading.error_text), spent)

    def settles_nothing(self, reading: Reading, spent: Spent) -> Rounds | None:
        """Take in a run that did not fail, but may say of an error; return its rounds like `fails`."""
        if not self._edits or reading.role is not Role.OTHER or not is_unsettled(reading):
            return None
        information = reading.information
        same = FailingSet(information, None, None, information)
        return self.run(reading, same, spent, f"{_UNCHANGED}{reading.operation}")

    def run(self, reading: Reading, failing: FailingSet, spent: Spent, key: str = "") -> Rounds | None:
        """Take in what a run said; return its rounds when it was one more without progress."""
        key = key or reading.operation
        mark = Mark.of(reading.step)
        rounds = self._rounds.touch(key)
        if rounds is None:
            rounds = Rounds(mark, spent, self._edits, None, 0, [], fails=not key.startswith(_UNCHANGED))
            self._rounds.put(key, rounds)
        return rounds if rounds.run(failing, self._edits, mark, spent) else None

    def json(self) -> Json:
        """For a checkpoint; `restore` reads it."""
        return [self._edits, [[key, rounds.json()] for key, rounds in self._rounds.items()]]

    def restore(self, state: Any) -> None:  # noqa: ANN401 - JSON that `json` wrote
        """Take over what `json` wrote."""
        self._rounds.clear()
        self._edits, told = state
        for key, rounds in told:
            self._rounds.put(key, Rounds.load(rounds))


def limit_of(rounds: Rounds, limits: RoundLimits) -> int:
    """How many of these rounds are an alarm."""
    if not rounds.fails:
        return limits.unchanged
    if rounds.text:
        return limits.verbatim_with_looks if rounds.looks else limits.verbatim
    return limits.rounds_with_looks if rounds.looks else limits.rounds
