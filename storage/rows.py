"""Objects to columns: what the tables `steps`, `findings`, `alerts`, `breaker_events` and `audit` take.

The schemas name the columns that are written; all others of a table are its own defaults.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

import orjson
import pyarrow as pa

from collector.step import Json, Kind, SessionsMerged, Step, ToolDefinition
from detectors.operation import operation_of
from detectors.protocol import Finding
from detectors.reading import Reading
from detectors.recovery import Recovery

T = TypeVar("T")

TEXT: Final = pa.string()
TEXTS: Final = pa.list_(pa.string())
TIME: Final = pa.timestamp("ns", tz="UTC")
Column: TypeAlias = tuple[str, pa.DataType, Callable[[T], Any]]

_LAST_NS: Final = 2**63 - 1
_MOST_TOOLS: Final = 2**16 - 1
_MOST_CHARS: Final = 2**32 - 1
_TOO_DEEP: Final = '"[nested too deeply to be shown]"'


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRow:
    """An alert after one of control's events; `seq` is the event's position, `payload` the record as JSON.

    Times are unix nanoseconds.
    """

    id: str
    seq: int
    event: str
    state: str
    opened_at: int
    updated_at: int
    kind: str = ""
    severity: str = ""
    finding_id: str = ""
    session_id: str = ""
    service: str = ""
    agent: str | None = None
    tool: str | None = None
    summary: str = ""
    payload: str = "{}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerEventRow:
    """One event of a breaker; `seq` is its position, `payload` the breaker after it as JSON, `at` unix ns."""

    breaker_id: str
    seq: int
    at: int
    event: str
    state: str
    scope: str = ""
    session_id: str = ""
    tool: str | None = None
    finding_id: str = ""
    actor: str = ""
    reason: str = ""
    payload: str = "{}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """One entry of control's audit; `payload` is what `hash` is over, with `previous`; `at` is unix ns."""

    seq: int
    at: int
    actor_type: str
    actor_id: str
    verb: str
    subject: str
    reason: str
    payload: str
    previous: str
    hash: str


@dataclass(frozen=True, slots=True)
class DefinitionRow:
    """A tool as a version of a service offered it, as one of the tools that `definitions_hash` stands for.

    `seen_ns` is unix nanoseconds.
    """

    service: str
    service_version: str
    definitions_hash: str
    tool: ToolDefinition
    seen_ns: int


def _operation(step: Step) -> str:
    return operation_of(step.tool, step.arguments) if step.kind is Kind.TOOL_CALL and step.tool else ""


def _error_class(step: Step) -> str:
    """Why a tool call is recorded as failed; empty for all others."""
    reading = Reading(step)
    if step.kind is not Kind.TOOL_CALL or not reading.failed or reading.verdict is None:
        return ""
    return reading.verdict.error_class.value


def _offered_count(step: Step) -> int:
    """How many tools there were to choose from; 0 when that was not told."""
    return min(
        max(len(step.offered_tools), len(step.definitions.tools) if step.definitions else 0), _MOST_TOOLS
    )


