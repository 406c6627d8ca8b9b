"""Alarms against the labels that other people gave to neighbouring calls (sola_st, arXiv 2506.18824).

A pair of neighbouring calls labelled "Repetition" repeats. An episode is a stretch of pairs in which at
least two repeat and no two that follow each other are more than two pairs apart. An alarm is right when at
least two pairs within its streak (from the streak's first call to the call that alarms) repeat; an episode
is found when an alarm's streak shares two repeating pairs with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from evaluation.shared import STUCK, Case
from evaluation.stats import Share

REPETITION: Final = "Repetition"
LEAST: Final = 2
APART: Final = 2


@dataclass(frozen=True, slots=True)
class PairScore:
    """Of the alarms, those that are right; of the episodes, those found; and how many pairs repeat at all."""

    precision: Share
    recall: Share
    repeating: Share


def episodes(labels: Sequence[str]) -> list[tuple[int, ...]]:
    """The repeating pairs of each episode. Pair n (from 1) is of the calls n and n + 1."""
    found: list[tuple[int, ...]] = []
    open_pairs: list[int] = []
    for pair, label in enumerate(labels, 1):
        if label != REPETITION:
            continue
        if open_pairs and pair - open_pairs[-1] > APART:
            found.append(tuple(open_pairs))
            open_pairs = []
        open_pairs.append(pair)
    found.append(tuple(open_pairs))
    return [pairs for pairs in found if len(pairs) >= LEAST]


def streaks(findings: pl.DataFrame) -> dict[str, list[tuple[int, int]]]:
    """First and last call of the streak of each finding when it first alarms, by id of the run."""
    alarming = findings.filter(
        pl.col("kind").is_in(sorted(STUCK)), pl.col("severity").is_in(["warning", "critical"])
    )
    first = alarming.sort("at").group_by("id", "finding", maintain_order=True).first()
    found: dict[str, list[tuple[int, int]]] = {}
    for run_id, since, at in first.select("id", "since", "at").iter_rows():
        found.setdefault(run_id, []).append((since, at))
    return found


def score_pairs(cases: Sequence[Case], alarmed: dict[str, list[tuple[int, int]]]) -> PairScore:
    """Score the runs that have such labels."""
    right = alarms = found = there = repeating = pairs = 0
    for case in cases:
        labels = case.get("human_pair_labels")
        if not labels:
            continue
        pairs += len(labels)
        repeats = {pair for pair, label in enumerate(labels, 1) if label == REPETITION}
        repeating += len(repeats)
        spans = [set(range(since, at)) for since, at in alarmed.get(str(case["id"]), ())]
        alarms += len(spans)
        right += sum(len(span & repeats) >= LEAST for span in spans)
        mine = episodes(labels)
        there += len(mine)
        found += sum(any(len(span & set(episode)) >= LEAST for span in spans) for episode in mine)
    return PairScore(Share(right, alarms), Share(found, there), Share(repeating, pairs))
