"""How many of the latest calls had been made before, with the same result and no change since."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from detectors.rows import Row

if TYPE_CHECKING:
    from collector.step import Json

_KEPT: Final = 16
_FEW: Final = 2


class Again:
    """The latest attempts of one scope: the signature of each that had been made before, 0 of all others.

    `era` counts the changes that were new; the owner keeps with each call the era in which it was made.
    `recorded` tells that results are recorded here at all: then one that is missing was empty.
    `row` are the calls that were made again while there are any among the latest.
    """

    __slots__ = ("_attempt", "_latest", "era", "recorded", "row")

    def __init__(self) -> None:
        self.era = 0
        self.recorded = False
        self.row = Row()
        self._latest: deque[int] = deque(maxlen=_KEPT)
        self._attempt = -1

    def clear(self) -> None:
        """A new beginning: what was made before counts no more."""
        self.era += 1
        self.row.end()
        self._latest.clear()

    def call(self, signature: int, attempt: int, within: int) -> int:
        """Take a call in; return how many of the latest `within` were made again, 0 if it was not.

        `signature` is 0 for a call that was not. Calls of one attempt are one. Of more than two different
        calls none counts: to check everything once more is no loop yet.
        """
        if attempt == self._attempt:
            return 0
        self._attempt = attempt
        self._latest.append(signature)
        if not signature:
            if self.row.first is not None and not any(list(self._latest)[-within:]):
                self.row.end()
            return 0
        again = [known for known in list(self._latest)[-within:] if known]
        return len(again) if len(set(again)) <= _FEW else 0

    def json(self) -> Json:
        """What is kept, for a checkpoint."""
        return [self.era, list(self._latest), self._attempt, self.recorded, self.row.json()]

    @staticmethod
    def load(state: Any) -> Again:  # noqa: ANN401 - JSON that `json` wrote
        """Read what `json` wrote."""
        again = Again()
        again.era, latest, again._attempt, again.recorded, row = state
        again._latest.extend(latest)
        again.row = Row.load(row)
        return again
