"""What moved between two selections: differences of metrics, their intervals, and what chance explains.

Shares are compared by Newcombe's interval and a pooled z test, spreads by their means (normal, unequal
variances), token shares by their difference alone. The tests are corrected by Holm for their number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from storage.metrics.intervals import difference_of_means, holm, newcombe, p_of_means, p_of_shares
from storage.metrics.metric import Better, Measured, Metric, Shape

ALPHA: Final = 0.05
LEAST: Final = 5
"""Things counted on either side below which a difference is shown and not tested."""

COMPARED: Final = (Shape.SHARE, Shape.RATIO, Shape.SPREAD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """One metric of one group on both sides.

    `a` and `b` are its values (the mean of a spread), None where that side has none; `difference` is b - a
    with the 95 % interval `low` to `high`. `p` is how likely such a difference is by chance, `p_corrected`
    the same in the face of all comparisons; None: not tested. `group` are the values of the columns that it
    is grouped by.
    """

    metric: Metric
    group: tuple[tuple[str, str], ...]
    a: float | None
    b: float | None
    total_a: float
    total_b: float
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    p_corrected: float | None = None

    @property
    def excludes_no_change(self) -> bool | None:
        """Whether the interval lies on one side of 0; None without an interval."""
        if self.low is None or self.high is None:
            return None
        return self.low > 0 or self.high < 0

    @property
    def significant(self) -> bool:
        """Whether chance is unlikely even among all comparisons."""
        return self.p_corrected is not None and self.p_corrected < ALPHA

    @property
    def direction(self) -> str:
        """`better`, `worse`, `moved` (where neither way is better), or `` when chance may be all it is."""
        if not self.significant or not self.difference:
            return ""
        if self.metric.better is Better.NEITHER:
            return "moved"
        return "better" if (self.difference > 0) == (self.metric.better is Better.HIGHER) else "worse"


def moved(pairs: Iterable[tuple[Measured, Measured]]) -> list[Moved]:
    """Compare the same metrics measured twice, grouped alike; A comes first in each pair."""
    found = [each for a, b in pairs if a.metric.shape in COMPARED for each in _of_metric(a, b)]
    tested = [place for place, each in enumerate(found) if each.p is not None]
    corrected = holm([p for each in found if (p := each.p) is not None])
    for place, p in zip(tested, corrected, strict=True):
        found[place] = replace(found[place], p_corrected=p)
    return found


def _of_metric(a: Measured, b: Measured) -> list[Moved]:
    columns = (*a.by, *a.metric.keys)
    rows_a, rows_b = _by_group(a, columns), _by_group(b, columns)
    return [
        _of_rows(a.metric, columns, group, _row(a, rows_a, group), _row(b, rows_b, group))
        for group in sorted(rows_a.keys() | rows_b.keys())
    ]


def _row(
    measured: Measured, rows: Mapping[tuple[str, ...], Mapping[str, Any]], group: tuple[str, ...]
) -> Mapping[str, Any] | None:
    """The row of a group; a state that none of a side's failures came to is 0 of them, not unknown."""
    found = rows.get(group)
    if found is not None or measured.metric.keys != ("state",):
        return found
    others = [row for names, row in rows.items() if names[:-1] == group[:-1]]
    return {"hits": 0, "total": others[0]["total"], "value": 0.0} if others else None


def _by_group(measured: Measured, columns: Sequence[str]) -> dict[tuple[str, ...], Mapping[str, Any]]:
    return {tuple(str(row[name]) for name in columns): row for row in measured.table.to_dicts()}


def _of_rows(
    metric: Metric,
    columns: Sequence[str],
    group: tuple[str, ...],
    a: Mapping[str, Any] | None,
    b: Mapping[str, Any] | None,
) -> Moved:
    value = "mean" if metric.shape is Shape.SPREAD else "value"
    side_by_side = Moved(
        metric=metric,
        group=tuple(zip(columns, group, strict=True)),
        a=a[value] if a else None,
        b=b[value] if b else None,
        total_a=a["total"] if a else 0,
        total_b=b["total"] if b else 0,
    )
    if a is None or b is None:
        return side_by_side
    told = replace(side_by_side, difference=b[value] - a[value])
    if metric.shape is Shape.RATIO or min(a["total"], b["total"]) < LEAST:
        return told
    if metric.shape is Shape.SPREAD:
        means = (a["mean"], a["sd"], a["total"]), (b["mean"], b["sd"], b["total"])
        interval, p = difference_of_means(*means), p_of_means(*means)
    else:
        counts = a["hits"], a["total"], b["hits"], b["total"]
        interval, p = newcombe(*counts), p_of_shares(*counts)
    return replace(told, low=interval.low, high=interval.high, p=p)