_STEP: Final[tuple[Column[Step], ...]] = (
    ("session_id", TEXT, lambda s: s.session_id),
    ("start_time", TIME, lambda s: s.start_ns),
    ("step_id", TEXT, lambda s: s.step_id),
    ("revision", pa.uint32(), lambda s: s.revision),
    ("engine_seq", pa.uint64(), lambda s: s.engine_seq),
    ("kind", TEXT, lambda s: s.kind.value),
    ("end_time", TIME, lambda s: s.end_ns),
    ("run_id", TEXT, lambda s: s.run_id),
    ("service", TEXT, lambda s: s.service),
    ("agent", TEXT, lambda s: s.agent),
    ("parent_agent", TEXT, lambda s: s.parent_agent),
    ("user", TEXT, lambda s: s.user),
    ("tool", TEXT, lambda s: s.tool),
    ("arguments", TEXT, lambda s: None if s.arguments is None else json_text(s.arguments)),
    ("result", TEXT, lambda s: s.result),
    ("call_id", TEXT, lambda s: s.call_id),
    ("attempt_id", TEXT, lambda s: s.attempt_id),
    ("outcome", TEXT, lambda s: s.outcome.value),
    ("error", TEXT, lambda s: s.error),
    ("model", TEXT, lambda s: s.model),
    ("provider", TEXT, lambda s: s.provider),
    ("input_tokens", pa.uint64(), lambda s: s.usage.input_tokens),
    ("output_tokens", pa.uint64(), lambda s: s.usage.output_tokens),
    ("cached_tokens", pa.uint64(), lambda s: s.usage.cached_tokens),
    ("cost_usd", pa.float64(), lambda s: s.cost_usd),
    ("offered_tools", TEXTS, lambda s: list(s.offered_tools)),
    ("finish_reason", TEXT, lambda s: s.finish_reason),
    ("text", TEXT, lambda s: s.text),
    ("trace_id", TEXT, lambda s: s.trace_id),
    ("span_id", TEXT, lambda s: s.span_id),
    ("parent_span_id", TEXT, lambda s: s.parent_span_id),
    ("convention", TEXT, lambda s: s.convention),
    ("late", pa.bool_(), lambda s: s.late),
    ("service_version", TEXT, lambda s: s.service_version),
    ("target", TEXT, lambda s: s.target or ""),
    ("operation", TEXT, _operation),
    ("error_class", TEXT, _error_class),
    ("expected_tool", TEXT, lambda s: s.expected_tool or ""),
    ("task_id", TEXT, lambda s: s.task_id or ""),
    ("task_success", pa.bool_(), lambda s: s.task_success),
    ("definitions_hash", TEXT, lambda s: s.definitions.hash if s.definitions else ""),
    ("offered_count", pa.uint16(), _offered_count),
    (
        "definitions_chars",
        pa.uint32(),
        lambda s: min(s.definitions.chars, _MOST_CHARS) if s.definitions else 0,
    ),
    ("evaluations.name", TEXTS, lambda s: [e.name for e in s.evaluations]),
    ("evaluations.score", pa.list_(pa.float64()), lambda s: [e.score for e in s.evaluations]),
    ("evaluations.label", TEXTS, lambda s: [e.label for e in s.evaluations]),
)
_MERGE: Final[tuple[Column[SessionsMerged], ...]] = (
    ("old", TEXT, lambda m: m.old),
    ("new", TEXT, lambda m: m.new),
)
_DEFINITION: Final[tuple[Column[DefinitionRow], ...]] = (
    ("service", TEXT, lambda d: d.service),
    ("service_version", TEXT, lambda d: d.service_version),
    ("definitions_hash", TEXT, lambda d: d.definitions_hash),
    ("tool", TEXT, lambda d: d.tool.name),
    ("tool_hash", TEXT, lambda d: d.tool.hash),
    ("description", TEXT, lambda d: d.tool.description),
    ("parameters", TEXT, lambda d: None if d.tool.parameters is None else json_text(d.tool.parameters)),
    ("read_only", pa.bool_(), lambda d: d.tool.read_only),
    ("destructive", pa.bool_(), lambda d: d.tool.destructive),
    ("idempotent", pa.bool_(), lambda d: d.tool.idempotent),
    ("first_seen", TIME, lambda d: d.seen_ns),
    ("last_seen", TIME, lambda d: d.seen_ns),
)
_FAILURE: Final[tuple[Column[Recovery], ...]] = (
    ("step_id", TEXT, lambda r: r.step_id),
    ("revision", pa.uint32(), lambda r: r.revision),
    ("engine_seq", pa.uint64(), lambda r: r.engine_seq),
    ("failed_at", TIME, lambda r: r.failed_ns),
    ("session_id", TEXT, lambda r: r.session_id),
    ("run_id", TEXT, lambda r: r.run_id),
    ("service", TEXT, lambda r: r.service),
    ("service_version", TEXT, lambda r: r.service_version),
    ("agent", TEXT, lambda r: r.agent),
    ("tool", TEXT, lambda r: r.tool),
    ("operation", TEXT, lambda r: r.operation),
    ("target", TEXT, lambda r: r.target),
    ("model", TEXT, lambda r: r.model),
    ("error_class", TEXT, lambda r: r.error_class),
    ("nature", TEXT, lambda r: r.nature),
    ("source", TEXT, lambda r: r.source),
    ("prescription", TEXT, lambda r: r.prescription),
    ("response", TEXT, lambda r: r.response.value),
    ("first_response", TEXT, lambda r: r.first_response.value),
    ("followed", pa.bool_(), lambda r: r.followed),
    ("recovered", pa.bool_(), lambda r: r.recovered),
    ("fed_back", pa.bool_(), lambda r: r.fed_back),
    ("ure", pa.bool_(), lambda r: r.ure),
    ("cascaded", pa.bool_(), lambda r: r.cascaded),
    ("earlier", pa.uint16(), lambda r: r.earlier),
    ("retries", pa.uint16(), lambda r: r.retries),
    ("perturbations", pa.uint16(), lambda r: r.perturbations),
    ("calls_to_recovery", pa.uint16(), lambda r: r.calls_to_recovery),
    ("ns_to_recovery", pa.uint64(), lambda r: r.ns_to_recovery),
    ("calls_spent", pa.uint16(), lambda r: r.calls_spent),
    ("tokens_spent", pa.uint64(), lambda r: r.tokens_spent),
    ("cost_usd", pa.float64(), lambda r: r.cost_usd),
)
_FINDING: Final[tuple[Column[Finding], ...]] = (
    ("id", TEXT, lambda f: f.id),
    ("revision", pa.uint32(), lambda f: f.revision),
    ("kind", TEXT, lambda f: f.kind),
    ("severity", TEXT, lambda f: f.severity.value),
    ("detector", TEXT, lambda f: f.detector),
    ("session_id", TEXT, lambda f: f.session_id),
    ("session_ids", TEXTS, lambda f: list(f.session_ids)),
    ("run_id", TEXT, lambda f: f.run_id),
    ("service", TEXT, lambda f: f.service),
    ("agent", TEXT, lambda f: f.agent),
    ("tool", TEXT, lambda f: f.tool),
    ("trace_id", TEXT, lambda f: f.trace_id),
    ("span_id", TEXT, lambda f: f.span_id),
    ("first_span_id", TEXT, lambda f: f.first_span_id),
    ("step_id", TEXT, lambda f: f.step_id),
    ("started_at", TIME, lambda f: f.started_at),
    ("detected_at", TIME, lambda f: f.detected_at),
    ("occurrences", pa.uint64(), lambda f: f.occurrences),
    ("summary", TEXT, lambda f: f.summary),
    ("evidence", TEXT, lambda f: json_text(f.evidence)),
)
_ALERT: Final[tuple[Column[AlertRow], ...]] = (
    ("id", TEXT, lambda a: a.id),
    ("seq", pa.uint64(), lambda a: a.seq),
    ("event", TEXT, lambda a: a.event),
    ("state", TEXT, lambda a: a.state),
    ("kind", TEXT, lambda a: a.kind),
    ("severity", TEXT, lambda a: a.severity),
    ("finding_id", TEXT, lambda a: a.finding_id),
    ("session_id", TEXT, lambda a: a.session_id),
    ("service", TEXT, lambda a: a.service),
    ("agent", TEXT, lambda a: a.agent),
    ("tool", TEXT, lambda a: a.tool),
    ("opened_at", TIME, lambda a: a.opened_at),
    ("updated_at", TIME, lambda a: a.updated_at),
    ("summary", TEXT, lambda a: a.summary),
    ("payload", TEXT, lambda a: a.payload),
)
_BREAKER_EVENT: Final[tuple[Column[BreakerEventRow], ...]] = (
    ("breaker_id", TEXT, lambda b: b.breaker_id),
    ("seq", pa.uint64(), lambda b: b.seq),
    ("at", TIME, lambda b: b.at),
    ("event", TEXT, lambda b: b.event),
    ("state", TEXT, lambda b: b.state),
    ("scope", TEXT, lambda b: b.scope),
    ("session_id", TEXT, lambda b: b.session_id),
    ("tool", TEXT, lambda b: b.tool),
    ("finding_id", TEXT, lambda b: b.finding_id),
    ("actor", TEXT, lambda b: b.actor),
    ("reason", TEXT, lambda b: b.reason),
    ("payload", TEXT, lambda b: b.payload),
)

