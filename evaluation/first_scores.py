"""First scores of blind material: history, taken before anybody who writes a detector had looked at it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from evaluation.stats import Share


@dataclass(frozen=True, slots=True)
class FirstScore:
    """Of `what`: the stuck runs that were alarmed (of cases: in time), and the healthy runs that were."""

    what: str
    found: Share
    wrong: Share


FIRST_SCORES: Final = (
    FirstScore("blind cases, in time", Share(27, 39), Share(2, 58)),
    FirstScore("second blind cases, in time", Share(47, 63), Share(0, 43)),
    FirstScore("labels of round 2", Share(24, 51), Share(1, 38)),
    FirstScore("labels of round 3", Share(30, 36), Share(0, 22)),
)
"""In the order in which they were taken. Sources: `tests/testdata/cases/SOURCE.md` and
`tests/testdata/evaluation/README.md`."""
