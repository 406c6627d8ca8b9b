"""Programs that are run in ever other ways and say the same each time, in whatever order of lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from detectors.rows import Row
from detectors.signature import hash64

if TYPE_CHECKING:
    from collector.step import Json
    from detectors.reading import Reading
    from detectors.streaks import Spent

_LEAST_CHARS: Final = 60
_MOST_CHARS: Final = 4000


class Echoes:
    """The latest output of one scope, and the calls in a row that printed it though each was another one.

    Outputs of another length are never looked at: lines in another order are as long as before. So an output
    is read from the second of its length on, which costs nothing as long as outputs differ.
    """

    __slots__ = ("_chars", "_lines", "_signature", "row")

    def __init__(self) -> None:
        self.row = Row()
        self._chars = self._lines = self._signature = 0

    def clear(self) -> None:
        """A new beginning."""
        self.row.end()
        self._chars = self._lines = self._signature = 0

    def hear(self, reading: Reading, spent: Spent) -> bool:
        """Take a successful output in; tell whether it is one more of the same by another call."""
        body, signature = reading.body or "", reading.call.signature
        chars = len(body)
        if chars != self._chars or not _LEAST_CHARS <= chars <= _MOST_CHARS:
            self.row.end()
            self._chars, self._lines, self._signature = chars, 0, signature
            return False
        if signature == self._signature:
            return False
        self._signature = signature
        lines = hash64("\n".join(sorted(body.split("\n"))))
        if lines != self._lines:
            self.row.end()
            self._lines = lines
        self.row.add(reading.step, spent)
        return self.row.count > 1

    def json(self) -> Json:
        """What is kept, for a checkpoint."""
        return [self._chars, self._lines, self._signature, self.row.json()]

    @staticmethod
    def load(state: Any) -> Echoes:  # noqa: ANN401 - JSON that `json` wrote
        """Read what `json` wrote."""
        echoes = Echoes()
        echoes._chars, echoes._lines, echoes._signature, row = state
        echoes.row = Row.load(row)
        return echoes