_AUDIT: Final[tuple[Column[AuditRow], ...]] = (
    ("seq", pa.uint64(), lambda a: a.seq),
    ("at", TIME, lambda a: a.at),
    ("actor_type", TEXT, lambda a: a.actor_type),
    ("actor_id", TEXT, lambda a: a.actor_id),
    ("verb", TEXT, lambda a: a.verb),
    ("subject", TEXT, lambda a: a.subject),
    ("reason", TEXT, lambda a: a.reason),
    ("payload", TEXT, lambda a: a.payload),
    ("previous", TEXT, lambda a: a.previous),
    ("hash", TEXT, lambda a: a.hash),
)


def step_rows(steps: Sequence[Step]) -> pa.RecordBatch:
    """One row a step, revision as it is; unknown arguments stay NULL, no arguments are `{}`."""
    return _columns(_STEP, steps)


def session_merge_rows(merges: Sequence[SessionsMerged]) -> pa.RecordBatch:
    """One row a merge."""
    return _columns(_MERGE, merges)


def tool_definition_rows(definitions: Sequence[DefinitionRow]) -> pa.RecordBatch:
    """One row a tool of a set of definitions, its schema as JSON text."""
    return _columns(_DEFINITION, definitions)


def failure_rows(recoveries: Sequence[Recovery]) -> pa.RecordBatch:
    """One row a failed call whose end is known, and revision."""
    return _columns(_FAILURE, recoveries)


