"""Streaks of calls that went on beyond a ceiling, for the doom-loop tax.

A streak is a finding of `doom_loop`, `retry_storm` or `flail`. Its calls are those of its agent and tool (for
a step that is no tool call, such as a compaction: of its kind) that failed from its beginning until the first
that succeeded after it was seen, and at least as many as the finding counts. Of findings about the same calls
the one that counts most stands. The tokens are those of the agent's model calls after its ceiling-th call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import polars as pl

from detectors.tax import CEILING
from storage.metrics.metric import fetch
from storage.metrics.selection import Selection

if TYPE_CHECKING:
    from storage.client import StoreClient

KINDS: Final = ("doom_loop", "retry_storm", "flail")

COLUMNS: Final = {
    "session_id": pl.String,
    "service": pl.String,
    "agent": pl.String,
    "tool": pl.String,
    "model": pl.String,
    "calls": pl.UInt64,
    "over": pl.UInt64,
    "input_tokens": pl.UInt64,
    "output_tokens": pl.UInt64,
}


def streaks(client: StoreClient, selection: Selection, ceiling: int = CEILING) -> pl.DataFrame:
    """One row a streak, with `COLUMNS`: its calls, those over the ceiling, and the tokens that these took.

    Raises `Unavailable` or `Rejected`, ValueError for a ceiling below 0.
    """
    if ceiling < 0:
        raise ValueError(f"ceiling must be 0 or more, not {ceiling}")
    rows = fetch(client, _query(ceiling), selection)
    return rows.cast(COLUMNS) if rows.height else pl.DataFrame(schema=COLUMNS)  # type: ignore[arg-type] # types are values


def _query(ceiling: int) -> str:
    kinds = ", ".join(f"'{kind}'" for kind in KINDS)
    return f"""
SELECT session_id, service, agent, tool, argMax(told_model, made) AS model, max(made) AS calls,
    calls - least(calls, {ceiling}) AS over,
    argMax(spent_input, made) AS input_tokens, argMax(spent_output, made) AS output_tokens
FROM
(
    SELECT session_id, service, agent, tool, made, until, told_model,
        arrayFilter(each -> each.1 > from_at AND each.1 <= last_at, told) AS taxed,
        arraySum(each -> each.2, taxed) AS spent_input, arraySum(each -> each.3, taxed) AS spent_output
    FROM
    (
        SELECT id, f.session_id AS session_id, any(f.service) AS service, f.agent AS agent,
            any(f.tool) AS tool, any(f.started_at) AS began, any(f.detected_at) AS seen,
            minIf(s.start_time, s.outcome = 'ok' AND s.start_time > f.detected_at) AS right_at,
            if(right_at > began, right_at, max(s.end_time) + INTERVAL 1 SECOND) AS until,
            arraySort(groupArrayIf((s.start_time, s.outcome), s.start_time >= f.started_at)) AS later,
            arrayFilter(each -> each.2 IN ('error', 'soft_error') AND each.1 < until, later) AS wrong,
            greatest(any(f.occurrences), length(wrong)) AS made,
            arrayMap(
                each -> each.1,
                if(length(wrong) = made, wrong, arrayFilter(each -> each.1 <= seen, later))) AS times,
            length(times) - (made - least(made, {ceiling})) AS within,
            if(within > 0, times[within], began) AS from_at,
            times[-1] AS last_at
        FROM (SELECT * FROM found WHERE kind IN ({kinds})) AS f
        INNER JOIN (SELECT step_id, kind AS step_kind FROM newest) AS own ON own.step_id = f.step_id
        INNER JOIN here AS s ON s.session_id = f.session_id AND s.agent = f.agent
        WHERE s.tool = f.tool AND s.kind = own.step_kind
        GROUP BY id, session_id, agent
    ) AS streak
    LEFT JOIN
    (
        SELECT session_id, agent, anyIf(own_model, own_model != '') AS told_model,
            groupArray((start_time, ifNull(input_tokens, 0), ifNull(output_tokens, 0))) AS told
        FROM here WHERE kind IN ('model_call', 'compaction') GROUP BY session_id, agent
    ) AS spent USING (session_id, agent)
)
GROUP BY session_id, service, agent, tool, until"""  # noqa: S608 - constants and a whole number
