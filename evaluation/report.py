"""The report: docs/evaluation.md and its plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import polars as pl

from evaluation import figures, prose
from evaluation.errors import Told
from evaluation.first_scores import FIRST_SCORES
from evaluation.markdown import calls, table
from evaluation.measuring import (
    ALL,
    RECLOSER,
    RULES,
    Measured,
    alarmed,
    by_first_kind,
    rates,
    row_of,
    share_of,
)
from evaluation.pairs import score_pairs, streaks
from evaluation.scoring import (
    Judged,
    by_kind,
    by_round,
    judged_cases,
    judged_labels,
    score_cases,
    score_labels,
)
from evaluation.shared import ERRORS, GROUPS, REPORTED, TUNED, Case, half, path_of, read
from evaluation.soft import rates_of_ok, score_soft
from evaluation.stats import Share, percent
from evaluation.targets import targets

HALVES: Final = (REPORTED, TUNED, ALL)


def write(measured: Measured, errors: Sequence[Told], path: Path) -> None:
    """Write the report to `path` and the plots into the folder of its name beside it."""
    folder = path.with_suffix("")
    found = alarmed(measured)
    of = rates(found)
    sections = [
        prose.HEAD,
        _targets(measured, of, errors),
        _cases(measured),
        _labels(measured),
        _rounds(measured),
        _sets(of),
        _kinds(measured),
        _beside(of),
        _savings(measured, of),
        _pairs(measured),
        _errors(errors),
        _soft(measured),
        figures.drawn(measured, of, folder),
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n\n".join(section.strip() for section in sections) + "\n", encoding="utf-8")


def _part(rows: list[Case], which: str) -> list[Case]:
    return rows if which == ALL else [row for row in rows if half(str(row["id"])) == which]


def _targets(measured: Measured, of: pl.DataFrame, errors: Sequence[Told]) -> str:
    rows = [
        (target.what, target.wanted, target.reached, "yes" if target.met else "**no**")
        for target in targets(measured, of, errors)
    ]
    return _said(prose.TARGETS, table(("what", "wanted", "reached", "met"), rows))


def _said(*parts: str) -> str:
    return "\n\n".join(part.strip() for part in parts)


def _own_cases(measured: Measured, cases: list[Case]) -> str:
    rows = []
    for which in HALVES:
        score = score_cases(_part(cases, which), measured.own)
        right, ever = (f"{count}/{score.positives}" for count in (score.right_kind, score.ever))
        rows.append((which, score.recall, right, score.early, ever, score.false_alarms, score.precision))
    header = ("half", "in time", "right kind", "too early", "ever", "traps alarmed", "precision")
    return table(header, rows)


def _cases(measured: Measured) -> str:
    beside = []
    for rule, alarms in measured.alarms.items():
        scores = [score_cases(_part(measured.cases, which), alarms) for which in HALVES]
        cells = [_pair(score.recall, score.false_alarms) for score in scores]
        beside.append((rule, *cells, scores[-1].ever, percent(scores[-1].precision.value)))
    header_beside = (
        "in time, traps alarmed",
        *(f"{which}" for which in HALVES),
        "ever, all",
        "precision, all",
    )
    return _said(
        prose.CASES,
        _own_cases(measured, measured.cases),
        prose.BLIND,
        _own_cases(measured, measured.blind),
        prose.SECOND,
        _own_cases(measured, measured.second),
        prose.BY_KIND,
        "Of the shared cases:",
        _by_kind(judged_cases(measured.cases, measured.own)),
        "Of the second blind cases:",
        _by_kind(judged_cases(measured.second, measured.own)),
        prose.CASES_BESIDE,
        table(header_beside, beside),
    )


def _pair(hits: Share, wrong: Share) -> str:
    return f"{hits.hits}/{hits.total}, {wrong.hits}/{wrong.total}"


def _by_kind(judged: Sequence[Judged]) -> str:
    header = ("kind", "alarmed", "with a right kind", "median delay", "said of stuck runs", "said rightly")
    rows = [
        (kind.kind, kind.alarmed, kind.right, calls(kind.median_delay), kind.stuck, kind.right_said)
        for kind in by_kind(judged)
    ]
    return table(header, rows)


def _labels(measured: Measured) -> str:
    parts = {which: _part(measured.labels, which) for which in HALVES}
    return _said(prose.LABELS, _labelled(measured, "half", parts))


def _rounds(measured: Measured) -> str:
    parts = {f"round {number}": rows for number, rows in by_round(measured.further)}
    firsts = [
        (first.what, _pair(first.found, first.wrong), first.found, first.wrong) for first in FIRST_SCORES
    ]
    return _said(
        prose.ROUNDS,
        table(("first score of", "stuck, healthy", "stuck runs alarmed", "healthy runs alarmed"), firsts),
        prose.FURTHER,
        _labelled(measured, "round", parts | {ALL: measured.further}),
    )


def _labelled(measured: Measured, by: str, parts: Mapping[str, list[Case]]) -> str:
    """Labels in parts, the last of which is all of them: our own score, by kind, and beside others."""
    own = []
    for title, part in parts.items():
        score = score_labels(part, measured.own)
        delay = calls(score.median_delay)
        own.append((title, score.recall, score.precision, score.false_alarms, delay, score.early))
    beside = []
    for rule, alarms in measured.alarms.items():
        scores = [score_labels(part, alarms) for part in parts.values()]
        cells = [_pair(score.recall, score.false_alarms) for score in scores]
        last = scores[-1]
        beside.append((rule, *cells, percent(last.precision.value), calls(last.median_delay), last.early))
    header = (by, "recall", "precision", "healthy runs alarmed", "median delay", "early")
    header_beside = (
        "stuck runs, healthy runs alarmed",
        *parts,
        "precision, all",
        "median delay, all",
        "early, all",
    )
    return _said(
        table(header, own),
        prose.BY_KIND,
        _by_kind(judged_labels(parts[ALL], measured.own)),
        "Beside baselines and peers:",
        table(header_beside, beside),
    )


def _sets(of: pl.DataFrame) -> str:
    rows = []
    for group in GROUPS:
        shares = [share_of(of, RECLOSER, group.title, which) for which in HALVES]
        everything = row_of(of, RECLOSER, group.title, ALL)
        judge = {True: "good", False: "bad", None: ""}[group.healthy]
        rows.append((group.title, judge, everything["runs"], *shares, calls(everything["median_at"])))
    identical = "intercode 5 identical in a row"
    by_sixth = ", ".join(
        f"{which} {Share(row['by_sixth'], row['runs'])}"
        for which in HALVES
        for row in [row_of(of, RECLOSER, identical, which)]
    )
    return _said(
        prose.SETS,
        table(("set", "its judge", "runs", "reported half", "tuned half", "all", "median call"), rows),
        f"Intercode runs with five identical calls in a row that are alarmed by the sixth: {by_sixth}.",
    )


def _kinds(measured: Measured) -> str:
    halves = measured.runs.select("id", "half")
    totals = dict(measured.runs.group_by("set").len().iter_rows())
    counted = (
        measured.findings.join(halves, on="id", how="left")
        .group_by("kind", "set", "severity", "shadow")
        .agg(
            pl.col("id").n_unique().alias("runs"),
            pl.col("id").filter(pl.col("half") == REPORTED).n_unique().alias("reported"),
            pl.col("finding").n_unique().alias("findings"),
        )
        .sort("kind", "set", "severity", "shadow")
    )
    rows = [
        (kind, name, severity, "yes" if shadow else "", findings, runs, totals[name], mine)
        for kind, name, severity, shadow, runs, mine, findings in counted.iter_rows()
    ]
    header = (
        "kind",
        "set",
        "severity",
        "shadow",
        "findings",
        "runs with one",
        "of",
        "runs of the reported half",
    )
    return _said(prose.KINDS, table(header, rows))


def _beside(of: pl.DataFrame) -> str:
    groups = [group.title for group in GROUPS]
    parts = [prose.BESIDE]
    for which in HALVES:
        rows = []
        for rule in (RECLOSER, *RULES):
            shares = [share_of(of, rule, group, which) for group in groups]
            rows.append((rule, *(percent(share.value) if share.total else "none" for share in shares)))
        parts += [
            f"Of {'both halves' if which == ALL else f'the {which} half'}:",
            table(("rule", *groups), rows),
        ]
    notes = [f"{name}: {entry.note}" for name, entry in RULES.items() if entry.note]
    parts.append("Settled or left out where descriptions leave room: " + "; ".join(notes) + ".")
    return _said(*parts)


def _savings(measured: Measured, of: pl.DataFrame) -> str:
    rows = []
    for group in GROUPS:
        for which in HALVES:
            row = row_of(of, RECLOSER, group.title, which)
            judge = {True: "good", False: "bad", None: ""}[group.healthy]
            spent = f"{row['tokens_after']:,} of {row['tokens']:,}" if row["metered"] else "not recorded"
            share = row["calls_after"] / row["calls"]
            rows.append(
                (
                    group.title,
                    judge,
                    which,
                    row["alarmed"],
                    f"{row['calls_after']:,} of {row['calls']:,}",
                    percent(share),
                    spent,
                )
            )
    header = ("set", "its judge", "half", "runs stopped", "calls after", "share of calls", "tokens after")
    kinds = [
        (kind, runs, good, f"{after:,}", f"{tokens:,}")
        for kind, runs, good, after, tokens in by_first_kind(measured).iter_rows()
    ]
    return _said(
        prose.SAVINGS,
        table(header, rows),
        "By the kind of the first alarm, runs of all sets and of both halves:",
        table(("kind", "runs stopped", "of them good", "calls after", "tokens after"), kinds),
    )


def _pairs(measured: Measured) -> str:
    alarms = streaks(measured.findings)
    rows = []
    for which in HALVES:
        score = score_pairs(_part(measured.paired, which), alarms)
        rows.append((which, score.precision, score.recall, score.repeating))
    header = ("half", "alarms that are right", "episodes found", "pairs that repeat")
    return _said(prose.PAIRS, table(header, rows))


def _errors(ways: Sequence[Told]) -> str:
    headline = ways[0]
    rows = [
        (name.value, score.count, *(f"{value:.2f}" for value in (score.precision, score.recall, score.f1)))
        for name, score in headline.by_class.items()
    ]
    summary = [(way.way, f"{way.macro_f1:.3f}", percent(way.accuracy)) for way in ways]
    return _said(
        prose.ERRORS,
        table(("judged by", "macro-F1", "accuracy"), summary),
        f"By class, {headline.way}:",
        table(("class", "messages", "precision", "recall", "F1"), rows),
    )


def _soft(measured: Measured) -> str:
    errors = list(read(path_of(ERRORS)))
    scored = []
    for which in HALVES:
        part = [row for row in errors if which in (ALL, half(str(row["trajectory"])))]
        score = score_soft(part, measured.soft)
        scored.append((which, score.recall, score.precision))
    missed = [f"- {_quoted(text)}" for text in score_soft(errors, measured.soft).missed]
    rows = [
        (name, f"{said:,}", f"{ok:,}", f"{1000 * said / ok:.1f}" if ok else None)
        for name, said, ok in rates_of_ok(measured.soft, measured.runs)
    ]
    return _said(
        prose.SOFT,
        table(("half", "found", "rightly"), scored),
        *(["Not found:", "\n".join(missed)] if missed else []),
        prose.SOFT_RATES,
        table(("set", "said", "ok calls", "per 1,000"), rows),
    )


def _quoted(text: str) -> str:
    return "`" + text.replace("`", "'") + "`"
