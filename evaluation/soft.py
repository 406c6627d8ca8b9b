"""How often calls reported ok are said to have failed, and whether the known ones of them are seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from evaluation.shared import Case
from evaluation.stats import Share


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


def score_soft(errors: Sequence[Case], soft: pl.DataFrame) -> SoftScore:
    """Score error messages (`id`, `message`, `reported_ok`), each a run of one call, by `SOFT_SCHEMA`."""
    said = set(soft["id"])
    hit = [row for row in errors if row["id"] in said]
    there = [row for row in errors if row["reported_ok"]]
    found = sum(bool(row["reported_ok"]) for row in hit)
    missed = tuple(" ".join(str(row["message"]).split())[:100] for row in there if row not in hit)
    return SoftScore(Share(found, len(hit)), Share(found, len(there)), missed)


def rates_of_ok(soft: pl.DataFrame, runs: pl.DataFrame) -> list[tuple[str, int, int]]:
    """By set: calls said to be soft failures, and calls that were reported ok."""
    ok = runs.group_by("set", maintain_order=True).agg(pl.col("ok").sum())
    counted = soft.group_by("set").agg(pl.len().cast(pl.Int64).alias("said"))
    joined = ok.join(counted, on="set", how="left", maintain_order="left").with_columns(
        pl.col("said").fill_null(0)
    )
    return [(name, said, total) for name, total, said in joined.select("set", "ok", "said").iter_rows()]
