"""Metrics over tool calls: whether they succeed, are well formed, and are of the right tool.

A call counts whose outcome is known and which no brake refused (`ok`, `error`, `soft_error`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from storage.metrics.metric import Better, Metric, shares
from storage.metrics.selection import CALL_DIMENSIONS, columns_of, grouping, selected

ENDED: Final = "outcome IN ('ok', 'error', 'soft_error')"
WENT_WRONG: Final = "outcome IN ('error', 'soft_error')"

_JUDGES_SELECTION: Final = r"match(lower(name), 'tool.?(selection|choice|call.?accuracy)')"
_GOOD: Final = "('pass', 'passed', 'correct', 'true', 'yes', 'good', 'success')"
_BAD: Final = "('fail', 'failed', 'incorrect', 'wrong', 'false', 'no', 'bad', 'failure')"
AS_EXPECTED: Final = f"""if(expected_tool != '', toNullable(tool = expected_tool), arrayFirst(
    verdict -> isNotNull(verdict),
    arrayMap(
        (name, score, label) -> multiIf(
            NOT {_JUDGES_SELECTION}, NULL,
            lower(ifNull(label, '')) IN {_GOOD}, true,
            lower(ifNull(label, '')) IN {_BAD}, false,
            score >= 0.5),
        judged, scores, labels)))"""
"""Whether it was the right tool: as `expected_tool` says, else the first evaluation of tool selection; or
NULL."""

_BUCKETS: Final = ((11, "1-11"), (20, "12-20"), (40, "21-40"), (80, "41-80"))


def _execution_success(by: Sequence[str]) -> str:
    return (
        f"SELECT {selected(by)}countIf(outcome = 'ok') AS hits, countIf({ENDED}) AS total"  # noqa: S608 - constants
        f" FROM calls GROUP BY {grouping(by)} HAVING total > 0"
    )


def _first_call_success(by: Sequence[str]) -> str:
    return f"""SELECT {selected(by)}countIf(outcome = 'ok') AS hits, count() AS total
FROM
(
    SELECT *, lagInFrame(toString(outcome), 1, '') OVER (
        PARTITION BY session_id, agent, operation ORDER BY start_time, step_id
        ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS before
    FROM calls WHERE {ENDED}
)
WHERE before NOT IN ('error', 'soft_error')
GROUP BY {grouping(by)} HAVING total > 0"""  # noqa: S608 - constants


def _parameter_pass_rate(by: Sequence[str]) -> str:
    return (
        f"SELECT {selected(by)}countIf({ENDED} AND error_class != 'schema') AS hits,"  # noqa: S608 - constants
        f" countIf({ENDED}) AS total FROM calls GROUP BY {grouping(by)} HAVING total > 0"
    )


def _selection_accuracy(by: Sequence[str]) -> str:
    return f"""SELECT {selected(by)}countIf(verdict) AS hits, count() AS total
FROM (SELECT *, {AS_EXPECTED} AS verdict FROM acts)
WHERE isNotNull(verdict)
GROUP BY {grouping(by)} HAVING total > 0"""  # noqa: S608 - constants


def _hallucination_rate(by: Sequence[str]) -> str:
    return f"""SELECT {selected(by)}sum(least(occurrences, 1000000)) AS hits, count() AS total
FROM
(
    SELECT {columns_of("c")}, f.occurrences AS occurrences
    FROM calls AS c
    LEFT JOIN
    (
        SELECT step_id, max(found.occurrences) AS occurrences FROM found
        WHERE kind = 'hallucinated_call' GROUP BY step_id
    ) AS f ON c.step_id = f.step_id
)
WHERE outcome != 'denied' AND offered > 0
GROUP BY {grouping(by)} HAVING total > 0"""  # noqa: S608 - constants


def _by_offered_tools(by: Sequence[str]) -> str:
    bounds = ", ".join(str(bound + 1) for bound, _ in _BUCKETS)
    names = ", ".join(f"'{name}'" for name in (*(name for _, name in _BUCKETS), "81 or more"))
    return f"""SELECT {selected(by)}offered_tools, least_offered, each.1 AS measure,
    countIf(each.2 = 1) AS hits, count() AS total
FROM
(
    SELECT *, arraySum(arrayMap(bound -> toUInt8(offered >= bound), [{bounds}])) + 1 AS bucket,
        [{names}][bucket] AS offered_tools,
        [1, {bounds}][bucket] AS least_offered,
        {AS_EXPECTED} AS verdict
    FROM calls WHERE offered > 0
)
ARRAY JOIN
[
    ('execution_success', if({ENDED}, outcome = 'ok', NULL)),
    ('parameter_pass_rate', if({ENDED}, error_class != 'schema', NULL)),
    ('selection_accuracy', verdict)
] AS each
WHERE isNotNull(each.2)
GROUP BY {grouping(by, "offered_tools", "least_offered", "measure")} HAVING total > 0"""  # noqa: S608 - constants


METRICS: Final = (
    Metric(
        name="execution_success",
        title="Execution success",
        definition="tool calls that succeeded / tool calls with a known outcome",
        needs="tool calls with an outcome",
        query=_execution_success,
        finish=shares,
        by=CALL_DIMENSIONS,
        better=Better.HIGHER,
    ),
    Metric(
        name="first_call_success",
        title="First-call success",
        definition="succeeded / calls whose predecessor (same operation, agent and session) did not fail",
        needs="tool calls with an outcome",
        query=_first_call_success,
        finish=shares,
        by=CALL_DIMENSIONS,
        better=Better.HIGHER,
    ),
    Metric(
        name="parameter_pass_rate",
        title="Parameter pass rate",
        definition="tool calls without an error of class schema / tool calls with a known outcome",
        needs="tool calls with an outcome",
        query=_parameter_pass_rate,
        finish=shares,
        by=CALL_DIMENSIONS,
        better=Better.HIGHER,
    ),
    Metric(
        name="selection_accuracy",
        title="Selection accuracy",
        definition="calls of the expected tool / calls whose expected tool or whose evaluation is known",
        needs="recloser.expected_tool, or evaluations of tool selection",
        query=_selection_accuracy,
        finish=shares,
        by=CALL_DIMENSIONS,
        better=Better.HIGHER,
    ),
    Metric(
        name="hallucination_rate",
        title="Hallucination rate",
        definition="calls in findings hallucinated_call / calls of agents whose offered tools are known",
        needs="the tools that models were offered",
        query=_hallucination_rate,
        finish=shares,
        by=CALL_DIMENSIONS,
        better=Better.LOWER,
    ),
    Metric(
        name="by_offered_tools",
        title="By number of offered tools",
        definition="success, parameter pass rate and selection accuracy by how many tools were offered",
        needs="the tools that models were offered",
        query=_by_offered_tools,
        finish=lambda rows: shares(rows).sort("least_offered", "measure").drop("least_offered"),
        by=("tool", "agent", "model", "service", "service_version", "day"),
        keys=("offered_tools", "measure"),
    ),
)
