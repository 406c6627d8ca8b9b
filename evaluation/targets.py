"""What must be true, and whether it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from evaluation.errors import Told
from evaluation.measuring import ALL, RECLOSER, Measured
from evaluation.scoring import score_cases, score_labels
from evaluation.shared import REPORTED
from evaluation.stats import percent

CASES_IN_TIME: Final = 48
TRAPS: Final = 1
LABELS_RECALL: Final = 0.92
LABELS_FALSE: Final = 1
LABELS_DELAY: Final = 1.0
LABELS_EARLY: Final = 2
AT_MOST: Final = (("msa_gemini3 resolved", 0.02), ("tau reward 1", 0.01), ("intercode reward 1", 0.02))
IDENTICAL: Final = "intercode 5 identical in a row"
BY_SIXTH: Final = 0.97
MACRO_F1: Final = 0.80


@dataclass(frozen=True, slots=True)
class Target:
    """One thing that must be true: `wanted` and `reached` in words."""

    what: str
    wanted: str
    reached: str
    met: bool


def targets(measured: Measured, rates: pl.DataFrame, errors: Sequence[Told]) -> list[Target]:
    """Those of the cases, the labels, the whole sets and the errors."""
    return [*_cases(measured), *_labels(measured), *_sets(rates), *_errors(errors[0])]


def _cases(measured: Measured) -> Iterator[Target]:
    score = score_cases(measured.cases, measured.own)
    yield Target(
        "cases: positives in time and of the right kind",
        f"at least {CASES_IN_TIME} of 51",
        f"{score.right_kind} of {score.positives}",
        score.right_kind >= CASES_IN_TIME,
    )
    yield Target(
        "cases: traps alarmed",
        f"at most {TRAPS} of 39",
        f"{score.trapped} of {score.traps}",
        score.trapped <= TRAPS,
    )


def _labels(measured: Measured) -> Iterator[Target]:
    score = score_labels(measured.labels, measured.own)
    recall, delay = score.recall, score.median_delay
    yield Target(
        "labels: recall",
        f"at least {LABELS_RECALL:.2f}",
        f"{recall.value:.2f} ({recall.hits} of {recall.total})",
        recall.value >= LABELS_RECALL,
    )
    yield Target(
        "labels: healthy runs alarmed",
        f"at most {LABELS_FALSE}",
        f"{score.false_alarms.hits} of {score.false_alarms.total}",
        score.false_alarms.hits <= LABELS_FALSE,
    )
    yield Target(
        "labels: median delay in calls",
        f"at most {LABELS_DELAY:.0f}",
        "no alarm" if delay is None else f"{delay:.1f}",
        delay is not None and delay <= LABELS_DELAY,
    )
    yield Target(
        "labels: alarms more than three calls early",
        f"at most {LABELS_EARLY}",
        str(score.early),
        score.early <= LABELS_EARLY,
    )


def _sets(rates: pl.DataFrame) -> Iterator[Target]:
    mine = rates.filter(pl.col("rule") == RECLOSER)
    of = {(row["group"], row["half"]): row for row in mine.iter_rows(named=True)}
    for group, limit in AT_MOST:
        reached, everything = of[group, REPORTED], of[group, ALL]
        share, whole = reached["alarmed"] / reached["runs"], everything["alarmed"] / everything["runs"]
        yield Target(
            f"{group}: runs alarmed",
            f"at most {percent(limit)}",
            f"{percent(share)} of the reported half, {percent(whole)} of all",
            share <= limit and whole <= limit,
        )
    reached, everything = of[IDENTICAL, REPORTED], of[IDENTICAL, ALL]
    share, whole = reached["by_sixth"] / reached["runs"], everything["by_sixth"] / everything["runs"]
    yield Target(
        f"{IDENTICAL}: alarmed by the sixth",
        f"at least {percent(BY_SIXTH)}",
        f"{percent(share)} of the reported half, {percent(whole)} of all",
        share >= BY_SIXTH and whole >= BY_SIXTH,
    )


def _errors(headline: Told) -> Iterator[Target]:
    reached = headline.macro_f1
    yield Target(
        "errors: macro-F1 out of fold, grouped by trajectory",
        f"at least {MACRO_F1:.2f}",
        f"{reached:.3f}",
        reached >= MACRO_F1,
    )
