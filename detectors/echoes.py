"""Programs that are run in ever other ways and say the same each time, in whatever order, or nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from detectors.role import Role
from detectors.rows import Row
from detectors.signature import hash64
from detectors.tool_role import takes_program

if TYPE_CHECKING:
    from collector.step import Json
    from detectors.reading import Reading
    from detectors.streaks import Spent

_LEAST_CHARS: Final = 60
_MOST_CHARS: Final = 4000


class Echoes:
    """The latest output of one scope, and the calls in a row that printed it though each was another one.

    `row` are those, `blanks` the commands of one operation in a row that printed nothing. Outputs of another
    length are never looked at: lines in another order are as long as before. So an output is read from the
    second of its length on, which costs nothing as long as outputs differ. A result that is missing where
    results are recorded was empty.
    """

    __slots__ = ("_chars", "_lines", "_operation", "_recorded", "_signature", "blanks", "row")

    def __init__(self) -> None:
        self.row, self.blanks = Row(), Row()
        self._chars = self._lines = self._signature = 0
        self._operation = ""
        self._recorded = False

    def clear(self) -> None:
        """A new beginning."""
        self.row.end()
        self.blanks.end()
        self._chars = self._lines = self._signature = 0

    def hear(self, reading: Reading, spent: Spent) -> Row | None:
        """Take a call in; return its row when it is one more command that says the same, or nothing."""
        step, body = reading.step, reading.body
        self._recorded |= body is not None
        if (
            not body
            and not reading.failed
            and self._recorded
            and takes_program(step.tool or "", step.arguments)
        ):
            return self._blank(reading, spent)
        self.blanks.end()
        if reading.failed or body is None or reading.role is Role.POLL:
            self.row.end()
            self._chars = 0
            return None
        chars, signature = len(body), reading.call.signature
        if chars != self._chars or not _LEAST_CHARS <= chars <= _MOST_CHARS:
            self.row.end()
            self._chars, self._lines, self._signature = chars, 0, signature
            return None
        if signature == self._signature or not takes_program(step.tool or "", step.arguments):
            return None
        self._signature = signature
        lines = hash64("\n".join(sorted(body.split("\n"))))
        if lines != self._lines:
            self.row.end()
            self._lines = lines
        self.row.add(step, spent)
        return self.row

    def _blank(self, reading: Reading, spent: Spent) -> Row | None:
        self.row.end()
        operation = reading.operation
        if operation != self._operation:
            self.blanks.end()
            self._operation = operation
        if operation == reading.step.tool or not reading.call.known:
            return None
        self.blanks.add(reading.step, spent)
        return self.blanks

    def json(self) -> Json:
        """What is kept, for a checkpoint."""
        return [
            self._chars,
            self._lines,
            self._signature,
            self._operation,
            self._recorded,
            self.row.json(),
            self.blanks.json(),
        ]

    @staticmethod
    def load(state: Any) -> Echoes:  # noqa: ANN401 - JSON that `json` wrote
        """Read what `json` wrote."""
        echoes = Echoes()
        echoes._chars, echoes._lines, echoes._signature, echoes._operation, echoes._recorded = state[:5]
        echoes.row, echoes.blanks = Row.load(state[5]), Row.load(state[6])
        return echoes
