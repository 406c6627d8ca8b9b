"""The generic reader: what nearly every instrumentation family says, by ladders of spellings.

Never requires the attribute that names the kind: the SDK's limit of 128 attributes evicts the oldest first,
and that is the kind. Whatever evidence survives classifies the span.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Final

from collector.batch import Signal
from collector.conventions import spellings as say
from collector.conventions.definitions import NOTHING, Offered, offered_by, offered_of
from collector.conventions.facts import (
    EVALUATION,
    evaluation_of,
    evaluations_in,
    own_facts,
    target_of_model,
    target_of_tool,
)
from collector.conventions.messages import (
    flattened,
    output_of,
    read_message,
    tail_of,
    tail_of_messages,
    tail_of_text,
    told_by_events,
)
from collector.conventions.observation import (
    NO_TAIL,
    NO_USAGE,
    Ask,
    ModelFacts,
    Observation,
    Tail,
    Telling,
    ToolFacts,
)
from collector.conventions.values import (
    arguments_of,
    count,
    integer,
    is_denial,
    number,
    parse,
    parse_object,
    result_of,
    truth,
    unquote,
)
from collector.record import Record
from collector.step import Json, Usage

NAME: Final = "gen_ai"
MAX_ERROR: Final = 2_000

_TOOL_OPERATIONS: Final = frozenset({"execute_tool", "tool_call"})
_MODEL_OPERATIONS: Final = frozenset(
    {"chat", "generate_content", "text_completion", "llm_call", "responses", "completion"}
)
_AGENT_OPERATIONS: Final = frozenset({"invoke_agent", "invoke_workflow"})
_NO_STEP_OPERATIONS: Final = frozenset({
    "handoff", "create_agent", "agent_step", "execute_task", "execute_event_loop_cycle", "unknown", "chain",
    "plan",
    "embeddings", "retrieval", "search_memory", "create_memory", "update_memory", "upsert_memory",
    "delete_memory",
    "create_memory_store", "delete_memory_store", "schedule_tool_calls", "CHAIN", "guardrail",
    "transcription", "speech",
    "model_step", "model_chunk", "workflow", "task",
})  # fmt: skip
_TRANSPORT_SCOPES: Final = re.compile(
    r"opentelemetry\.instrumentation\.(httpx|requests|urllib3?|aiohttp[-_a-z]*|asgi|wsgi|fastapi|starlette|grpc|sqlalchemy|redis)"
    r"|@opentelemetry/instrumentation-(http|undici|net|dns|fs|express)|autogen SingleThreadedAgentRuntime"
)
_FALSE_AGENTS: Final = frozenset({"OpenAI Agent", "", "unknown", "agent"})
_CONTROL_TOOLS: Final = frozenset({"(merged tools)", "transfer_to_agent", "final_answer", "final_result"})
_PLACEHOLDER: Final = re.compile(
    r"^(?:execute_tool|(?:MCP send )?tools/call|Function:|tool:|running tool:?)\s+|^tool_call\s+"
)
_SUFFIXES: Final = (".tool", ".run", ".__call__", ".task", ".arun", ".call", ".acall")
_DENIED_TYPES: Final = frozenset(
    {
        "policy_violation",
        "stop_execution",
        "execution_denied",
        "pre_hook_blocked",
        "permission_denied_by_hook",
    }
)
_TELL_STATUS: Final = frozenset(
    {
        "error.type",
        "gen_ai.tool.status",
        "haystack.tool.error",
        "gen_ai.task.status",
        "langfuse.observation.level",
        "success",
        "process.exit.code",
        "error",
    }
)
_TELL_DENIED: Final = ("error_type", "error.type", "tool.failure_kind")
_EVENT_NAMES: Final = frozenset({"start", "success", "error", "finish", "retry", "new_token"})
_COMPACTION: Final = re.compile(
    r"(?:^|[._ /-])(?:compaction|compact|chat_compression|context_compression|summarize_history)"
    r"(?:$|[._ /-])",
    re.IGNORECASE,
)


def read(record: Record) -> Observation | None:
    """Read a record of no particular family."""
    return observe(record, NAME)


def observe(record: Record, convention: str) -> Observation | None:  # noqa: PLR0911 - one kind a line
    """Classify a span and read its facts; a log record is read as far as it carries `gen_ai.*` names."""
    if record.signal is Signal.LOGS:
        return observe_log(record, convention)
    telling = classify(record)
    if telling is None:
        return None
    if telling is Telling.TOOL:
        tool = tool_facts(record)
        if is_control(tool.name) or not tool.name:
            return base(record, Telling.CONTEXT, convention)
        return base(record, telling, convention, tool=tool)
    if telling is Telling.MODEL:
        facts = model_facts(record)
        if is_compaction(record):
            return base(record, Telling.COMPACTION, convention, model=facts)
        return base(record, telling, convention, model=facts)
    if telling is Telling.AGENT:
        return base(record, telling, convention, model=agent_facts(record), name=agent_name(record))
    return base(record, telling, convention)


def base(
    record: Record,
    telling: Telling,
    convention: str,
    *,
    model: ModelFacts | None = None,
    tool: ToolFacts | None = None,
    name: str = "",
    text: str | None = None,
    run: str = "",
    attached: bool = False,
    trace_is_run: bool = True,
    start_ns: int | None = None,
    source: str = "",
) -> Observation:
    """What every record tells: identity, times, session, user, agent."""
    attributes = record.attributes
    session, rank = session_of(attributes, record.resource)
    is_log = record.signal is Signal.LOGS
    return Observation(
        telling=telling,
        convention=convention,
        source=source or (f"log:{record.scope}" if is_log else record.scope),
        identity=record.identity,
        trace_id=record.trace_id,
        span_id=record.span_id,
        parent_span_id=record.parent_span_id,
        process=record.process,
        service=record.service,
        start_ns=record.start_ns if start_ns is None else start_ns,
        end_ns=record.end_ns,
        session=session,
        session_rank=rank,
        user=say.USER.pick(attributes),
        agent=own_agent(attributes),
        run=run,
        name=name,
        tool=tool,
        model=model,
        text=text,
        is_log=is_log,
        attached=attached,
        trace_is_run=trace_is_run,
        version=record.resource.get("service.version", ""),
        target=_target(attributes, telling, tool),
        own=own_facts(attributes, record.resource),
        evaluations=evaluations_in(record.events) if record.events else (),
    )


def _target(attributes: Mapping[str, str], telling: Telling, tool: ToolFacts | None) -> str:
    if tool is not None:
        return target_of_tool(attributes, tool.name)
    if telling is Telling.MODEL or telling is Telling.COMPACTION or telling is Telling.PART:
        return target_of_model(attributes)
    return ""


def session_of(attributes: Mapping[str, str], resource: Mapping[str, str]) -> tuple[str, int]:
    """The session id that a record carries, and how good its spelling is (0 best, 99 none)."""
    value, rank = say.SESSION.find(attributes)
    if value:
        return value, rank
    metadata = attributes.get("metadata")
    if metadata and ("session_id" in metadata or "thread_id" in metadata):
        fields = parse_object(metadata)
        for offset, key in enumerate(("session_id", "thread_id", "conversation_id")):
            inner = fields.get(key)
            if isinstance(inner, str) and inner:
                return inner, len(say.SESSION.keys) + offset
    resource_session = resource.get("session.id", "")
    return (resource_session, 90) if resource_session else ("", 99)


def own_agent(attributes: Mapping[str, str]) -> str:
    """The agent that a record names itself; placeholders of instrumentations are none."""
    name = attributes.get("gen_ai.agent.name") or attributes.get("langsmith.metadata.lc_agent_name") or ""
    if not name:
        name = say.AGENT.pick(attributes)
    return "" if name in _FALSE_AGENTS else name


def classify(record: Record) -> Telling | None:  # noqa: C901, PLR0911 - the ordered rules, one line each
    """Tell what a span is about; None when it is nothing of an agent's."""
    attributes = record.attributes
    operation = attributes.get("gen_ai.operation.name", "")
    if attributes.get("logfire.span_type") == "pending_span" or is_transport(record.scope):
        return None
    kind = attributes.get("openinference.span.kind", "")
    if operation in _NO_STEP_OPERATIONS and kind not in {"TOOL", "LLM"}:
        return Telling.CONTEXT
    if kind in {"TOOL", "LLM"} and ("metadata.path" in attributes or record.name in _EVENT_NAMES):
        return Telling.CONTEXT  # BeeAI makes a span of every event within a call
    if operation in _TOOL_OPERATIONS or kind == "TOOL":
        return Telling.CONTEXT if record.name.startswith("handoff to ") else Telling.TOOL
    loop = attributes.get("traceloop.span.kind", "")
    vercel = attributes.get("ai.operationId", "")
    langfuse = attributes.get("langfuse.observation.type", "")
    mlflow = unquote(attributes.get("mlflow.spanType", ""))
    langsmith = attributes.get("langsmith.span.kind", "")
    if (
        "tool" in (loop, langfuse, langsmith)
        or vercel == "ai.toolCall"
        or mlflow == "TOOL"
        or attributes.get("mcp.method.name") == "tools/call"
        or attributes.get("mastra.span.type") in {"tool_call", "mcp_tool_call"}
        or record.name.startswith(("execute_tool ", "tools/call "))
    ):  # fmt: skip
        return Telling.TOOL
    if (
        operation in _MODEL_OPERATIONS or kind == "LLM" or "llm.request.type" in attributes
        or vercel.endswith((".doGenerate", ".doStream")) or langfuse == "generation"
        or mlflow in {"CHAT_MODEL", "LLM"} or langsmith == "llm" or record.name == "call_llm"
    ):  # fmt: skip
        return Telling.MODEL
    if (
        operation in _AGENT_OPERATIONS
        or kind == "AGENT"
        or loop in {"agent", "workflow"}
        or langfuse == "agent"
        or mlflow == "AGENT"
    ):
        return Telling.AGENT
    if vercel in {"ai.generateText", "ai.streamText", "ai.generateObject", "ai.streamObject"}:
        return Telling.AGENT
    if record.name.startswith(("invoke_agent", "agent_run")):
        return Telling.AGENT
    if kind or loop or vercel or langfuse or mlflow or langsmith or operation:
        return Telling.CONTEXT
    return _by_leftovers(attributes)


