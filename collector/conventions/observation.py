"""What one span or log record tells, before it is joined with others: partial facts, nothing decided."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from collector.step import Evaluation, Json, ToolDefinitions, Usage

NO_USAGE: Final = Usage()


class Telling(StrEnum):
    """What sort of thing a record tells of.

    TOOL, MODEL, AGENT, USER and COMPACTION are (part of) a step of that kind. PART adds to the step of
    another record and is none by itself: a tool's inner execution, a decision about a call, messages of a
    model call that came as logs. CONTEXT only ties spans together (a chain, a graph node) and may carry a
    session, a user or an agent's name.
    """

    TOOL = "tool"
    MODEL = "model"
    AGENT = "agent"
    USER = "user"
    COMPACTION = "compaction"
    PART = "part"
    CONTEXT = "context"


@dataclass(frozen=True, slots=True)
class Ask:
    """A tool call that a model asked for. `arguments` None = not recorded."""

    call_id: str
    name: str
    arguments: Json = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a tool call brought back, as it was fed to the next model call. `failed` None = not told."""

    call_id: str
    name: str
    text: str
    failed: bool | None = None


@dataclass(frozen=True, slots=True)
class ToolFacts:
    """What a record tells of one tool call.

    `arguments` None = not recorded; a value of which only the bare content is known is `{"$value": ...}`.
    `failed` is what was told explicitly or by the result's content, None = not told. `joinable`: the call id
    is the model provider's, not one that the instrumentation made up. `executed`: the tool really ran
    (False: a decision about it only, which is no call as long as nothing else tells of one).
    """

    name: str
    call_id: str = ""
    arguments: Json = None
    result: str | None = None
    failed: bool | None = None
    denied: bool = False
    error: str | None = None
    executed: bool = True


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What a record tells of one model call.

    `asks` are the calls in its output; `told` those in the model's last message of its input, `answers` and
    the last user text what came after that message.
    """

    model: str | None = None
    provider: str | None = None
    usage: Usage = NO_USAGE
    response_id: str = ""
    finish_reason: str | None = None
    asks: tuple[Ask, ...] = ()
    told: tuple[Ask, ...] = ()
    answers: tuple[Answer, ...] = ()
    user_text: str | None = None
    user_position: int = 0
    failed: bool | None = None
    error: str | None = None
    cost_usd: float | None = None
    offered_tools: tuple[str, ...] = ()
    text: str | None = None
    definitions: ToolDefinitions | None = None


@dataclass(frozen=True, slots=True)
class OwnFacts:
    """What whoever ran the agent said with our own attributes `recloser.*`."""

    expected_tool: str = ""
    task_id: str = ""
    task_success: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Partial facts of one record.

    `session_rank` says how good the session id is (position in the ladder of spellings, 0 best). `source`
    tells reporters apart: two records of one source are never one call, unless one contains the other.
    `lone`: its trace is only this call, no run. `covers`: the record is a log that was written at the end of
    what it tells; its start was computed from a duration. `attached_to`: the record is about the span
    whose ids it carries (a message event of a model call). `version` is the service's, `target` the server
    that the call went to.
    """

    telling: Telling
    convention: str
    source: str
    identity: int
    trace_id: str
    span_id: str
    parent_span_id: str
    process: str
    service: str
    start_ns: int
    end_ns: int
    session: str = ""
    session_rank: int = 99
    user: str = ""
    agent: str = ""
    run: str = ""
    name: str = ""
    tool: ToolFacts | None = None
    model: ModelFacts | None = None
    text: str | None = None
    is_log: bool = False
    attached: bool = False
    trace_is_run: bool = True
    version: str = ""
    target: str = ""
    own: OwnFacts | None = None
    evaluations: tuple[Evaluation, ...] = ()


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a model call's input: the calls in the model's last message, and what came after it."""

    told: tuple[Ask, ...] = ()
    answers: tuple[Answer, ...] = ()
    user_text: str | None = None
    position: int = 0


NO_TAIL: Final = Tail()
