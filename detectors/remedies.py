"""A remedy that does not help: something fails, the same cure succeeds, the same error again, and again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from detectors.rows import Row

if TYPE_CHECKING:
    from collector.step import Json, Step
    from detectors.streaks import Spent


class Remedy:
    """Follows one scope: error, cure, error, cure, error, nothing else in between.

    The call that fails may differ each time (it is tried out with other arguments), its error may not; the
    cure is one call with one result. What fails thrice although the cure was taken twice is not cured by it.
    """

    __slots__ = ("_between", "_cure", "_error", "_last", "row")

    def __init__(self) -> None:
        self.row = Row()
        self._error = 0
        self._cure = 0
        self._last = 0
        self._between = 0

    def clear(self) -> None:
        """A new beginning."""
        self.row.end()
        self._error = self._cure = self._last = self._between = 0

    def failed(self, error: int, step: Step, spent: Spent) -> Row | None:
        """Take a failure in; return the row when it goes on."""
        goes_on = error == self._error and self._between == 1
        if goes_on and self.row.count > 1:
            goes_on = self._last == self._cure
        if not goes_on:
            self.row.end()
        elif self.row.count == 1:
            self._cure = self._last
        self._error, self._between = error, 0
        self.row.add(step, spent)
        return self.row if goes_on else None

    def succeeded(self, key: int, *, acts: bool) -> None:
        """Take a success in; `acts` tells whether it may cure anything."""
        if not self._error:
            return
        self._between += 1 if acts else 2
        self._last = key

    def json(self) -> Json:
        """What is kept, for a checkpoint."""
        return [self._error, self._cure, self._last, self._between, self.row.json()]

    @staticmethod
    def load(state: Any) -> Remedy:  # noqa: ANN401 - JSON that `json` wrote
        """Read what `json` wrote."""
        remedy = Remedy()
        remedy._error, remedy._cure, remedy._last, remedy._between, row = state
        remedy.row = Row.load(row)
        return remedy