def _by_leftovers(attributes: Mapping[str, str]) -> Telling:
    """What is left after the oldest attributes were evicted."""
    if "gen_ai.usage.input_tokens" in attributes and "gen_ai.response.id" in attributes:
        return Telling.MODEL
    if "llm.token_count.prompt" in attributes or "llm.token_count.total" in attributes:
        return Telling.MODEL
    for key in attributes:
        if key.startswith(("llm.output_messages.", "gen_ai.completion.0.")):
            return Telling.MODEL
    return Telling.CONTEXT


@lru_cache(maxsize=4096)
def is_transport(scope: str) -> bool:
    """Whether spans of this scope are HTTP and the like, beneath what agents do."""
    return _TRANSPORT_SCOPES.match(scope) is not None


@lru_cache(maxsize=4096)
def is_control(tool: str) -> bool:
    """Whether a "tool" is a framework's own control flow, no tool call (hand-offs, final answers, merges)."""
    return tool in _CONTROL_TOOLS or tool.startswith(("handoff to ", "final_result_"))


def is_compaction(record: Record) -> bool:
    """Whether a model call summarizes the history so that it fits again."""
    return (
        _COMPACTION.search(record.name) is not None
        or record.attributes.get("query_source") in {"compact", "compaction"}
        or record.attributes.get("ai.telemetry.functionId") in {"compaction", "session.compaction"}
    )


