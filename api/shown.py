"""Values of metrics as people read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from api.printable import printable
from storage.metrics.metric import NOT_RECORDED, Measured, Metric, Shape

MAX_NAME: Final = 60  # characters of a tool's or agent's name


def value(metric: Metric, row: Mapping[str, Any]) -> str:
    """The value of a row.

    >>> from storage.metrics.catalog import BY_NAME
    >>> value(BY_NAME["recovery_rate"], {"value": 0.625}), value(BY_NAME["calls_to_recovery"], {"value": 2.0})
    ('62.5 %', '2')
    """
    number = row.get("value")
    if metric.shape is Shape.COUNT:
        return str(row["hits"])
    if number is None:
        return ""
    if metric.shape is Shape.SPREAD:
        return f"{number:.4g} s" if metric.unit == "seconds" else f"{number:.4g}"
    if metric.shape is Shape.DIFFERENCE:
        return f"{100 * number:+.1f} points"
    return percent(number)


def percent(share: float) -> str:
    """A share in percent.

    >>> percent(0.0417)
    '4.2 %'
    """
    return f"{100 * share:.1f} %"


def interval(metric: Metric, row: Mapping[str, Any]) -> str:
    """The interval of a row's value, or what stands for one."""
    if metric.shape is Shape.SPREAD:
        return f"p95 {row['p95']:.4g}, mean {row['mean']:.3g}"
    low, high = row.get("low"), row.get("high")
    if low is None or high is None:
        return ""
    if metric.shape is Shape.DIFFERENCE:
        return f"{100 * low:+.1f} to {100 * high:+.1f}"
    return f"{100 * low:.1f} to {100 * high:.1f} %"


def counted(metric: Metric, row: Mapping[str, Any]) -> str:
    """What the value is made of."""
    if metric.shape is Shape.DIFFERENCE:
        followed = f"{row['followed_hits']}/{row['followed_total']} followed"
        return f"{followed}, {row['ignored_hits']}/{row['ignored_total']} not"
    if metric.shape in (Shape.SHARE, Shape.RATIO):
        return f"{row['hits']:.0f}/{row['total']:.0f}"
    return str(row["total"]) if "total" in row else ""


def weight(metric: Metric, row: Mapping[str, Any]) -> float:
    """How many things a row is made of, to show the largest groups first."""
    if metric.shape is Shape.DIFFERENCE:
        return float(row["followed_total"] + row["ignored_total"])
    return float(row["hits"] if metric.shape is Shape.COUNT else row["total"])


def group(measured: Measured, row: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of a row's group, one a column."""
    columns = (*measured.by, *measured.metric.keys)
    return tuple(
        printable(str(row[name]), MAX_NAME) if row[name] not in ("", None) else "-" for name in columns
    )


def missing(metric: Metric) -> str:
    """What stands where there is nothing to measure."""
    return f"{NOT_RECORDED} (needs {metric.needs})"


def money(usd: float | None) -> str:
    """US dollars; what has no price says so.

    >>> money(1234.5), money(0.00031), money(None)
    ('$1,234.50', '$0.00031', 'not priced')
    """
    if usd is None:
        return "not priced"
    return f"${usd:,.2f}" if usd >= 0.01 or usd == 0 else f"${usd:.2g}"  # noqa: PLR2004 - a cent
