"""Print how error classes are told out of fold, in the form of the shared scorer.

    python -m evaluation.errors_out_of_fold [--supported] [--dataset] [--jsonl]

`--supported` leaves out rules that only the fold at hand supports, `--dataset` leaves out one data set at a
time instead of a fifth of the trajectories, `--jsonl` prints one line a message (`id`, `class`) for another
scorer.
"""

from __future__ import annotations

import argparse
import json

from evaluation.error_folds import (
    accuracy,
    by_dataset,
    by_trajectory,
    macro_f1,
    out_of_fold,
    real,
    scores,
    taught,
)


def main() -> None:
    """Judge each message without its trajectory or data set, and print the score."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--supported", action="store_true")
    parser.add_argument("--dataset", action="store_true")
    parser.add_argument("--jsonl", action="store_true")
    options = parser.parse_args()
    rows = real()
    parts = taught(by_dataset(rows) if options.dataset else by_trajectory(rows))
    said = out_of_fold(parts, supported_only=options.supported)
    if options.jsonl:
        for name, value in said.items():
            print(json.dumps({"id": name, "class": value}))
        return
    table = scores(rows, said)
    for name, score in table.items():
        figures = f"precision {score.precision:.2f}  recall {score.recall:.2f}  F1 {score.f1:.2f}"
        print(f"{name:18} n {score.count:4}  {figures}")
    print(f"macro-F1 (classes of 5 or more) {macro_f1(table):.3f}  accuracy {accuracy(rows, said):.3f}")


if __name__ == "__main__":
    main()