def agent_name(record: Record) -> str:
    """The name of the agent that a span of kind agent runs; empty for unnamed roots and workflows."""
    attributes = record.attributes
    name = own_agent(attributes)
    if name:
        return name
    for prefix in ("invoke_agent ", "agent_run ["):
        if record.name.startswith(prefix):
            return record.name.removeprefix(prefix).rstrip("]")
    if attributes.get("traceloop.span.kind") in {"agent", "workflow"} and attributes.get(
        "traceloop.entity.name"
    ):
        return attributes["traceloop.entity.name"]
    if attributes.get("graph.node.id") and record.name.endswith("_execute_core"):
        return attributes["graph.node.id"]
    if (
        attributes.get("openinference.span.kind") == "AGENT"
        or attributes.get("langfuse.observation.type") == "agent"
    ):
        name = record.name.removesuffix(".run").removesuffix(".kickoff")
        return "" if " " in name or name in _FALSE_AGENTS else name
    return ""


def tool_name(record: Record) -> str:
    """The tool's name by the best spelling, else out of the span's name."""
    name = say.TOOL_NAME.pick(record.attributes)
    return unquote(name) if name else stripped_name(record.name)


@lru_cache(maxsize=4096)
def stripped_name(name: str) -> str:
    """A tool's name out of a span's name.

    >>> [stripped_name(name) for name in ("execute_tool get_weather", "get_weather.__call__", "Agent.f")]
    ['get_weather', 'get_weather', 'f']
    """
    name = _PLACEHOLDER.sub("", name)
    for suffix in _SUFFIXES:
        if name.endswith(suffix) and name != suffix:
            return name.removesuffix(suffix)
    head, dot, last = name.rpartition(".")
    return last if dot and head.isidentifier() and last.isidentifier() else name


