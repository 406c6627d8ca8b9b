"""The command line of the evaluation."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from evaluation.measuring import ALL, Measured, measure
from evaluation.shared import BLIND, CASES, FURTHER, LABELS, ROOT, SECOND, SETS, SHARED, TUNED
from evaluation.short import briefly, shown

REPORT: Final = ROOT / "docs" / "evaluation.md"
ALONE: Final = (CASES, BLIND, SECOND, LABELS, FURTHER)
"""What can be asked for besides the sets."""


def _names(text: str) -> list[str]:
    names = [name for name in text.split(",") if name]
    unknown = sorted(set(names) - {*ALONE, *SETS})
    if unknown:
        raise argparse.ArgumentTypeError(
            f"unknown {', '.join(unknown)}; there are {', '.join((*ALONE, *SETS))}"
        )
    return names


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m evaluation", description=__doc__)
    parser.add_argument(
        "--only",
        type=_names,
        help=f"of {', '.join(ALONE)} and the sets, parted by commas: print, write nothing",
    )
    parser.add_argument(
        "--quick", action="store_true", help="a tenth of the large sets: print, write nothing"
    )
    parser.add_argument(
        "--show",
        nargs="?",
        const=TUNED,
        choices=(TUNED, ALL),
        help="print misses and false alarms with what was said: of the tuned half, or of all "
        "(who has looked at the reported half cannot report it any more)",
    )
    parser.add_argument("--out", type=Path, default=REPORT, help="the report (default docs/evaluation.md)")
    parser.add_argument("--workers", type=int, default=2, help="processes that analyze (default 2)")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure; print in short, or write the report."""
    given = options(arguments)
    if not SHARED.exists():
        sys.exit(f"the cases and trajectories are read from {SHARED}, which is not there")
    if given.only is None and not given.quick:
        measured = _report(given.out, given.workers)
    else:
        names = given.only or [*ALONE, *SETS]
        measured = measure(names, quick=given.quick, workers=given.workers, rules=False)
    print(briefly(measured))
    if given.show:
        print(shown(measured, given.show))


def _report(path: Path, workers: int) -> Measured:
    from evaluation.errors import told  # with what trains models, which the short ways do not need
    from evaluation.handoff_docs import write as write_handoffs
    from evaluation.report import write

    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as beside:
        errors = beside.submit(told)  # takes as long as all else
        measured = measure([*ALONE, *SETS], quick=False, workers=workers)
        write(measured, errors.result(), path)
    if path == REPORT:
        for title, scored in write_handoffs():
            print(f"hand-off, {title}: filled {scored.mean_filled:.0%}, onset within 2 calls {scored.near}")
    return measured
