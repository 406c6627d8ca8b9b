"""What hand-off reports of real runs reach is held here: judged through OTLP, against what readers say.

The bounds are what was reached when they were last raised, with one run of slack. The runs come without their
tasks, so the goal is unknown in all of them. docs/handoff.md has the figures with tasks.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import case_otlp

from evaluation.handoff import HandoffScore, reports, score
from evaluation.scoring import HEALTHY, by_round
from evaluation.shared import Case, read

RUNS = Path(__file__).parent / "testdata" / "evaluation"
LEAST_FILLED = 0.74
LEAST_FILLED_OF_ROUND_3 = 0.71
LEAST_NEAR = 32
LEAST_NEAR_OF_ROUND_3 = 28


@cache
def rows(name: str) -> list[Case]:
    return list(read(RUNS / name))


def scored(labels: list[Case], name: str) -> HandoffScore:
    """The reports of the runs that are called stuck; the others are not needed."""
    stuck = {row["id"] for row in labels if row["label"] != HEALTHY}
    return score(labels, reports([case for case in rows(name) if case["id"] in stuck], case_otlp), {})


def test_reports_of_runs_that_two_readers_labelled() -> None:
    told = scored(rows("what-the-readers-say-of-them.jsonl"), "runs-that-two-readers-labelled.jsonl.gz")
    assert told.runs == 36
    assert told.mean_filled >= LEAST_FILLED, told.unknown
    assert told.near.hits >= LEAST_NEAR, told.short


def test_reports_of_runs_that_were_labelled_after_the_rules_were_written() -> None:
    labels = dict(by_round(rows("labels-of-further-readers.jsonl")))[3]
    told = scored(labels, "runs-that-a-further-reader-labelled.jsonl.gz")
    assert told.runs == 36
    assert told.mean_filled >= LEAST_FILLED_OF_ROUND_3, told.unknown
    assert told.near.hits >= LEAST_NEAR_OF_ROUND_3, told.short
