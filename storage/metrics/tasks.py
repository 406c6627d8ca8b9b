"""Metrics over tasks that were tried several times: pass^k.

All of k independent trials succeed; estimated without bias from n trials of which c succeeded as C(c,k) /
C(n,k), then averaged over tasks with at least k trials. A trial is a task in a session.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from typing import Final

import polars as pl

from storage.metrics.intervals import z_of
from storage.metrics.metric import Better, Metric, Shape
from storage.metrics.selection import grouping, selected

MOST_TRIALS: Final = 8
"""The largest k."""


def pass_hat(trials: int, successes: int, k: int) -> float:
    """C(c,k) / C(n,k). Raises ValueError unless 1 <= k <= n and 0 <= c <= n.

    >>> pass_hat(4, 3, 1), pass_hat(4, 3, 2), pass_hat(4, 3, 4)
    (0.75, 0.5, 0.0)
    """
    if not (1 <= k <= trials and 0 <= successes <= trials):
        raise ValueError(f"pass^{k} of {successes} successes in {trials} trials is not defined")
    return comb(successes, k) / comb(trials, k)


def _pass_k(by: Sequence[str]) -> str:
    return f"""SELECT {selected(by)}task_id, count() AS trials, countIf(success) AS successes
FROM
(
    SELECT task_id, session_id, any(here.service) AS service, any(here.service_version) AS service_version,
        argMaxIf(task_success, start_time, isNotNull(task_success)) AS success
    FROM here GROUP BY task_id, session_id HAVING countIf(isNotNull(task_success)) > 0
)
GROUP BY {grouping(by, "task_id")}"""  # noqa: S608 - constants


def _passed(rows: pl.DataFrame) -> pl.DataFrame:
    groups = [name for name in rows.columns if name not in ("task_id", "trials", "successes")]
    most = min(MOST_TRIALS, rows["trials"].max() or 0)
    found: list[dict[str, object]] = []
    for row in rows.iter_rows(named=True):
        found += [
            {
                **{name: row[name] for name in groups},
                "k": k,
                "each": pass_hat(row["trials"], row["successes"], k),
            }
            for k in range(1, min(most, row["trials"]) + 1)
        ]
    table = (
        pl.DataFrame(found)
        .group_by(*groups, "k")
        .agg(pl.len().alias("total"), pl.col("each").mean().alias("value"), pl.col("each").std().alias("sd"))
    )
    reach = z_of() * pl.col("sd") / pl.col("total").sqrt()
    return table.with_columns(
        (pl.col("value") - reach).clip(0.0, 1.0).alias("low"),
        (pl.col("value") + reach).clip(0.0, 1.0).alias("high"),
    ).drop("sd")


METRICS: Final = (
    Metric(
        name="pass_k",
        title="pass^k",
        definition="mean over tasks of C(c,k) / C(n,k), c of n trials successful",
        needs="recloser.task.id and recloser.task.success",
        query=_pass_k,
        finish=_passed,
        by=("service", "service_version"),
        shape=Shape.ESTIMATE,
        better=Better.HIGHER,
        keys=("k",),
    ),
)
