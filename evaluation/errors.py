"""How well classes of errors are told, out of fold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from detectors.errors.kinds import ErrorClass
from evaluation.error_folds import (
    Score,
    accuracy,
    by_dataset,
    by_trajectory,
    macro_f1,
    out_of_fold,
    real,
    scores,
    taught,
)


@dataclass(frozen=True, slots=True)
class Told:
    """One way of judging: `by_class` most frequent class first; macro-F1 and accuracy from 0 to 1."""

    way: str
    by_class: Mapping[ErrorClass, Score]
    macro_f1: float
    accuracy: float


def told() -> tuple[Told, ...]:
    """The real messages judged in each way, the headline first."""
    rows = real()
    trajectories, datasets = taught(by_trajectory(rows)), taught(by_dataset(rows))
    ways = {
        "rules that others support, and the model": out_of_fold(trajectories, supported_only=True),
        "the same, each data set by all others": out_of_fold(datasets, supported_only=True),
        "all rules, and the model": out_of_fold(trajectories),
        "all rules, without the model": out_of_fold(trajectories, model=False),
    }
    found = []
    for way, said in ways.items():
        by_class = scores(rows, said)
        found.append(Told(way, by_class, macro_f1(by_class), accuracy(rows, said)))
    return tuple(found)
