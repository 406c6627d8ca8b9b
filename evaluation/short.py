"""The measured figures in short, for who tunes: of both halves together and of the reported half."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import polars as pl

from evaluation.measuring import ALL, Measured
from evaluation.scoring import by_round, score_cases, score_labels
from evaluation.shared import GROUPS, REPORTED, Case, half
from evaluation.stats import Share

SHOWN: Final = 6  # findings of a run


def briefly(measured: Measured) -> str:
    """The figures of the issue's targets, a line each."""
    return "\n".join([*_cases(measured), *_labels(measured), *_sets(measured), *_kinds(measured.findings)])


def _cases(measured: Measured) -> Iterator[str]:
    parts = [("cases", *part) for part in _parts(measured.cases)]
    parts += [("blind", *part) for part in _parts(measured.blind)]
    parts += [("blind-second", *part) for part in _parts(measured.second)]
    for name, title, part in parts:
        score = score_cases(part, measured.own)
        yield (
            f"{name} {title}: in time {score.in_time}/{score.positives}, right kind {score.right_kind}, "
            f"too early {score.early}, traps alarmed {score.trapped}/{score.traps}"
        )


def _labels(measured: Measured) -> Iterator[str]:
    parts = [("labels", *part) for part in _parts(measured.labels)]
    parts += [(f"further labels, round {number}", "all", part) for number, part in by_round(measured.further)]
    for name, title, part in parts:
        score = score_labels(part, measured.own)
        kinds = ", ".join(
            f"{label} {score.found[label]}/{count} (right kind {score.right[label]})"
            for label, count in sorted(score.total.items())
        )
        yield (
            f"{name} {title}: recall {score.recall.hits}/{score.recall.total}, "
            f"false alarms {score.false_alarms.hits}/{score.false_alarms.total}, "
            f"median delay {score.median_delay}, early {score.early}; {kinds}"
        )


def _sets(measured: Measured) -> Iterator[str]:
    alarms = measured.own
    halves = dict(measured.runs.select("id", "half").iter_rows())
    for title, ids in measured.members.items():
        mine = [run_id for run_id in ids if halves[run_id] == REPORTED]
        both = Share(sum(run_id in alarms for run_id in ids), len(ids))
        part = Share(sum(run_id in alarms for run_id in mine), len(mine))
        yield f"{title}: alarmed {both} of {len(ids)} runs; reported half {part} of {len(mine)}"


def _kinds(findings: pl.DataFrame) -> Iterator[str]:
    counted = findings.group_by("set", "kind", "severity", "shadow").agg(
        pl.len().alias("findings"), pl.col("id").n_unique().alias("runs")
    )
    for name, kind, severity, shadow, count, runs in counted.sort(
        "set", "kind", "severity", "shadow"
    ).iter_rows():
        yield f"said {name}: {kind} {severity}{' (shadow)' if shadow else ''} {count} in {runs} runs"


def _parts(rows: list[Case]) -> list[tuple[str, list[Case]]]:
    mine = [row for row in rows if half(str(row["id"])) == REPORTED]
    return [("all", rows), ("reported half", mine)] if rows else []


def shown(measured: Measured, which: str) -> str:
    """Every case, label and good run that falls short, and what was said of it; of a half, or of all."""
    alarms = measured.own
    short: dict[str, str] = {}
    for run_id, why in score_labels([*measured.labels, *measured.further], alarms).short.items():
        short[run_id] = f"label {run_id}: {why}"
    for name, cases in (("case", measured.cases), ("blind", [*measured.blind, *measured.second])):
        for run_id, why in score_cases(cases, alarms).short.items():
            short[run_id] = f"{name} {run_id}: {why}"
    for group in GROUPS:
        for run_id in measured.members.get(group.title, ()) if group.healthy else ():
            if run_id in alarms:
                short.setdefault(run_id, f"good run alarmed, {group.title}: {run_id}")
    said: dict[str, list[str]] = {}
    rows = measured.findings.select("id", "since", "at", "severity", "kind", "rule", "summary")
    for run_id, since, at, severity, kind, rule, summary in rows.sort("id", "at").iter_rows():
        line = f"    calls {since}-{at} {severity} {kind} ({rule}): {summary[:160]}"
        said.setdefault(run_id, []).append(line)
    return "\n".join(
        "\n".join([why, *said.get(run_id, [])[:SHOWN]])
        for run_id, why in short.items()
        if which == ALL or half(run_id) == which
    )
