"""Reads that the command line, the API and a restart need. Parameters are filled in on the server's side.

Steps, findings and alerts are stored once a revision; readers take the newest of each identity.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import pyarrow as pa

from collector.batch import SPAN_SCHEMA
from collector.step import Evaluation, Kind, Outcome, Step, ToolDefinition, ToolDefinitions, Usage
from detectors.protocol import Finding, Severity
from storage.client import Row, StoreClient

_IDS_A_QUERY: Final = 1000
_MERGE_DEPTH: Final = 16

_COUNTS: Final = {
    "otel_traces": "count()",
    "otel_logs": "count()",
    "steps": "uniqExact(step_id)",
    "findings": "uniqExact(id)",
    "alerts": "uniqExact(id)",
    "breaker_events": "uniqExact(breaker_id, seq)",
    "audit": "uniqExact(seq, hash)",
    "failures": "uniqExact(step_id)",
    "tool_definitions": "uniqExact(service, service_version, definitions_hash, tool)",
}
STEP_COLUMNS: Final = (
    "step_id, kind, session_id, start_ns, end_ns, revision, run_id, service, agent, parent_agent, user, tool,"
    " arguments, result, call_id, attempt_id, outcome, error, model, provider, input_tokens, output_tokens,"
    " cached_tokens, cost_usd, offered_tools, finish_reason, text, trace_id, span_id, parent_span_id,"
    " convention, late, engine_seq, service_version, target, expected_tool, task_id, task_success,"
    " definitions_hash, definitions_chars, evaluations.name, evaluations.score, evaluations.label"
)
_EVALUATION: Final = ("name", "score", "label")
_FINDING_COLUMNS: Final = (
    "id, kind, severity, session_id, toUnixTimestamp64Nano(started_at), toUnixTimestamp64Nano(detected_at),"
    " occurrences, summary, revision, session_ids, run_id, service, agent, tool, trace_id, span_id,"
    " first_span_id, step_id, detector, evidence"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary:
    """A trace in a list. `start_s` and `end_s` are unix seconds, `end_s` that of the last span's start."""

    trace_id: str
    start_s: int
    end_s: int
    spans: int
    errors: int
    input_tokens: int
    output_tokens: int
    cost_usd: float
    service: str
    root_name: str
    conversation_id: str