def tool_facts(record: Record) -> ToolFacts:
    """Everything a span tells of the tool call it is about."""
    attributes = record.attributes
    name = tool_name(record)
    raw = say.ARGUMENTS.pick(attributes)
    raw_result = say.RESULT.pick(attributes)
    if record.events and (not raw or not raw_result):
        for event in record.events:
            if event.name == "gen_ai.tool.message" and not raw:
                raw = event.attributes.get("content", "")
            elif event.name == "gen_ai.choice" and not raw_result:
                raw_result = event.attributes.get("message", "")
            elif event.name == "tool.output" and not raw_result:
                raw_result = event.attributes.get("output", "")
    arguments = arguments_of(raw, name) if raw else None
    result = result_of(raw_result)
    call_id = unquote(say.CALL_ID.pick(attributes)) or _id_in_envelope(raw) or result.call_id
    failed, error = told_by_status(record)
    types = [attributes.get(key) for key in _TELL_DENIED]
    denied = result.denied or not _DENIED_TYPES.isdisjoint(types) or (error is not None and is_denial(error))
    if failed is not True and result.failed is not None:
        failed = result.failed or failed
        error = error or result.error
    return ToolFacts(
        name=name,
        call_id=call_id,
        arguments=arguments,
        result=None if result.text == "{}" and failed else result.text,
        failed=failed,
        denied=denied,
        error=(error or result.error or "")[:MAX_ERROR] or None,
    )


def _id_in_envelope(raw: str) -> str:
    if "tool_call_id" not in raw:
        return ""
    kwargs = parse_object(raw).get("kwargs")
    inner = kwargs.get("tool_call_id") if isinstance(kwargs, dict) else None
    return inner if isinstance(inner, str) else ""


