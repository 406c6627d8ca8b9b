"""How breakers behave by themselves: pauses, probes, escalation, and how much may be opened at once."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

_FROM: Final = {
    "base_open_s": 0.001,
    "cap_open_s": 0.001,
    "probes": 1,
    "probe_ttl_s": 0.001,
    "successes": 1,
    "decay_s": 0.001,
    "flap_trips": 2,
    "flap_window_s": 0.001,
    "blast_min": 1,
}
"""Least value of a key; 0 where none is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerSettings:
    """The section `breaker` of a policy. Times are seconds. Raises `ValueError` naming the key.

    An automatic breaker stays open `base_open_s`, doubled by each flap level up to `cap_open_s`; the level
    falls by one per `decay_s` closed without a trip. Half open, `probes` calls are let through at a time,
    each with `probe_ttl_s` to report; `successes` of them close it. `flap_trips` trips within
    `flap_window_s` latch it. At most `blast_per_minute` scopes (0: no limit) and `blast_share` of the
    sessions that were active lately are opened by themselves, `blast_min` sessions in any case.

    A refusal that is ignored makes a breaker stronger: `replan` after `replan_budget` refusals, `deny` after
    `escalate_after`; 0 means never. After a halt a run has `halt_grace_s` to end.

    Source: ops_anchors §2.2 (open time, decay, leases, latching, blast-radius guard), mission facts (60 s).
    """

    base_open_s: float = 60.0
    cap_open_s: float = 3600.0
    probes: int = 1
    probe_ttl_s: float = 30.0
    successes: int = 1
    decay_s: float = 600.0
    flap_trips: int = 4
    flap_window_s: float = 3600.0
    blast_per_minute: int = 30
    blast_share: float = 0.2
    blast_min: int = 5
    escalate_after: int = 3
    replan_budget: int = 2
    halt_grace_s: float = 10.0

    def __post_init__(self) -> None:
        """Check every key."""
        for field in fields(self):
            value, least = getattr(self, field.name), _FROM.get(field.name, 0)
            if not least <= value < float("inf"):
                raise ValueError(f"breaker.{field.name}: must be {_at_least(least)}, not {value!r}")
        if self.cap_open_s < self.base_open_s:
            raise ValueError("breaker.cap_open_s: must not be less than breaker.base_open_s")
        if self.blast_share > 1:
            raise ValueError("breaker.blast_share: is a share, 1 at most")


def _at_least(least: float) -> str:
    return f"{least:g} or more" if least >= 1 or least == 0 else "more than 0"