class Queries:
    """Reads through one client. Every method raises `Unavailable` when the store is away."""

    def __init__(self, client: StoreClient) -> None:
        self._client = client

    def counts(self) -> dict[str, int]:
        """How many rows there are by table; what is stored once a revision counts once."""
        return {
            table: int(self._client.rows(f"SELECT {count} FROM {table}")[0][0])  # noqa: S608 - constants
            for table, count in _COUNTS.items()
        }

    def spans_of_trace(self, trace_id: str) -> pa.Table:
        """All spans of a trace by start time, in SPAN_SCHEMA: what was decoded comes back as it was."""
        columns = ", ".join(f"`{name}`" for name in SPAN_SCHEMA.names)
        data = self._client.arrow(
            f"SELECT {columns} FROM otel_traces"  # noqa: S608 - constants
            " WHERE TraceId = {trace_id:String} ORDER BY Timestamp, SpanId",
            {"trace_id": trace_id},
        )
        if not data:
            return SPAN_SCHEMA.empty_table()
        return pa.ipc.open_stream(data).read_all().cast(SPAN_SCHEMA)

    def traces(self, *, since_s: int = 0, limit: int = 100) -> list[TraceSummary]:
        """The newest traces that began at or after `since_s` (unix seconds)."""
        rows = self._client.rows(
            "SELECT TraceId, toUnixTimestamp(min(Start)) AS began, toUnixTimestamp(max(End)), sum(Spans),"
            " sum(Errors), sum(InputTokens), sum(OutputTokens), toFloat64(sum(CostUsd)), max(ServiceName),"
            " max(RootName), max(ConversationId)"
            " FROM otel_traces_trace_id_ts GROUP BY TraceId HAVING began >= {since:UInt32}"
            " ORDER BY began DESC, TraceId LIMIT {limit:UInt32}",
            {"since": since_s, "limit": limit},
        )
        return [_trace(row) for row in rows]

    def steps_of_session(self, session_id: str) -> list[Step]:
        """The newest revision of every step of a session, in the order in which detectors saw them.

        Steps of sessions that were merged into this one are part of it.
        """
        names = self._session_names(session_id)
        rows = self._client.rows(
            f"SELECT * FROM (SELECT {STEP_COLUMNS} FROM steps"  # noqa: S608 - constants
            " WHERE step_id IN (SELECT step_id FROM steps WHERE session_id IN {names:Array(String)})"
            " ORDER BY revision DESC LIMIT 1 BY step_id)"
            " WHERE session_id IN {names:Array(String)} ORDER BY engine_seq, start_ns, step_id",
            {"names": names},
        )
        told = [dict(zip(STEP_COLUMNS.split(", "), row, strict=True)) for row in rows]
        known = self.definitions(
            {step["definitions_hash"]: step["definitions_chars"] for step in told if step["definitions_hash"]}
        )
        return [step_of(step, session_id, known) for step in told]

    def definitions(self, chars: Mapping[str, int]) -> dict[str, ToolDefinitions]:
        """The tool definitions of these hashes, with how many characters each was told to have.

        A hash of which nothing is stored any more is left out.
        """
        if not chars:
            return {}
        rows = self._client.rows(
            "SELECT definitions_hash, tool, any(description), any(parameters), any(read_only),"
            " any(destructive), any(idempotent), any(tool_hash) FROM tool_definitions"
            " WHERE definitions_hash IN {hashes:Array(String)}"
            " GROUP BY definitions_hash, tool ORDER BY definitions_hash, tool",
            {"hashes": sorted(chars)},
        )
        found: dict[str, dict[str, ToolDefinition]] = {}
        for of, tool, description, parameters, *hints_and_hash in rows:
            schema = None if parameters is None else json.loads(parameters)
            found.setdefault(of, {})[tool] = ToolDefinition(tool, description, schema, *hints_and_hash)
        return {of: ToolDefinitions(of, tools, chars[of]) for of, tools in found.items()}

    def newest_findings(self, *, limit: int = 100, since_ns: int = 0) -> list[Finding]:
        """The newest revision of each finding detected at or after `since_ns`, the latest first."""
        rows = self._client.rows(
            f"SELECT {_FINDING_COLUMNS} FROM"  # noqa: S608 - constants
            " (SELECT * FROM findings ORDER BY revision DESC LIMIT 1 BY id)"
            " WHERE detected_at >= fromUnixTimestamp64Nano({since:Int64})"
            " ORDER BY detected_at DESC, id LIMIT {limit:UInt32}",
            {"since": since_ns, "limit": limit},
        )
        return [_finding(row) for row in rows]

    def existing_spans(self, ids: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
        """Which of these (trace id, span id) are stored."""
        found: set[tuple[str, str]] = set()
        remaining = iter(ids)
        while chunk := list(islice(remaining, _IDS_A_QUERY)):
            rows = self._client.rows(
                "SELECT TraceId, SpanId FROM otel_traces PREWHERE TraceId IN {traces:Array(String)}"
                " WHERE (TraceId, SpanId) IN {ids:Array(Tuple(String, String))}",
                {"traces": sorted({trace for trace, _ in chunk}), "ids": chunk},
            )
            found.update((str(trace), str(span)) for trace, span in rows)
        return found

    def _session_names(self, session_id: str) -> list[str]:
        names = [session_id]
        for _ in range(_MERGE_DEPTH):
            rows = self._client.rows(
                "SELECT DISTINCT old FROM session_merges"
                " WHERE new IN {names:Array(String)} AND old NOT IN {names:Array(String)}",
                {"names": names},
            )
            if not rows:
                break
            names.extend(sorted(str(old) for (old,) in rows))
        return names


def _trace(row: Row) -> TraceSummary:
    trace_id, start, end, spans, errors, tokens_in, tokens_out, cost, service, root, conversation = row
    return TraceSummary(
        trace_id=trace_id,
        start_s=start,
        end_s=end,
        spans=spans,
        errors=errors,
        input_tokens=tokens_in,
        output_tokens=tokens_out,
        cost_usd=cost,
        service=service,
        root_name=root,
        conversation_id=conversation,
    )


def step_of(told: dict[str, Any], session_id: str, known: Mapping[str, ToolDefinitions]) -> Step:
    """A step of the session, out of a row of `STEP_COLUMNS` by name; `known` are definitions by hash."""
    usage = Usage(**{name: told.pop(name) for name in ("input_tokens", "output_tokens", "cached_tokens")})
    arguments = told.pop("arguments")
    told["kind"] = Kind(told["kind"])
    told["outcome"] = Outcome(told["outcome"])
    told["offered_tools"] = tuple(told["offered_tools"])
    told["session_id"] = session_id
    for name in ("target", "expected_tool", "task_id"):
        told[name] = told[name] or None
    del told["definitions_chars"]
    return Step(
        definitions=known.get(told.pop("definitions_hash")),
        evaluations=tuple(map(Evaluation, *(told.pop(f"evaluations.{part}") for part in _EVALUATION))),
        usage=usage,
        arguments=None if arguments is None else json.loads(arguments),
        **told,
    )


def _finding(row: Row) -> Finding:
    (
        finding,
        kind,
        severity,
        session_id,
        started_at,
        detected_at,
        occurrences,
        summary,
        revision,
        session_ids,
        run_id,
        service,
        agent,
        tool,
        trace_id,
        span_id,
        first_span_id,
        step_id,
        detector,
        evidence,
    ) = row
    return Finding(
        id=finding,
        kind=kind,
        severity=Severity(severity),
        session_id=session_id,
        started_at=started_at,
        detected_at=detected_at,
        occurrences=occurrences,
        summary=summary,
        revision=revision,
        session_ids=tuple(session_ids),
        run_id=run_id,
        service=service,
        agent=agent,
        tool=tool,
        trace_id=trace_id,
        span_id=span_id,
        first_span_id=first_span_id,
        step_id=step_id,
        detector=detector,
        evidence=json.loads(evidence),
    )
