"""What one session has used: tokens, money, how fast; a model call counts once, whatever is told later."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from collector.step import Json, Step

MINUTES_KEPT: Final = 8
_MODELS_KEPT: Final = 8
_MINUTE_NS: Final = 60 * 10**9
_NOTHING: Final = ("", None, None, None)


class Spending:
    """See the module. `minutes` are lists in the order of `detectors.notes.Minute`, the latest last."""

    __slots__ = ("_models", "cost_usd", "input_tokens", "minutes", "output_tokens")

    def __init__(self) -> None:
        self.input_tokens: int | None = None
        self.output_tokens: int | None = None
        self.cost_usd: float | None = None
        self.minutes: deque[list[Any]] = deque(maxlen=MINUTES_KEPT)
        # Step, input and output tokens and cost as they were told last.
        self._models: deque[tuple[Any, ...]] = deque(maxlen=_MODELS_KEPT)

    def call(self, at_ns: int) -> None:
        """Count a tool call that ended at `at_ns`."""
        minutes = self.minutes
        if minutes and at_ns < minutes[-1][0] + _MINUTE_NS:  # nearly always
            minutes[-1][1] += 1
        else:
            self._minute(at_ns)[1] += 1

    def model_call(self, step: Step) -> None:
        """Add what a model call used."""
        usage = step.usage
        told = (step.step_id, usage.input_tokens, usage.output_tokens, step.cost_usd)
        self._models.append(told)
        self._use(step.end_ns, told, _NOTHING)

    def amend(self, step: Step) -> None:
        """Add what became known later of one of the latest model calls."""
        usage = step.usage
        told = (step.step_id, usage.input_tokens, usage.output_tokens, step.cost_usd)
        for position, known in enumerate(self._models):
            if known[0] == step.step_id:
                self._models[position] = told
                self._use(step.end_ns, told, known)
                break

    def absorb(self, past: Spending) -> None:
        """Add what was used under another name."""
        self.input_tokens = _plus(self.input_tokens, past.input_tokens)
        self.output_tokens = _plus(self.output_tokens, past.output_tokens)
        cost = _plus(self.cost_usd, past.cost_usd)
        self.cost_usd = None if cost is None else float(cost)
        self.minutes = deque(_merged((*past.minutes, *self.minutes)), maxlen=MINUTES_KEPT)

    def state(self) -> dict[str, Json]:
        """All state, as JSON."""
        return {
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cost_usd": self.cost_usd,
            "minutes": list(self.minutes),
            "models": [list(known) for known in self._models],
        }

    @classmethod
    def restored(cls, state: Any) -> Spending:  # noqa: ANN401 - JSON that `state` wrote
        """Go on from a `state`."""
        spending = cls()
        spending.input_tokens, spending.output_tokens = state["input_tokens"], state["output_tokens"]
        spending.cost_usd = state["cost_usd"]
        spending.minutes.extend(state["minutes"])
        spending._models.extend(map(tuple, state["models"]))
        return spending

    def _use(self, at_ns: int, told: tuple[Any, ...], known: tuple[Any, ...]) -> None:
        """Account for what a model call used beyond what was known of it."""
        _, read, written, cost = told
        if read is None and written is None and cost is None:
            return
        more_read, more_written = (read or 0) - (known[1] or 0), (written or 0) - (known[2] or 0)
        minute = self._minute(at_ns)
        minute[2] += more_read + more_written
        if read is not None:
            self.input_tokens = (self.input_tokens or 0) + more_read
        if written is not None:
            self.output_tokens = (self.output_tokens or 0) + more_written
        if cost is not None:
            more_cost = cost - (known[3] or 0.0)
            self.cost_usd = (self.cost_usd or 0.0) + more_cost
            minute[3] += more_cost

    def _minute(self, at_ns: int) -> list[Any]:
        """The minute of `at_ns`; the latest one for what comes late."""
        start = at_ns - at_ns % _MINUTE_NS
        if not self.minutes or start > self.minutes[-1][0]:
            self.minutes.append([start, 0, 0, 0.0])
        return self.minutes[-1]


def _merged(minutes: Iterable[list[Any]]) -> list[list[Any]]:
    sums: dict[int, list[Any]] = {}
    for start, calls, tokens, cost in sorted(minutes):
        minute = sums.setdefault(start, [start, 0, 0, 0.0])
        minute[1] += calls
        minute[2] += tokens
        minute[3] += cost
    return list(sums.values())


def _plus(mine: Any, theirs: Any) -> Any:  # noqa: ANN401 - numbers of one type, or None
    if mine is None or theirs is None:
        return mine if theirs is None else theirs
    return mine + theirs
