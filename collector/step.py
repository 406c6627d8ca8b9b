"""The one vocabulary: what an agent did, whatever instrumentation told of it. Frozen, slotted, no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

MAX_EVALUATIONS: Final = 8  # of one step that are kept, the first ones

Json: TypeAlias = "bool | int | float | str | list[Json] | Mapping[str, Json] | None"


class Kind(StrEnum):
    """What sort of thing an agent did."""

    TOOL_CALL = "tool_call"
    MODEL_CALL = "model_call"
    AGENT_RUN = "agent_run"
    USER_TURN = "user_turn"
    COMPACTION = "compaction"


class Outcome(StrEnum):
    """How it ended, as far as the evidence goes.

    `soft_error`: it "succeeded", but its content is an error. `denied`: a brake or hook refused it; a
    repeat when repeated, never a failure of the agent. `unknown`: not recorded.
    """

    OK = "ok"
    ERROR = "error"
    SOFT_ERROR = "soft_error"
    DENIED = "denied"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one model call, counted once. `input_tokens` includes `cached_tokens`. None = not told."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """One tool as it was offered to a model.

    `parameters` is the JSON Schema of its arguments, None when that was not recorded. `read_only`,
    `destructive` and `idempotent` are the hints of MCP's tool annotations, None = not told. `hash` is 16 hex
    digits of name, description and parameters, whatever the order of keys; the hints are not in it.
    """

    name: str
    description: str = ""
    parameters: Json = None
    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    hash: str = ""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class ToolDefinitions:
    """All tools that were offered at once, by name; equal texts give one object.

    `hash` is 16 hex digits over the tools' hashes in the order of their names; `chars` is the length of the
    recorded text, which is what the model had to read. Those of equal hash and length are equal.
    """

    hash: str
    tools: Mapping[str, ToolDefinition] = field(compare=False)
    chars: int


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One judgement of a step by whatever evaluates it (`gen_ai.evaluation.result`). None = not told."""

    name: str
    score: float | None = None
    label: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing an agent did, read out of one or several spans and logs.

    `step_id` is the step's identity and never changes: trace and span id of the first span that told of
    it; else session and call id; else a hash of the log record. `revision` grows when later spans add to
    it. `arguments` None means "not recorded", never "no arguments" (that is `{}`); `result` likewise.
    `attempt_id` is equal for the calls of one model message (one batch is one attempt), None when unknown.
    Times are unix nanoseconds; `cost_usd` is US dollars. `late`: arrived after its scope had moved on.
    `engine_seq` is its place in the order in which steps were said and detectors saw them, from 1.

    `target` is the server that a call went to: `server.address[:port]`, an MCP server's name, a URL's host.
    `definitions` are the tools that a model call or agent run had to choose from, None when only their names
    (`offered_tools`) or nothing was recorded. `expected_tool`, `task_id` and `task_success` are what whoever
    ran the agent said with our own attributes `recloser.*`; `evaluations` are at most `MAX_EVALUATIONS`.
    """

    step_id: str
    kind: Kind
    session_id: str
    start_ns: int
    end_ns: int
    revision: int = 0
    run_id: str = ""
    service: str = ""
    agent: str | None = None
    parent_agent: str | None = None
    user: str | None = None
    tool: str | None = None
    arguments: Json = None
    result: str | None = None
    call_id: str | None = None
    attempt_id: str | None = None
    outcome: Outcome = Outcome.UNKNOWN
    error: str | None = None
    model: str | None = None
    provider: str | None = None
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = None
    offered_tools: tuple[str, ...] = ()
    finish_reason: str | None = None
    text: str | None = None
    trace_id: str = ""
    span_id: str = ""
    parent_span_id: str = ""
    convention: str = ""
    late: bool = False
    engine_seq: int = 0
    service_version: str = ""
    target: str | None = None
    definitions: ToolDefinitions | None = None
    expected_tool: str | None = None
    task_id: str | None = None
    task_success: bool | None = None
    evaluations: tuple[Evaluation, ...] = ()


@dataclass(frozen=True, slots=True)
class StepSeen:
    """A step, for the first time."""

    step: Step


@dataclass(frozen=True, slots=True)
class StepAmended:
    """A step that was seen before, with more known; same `step_id`, higher `revision`."""

    step: Step


@dataclass(frozen=True, slots=True)
class SessionsMerged:
    """A session id arrived late: what was known as `old` belongs to `new`."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class RunEnded:
    """A run's root span has ended, or it has been idle for too long."""

    session_id: str
    run_id: str
    at_ns: int


StepEvent: TypeAlias = StepSeen | StepAmended | SessionsMerged | RunEnded