def told_by_status(record: Record) -> tuple[bool | None, str | None]:
    """Whether a span says that it failed, other than by its content; and the error's text.

    A missing status message means nothing, an exception event on a span that is no error neither.
    """
    attributes = record.attributes
    if record.status != "Error" and _TELL_STATUS.isdisjoint(attributes):
        return None, None
    error_type = attributes.get("error.type", "")
    failed = (
        record.status == "Error"
        or bool(error_type)
        or attributes.get("gen_ai.tool.status") == "error"
        or attributes.get("haystack.tool.error") == "true"
        or attributes.get("gen_ai.task.status") == "failure"
        or attributes.get("langfuse.observation.level") == "ERROR"
        or truth(attributes.get("success", "")) is False
        or attributes.get("process.exit.code", "0") not in {"0", ""}
    )
    if (
        not failed
        and record.signal is Signal.TRACES
        and attributes.get("error") not in {None, "", "false", "null", "{}"}
    ):
        failed = True
    if not failed:
        told_fine = (
            attributes.get("gen_ai.tool.status") == "success" or truth(attributes.get("success", "")) is True
        )
        return (False if told_fine else None), None
    return True, error_text(record) or error_type or None


def error_text(record: Record) -> str:
    """The best text of an error: an exception's message, else the status message, else attributes."""
    for event in record.events:
        if event.name == "exception":
            message = event.attributes.get("exception.message", "")
            if message:
                return message[:MAX_ERROR]
    if record.status_message and record.status_message not in {"TOOL_ERROR", "ERROR"}:
        return record.status_message[:MAX_ERROR]
    return say.ERROR_TEXT.pick(record.attributes)[:MAX_ERROR]


def usage_of(attributes: Mapping[str, str]) -> Usage:
    """Tokens by the best spelling, else out of one of the usage objects in JSON."""
    given = integer(say.INPUT_TOKENS.pick(attributes))
    put_out = integer(say.OUTPUT_TOKENS.pick(attributes))
    cached = integer(say.CACHED_TOKENS.pick(attributes))
    for key in (
        "langsmith.metadata.usage_metadata",
        "langfuse.observation.usage_details",
        "mlflow.chat.tokenUsage",
        "usage",
    ):
        if (given is None or cached is None) and key in attributes:
            told = usage_in(parse_object(attributes[key]))
            given = told.input_tokens if given is None else given
            put_out = told.output_tokens if put_out is None else put_out
            cached = told.cached_tokens if cached is None else cached
    if given is None and put_out is None and cached is None:
        return NO_USAGE
    return Usage(input_tokens=given, output_tokens=put_out, cached_tokens=cached)


def usage_in(fields: Mapping[str, Json]) -> Usage:
    """Tokens out of a usage object of any provider or client library."""
    details = next(
        (inner for key in ("input_token_details", "prompt_tokens_details", "input_tokens_details")
         if isinstance(inner := fields.get(key), dict)), {},
    )  # fmt: skip
    cached = _count(details, "cache_read", "cached_tokens")
    if cached is None:
        cached = _count(
            fields,
            "input_cache_read",
            "cache_read_input_tokens",
            "cached_tokens",
            "cached_content_token_count",
        )
    given = _count(
        fields, "input_tokens", "prompt_tokens", "promptTokens", "inputTokens", "prompt_token_count"
    )
    if given is None:
        given = _count(fields, "input")
        if given is not None:
            given += _count(fields, "input_cache_read") or 0
    put_out = _count(
        fields,
        "output_tokens",
        "completion_tokens",
        "completionTokens",
        "outputTokens",
        "candidates_token_count",
    )
    if put_out is None:
        put_out = _count(fields, "output")
        if put_out is not None:
            put_out += _count(fields, "output_reasoning") or 0
    return Usage(input_tokens=given, output_tokens=put_out, cached_tokens=cached)


def _count(fields: Mapping[str, Json], *keys: str) -> int | None:
    for key in keys:
        value = fields.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return count(value)
    return None


def provider_of(attributes: Mapping[str, str]) -> str | None:
    """The model's provider, in lower case; frameworks that write their own name there are none."""
    for key in say.PROVIDER.keys:
        value = attributes.get(key)
        if value:
            name = unquote(value).lower().removesuffix(".chat").removesuffix(".responses")
            if name not in FRAMEWORKS:
                return name
    return None