def finding_rows(findings: Sequence[Finding]) -> pa.RecordBatch:
    """One row a finding and revision, its evidence as JSON text."""
    return _columns(_FINDING, findings)


def alert_rows(alerts: Sequence[AlertRow]) -> pa.RecordBatch:
    """One row an event of an alert."""
    return _columns(_ALERT, alerts)


def breaker_event_rows(events: Sequence[BreakerEventRow]) -> pa.RecordBatch:
    """One row an event of a breaker."""
    return _columns(_BREAKER_EVENT, events)


def audit_rows(entries: Sequence[AuditRow]) -> pa.RecordBatch:
    """One row an entry of the audit."""
    return _columns(_AUDIT, entries)


def json_text(value: Json) -> str:
    r"""JSON as compact text, whatever the size of its integers and the state of its strings.

    >>> json_text({"n": 2**70, "t": "\ud800"})
    '{"n":1180591620717411303424,"t":"\\ud800"}'
    """
    try:
        return orjson.dumps(value, default=dict).decode()
    except TypeError:  # integers over 64 bits, lone surrogates, more levels than it takes
        try:
            return json.dumps(value, default=dict, separators=(",", ":"))
        except RecursionError:
            return _TOO_DEEP


def _columns(columns: Sequence[Column[T]], objects: Sequence[T]) -> pa.RecordBatch:
    schema = pa.schema([pa.field(name, type_) for name, type_, _ in columns])
    arrays = [_array([read(o) for o in objects], type_) for _, type_, read in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(values: list[Any], type_: pa.DataType) -> pa.Array[Any]:
    try:
        return pa.array(values, type=type_)
    except (UnicodeEncodeError, OverflowError):
        return pa.array([_fitting(value, type_) for value in values], type=type_)


def _fitting(value: Any, type_: pa.DataType) -> Any:  # noqa: ANN401 - whatever a column holds
    """A value that fits its column, for rows made of what producers sent unchecked.

    Lone surrogates (out of JSON escapes in a payload) become question marks, times are brought into range,
    and a count that is none is unknown.
    """
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_fitting(item, type_) for item in value]
    if isinstance(value, int) and pa.types.is_timestamp(type_):
        return min(max(value, 0), _LAST_NS)
    if isinstance(value, int) and pa.types.is_unsigned_integer(type_):
        return value if 0 <= value < 2**type_.bit_width else None
    return value
