"""Calls that keep bringing the same whatever is done in between: how often, over how many turns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from detectors.rows import Row
from detectors.scope import Recent
from detectors.streaks import Mark, Spent

if TYPE_CHECKING:
    from collector.step import Json

CALLS_KEPT: Final = 32
_TURNS_EACH: Final = 7


class Seen(NamedTuple):
    """A call that was made once; `attempt` and `turn` are its place. Most calls never become more."""

    brings: tuple[int, int]
    mark: Mark
    onset: Spent
    attempt: int
    turn: int


class Recurrence(Row):
    """A call and how often it has brought what it brings, without ever bringing anything else."""

    __slots__ = ("attempt", "brings", "first_turn", "turn")

    def __init__(self, seen: Seen) -> None:
        super().__init__()
        self.brings = seen.brings
        self.attempt = seen.attempt
        self.turn = self.first_turn = seen.turn
        self.add_mark(seen.mark, seen.onset)

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
        self._calls = Recent[int, Seen | Recurrence](CALLS_KEPT)

    def clear(self) -> None:
        """A new beginning."""
        self._calls.clear()

    def see(self, signature: int, seen: Seen) -> Recurrence | None:
        """Take a call in; return it when it recurs. Calls of one attempt are one.

        What it brings is its information, and a number by which the owner parts what is not to be compared.
        """
        known = self._calls.touch(signature)
        if known is None or known.brings != seen.brings:
            self._calls.put(signature, seen)
            return None
        if known.attempt == seen.attempt:
            return None
        if isinstance(known, Seen):
            known = Recurrence(known)
            self._calls.put(signature, known)
        known.attempt, known.turn = seen.attempt, seen.turn
        known.add_mark(seen.mark, seen.onset)
        return known

    def json(self) -> Json:
        """The calls for a checkpoint."""
        return [
            [signature, _json_of_seen(call) if isinstance(call, Seen) else _json_of_recurrence(call)]
            for signature, call in self._calls.items()
        ]

    @staticmethod
    def load(state: Any) -> Recurrences:  # noqa: ANN401 - JSON that `json` wrote
        """Read what `json` wrote."""
        recurrences = Recurrences()
        for signature, (brings, mark, onset, attempt, turn, *more) in state:
            seen = Seen((brings[0], brings[1]), Mark(*mark), Spent(*onset), attempt, turn)
            recurrences._calls.put(signature, _recurrence_of(seen, *more) if more else seen)
        return recurrences


def _json_of_seen(call: Seen) -> Json:
    return [list(call.brings), list(call.mark), list(call.onset), call.attempt, call.turn]


def _json_of_recurrence(call: Recurrence) -> Json:
    first: list[Json] = list(call.first) if call.first is not None else []
    return [list(call.brings), first, list(call.onset), call.attempt, call.first_turn, call.turn, call.json()]


def _recurrence_of(seen: Seen, turn: int, row: Any) -> Recurrence:  # noqa: ANN401 - JSON that `json` wrote
    call, loaded = Recurrence(seen), Row.load(row)
    call.turn, call.count, call.spans, call.reported = turn, loaded.count, loaded.spans, loaded.reported
    return call
