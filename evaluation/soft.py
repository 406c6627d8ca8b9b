"""How often calls reported ok are said to have failed, and whether the known ones of them are seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from evaluation.shared import Case
from evaluation.stats import Share

SOFT: Final = "soft_failure"


@dataclass(frozen=True, slots=True)
class SoftScore:
    """Soft failures among the messages of the error corpus.

    `recall`: of the messages whose call was reported ok, those found; `precision`: of the messages found,
    those whose call was reported ok (the others were reported as failures, and are none of these); `missed`:
    the beginnings of those not found.
    """

    precision: Share
    recall: Share
    missed: tuple[str, ...]


def said_soft(findings: pl.DataFrame) -> pl.DataFrame:
    """The (set, id, at) of every call that a finding of any severity calls a soft failure."""
    return findings.filter(pl.col("kind") == SOFT).select("set", "id", "at").unique(maintain_order=True)


def score_soft(errors: Sequence[Case], findings: pl.DataFrame) -> SoftScore:
    """Score the error corpus: rows with `trajectory`, `call` (from 0) and `reported_ok`."""
    said = {(run_id, at) for _, run_id, at in said_soft(findings).iter_rows()}
    hit = [row for row in errors if (row["trajectory"], int(row["call"]) + 1) in said]
    soft = [row for row in errors if row["reported_ok"]]
    found = sum(bool(row["reported_ok"]) for row in hit)
    missed = tuple(" ".join(str(row["message"]).split())[:100] for row in soft if row not in hit)
    return SoftScore(Share(found, len(hit)), Share(found, len(soft)), missed)


def rates_of_ok(findings: pl.DataFrame, runs: pl.DataFrame) -> list[tuple[str, int, int]]:
    """By set: calls said to be soft failures, and calls that were reported ok."""
    ok = runs.group_by("set", maintain_order=True).agg(pl.col("ok").sum())
    counted = said_soft(findings).group_by("set").agg(pl.len().cast(pl.Int64).alias("said"))
    joined = ok.join(counted, on="set", how="left", maintain_order="left").with_columns(
        pl.col("said").fill_null(0)
    )
    return [(name, said, total) for name, total, said in joined.select("set", "ok", "said").iter_rows()]
