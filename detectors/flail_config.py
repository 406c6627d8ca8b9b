"""Thresholds of the flail detector."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FlailConfig:
    """Thresholds of the detector, by the names that the configuration uses.

    Counts are attempts with differing arguments unless said otherwise.

    `errors`: a warning on one error family, with nothing learned in between. `transient_errors`: the same for
    errors that may go away by themselves. `errors_in_all`: a warning whatever lies in between. `often`: a
    warning on so many of one family within `often_within` attempts, successes in between or not; of the very
    same error within `verbatim_within`, `often_programs` in a shell and `often_statements` in a database.
    `variants`: a warning on reworded queries without news; `nothings` when they share no words, back to back.
    `echoes`: a warning on other commands with one output; `blanks` with none. `rounds`: a warning on edits
    without effect; `rounds_with_looks` when the agent looked at something new in between; `verbatim` and
    `verbatim_with_looks` the same when the run says the very same each time; `unchanged` when the run does
    not fail and says the same each time. `perturbations`: critical from here on, when less than `hit_rate`
    (0 to 1) of the tool's latest perturbations were hits. `gap`: attempts further apart than this many
    attempts of other sorts are no streak. `patience_s`: a pause after which everything starts anew, in
    seconds. `streaks_kept`: bound of the state. `shadow`: findings are recorded only.
    """

    shadow: bool = False
    errors: int = 4
    transient_errors: int = 6
    errors_in_all: int = 5
    often: int = 5
    often_programs: int = 4
    often_statements: int = 3
    often_within: int = 12
    verbatim_within: int = 8
    variants: int = 6
    nothings: int = 8
    echoes: int = 3
    blanks: int = 5
    rounds: int = 5
    rounds_with_looks: int = 8
    verbatim: int = 3
    verbatim_with_looks: int = 6
    unchanged: int = 10
    perturbations: int = 6
    hit_rate: float = 0.3
    gap: int = 12
    streaks_kept: int = 8
    patience_s: float = 600.0

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name == "hit_rate":
                if not 0 < value <= 1:
                    raise ValueError(f"flail.hit_rate must be more than 0 and at most 1, not {value!r}")
            elif isinstance(field.default, float) and not value > 0:  # nan is not, either
                raise ValueError(f"flail.{field.name} must be more than 0 seconds, not {value!r}")
            elif isinstance(field.default, int) and not isinstance(field.default, bool) and value < 2:  # noqa: PLR2004 - one attempt varies nothing
                raise ValueError(f"flail.{field.name} must be at least 2, not {value!r}")
