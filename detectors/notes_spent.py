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


class Spending:
    """See the module. `minutes` are lists in the order of `detectors.notes.Minute`, the latest last."""

    __slots__ = ("_models", "cost_usd", "input_tokens", "minutes", "output_tokens")

    def __init__(self) -> None:
        self.input_tokens: int | None = None
        self.output_tokens: int | None = None
        self.cost_usd: float | None = None
        self.minutes: deque[list[Any]] = deque(maxlen=MINUTES_KEPT)
        self._models: deque[list[Any]] = deque(maxlen=_MODELS_KEPT)

    def call(self, at_ns: int) -> None:
        """Count a tool call that ended at `at_ns`."""
        self._minute(at_ns)[1] += 1

    def model_call(self, step: Step) -> None:
        """Add what a model call used."""
        known: list[Any] = [step.step_id, None, None, None]
        self._models.append(known)
        self._use(step, known)

    def amend(self, step: Step) -> None:
        """Add what became known later of one of the latest model calls."""
        known = next((known for known in self._models if known[0] == step.step_id), None)
        if known is not None:
            self._use(step, known)

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
            "models": list(self._models),
        }

    @classmethod
    def restored(cls, state: Any) -> Spending:  # noqa: ANN401 - JSON that `state` wrote
        """Go on from a `state`."""
        spending = cls()
        spending.input_tokens, spending.output_tokens = state["input_tokens"], state["output_tokens"]
        spending.cost_usd = state["cost_usd"]
        spending.minutes.extend(state["minutes"])
        spending._models.extend(state["models"])
        return spending

    def _use(self, step: Step, known: list[Any]) -> None:
        usage = step.usage
        told = [usage.input_tokens, usage.output_tokens, step.cost_usd]
        if told == known[1:]:
            return
        more = [(new or 0) - (old or 0) for new, old in zip(told, known[1:], strict=True)]
        known[1:] = told
        if told[0] is not None:
            self.input_tokens = (self.input_tokens or 0) + int(more[0])
        if told[1] is not None:
            self.output_tokens = (self.output_tokens or 0) + int(more[1])
        if told[2] is not None:
            self.cost_usd = (self.cost_usd or 0.0) + more[2]
        minute = self._minute(step.end_ns)
        minute[2] += int(more[0] + more[1])
        minute[3] += float(more[2])

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
