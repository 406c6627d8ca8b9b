"""Which part of the store is measured, and the relations that queries of metrics are written over.

A query names relations (`calls`, `acts`, `here`, `failed`, `found`) as if they were tables; `with_relations`
puts their definitions in front of it. Every value comes as a parameter that is filled in on the server's
side.

- `acts`: tool and model calls in their newest revision, with the model and the tools offered that were in
  force: those of the agent's latest model call or run in the session that told them.
- `calls`: the tool calls of these.
- `here`: all steps, for what is said of whole tasks and sessions: of those with such a call when the
  selection has a tool or definitions.
- `failed`: failed tool calls in their newest revision, with what became of them.
- `found`: findings in their newest revision, shadows included.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from storage.client import Value

DAY_NS: Final = 86_400 * 10**9
MARGIN_NS: Final = DAY_NS
"""How long before the window an agent may have been told its model and tools."""

CALL_DIMENSIONS: Final = ("tool", "operation", "agent", "model", "service", "service_version", "day")
DIMENSIONS: Final = (*CALL_DIMENSIONS[:4], "error_class", *CALL_DIMENSIONS[4:])
"""What metrics can be grouped by; each metric says which of these it knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """A window of time, unix nanoseconds, `until_ns` exclusive, and what else must hold; None: anything.

    `definitions` are hashes of sets of tool definitions, one of which was offered; `tool` is a tool's name.
    """

    since_ns: int
    until_ns: int
    service: str | None = None
    service_version: str | None = None
    tool: str | None = None
    definitions: tuple[str, ...] | None = None

    def parameters(self) -> dict[str, Value]:
        """The values that `with_relations` refers to."""
        told: dict[str, Value] = {"since": self.since_ns, "until": self.until_ns}
        for name in ("service", "service_version", "tool"):
            value = getattr(self, name)
            if value is not None:
                told[name] = value
        if self.definitions is not None:
            told["definitions"] = list(self.definitions)
        return told

    def conditions(self, time: str, *, with_definitions: bool) -> str:
        """What rows must satisfy, for a WHERE; `time` is the column of their time."""
        parts = [between(time, 0)]
        parts += [
            f"{name} = {{{name}:String}}"
            for name in ("service", "service_version", "tool")
            if getattr(self, name) is not None
        ]
        if with_definitions and self.definitions is not None:
            parts.append("offer IN {definitions:Array(String)}")
        return " AND ".join(parts)


def columns_of(alias: str) -> str:
    """All columns of `calls` and `acts` for the SELECT of a join, from the side with this alias."""
    return ", ".join(f"{alias}.{name} AS {name}" for name in (*_STEP_COLUMNS, *_IN_FORCE))


def between(time: str, margin_ns: int) -> str:
    """A condition: the time is in the window, or at most `margin_ns` outside."""
    return (
        f"{time} >= fromUnixTimestamp64Nano({{since:Int64}} - {margin_ns})"
        f" AND {time} < fromUnixTimestamp64Nano({{until:Int64}} + {margin_ns})"
    )


def grouping(by: Sequence[str], *keys: str) -> str:
    """The columns to group by, for SELECT and GROUP BY; `()` when there are none."""
    return ", ".join((*by, *keys)) or "()"


def selected(by: Sequence[str], *keys: str) -> str:
    """The columns to group by as the beginning of a SELECT list."""
    return "".join(f"{name}, " for name in (*by, *keys))


def with_relations(query: str, selection: Selection) -> str:
    """The query with the relations that it names, and those that these name, in front of it."""
    made = _relations(query, selection)
    wanted = _needed(query, made)
    definitions = ",\n".join(f"{name} AS ({made[name]})" for name in made if name in wanted)
    return f"WITH {definitions}\n{query}" if definitions else query


def _needed(query: str, made: Mapping[str, str]) -> set[str]:
    wanted: set[str] = set()
    open_ = [query]
    while open_:
        text = open_.pop()
        for name in made:
            if name not in wanted and re.search(rf"\b(?:FROM|JOIN)\s+{name}\b", text):
                wanted.add(name)
                open_.append(made[name])
    return wanted


_STEP_COLUMNS: Final = (
    "step_id",
    "session_id",
    "run_id",
    "kind",
    "start_time",
    "end_time",
    "service",
    "service_version",
    "agent",
    "tool",
    "operation",
    "outcome",
    "error_class",
    "own_model",
    "input_tokens",
    "output_tokens",
    "cost_usd",
    "expected_tool",
    "definitions_chars",
    "judged",
    "scores",
    "labels",
    "result_chars",
    "day",
)
_IN_FORCE: Final = ("model", "offered", "offer")

_SESSIONS: Final = "SELECT old, argMax(new, merged_at) AS new FROM session_merges GROUP BY old"

