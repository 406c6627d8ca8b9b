"""The command line of the evaluation."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from evaluation.measuring import measure
from evaluation.report import write
from evaluation.shared import CASES, LABELS, ROOT, SETS, SHARED
from evaluation.short import briefly, shown

REPORT: Final = ROOT / "docs" / "evaluation.md"


def _names(text: str) -> list[str]:
    names = [name for name in text.split(",") if name]
    unknown = sorted(set(names) - {CASES, LABELS, *SETS})
    if unknown:
        raise argparse.ArgumentTypeError(
            f"unknown {', '.join(unknown)}; there are {CASES}, {LABELS}, {', '.join(SETS)}"
        )
    return names


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m evaluation", description=__doc__)
    parser.add_argument(
        "--only",
        type=_names,
        help=f"of {CASES}, {LABELS} and the sets, parted by commas: print, write nothing",
    )
    parser.add_argument(
        "--quick", action="store_true", help="a tenth of the large sets: print, write nothing"
    )
    parser.add_argument(
        "--show", action="store_true", help="print every miss and every false alarm with what was said"
    )
    parser.add_argument("--out", type=Path, default=REPORT, help="the report (default docs/evaluation.md)")
    parser.add_argument("--workers", type=int, default=2, help="processes that analyze (default 2)")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure; print in short, or write the report."""
    given = options(arguments)
    if not SHARED.exists():
        sys.exit(f"the cases and trajectories are read from {SHARED}, which is not there")
    whole = given.only is None and not given.quick
    names = given.only or [CASES, LABELS, *SETS]
    measured = measure(names, quick=given.quick, workers=given.workers, rules=whole)
    print(briefly(measured))
    if given.show:
        print(shown(measured))
    if whole:
        write(measured, given.out)
        print(f"{given.out} written")
