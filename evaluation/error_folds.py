"""Error classes judged out of fold: each message by what was learnt without its trajectory.

The rules were written with the messages at hand, so counting them as they are flatters them. Therefore each
figure is given twice: with all rules, and with those only that at least one message outside the fold (or a
vendor's documented one) supports, as if what a fold alone has taught had never been written down.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from detectors.errors.features import features_of
from detectors.errors.kinds import ErrorClass
from detectors.errors.model import SCALE, Model
from detectors.errors.rules import RULES, first_match
from detectors.errors.subject import Subject, bounded, focus, subject_of

DATA: Final = Path(__file__).resolve().parents[1] / "tests/testdata/errors"
FOLDS: Final = 5
MINIMUM: Final = 0.6  # docs/error-model.md shows what it costs and gives
MINIMUM_TO_RETRY: Final = 0.8
_OURS: Final = {"env_missing_dependency": "environment", "other": "application"}
_LEAST_SEEN: Final = 2  # messages that must hold a feature
_LEAST_WEIGHT: Final = SCALE // 10  # of a feature for some class; what is below decides nothing
_COUNTED: Final = 5  # messages of a class, for it to count in the mean


@dataclass(frozen=True, slots=True)
class Row:
    """A message with the class that a person gave it."""

    id: str
    subject: Subject
    truth: ErrorClass
    group: str
    dataset: str


def real() -> list[Row]:
    """The messages of real trajectories."""
    return [
        _row(line, line["trajectory"], line["dataset"])
        for line in _lines("real-error-messages-with-their-class")
    ]


def documented() -> list[Row]:
    """The messages that vendors document."""
    return [_row(line, line["vendor"], "vendor") for line in _lines("vendor-documented-messages")]


def _lines(name: str) -> Iterable[Mapping[str, str]]:
    with (DATA / f"{name}.jsonl").open(encoding="utf-8") as file:
        yield from map(json.loads, file)


def _row(line: Mapping[str, str], group: str, dataset: str) -> Row:
    truth = ErrorClass(_OURS.get(line["class"], line["class"]))
    return Row(
        line["id"], subject_of(focus(bounded(line["message"])), line.get("tool")), truth, group, dataset
    )


def fit(rows: Sequence[Row]) -> Model:
    """Train the text model; the same rows give the same model."""
    import numpy as np
    from scipy.sparse import csr_matrix
    from sklearn.linear_model import LogisticRegression

    held = [features_of(row.subject) for row in rows]
    seen = Counter(name for features in held for name in features)
    names = sorted(name for name, times in seen.items() if times >= _LEAST_SEEN)
    column = {name: place for place, name in enumerate(names)}
    places, values, starts = [], [], [0]
    for features in held:
        own = sorted(column[name] for name in features if name in column)
        places += own
        values += [1 / max(len(own), 1) ** 0.5] * len(own)
        starts.append(len(places))
    matrix = csr_matrix((values, places, starts), shape=(len(rows), len(names)))
    learner = LogisticRegression(C=10.0, class_weight="balanced", max_iter=2000)
    learner.fit(matrix, [row.truth.value for row in rows])
    weights = np.rint(learner.coef_.T * SCALE).astype(int)
    return Model(
        classes=tuple(ErrorClass(name) for name in learner.classes_),
        biases=tuple(np.rint(learner.intercept_ * SCALE).astype(int).tolist()),
        weights={
            name: tuple(row)
            for name, row in zip(names, weights.tolist(), strict=True)
            if max(map(abs, row)) >= _LEAST_WEIGHT
        },
        minimum=MINIMUM,
        minimum_to_retry=MINIMUM_TO_RETRY,
    )


Judge = Callable[[Row], ErrorClass]
Split = Sequence[tuple[Sequence[Row], Sequence[Row]]]


def judge_of(model: Model | None, without: int = 0) -> Judge:
    """A judge by rules, then by a model (None: rules alone)."""

    def judge(row: Row) -> ErrorClass:
        found = first_match(row.subject, without)
        if found is not None:
            return found[1]
        if model is None:
            return ErrorClass.UNKNOWN
        return model.class_of(row.subject)[0]

    return judge


def unsupported(rows: Iterable[Row]) -> int:
    """The bits of the rules that decide none of the messages rightly."""
    bits = {rule.name: 1 << place for place, rule in enumerate(RULES)}
    supported = 0
    for row in rows:
        found = first_match(row.subject)
        if found is not None and found[1] is row.truth:
            supported |= bits[found[0].name]
    return ((1 << len(RULES)) - 1) & ~supported


def by_trajectory(rows: Sequence[Row], folds: int = FOLDS) -> list[tuple[list[Row], list[Row]]]:
    """Pairs of what is learnt from and what is judged; no trajectory is in both."""
    size = Counter(row.group for row in rows)
    fold_of: dict[str, int] = {}
    load = [0] * folds
    for group, count in sorted(size.items(), key=lambda item: (-item[1], item[0])):
        place = load.index(min(load))
        fold_of[group], load[place] = place, load[place] + count
    return _split(rows, lambda row: fold_of[row.group])


def by_dataset(rows: Sequence[Row]) -> list[tuple[list[Row], list[Row]]]:
    """Pairs of what is learnt from and what is judged: each dataset once by all others."""
    return _split(rows, lambda row: row.dataset)


def _split(rows: Sequence[Row], key: Callable[[Row], object]) -> list[tuple[list[Row], list[Row]]]:
    parts: dict[object, list[Row]] = defaultdict(list)
    for row in rows:
        parts[key(row)].append(row)
    return [([row for row in rows if key(row) != part], judged) for part, judged in parts.items()]


@dataclass(frozen=True, slots=True)
class Taught:
    """What may be used to judge some messages: the model and the rules without these messages."""

    model: Model | None
    without: int
    judged: tuple[Row, ...]


def taught(splits: Split, *, model: bool = True) -> list[Taught]:
    """Learn from the other part of each split, and from the vendors' messages."""
    vendors = documented()
    return [
        Taught(
            fit([*learnt, *vendors]) if model else None,
            unsupported([*learnt, *vendors]),
            tuple(judged),
        )
        for learnt, judged in splits
    ]


