"""Metrics over failed tool calls: what agents did then, and what became of it.

The words are those of `detectors.recovery`. Of a streak every failure spans the ones after it, so what was
spent is added up over those with `earlier` 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from storage.metrics.calls import ENDED, WENT_WRONG
from storage.metrics.intervals import newcombe
from storage.metrics.metric import Better, Metric, Shape, as_they_are, shares
from storage.metrics.selection import DIMENSIONS, MARGIN_NS, between, grouping, selected

_UNIT_DIMENSIONS: Final = ("service", "service_version", "day")


def _share_of_failures(hits: str, total: str) -> str:
    return f"countIf(({total}) AND ({hits})) AS hits, countIf({total}) AS total"


def _over_failures(by: Sequence[str], hits: str, total: str = "true") -> str:
    return (
        f"SELECT {selected(by)}{_share_of_failures(hits, total)}"  # noqa: S608 - constants
        f" FROM failed GROUP BY {grouping(by)} HAVING total > 0"
    )


def _recovery_rate(by: Sequence[str]) -> str:
    return _over_failures(by, "recovered")


def _ure_rate(by: Sequence[str]) -> str:
    return _over_failures(by, "ure", "fed_back")


def _adherence(by: Sequence[str]) -> str:
    return _over_failures(by, "followed = true", "isNotNull(followed)")


def _cascade_share(by: Sequence[str]) -> str:
    dependents = (
        "SELECT arrayJoin(JSONExtract(evidence, 'dependents', 'Array(String)')) AS step"  # noqa: S608 - constants
        f" FROM findings WHERE kind = 'cascade' AND {between('detected_at', MARGIN_NS)}"
    )
    return _over_failures(by, f"cascaded OR step_id IN (SELECT step FROM ({dependents}))")  # noqa: S608 - constants


def _lift(by: Sequence[str]) -> str:
    return f"""SELECT {selected(by)}countIf(followed = true) AS followed_total,
    countIf(followed = true AND recovered) AS followed_hits,
    countIf(followed = false) AS ignored_total, countIf(followed = false AND recovered) AS ignored_hits
FROM failed GROUP BY {grouping(by)} HAVING followed_total > 0 AND ignored_total > 0"""  # noqa: S608 - constants


def _lifted(rows: pl.DataFrame) -> pl.DataFrame:
    counted = rows.select("ignored_hits", "ignored_total", "followed_hits", "followed_total").rows()
    found = [newcombe(*row) for row in counted]
    return rows.with_columns(
        (pl.col("followed_hits") / pl.col("followed_total")).alias("followed_value"),
        (pl.col("ignored_hits") / pl.col("ignored_total")).alias("ignored_value"),
    ).with_columns(
        (pl.col("followed_value") - pl.col("ignored_value")).alias("value"),
        pl.Series("low", [each.low for each in found], pl.Float64),
        pl.Series("high", [each.high for each in found], pl.Float64),
    )


def _mix(by: Sequence[str], state: str) -> str:
    within = f"PARTITION BY {', '.join(by)}" if by else ""
    return f"""SELECT {selected(by)}state, hits, sum(hits) OVER ({within}) AS total, recoveries, streaks,
    calls, tokens, usd
FROM
(
    SELECT {selected(by)}toString({state}) AS state, count() AS hits, countIf(recovered) AS recoveries,
        countIf(earlier = 0) AS streaks, sumIf(calls_spent, earlier = 0) AS calls,
        sumOrNullIf(tokens_spent, earlier = 0) AS tokens, sumOrNullIf(cost_usd, earlier = 0) AS usd
    FROM failed GROUP BY {grouping(by, "state")}
)"""  # noqa: S608 - constants


def _first_responses(by: Sequence[str]) -> str:
    return _mix(by, "first_response")


def _final_states(by: Sequence[str]) -> str:
    return _mix(by, "response")


def _with_cost(rows: pl.DataFrame) -> pl.DataFrame:
    each = [(pl.col(name) / pl.col("streaks")).alias(f"{name}_each") for name in ("calls", "tokens", "usd")]
    told = shares(rows).with_columns((pl.col("recoveries") / pl.col("hits")).alias("recovered"), *each)
    spent = pl.col("streaks") > 0
    return told.with_columns(
        pl.when(spent).then(pl.col(f"{name}_each")).alias(f"{name}_each")
        for name in ("calls", "tokens", "usd")
    )


def _spread(by: Sequence[str], value: str) -> str:
    return f"""SELECT {selected(by)}count() AS total, quantileExactInclusive(0.5)(x) AS value,
    quantileExactInclusive(0.95)(x) AS p95, avg(x) AS mean, if(total > 1, stddevSamp(x), NULL) AS sd
FROM (SELECT *, assumeNotNull({value}) AS x FROM failed WHERE recovered AND isNotNull({value}))
GROUP BY {grouping(by)} HAVING total > 0"""  # noqa: S608 - constants


def _calls_to_recovery(by: Sequence[str]) -> str:
    return _spread(by, "calls_to_recovery")


def _seconds_to_recovery(by: Sequence[str]) -> str:
    return _spread(by, "ns_to_recovery / 1e9")


def _end_to_end(by: Sequence[str]) -> str:
    return f"""SELECT {selected(by)}countIf(ended_well) AS hits, count() AS total
