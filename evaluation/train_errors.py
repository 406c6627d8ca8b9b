"""Train the text model of error classes and write it with its report.

    python -m evaluation.train_errors

Writes `detectors/errors/model.json.gz` and `docs/error-model.md`. Reads `tests/testdata/errors/`: messages of
real trajectories with the class that a person gave them, and messages that vendors document, with addresses.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from detectors.errors.kinds import ADVICE, ErrorClass
from detectors.errors.model import ARTEFACT, Model
from detectors.errors.rules import RULES
from evaluation.error_folds import (
    FOLDS,
    MINIMUM,
    MINIMUM_TO_RETRY,
    Row,
    Score,
    Taught,
    accuracy,
    by_dataset,
    by_trajectory,
    documented,
    fit,
    macro_f1,
    out_of_fold,
    real,
    scores,
    taught,
)

ROOT: Final = Path(__file__).resolve().parents[1]
TEMPLATE: Final = """# How errors are classed

Written by `python -m evaluation.train_errors`; do not edit.

{rules} rules, first match wins (`detectors/errors/rules.py`), then a linear text model for what no rule
knows, then `unknown`. `recloser classify FILE` shows the verdict of any message.

{advice}

`retry` means that the same call may succeed later; after `auth`, once the credentials are fresh.

## Data

{real} messages of {trajectories} real trajectories ({datasets} public, freely licensed data sets), classed
by a person, and {documented} messages of the documentation of {vendors} vendors, each with its address:
`tests/testdata/errors/`.

## Out of fold, by trajectory

{folds} folds; no trajectory is on both sides. The rules were written with these messages at hand, so `all
rules` flatters them. `rules supported elsewhere` leaves out each rule that no message outside the fold, and
none of a vendor, supports: what only the fold has taught is forgotten.

{by_trajectory}

Per class, rules supported elsewhere and model:

{classes}

## One data set left out

Each data set judged with what the others and the vendors support: how a new kind of agent would fare.

{by_dataset}

## The model alone

Had there been no rules: the share of messages it would judge, and how many of those rightly. What reaches
it in use is what no rule knows, which is harder.

{curve}

Logistic regression over words, pairs of words and four-letter pieces of words, without numbers, paths and
addresses; {features} features, {width} classes, {size} kB, judged with the standard library alone.
"""


def packed(model: Model) -> bytes:
    """The model as it is shipped; the same model gives the same bytes."""
    text = json.dumps(
        {
            "classes": [name.value for name in model.classes],
            "biases": model.biases,
            "minimum": model.minimum,
            "minimum_to_retry": model.minimum_to_retry,
            "weights": model.weights,
        },
        separators=(",", ":"),
        sort_keys=True,
        ensure_ascii=True,
    )
    return gzip.compress(text.encode(), compresslevel=9, mtime=0)


def _combined(rows: Sequence[Row], parts: Sequence[Taught]) -> str:
    lines = ["| judge | macro-F1 | accuracy | unknown |", "| --- | --- | --- | --- |"]
    for supported_only in (False, True):
        for model in (False, True):
            said = out_of_fold(parts, model=model, supported_only=supported_only)
            name = ("rules supported elsewhere" if supported_only else "all rules") + (
                ", model" if model else ""
            )
            share = sum(value is ErrorClass.UNKNOWN for value in said.values()) / len(rows)
            macro = macro_f1(scores(rows, said))
            lines.append(f"| {name} | {macro:.3f} | {accuracy(rows, said):.3f} | {share:.1%} |")
    return "\n".join(lines)


def _alone(parts: Sequence[Taught]) -> list[tuple[float, bool]]:
    guesses = []
    for part in parts:
        if part.model is not None:
            for row in part.judged:
                guess, confidence = part.model.judge(row.subject)
                guesses.append((confidence, guess is row.truth))
    return guesses


def _vendors_alone(rows: Sequence[Row], vendors: Sequence[Row]) -> list[Taught]:
    return [Taught(fit([*rows, *learnt]), 0, tuple(judged)) for learnt, judged in by_trajectory(vendors)]


def _use(least: float) -> str:
    return {MINIMUM: " (shipped)", MINIMUM_TO_RETRY: " (shipped, for what is retried)"}.get(least, "")


def _curve(guesses: Mapping[str, Sequence[tuple[float, bool]]]) -> str:
    lines = [
        "| least confidence | " + " | ".join(f"{name}: judged, right of them" for name in guesses) + " |"
    ]
    lines.append("| --- |" + " --- |" * len(guesses))
    for least in (0.0, 0.4, 0.5, 0.6, 0.7, 0.8):
        cells = []
        for pairs in guesses.values():
            kept = [right for confidence, right in pairs if confidence >= least]
            cells.append(f"{len(kept) / len(pairs):.0%}, {sum(kept) / max(len(kept), 1):.0%}")
        lines.append(f"| {least:.1f}{_use(least)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _classes(table: Mapping[ErrorClass, Score]) -> str:
    lines = ["| class | messages | precision | recall | F1 |", "| --- | --- | --- | --- | --- |"]
    for name, score in table.items():
        lines.append(
            f"| {name} | {score.count} | {score.precision:.2f} | {score.recall:.2f} | {score.f1:.2f} |",
        )
    return "\n".join(lines)


def _advice() -> str:
    lines = [
        "| class | nature | retry | arguments | plan | prescription |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, advice in ADVICE.items():
        marks = (advice.retry, advice.change_arguments, advice.change_plan)
        cells = " | ".join("yes" if mark else "" for mark in marks)
        lines.append(f"| {name} | {advice.nature} | {cells} | {advice.prescription} |")
    return "\n".join(lines)


def report(model: Model, size: int) -> str:
    """The model's page, all figures measured now; `size` is the artefact's in bytes."""
    rows, vendors = real(), documented()
    parts = taught(by_trajectory(rows))
    strict = out_of_fold(parts, supported_only=True)
    alone = {
        "real messages": _alone(parts),
        "vendors' messages, by vendor": _alone(_vendors_alone(rows, vendors)),
    }
    return TEMPLATE.format(
        rules=len(RULES),
        advice=_advice(),
        real=len(rows),
        trajectories=len({row.group for row in rows}),
        datasets=len({row.dataset for row in rows}),
        documented=len(vendors),
        vendors=len({row.group for row in vendors}),
        folds=FOLDS,
        by_trajectory=_combined(rows, parts),
        classes=_classes(scores(rows, strict)),
        by_dataset=_combined(rows, taught(by_dataset(rows))),
        curve=_curve(alone),
        features=len(model.weights),
        width=len(model.classes),
        size=round(size / 1000),
    )


def main() -> None:
    """Train, write the artefact and the report."""
    model = fit([*real(), *documented()])
    artefact = packed(model)
    (ROOT / "detectors/errors" / ARTEFACT).write_bytes(artefact)
    (ROOT / "docs/error-model.md").write_text(report(model, len(artefact)), encoding="utf-8")
    print(f"{len(model.weights)} features, {len(artefact)} bytes")


if __name__ == "__main__":
    main()