def out_of_fold(
    parts: Iterable[Taught], *, model: bool = True, supported_only: bool = False
) -> dict[str, ErrorClass]:
    """The class of each message, by what was learnt without its part."""
    said: dict[str, ErrorClass] = {}
    for part in parts:
        judge = judge_of(part.model if model else None, part.without if supported_only else 0)
        said.update((row.id, judge(row)) for row in part.judged)
    return said


@dataclass(frozen=True, slots=True)
class Score:
    """Of one class: how many messages have it, and how well it is told (0..1)."""

    count: int
    precision: float
    recall: float
    f1: float


def scores(rows: Sequence[Row], said: Mapping[str, ErrorClass]) -> dict[ErrorClass, Score]:
    """The score of each class that is in the truth, most frequent first."""
    truth, claimed = Counter(row.truth for row in rows), Counter(said[row.id] for row in rows)
    hits = Counter(row.truth for row in rows if said[row.id] is row.truth)
    found = {}
    for name, count in sorted(truth.items(), key=lambda item: (-item[1], item[0])):
        precision, recall = hits[name] / max(claimed[name], 1), hits[name] / count
        f1 = 2 * precision * recall / max(precision + recall, 1e-9)
        found[name] = Score(count, precision, recall, f1)
    return found


def macro_f1(table: Mapping[ErrorClass, Score]) -> float:
    """The mean F1 of the classes with at least five messages."""
    counted = [score.f1 for score in table.values() if score.count >= _COUNTED]
    return sum(counted) / len(counted)


def accuracy(rows: Sequence[Row], said: Mapping[str, ErrorClass]) -> float:
    """The share of messages whose class is told rightly."""
    return sum(said[row.id] is row.truth for row in rows) / len(rows)
