"""What a report tells, gathered from the store, and its JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any, Final

from api import shown
from api.prices import Prices
from api.taxing import TaxBill, bill
from api.window import from_ns
from storage.client import StoreClient
from storage.metrics.catalog import METRICS
from storage.metrics.definitions import DefinitionChange, changes
from storage.metrics.metric import NOT_RECORDED, Measured, measure
from storage.metrics.overview import Overview, overview
from storage.metrics.selection import Selection
from storage.metrics.streaks import streaks

_DIGITS: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All metrics of a window.

    `by` are the columns asked for; each metric is grouped by those that it knows.
    """

    selection: Selection
    by: tuple[str, ...]
    overview: Overview
    metrics: tuple[Measured, ...]
    tax: TaxBill
    changes: tuple[DefinitionChange, ...]


def gather(
    client: StoreClient, selection: Selection, by: Sequence[str], prices: Prices, ceiling: int
) -> Report:
    """Measure everything. Raises `Unavailable` or `Rejected`."""
    return Report(
        selection=selection,
        by=tuple(by),
        overview=overview(client, selection),
        metrics=tuple(measure(client, metric, selection, by) for metric in METRICS),
        tax=bill(streaks(client, selection, ceiling).iter_rows(named=True), prices, ceiling),
        changes=tuple(changes(client, selection)),
    )


def as_json(report: Report) -> dict[str, Any]:
    """The report as plain data; numbers are rounded to six digits after the point."""
    selection = report.selection
    return {
        "window": {"since": from_ns(selection.since_ns), "until": from_ns(selection.until_ns)},
        "service": selection.service,
        "by": list(report.by),
        "overview": asdict(report.overview),
        "metrics": [_metric(each) for each in report.metrics],
        "tax": plain(asdict(report.tax)),
        "definition_changes": [_change(each) for each in report.changes],
    }


def summary(gathered: Report) -> str:
    """How much there was, in one line."""
    seen = gathered.overview
    tokens = "tokens not recorded" if seen.tokens is None else f"{seen.tokens:,} tokens"
    cost = "" if seen.cost_usd is None else f", {shown.money(seen.cost_usd)} as recorded"
    return (
        f"{seen.sessions:,} sessions, {seen.calls:,} tool calls, {seen.failed:,} of them failed,"
        f" {seen.model_calls:,} model calls, {tokens}{cost}"
    )


def plain(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Values as JSON holds them: days as text, numbers rounded."""
    match value:
        case float():
            return round(value, _DIGITS)
        case date():
            return value.isoformat()
        case dict():
            return {name: plain(each) for name, each in value.items()}
        case list() | tuple():
            return [plain(each) for each in value]
    return value


def _metric(measured: Measured) -> dict[str, Any]:
    metric = measured.metric
    return {
        "name": metric.name,
        "title": metric.title,
        "definition": metric.definition,
        "unit": metric.unit,
        "shape": metric.shape.value,
        "better": metric.better.value or None,
        "by": list(measured.by),
        "keys": list(metric.keys),
        "status": "recorded" if measured.recorded else NOT_RECORDED,
        "needs": metric.needs,
        "rows": plain(measured.table.to_dicts()),
    }


def _change(change: DefinitionChange) -> dict[str, Any]:
    told = asdict(change)
    return {"at": from_ns(told.pop("at_ns")), **told, "changed": list(change.changed)}