_NEWEST: Final = """
SELECT step_id, coalesce(nullIf(later.new, ''), nullIf(latest.new, ''), steps.session_id) AS session_id,
    run_id, kind, start_time, end_time, service, service_version,
    ifNull(agent, '') AS agent, ifNull(tool, '') AS tool, operation, outcome, error_class,
    ifNull(model, '') AS own_model, input_tokens, output_tokens, cost_usd, expected_tool, task_id,
    task_success, definitions_hash, offered_count, definitions_chars, `evaluations.name` AS judged,
    `evaluations.score` AS scores, `evaluations.label` AS labels, lengthUTF8(result) AS result_chars,
    toDate(start_time) AS day
FROM
(
    SELECT * FROM steps
    WHERE {near}
    ORDER BY revision DESC
    LIMIT 1 BY step_id
) AS steps
LEFT JOIN merged AS latest ON steps.session_id = latest.old
LEFT JOIN merged AS later ON latest.new = later.old"""

_MODEL: Final = """
    ASOF LEFT JOIN
    (
        SELECT session_id, agent, start_time, own_model FROM newest
        WHERE kind = 'model_call' AND own_model != ''
    ) AS m ON s.session_id = m.session_id AND s.agent = m.agent AND s.start_time >= m.start_time"""

_OFFER: Final = """
    ASOF LEFT JOIN
    (
        SELECT session_id, agent, start_time, offered_count, definitions_hash FROM newest
        WHERE kind IN ('model_call', 'agent_run') AND offered_count > 0
    ) AS o ON s.session_id = o.session_id AND s.agent = o.agent AND s.start_time >= o.start_time"""

_FAILED: Final = """
SELECT step_id, session_id, run_id, failed_at, service, service_version, ifNull(agent, '') AS agent, tool,
    operation, model, error_class, nature, prescription, response, first_response, followed, recovered,
    fed_back, ure, cascaded, earlier, calls_to_recovery, ns_to_recovery, calls_spent, tokens_spent,
    cost_usd, toDate(failed_at) AS day
FROM failures FINAL
WHERE {conditions}"""

_FOUND: Final = """
SELECT id, kind, severity, session_id, service, ifNull(agent, '') AS agent, ifNull(tool, '') AS tool, step_id,
    started_at, detected_at, occurrences, evidence, toDate(detected_at) AS day
FROM
(
    SELECT * FROM findings
    WHERE {near}
    ORDER BY revision DESC
    LIMIT 1 BY id
)
WHERE {inside}"""


def _acts(query: str, conditions: str, *, by_definitions: bool) -> str:
    """The relation `acts`, joined with what was in force only where the query speaks of it (joins cost)."""
    columns = [f"s.{name} AS {name}" for name in _STEP_COLUMNS]
    joins = ""
    if re.search(r"\bmodel\b", query):
        columns.append("if(s.own_model != '', s.own_model, m.own_model) AS model")
        joins += _MODEL
    if by_definitions or re.search(r"\boffer(?:ed)?\b", query):
        columns.append("if(s.offered_count > 0, s.offered_count, o.offered_count) AS offered")
        columns.append("if(s.offered_count > 0, s.definitions_hash, o.definitions_hash) AS offer")
        joins += _OFFER
    return f"""
SELECT * FROM
(
    SELECT {", ".join(columns)}
    FROM (SELECT * FROM newest WHERE kind IN ('tool_call', 'model_call')) AS s{joins}
)
WHERE {conditions}"""  # noqa: S608 - constants


def _relations(query: str, selection: Selection) -> dict[str, str]:
    failed = selection.conditions("failed_at", with_definitions=False)
    if selection.definitions is not None:
        failed += " AND step_id IN (SELECT step_id FROM calls)"
    inside = [between("detected_at", 0)]
    if selection.service is not None:
        inside.append("service = {service:String}")
    if (
        selection.service_version is not None
        or selection.definitions is not None
        or selection.tool is not None
    ):
        inside.append("step_id IN (SELECT step_id FROM acts)")
    whole = replace(selection, tool=None).conditions("start_time", with_definitions=False)
    if selection.definitions is not None or selection.tool is not None:
        whole += " AND session_id IN (SELECT session_id FROM calls)"
    return {
        "merged": _SESSIONS,
        "newest": _NEWEST.format(near=between("start_time", MARGIN_NS)),
        "acts": _acts(
            query,
            selection.conditions("start_time", with_definitions=True),
            by_definitions=selection.definitions is not None,
        ),
        "calls": "SELECT * FROM acts WHERE kind = 'tool_call'",
        "here": f"SELECT * FROM newest WHERE {whole}",  # noqa: S608 - constants
        "failed": _FAILED.format(conditions=failed),
        "found": _FOUND.format(near=between("detected_at", MARGIN_NS), inside=" AND ".join(inside)),
    }
