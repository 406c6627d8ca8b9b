"""Calls that keep bringing the same whatever is done in between: how often, over how many turns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from detectors.rows import Row
from detectors.scope import Recent

if TYPE_CHECKING:
    from collector.step import Json
    from detectors.streaks import Mark, Spent

CALLS_KEPT: Final = 32
_TURNS_EACH: Final = 7


class Recurrence(Row):
    """A call and how often it has brought what it brings, without ever bringing anything else."""

    __slots__ = ("attempt", "brings", "first_turn", "turn")

    def __init__(self, brings: tuple[int, int], attempt: int, turn: int) -> None:
        super().__init__()
        self.brings = brings
        self.attempt = attempt
        self.turn = self.first_turn = turn

    @property
    def every_other(self) -> bool:
        """Whether at least every second turn was this call."""
        return self.turn - self.first_turn <= 2 * (self.count - 1)

    @property
    def dense(self) -> bool:
        """Whether at least every seventh turn was this call: a page looked up now and then is no loop."""
        return self.turn - self.first_turn <= _TURNS_EACH * (self.count - 1)


class Recurrences:
    """The latest calls of one scope. What others change does not end a recurrence: it changed nothing."""

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls = Recent[int, Recurrence](CALLS_KEPT)

    def clear(self) -> None:
        """A new beginning."""
        self._calls.clear()

    def see(
        self, signature: int, brings: tuple[int, int], mark: Mark, spent: Spent, *, attempt: int, turn: int
    ) -> Recurrence | None:
        """Take a call in; return it when it recurs. Calls of one attempt are one.

        `brings` is its information, and a number by which the owner parts what is not to be compared.
        """
        known = self._calls.touch(signature)
        if known is None or known.brings != brings:
            known = Recurrence(brings, attempt, turn)
            known.add_mark(mark, spent)
            self._calls.put(signature, known)
            return None
        if known.attempt == attempt:
            return None
        known.attempt, known.turn = attempt, turn
        known.add_mark(mark, spent)
        return known

    def json(self) -> Json:
        """The calls for a checkpoint."""
        return [
            [signature, list(call.brings), call.attempt, call.turn, call.first_turn, call.json()]
            for signature, call in self._calls.items()
        ]

    @staticmethod
    def load(state: Any) -> Recurrences:  # noqa: ANN401 - JSON that `json` wrote
        """Read what `json` wrote."""
        recurrences = Recurrences()
        for signature, brings, attempt, turn, first_turn, row in state:
            call = Recurrence((brings[0], brings[1]), attempt, turn)
            loaded = Row.load(row)
            call.first_turn = first_turn
            call.count, call.first, call.onset = loaded.count, loaded.first, loaded.onset
            call.spans, call.reported = loaded.spans, loaded.reported
            recurrences._calls.put(signature, call)
        return recurrences
