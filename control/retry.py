"""When a failed delivery is tried again. Pure: randomness is handed in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Full-jitter back-off: a random part of `first_s`, then of a bound that grows by `factor` up to `cap_s`.

    A destination that is left alone as a whole is tried at least every `held_cap_s`, so that it is soon seen
    when it is back. A destination's own Retry-After is a lower bound, believed up to `max_retry_after_s`. A
    message that could not be delivered for `give_up_after_s` is dead: kept and shown, no longer tried.
    """

    first_s: float = 5.0
    factor: float = 3.0
    cap_s: float = 10_800.0
    held_cap_s: float = 300.0
    max_retry_after_s: float = 86_400.0
    give_up_after_s: float = 259_200.0

    def __post_init__(self) -> None:
        """Raise `ValueError` naming the key that makes no sense."""
        for key in ("first_s", "cap_s", "held_cap_s", "max_retry_after_s", "give_up_after_s"):
            if not getattr(self, key) > 0:
                raise ValueError(f"delivery.{key}: must be more than 0 seconds")
        if not self.factor >= 1:
            raise ValueError("delivery.factor: must be 1 or more")

    @property
    def longest_s(self) -> float:
        """No pause is longer."""
        return max(self.cap_s, self.held_cap_s, self.max_retry_after_s)

    def delay_s(
        self,
        failures: int,
        random: Callable[[], float],
        retry_after: float | None = None,
        *,
        held: bool = False,
    ) -> float:
        """Say how long to wait after the `failures`-th failure in a row; `random` gives numbers in [0, 1).

        `held`: the destination is left alone as a whole.

        >>> policy = RetryPolicy()
        >>> [policy.delay_s(n, lambda: 1.0) for n in (1, 2, 3, 4, 20)]
        [5.0, 15.0, 45.0, 135.0, 10800.0]
        >>> policy.delay_s(20, lambda: 1.0, held=True)
        300.0
        >>> policy.delay_s(1, lambda: 0.5, retry_after=60.0)
        60.0
        """
        # 64 steps are far beyond any cap, and keep the power finite
        cap = min(self.cap_s, self.held_cap_s) if held else self.cap_s
        bound = min(cap, self.first_s * self.factor ** min(max(failures, 1) - 1, 64))
        asked = min(retry_after or 0.0, self.max_retry_after_s)
        return max(bound * random(), asked)