FROM
(
    SELECT unit, any(service) AS service, any(service_version) AS service_version, any(day) AS day,
        ifNull(argMaxOrNull(success, succeeded_at), argMax(came_right, wrong_at)) AS ended_well
    FROM
    (
        SELECT (task_id, session_id) AS unit, agent, operation, any(here.service) AS service,
            any(here.service_version) AS service_version, min(here.day) AS day,
            maxIf(start_time, kind = 'tool_call' AND {WENT_WRONG}) AS wrong_at,
            countIf(kind = 'tool_call' AND {WENT_WRONG}) AS wrongs,
            maxIf(start_time, kind = 'tool_call' AND outcome = 'ok') > wrong_at AS came_right,
            argMaxOrNullIf(task_success, start_time, isNotNull(task_success)) AS success,
            maxIf(start_time, isNotNull(task_success)) AS succeeded_at
        FROM here GROUP BY unit, agent, operation
    )
    GROUP BY unit HAVING sum(wrongs) > 0
)
GROUP BY {grouping(by)} HAVING total > 0"""  # noqa: S608 - constants


def _confused_tools(by: Sequence[str]) -> str:
    return f"""SELECT {selected(by)}intended, called, told_by, count() AS hits
FROM
(
    SELECT *, expected_tool AS intended, tool AS called, 'expected_tool' AS told_by
    FROM calls WHERE expected_tool != '' AND expected_tool != tool
    UNION ALL
    SELECT * EXCEPT (next_tool, next_outcome), next_tool AS intended, tool AS called, 'switched' AS told_by
    FROM
    (
        SELECT *, leadInFrame(toString(tool), 1, '') OVER later AS next_tool,
            leadInFrame(toString(outcome), 1, '') OVER later AS next_outcome
        FROM calls WHERE {ENDED}
        WINDOW later AS (
            PARTITION BY session_id, agent ORDER BY start_time, step_id
            ROWS BETWEEN CURRENT ROW AND 1 FOLLOWING)
    )
    WHERE {WENT_WRONG} AND next_outcome = 'ok' AND next_tool NOT IN ('', tool) AND expected_tool = ''
)
GROUP BY {grouping(by, "intended", "called", "told_by")}"""  # noqa: S608 - constants


_FAILURES: Final = "failed tool calls whose end is known"

METRICS: Final = (
    Metric(
        name="recovery_rate",
        title="Recovery rate",
        definition="failures whose operation succeeded within the budget / failures",
        needs=_FAILURES,
        query=_recovery_rate,
        finish=shares,
        by=DIMENSIONS,
        better=Better.HIGHER,
    ),
    Metric(
        name="end_to_end_recovery",
        title="End-to-end recovery",
        definition="tasks (else sessions) that had a failure and ended well / that had a failure",
        needs="failed tool calls",
        query=_end_to_end,
        finish=shares,
        by=_UNIT_DIMENSIONS,
        better=Better.HIGHER,
    ),
    Metric(
        name="ure_rate",
        title="URE rate",
        definition="fed back and failed again alike by the same call / failures that were fed back",
        needs="failed tool calls after which the model was called",
        query=_ure_rate,
        finish=shares,
        by=DIMENSIONS,
        better=Better.LOWER,
    ),
    Metric(
        name="cascade_share",
        title="Cascading failures",
        definition="failures that came of an earlier failure or poisoned result / failures",
        needs=_FAILURES,
        query=_cascade_share,
        finish=shares,
        by=DIMENSIONS,
        better=Better.LOWER,
    ),
    Metric(
        name="adherence",
        title="Prescription followed",
        definition="failures answered as their class prescribes / failures of which that can be told",
        needs="failed tool calls with a response",
        query=_adherence,
        finish=shares,
        by=DIMENSIONS,
        better=Better.HIGHER,
    ),
    Metric(
        name="lift",
        title="Lift of the prescription",
        definition="recovery rate where the prescription was followed less that where it was not",
        needs="failures that were answered as prescribed, and some that were not",
        query=_lift,
        finish=_lifted,
        by=DIMENSIONS,
        shape=Shape.DIFFERENCE,
    ),
    Metric(
        name="calls_to_recovery",
        title="Calls to recovery",
        definition="attempts at the operation until it succeeded, of recovered failures",
        needs="recovered failures",
        query=_calls_to_recovery,
        finish=as_they_are,
        by=DIMENSIONS,
        shape=Shape.SPREAD,
        better=Better.LOWER,
        unit="calls",
    ),
    Metric(
        name="seconds_to_recovery",
        title="Time to recovery",
        definition="seconds from the end of the failed call to that of the one that succeeded",
        needs="recovered failures",
        query=_seconds_to_recovery,
        finish=as_they_are,
        by=DIMENSIONS,
        shape=Shape.SPREAD,
        better=Better.LOWER,
        unit="seconds",
    ),
    Metric(
        name="first_responses",
        title="First response to a failure",
        definition="failures by what the agent did first, what became of them, and what a streak cost",
        needs=_FAILURES,
        query=_first_responses,
        finish=_with_cost,
        by=DIMENSIONS,
        keys=("state",),
    ),
    Metric(
        name="final_states",
        title="How failures ended",
        definition="failures by their final state, and what a streak cost",
        needs=_FAILURES,
        query=_final_states,
        finish=_with_cost,
        by=DIMENSIONS,
        keys=("state",),
    ),
    Metric(
        name="confused_tools",
        title="Confused tools",
        definition="calls of one tool where another was expected, or helped at once after it had failed",
        needs="calls of another tool than the expected one, or switches that helped",
        query=_confused_tools,
        finish=lambda rows: rows.sort("hits", descending=True, maintain_order=True),
        by=("operation", "agent", "model", "service", "service_version", "day"),
        shape=Shape.COUNT,
        keys=("intended", "called", "told_by"),
        unit="calls",
    ),
)
