"""What a metric is, and how one is measured: one query, its rows as a polars table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import polars as pl
import pyarrow as pa

from storage.metrics.intervals import wilson
from storage.metrics.selection import Selection, with_relations

if TYPE_CHECKING:
    from storage.client import StoreClient

NOT_RECORDED: Final = "not recorded"


class Shape(StrEnum):
    """Which columns a metric has besides those that it is grouped by and its `keys`.

    `share`: `hits`, `total`, `value` = hits/total, `low`, `high` (Wilson). `ratio`: the same of amounts, not
    of things counted, so there is no interval. `spread`: `total`, `value` (the median), `p95`, `mean`, `sd`.
    `difference`: two shares and `value`, `low`, `high` of what they differ by. `estimate`: `total`, `value`,
    `low`, `high`. `count`: `hits`.
    """

    SHARE = "share"
    RATIO = "ratio"
    SPREAD = "spread"
    DIFFERENCE = "difference"
    ESTIMATE = "estimate"
    COUNT = "count"


class Better(StrEnum):
    """Which way a metric should go."""

    HIGHER = "higher"
    LOWER = "lower"
    NEITHER = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric.

    `query` gives its SQL for the columns to group by, over the relations of `storage.metrics.selection`;
    `finish` makes the table of its rows, of which there is at least one. `by` are the columns that it can be
    grouped by, `keys` those that it always is. `needs` says what must have been recorded for it.
    """

    name: str
    title: str
    definition: str
    needs: str
    query: Callable[[Sequence[str]], str]
    finish: Callable[[pl.DataFrame], pl.DataFrame]
    by: tuple[str, ...]
    shape: Shape = Shape.SHARE
    better: Better = Better.NEITHER
    keys: tuple[str, ...] = ()
    unit: str = "share"


@dataclass(frozen=True, slots=True)
class Measured:
    """A metric's rows, grouped by `by`; no rows: its input was not recorded."""

    metric: Metric
    by: tuple[str, ...]
    table: pl.DataFrame

    @property
    def recorded(self) -> bool:
        """Whether there was anything to measure."""
        return self.table.height > 0


def measure(client: StoreClient, metric: Metric, selection: Selection, by: Sequence[str] = ()) -> Measured:
    """Run a metric's query. Of `by` it takes what the metric knows. Raises `Unavailable` or `Rejected`."""
    groups = tuple(name for name in by if name in metric.by)
    rows = fetch(client, metric.query(groups), selection)
    if rows.height == 0:
        return Measured(metric, groups, rows)
    table = metric.finish(rows)
    order = [name for name in (*groups, *metric.keys) if name in table.columns]
    return Measured(metric, groups, table.sort(order) if order else table)


def fetch(client: StoreClient, query: str, selection: Selection) -> pl.DataFrame:
    """The rows of a query over the relations, by Arrow. Raises `Unavailable` or `Rejected`."""
    data = client.arrow(with_relations(query, selection), selection.parameters())
    if not data:
        return pl.DataFrame()
    found = pl.from_arrow(pa.ipc.open_stream(data).read_all())
    return found if isinstance(found, pl.DataFrame) else found.to_frame()


def shares(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows with `hits` and `total`, with `value` and Wilson's interval."""
    found = [
        wilson(min(hits, total), total)
        for hits, total in zip(rows["hits"].to_list(), rows["total"].to_list(), strict=True)
    ]
    return ratios(rows).with_columns(
        pl.Series("low", [each.low for each in found], pl.Float64),
        pl.Series("high", [each.high for each in found], pl.Float64),
    )


def ratios(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows with `hits` and `total`, hits at most total, with `value`."""
    capped = rows.with_columns(pl.min_horizontal("hits", "total").alias("hits"))
    return capped.with_columns((pl.col("hits") / pl.col("total")).alias("value"))


def as_they_are(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows as the query gave them."""
    return rows
