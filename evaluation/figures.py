"""Which figures are drawn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import polars as pl

from evaluation import plots
from evaluation.baselines import BASELINES
from evaluation.measuring import RECLOSER, Measured, row_of, share_of
from evaluation.scoring import Alarms, score_cases, score_labels
from evaluation.shared import GROUPS, REPORTED

BESIDE: Final = ("C10m or E10x4", "C10 or E10", "OpenHands SDK", "qwen-code all", "loopguardian")
"""Rules in the plot of alarm rates: the best baselines, and peers from careful to eager."""


def drawn(measured: Measured, of: pl.DataFrame, folder: Path) -> str:
    """Draw all plots into `folder` and return the section that shows them. `of`: see `measuring.rates`."""
    groups = [group.title for group in GROUPS]
    shares = {
        rule: [share_of(of, rule, group, REPORTED).value for group in groups] for rule in (RECLOSER, *BESIDE)
    }
    plots.alarm_rates(folder / "alarm_rates.svg", groups, shares)
    plots.scatter(
        folder / "precision_recall.svg",
        {"cases": _points(measured, _case_point), "labels": _points(measured, _label_point)},
    )
    cases, labels = score_cases(measured.cases, measured.own), score_labels(measured.labels, measured.own)
    plots.delays(
        folder / "delays.svg",
        {
            "cases: calls from the one by which an alarm is due to the first alarm": cases.delays,
            "labels: calls from the later reader to the first alarm": labels.delays,
        },
    )
    rows = [row_of(of, RECLOSER, group, REPORTED) for group in groups]
    plots.savings(
        folder / "savings.svg",
        groups,
        [row["calls_after"] / max(row["calls"], 1) for row in rows],
        [row["tokens_after"] / row["tokens"] if row["metered"] else None for row in rows],
    )
    names = {
        "alarm_rates": "Share of runs alarmed, by set",
        "precision_recall": "Recall and precision, all cases and labels",
        "delays": "Delay of the first alarm, all cases and labels",
        "savings": "What was spent after the first alarm",
    }
    shown = [f"{title}:\n\n![{title}]({folder.name}/{name}.svg)" for name, title in names.items()]
    return "\n\n".join(["## Plots", *shown])


def _case_point(measured: Measured, alarms: Alarms) -> tuple[float, float]:
    score = score_cases(measured.cases, alarms)
    return score.recall.value, score.precision.value


def _label_point(measured: Measured, alarms: Alarms) -> tuple[float, float]:
    score = score_labels(measured.labels, alarms)
    return score.recall.value, score.precision.value


def _points(
    measured: Measured, point: Callable[[Measured, Alarms], tuple[float, float]]
) -> dict[str, list[plots.Point]]:
    families: dict[str, list[plots.Point]] = {RECLOSER: [], "baselines": [], "peers": []}
    for rule, alarms in measured.alarms.items():
        family = rule if rule == RECLOSER else "baselines" if rule in BASELINES else "peers"
        families[family].append((rule, *point(measured, alarms)))
    return families