FRAMEWORKS: Final = say.FRAMEWORKS
_FINISH: Final = {
    "tool_call": "tool_calls", "tool-calls": "tool_calls", "tool_use": "tool_calls",
    "function_calls": "tool_calls",
    "function_call": "tool_calls", "finishreason.tool_calls": "tool_calls", "tool_calls": "tool_calls",
    "end_turn": "stop", "stop": "stop", "finishreason.stop": "stop", "completed": "stop",
    "max_tokens": "length", "length": "length",
}  # fmt: skip


@lru_cache(maxsize=1024)
def finish_of(raw: str) -> str | None:
    """Normalise a finish reason: `tool_calls`, `stop`, `length`, or as it is.

    >>> finish_of('["tool-calls"]'), finish_of("FinishReason.TOOL_CALLS"), finish_of("")
    ('tool_calls', 'tool_calls', None)
    """
    value: Json = raw
    for _ in range(3):
        if isinstance(value, str) and value[:1] in ("[", '"'):
            opened = parse(value)
            value = "" if opened == value else opened
        if isinstance(value, list):
            value = value[0] if value else ""
    text = value if isinstance(value, str) else ""
    return _FINISH.get(text.lower(), text) or None


def model_facts(record: Record) -> ModelFacts:
    """Everything a span tells of the model call it is about."""
    attributes = record.attributes
    tail, asks, text = content_of(record)
    failed, error = told_by_status(record)
    offered = _offered(record)
    return ModelFacts(
        model=unquote(say.RESPONSE_MODEL.pick(attributes) or say.REQUEST_MODEL.pick(attributes)) or None,
        provider=provider_of(attributes),
        usage=usage_of(attributes),
        response_id=say.RESPONSE_ID.pick(attributes),
        finish_reason="tool_calls"
        if asks
        else finish_of(say.FINISH.pick(attributes)) or finish_in_events(record),
        asks=asks,
        told=tail.told,
        answers=tail.answers,
        user_text=tail.user_text,
        user_position=tail.position,
        failed=failed,
        error=error,
        cost_usd=number(say.COST.pick(attributes)),
        offered_tools=offered.names,
        text=text,
        definitions=offered.definitions,
    )


def _offered(record: Record) -> Offered:
    """The tools that a model call or an agent had, by its attributes, else by an event with its details."""
    offered = offered_of(record.attributes)
    if offered is NOTHING and record.events:
        for event in record.events:
            raw = event.attributes.get("gen_ai.tool.definitions")
            if raw:
                return offered_by(raw)
    return offered


def finish_in_events(record: Record) -> str | None:
    """A finish reason that came as a span event."""
    for event in record.events:
        if event.name == "gen_ai.choice" and event.attributes.get("finish_reason"):
            return finish_of(event.attributes["finish_reason"])
    return None


def agent_facts(record: Record) -> ModelFacts:
    """What an agent span tells beside its name; its tokens are its model calls', not counted again."""
    failed, error = told_by_status(record)
    offered = _offered(record)
    return ModelFacts(
        failed=failed, error=error, offered_tools=offered.names, definitions=offered.definitions
    )


def content_of(record: Record) -> tuple[Tail, tuple[Ask, ...], str | None]:
    """The messages of a model call: the tail of its input, the calls in its output, its text."""
    attributes = record.attributes
    raw_in, raw_out = say.CONTENT_IN.pick(attributes), say.CONTENT_OUT.pick(attributes)
    tail = NO_TAIL
    asks: tuple[Ask, ...] = ()
    text: str | None = None
    structured = "gen_ai.input.messages" in attributes or "gen_ai.output.messages" in attributes
    if not structured and _has_flat(attributes):
        tail, asks, text = flattened(attributes)
    if raw_in and tail is NO_TAIL:
        tail = tail_of_text(raw_in)
        if not raw_out and not asks:
            tail, asks = _split_events(attributes, tail)
    if raw_out and not asks:
        asks, text = output_of(parse(raw_out))
    raw_calls = attributes.get("ai.response.toolCalls")
    if raw_calls and not asks:
        message = read_message({"role": "assistant", "tool_calls": parse(raw_calls)})
        asks = tuple(message.asks) if message else ()
    text = text or attributes.get("ai.response.text")
    if record.events and tail is NO_TAIL and not asks:
        tail, asks, text = content_in_events(record)
    return tail, asks, text


