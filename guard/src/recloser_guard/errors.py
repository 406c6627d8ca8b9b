"""What the guard raises. `str()` of a refusal is the text for the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recloser_guard.decision import Decision


class GuardError(Exception):
    """Something about the guard itself is wrong: an argument, an address, an answer."""


class Refused(Exception):  # noqa: N818 - says what happened to the call
    """A call was refused; `CallDenied` and `RunHalted` are the two ways."""

    def __init__(self, decision: Decision) -> None:
        super().__init__(decision.message_for_model)
        self.decision = decision

    def __reduce__(self) -> tuple[type[Refused], tuple[Decision]]:
        return type(self), (self.decision,)

    @property
    def message_for_model(self) -> str:
        """What to give to the model instead of a result."""
        return self.decision.message_for_model

    @property
    def retry_after(self) -> float | None:
        """Seconds until the breaker lets a try through, None when waiting does not help."""
        return self.decision.retry_after

    @property
    def breaker_id(self) -> str | None:
        """The breaker that refuses, None when the fail mode does."""
        return self.decision.breaker_id

    @property
    def strength(self) -> str | None:
        """`replan`, `deny` or `halt`."""
        return self.decision.strength

    @property
    def quarantine(self) -> Mapping[str, Any] | None:
        """The tainted steps and the last clean one, where the trip says so."""
        return self.decision.quarantine


class CallDenied(Refused):
    """Do not make this call; give the text to the model and go on."""


class RunHalted(Refused):
    """End the run. Never hand this to the model as a tool's error: the loop would go on."""


class BudgetExceeded(CallDenied):
    """A reservation was refused: the budget has not that much left."""
