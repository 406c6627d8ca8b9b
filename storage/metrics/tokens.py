"""Metrics over tokens: what definitions and results take of the context, what is wasted.

Characters are turned into tokens at `CHARS_A_TOKEN`, the usual rule of thumb for English and JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from storage.metrics.calls import ENDED
from storage.metrics.metric import Better, Metric, Shape, ratios, shares
from storage.metrics.selection import grouping, selected

CHARS_A_TOKEN: Final = 4

_MODEL_DIMENSIONS: Final = ("agent", "model", "service", "service_version", "day")


def _definitions_share(by: Sequence[str]) -> str:
    return f"""SELECT {selected(by)}sum(least(definitions_chars / {CHARS_A_TOKEN}, used)) AS hits,
    toUInt64(sum(used)) AS total
FROM
(
    SELECT *, toFloat64(assumeNotNull(input_tokens)) AS used FROM acts
    WHERE kind = 'model_call' AND input_tokens > 0 AND definitions_chars > 0
)
GROUP BY {grouping(by)} HAVING total > 0"""  # noqa: S608 - constants


def _results_share(by: Sequence[str]) -> str:
    return f"""SELECT {selected(by)}sum(least(carried / {CHARS_A_TOKEN}, used)) AS hits,
    toUInt64(sum(used)) AS total
FROM
(
    SELECT *, toFloat64(ifNull(input_tokens, 0)) AS used,
        sum(if(kind = 'tool_call', ifNull(result_chars, 0), 0)) OVER before AS carried,
        countIf(kind = 'tool_call' AND isNotNull(result_chars)) OVER session AS results
    FROM acts
    WINDOW before AS (
        PARTITION BY session_id, agent ORDER BY start_time, step_id
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW),
        session AS (PARTITION BY session_id, agent)
)
WHERE kind = 'model_call' AND input_tokens > 0 AND results > 0
GROUP BY {grouping(by)} HAVING total > 0"""  # noqa: S608 - constants


WASTED: Final = """
SELECT step_id FROM failed WHERE NOT recovered
UNION DISTINCT
SELECT step_id FROM
(
    SELECT c.step_id AS step_id, f.occurrences - 1 AS repeats,
        row_number() OVER (PARTITION BY f.id ORDER BY c.start_time DESC, c.step_id) AS place
    FROM (SELECT * FROM found WHERE kind = 'doom_loop') AS f
    INNER JOIN here AS own ON own.step_id = f.step_id
    INNER JOIN here AS c
        ON c.session_id = own.session_id AND c.agent = own.agent AND c.operation = own.operation
    WHERE own.kind = 'tool_call' AND c.kind = 'tool_call' AND c.outcome = 'ok'
        AND c.start_time > f.started_at AND c.start_time <= own.start_time
)
WHERE place <= repeats"""
"""The calls that were for nothing, each once: failures that never recovered, and successes that a doom loop
repeats."""


def _wasted_calls(by: Sequence[str]) -> str:
    return f"""SELECT {selected(by)}countIf(step_id IN (SELECT step_id FROM ({WASTED}))) AS hits,
    count() AS total
FROM calls WHERE {ENDED}
GROUP BY {grouping(by)} HAVING total > 0"""  # noqa: S608 - constants


def _wasted_tokens(by: Sequence[str]) -> str:
    return f"""SELECT {selected(by)}sumIf(used, step_id IN (SELECT asked_by FROM
    (
        SELECT m.step_id AS asked_by
        FROM
        (
            SELECT * FROM here WHERE kind = 'tool_call' AND step_id IN (SELECT step_id FROM ({WASTED}))
        ) AS c
        ASOF INNER JOIN
        (
            SELECT step_id, session_id, agent, start_time FROM here WHERE kind = 'model_call'
        ) AS m ON c.session_id = m.session_id AND c.agent = m.agent AND c.start_time >= m.start_time
    ))) AS hits, sum(used) AS total
FROM
(
    SELECT *, toUInt64(ifNull(input_tokens, 0) + ifNull(output_tokens, 0)) AS used
    FROM acts WHERE kind = 'model_call'
)
GROUP BY {grouping(by)} HAVING total > 0"""  # noqa: S608 - constants


METRICS: Final = (
    Metric(
        name="wasted_calls",
        title="Wasted calls",
        definition="calls that failed for good, and repeats in doom loops / calls with a known outcome",
        needs="tool calls with an outcome",
        query=_wasted_calls,
        finish=shares,
        by=("tool", "operation", *_MODEL_DIMENSIONS),
        better=Better.LOWER,
    ),
    Metric(
        name="wasted_tokens",
        title="Wasted tokens",
        definition="tokens of the model calls that asked for wasted calls / tokens of all model calls",
        needs="tokens of model calls",
        query=_wasted_tokens,
        finish=ratios,
        by=_MODEL_DIMENSIONS,
        shape=Shape.RATIO,
        better=Better.LOWER,
        unit="tokens",
    ),
    Metric(
        name="definitions_token_share",
        title="Tokens of tool definitions",
        definition="tokens of the offered definitions / input tokens of those model calls",
        needs="definitions of tools and tokens of the same model calls",
        query=_definitions_share,
        finish=ratios,
        by=_MODEL_DIMENSIONS,
        shape=Shape.RATIO,
        better=Better.LOWER,
        unit="tokens",
    ),
    Metric(
        name="results_token_share",
        title="Tokens of tool results",
        definition="tokens of all results so far, at most the whole input, of each model call / input tokens",
        needs="results of tools and tokens of model calls",
        query=_results_share,
        finish=ratios,
        by=_MODEL_DIMENSIONS,
        shape=Shape.RATIO,
        better=Better.LOWER,
        unit="tokens",
    ),
)