def _split_events(attributes: Mapping[str, str], tail: Tail) -> tuple[Tail, tuple[Ask, ...]]:
    """An `events` list holds the answer too: its last message is the output, what is before it the input."""
    events = parse(attributes["events"]) if "events" in attributes else None
    if not isinstance(events, list) or not events:
        return tail, ()
    last = events[-1]
    name = last.get("event.name") if isinstance(last, dict) else ""
    if name not in {"gen_ai.choice", "gen_ai.assistant.message"}:
        return tail, ()
    return tail_of(events[:-1]), output_of([last])[0]


def content_in_events(record: Record) -> tuple[Tail, tuple[Ask, ...], str | None]:
    """Messages that came as span events."""
    for event in record.events:
        if event.name == "gen_ai.client.inference.operation.details":
            fields = event.attributes
            tail = (
                tail_of_text(fields["gen_ai.input.messages"])
                if fields.get("gen_ai.input.messages")
                else NO_TAIL
            )
            asks, text = output_of(parse(fields.get("gen_ai.output.messages", "")))
            return tail, asks, text
    inputs, outputs, _ = told_by_events((event.name, event.attributes) for event in record.events)
    tail = tail_of_messages(inputs, len(inputs)) if inputs else NO_TAIL
    asks = tuple(ask for message in outputs for ask in message.asks)
    text = "\n".join(text for message in outputs for text in message.texts) or None
    return tail, asks, text


def _has_flat(attributes: Mapping[str, str]) -> bool:
    return any(
        key.startswith(
            ("llm.input_messages.", "llm.output_messages.", "gen_ai.prompt.", "gen_ai.completion.")
        )
        for key in attributes
    )


def observe_log(record: Record, convention: str) -> Observation | None:
    """Read a log record with messages of a model call: it adds to the span whose ids it carries."""
    attributes = record.attributes
    name = record.event_name or attributes.get("event.name", "")
    if name == "gen_ai.client.inference.operation.details":
        facts = model_facts(record)
        if not record.span_id:
            return base(record, Telling.MODEL, convention, model=facts)
        return base(record, Telling.PART, convention, model=facts, attached=True)
    if name.startswith("gen_ai.") and (name.endswith(".message") or name == "gen_ai.choice"):
        return _message_log(record, convention, name)
    return None


def observe_evaluation(record: Record) -> Observation | None:
    """Read a log record with an evaluation of the step whose span it names; None for any other."""
    if (record.event_name or record.attributes.get("event.name")) != EVALUATION:
        return None
    evaluation = evaluation_of(record.attributes)
    if evaluation is None or not record.span_id:
        return None
    return replace(base(record, Telling.PART, NAME, attached=True), evaluations=(evaluation,))


def _message_log(record: Record, convention: str, name: str) -> Observation | None:
    fields: dict[str, str] = dict(record.attributes)
    if record.body:
        opened = parse(record.body)
        if isinstance(opened, dict):
            fields["message"] = record.body
            for key in ("id", "finish_reason"):
                value = opened.get(key)
                if isinstance(value, str):
                    fields[key] = value
            inner = opened.get("message")
            if isinstance(inner, dict) and name == "gen_ai.choice":
                fields["message"] = record.body
        else:
            fields["content"] = record.body
    inputs, outputs, finish = told_by_events([(name, fields)])
    facts = ModelFacts(
        asks=tuple(ask for message in outputs for ask in message.asks),
        told=tuple(ask for message in inputs for ask in message.asks),
        answers=tuple(answer for message in inputs for answer in message.answers),
        finish_reason=finish_of(finish or ""),
    )
    if not facts.asks and not facts.told and not facts.answers and not finish:
        return None
    return base(record, Telling.PART, convention, model=facts, attached=True)
