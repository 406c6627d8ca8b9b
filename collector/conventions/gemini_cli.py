"""Gemini CLI: logs `gemini_cli.*` and spans, a new trace for every model call and every batch of tools.

The log of a tool call has the arguments and the truth (`metadata`) but no call id; the span has the id.
The log's span id is the span that scheduled the batch.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from collector.batch import Signal
from collector.conventions import generic
from collector.conventions.messages import output_of, read_message, tail_of_text
from collector.conventions.observation import NO_TAIL, ModelFacts, Observation, Telling, ToolFacts
from collector.conventions.spellings import CALL_ID
from collector.conventions.values import (
    NOTHING,
    arguments_of,
    begun,
    brought,
    integer,
    open_arguments,
    parse,
    parse_object,
    truth,
)
from collector.record import Record
from collector.step import Usage

NAME: Final = "gemini_cli"
_DENIED: Final = frozenset({"policy_violation", "stop_execution"})


def read(record: Record) -> Observation | None:
    """Read a span or an event of Gemini CLI (and of its descendants with the same events)."""
    if record.signal is Signal.LOGS:
        return _read_log(record)
    operation = record.attributes.get("gen_ai.operation.name") or record.name
    run = record.attributes.get("gen_ai.prompt.name", "")
    if operation == "tool_call":
        return generic.base(record, Telling.TOOL, NAME, tool=_span_tool(record), trace_is_run=False)
    if operation == "llm_call":
        return generic.base(
            record,
            Telling.MODEL,
            NAME,
            model=_plain_asks(generic.model_facts(record)),
            run=run,
            trace_is_run=False,
        )
    return generic.base(record, Telling.CONTEXT, NAME, trace_is_run=False)


def _span_tool(record: Record) -> ToolFacts:
    """Input and output are objects of the scheduler, there only when traces are on."""
    attributes = record.attributes
    name = generic.tool_name(record)
    failed, error = generic.told_by_status(record)
    asked = parse_object(attributes.get("gen_ai.input.messages", ""))
    done = parse_object(attributes.get("gen_ai.output.messages", ""))
    response = done.get("response", done)
    seen = brought(response) if done else NOTHING
    if done.get("status") == "error":
        failed = True
    message = (
        read_message({"role": "user", "parts": response.get("responseParts")})
        if isinstance(response, dict)
        else None
    )
    text = message.answers[0].text if message and message.answers else seen.text
    told = message.answers[0].failed if message and message.answers else seen.failed
    return ToolFacts(
        name,
        plain_id(CALL_ID.pick(attributes), name),
        open_arguments(asked.get("args"), name),
        text,
        failed or told,
        error=error or seen.error or (text if failed or told else None),
    )


def plain_id(call_id: str, name: str) -> str:
    """A call id as the model gave it: spans put the tool's name before it."""
    return call_id.removeprefix(f"{name}__")


def _plain_asks(facts: ModelFacts) -> ModelFacts:
    return replace(
        facts,
        asks=tuple(replace(ask, call_id=plain_id(ask.call_id, ask.name)) for ask in facts.asks),
        told=tuple(replace(ask, call_id=plain_id(ask.call_id, ask.name)) for ask in facts.told),
        answers=tuple(replace(each, call_id=plain_id(each.call_id, each.name)) for each in facts.answers),
    )


def _read_log(record: Record) -> Observation | None:  # noqa: PLR0911 - one event a line
    attributes = record.attributes
    name = (attributes.get("event.name") or record.event_name).rpartition(".")[2]
    run = attributes.get("prompt_id", "")
    start = begun(record.end_ns, attributes.get("duration_ms", ""))
    if name == "tool_call":
        return generic.base(
            record,
            Telling.TOOL,
            NAME,
            tool=log_tool(record),
            run=run,
            start_ns=start,
            source="log:tool_call",
            trace_is_run=False,
        )
    if name in {"api_response", "api_error"}:
        return generic.base(
            record,
            Telling.MODEL,
            NAME,
            model=_plain_asks(log_response(record, name)),
            run=run,
            start_ns=start,
            source="log:api",
            trace_is_run=False,
        )
    if name == "api_request":
        tail = tail_of_text(attributes.get("request_text", "")) if attributes.get("request_text") else NO_TAIL
        if not tail.answers and not tail.told:
            return None
        facts = _plain_asks(ModelFacts(told=tail.told, answers=tail.answers))
        return generic.base(
            record, Telling.PART, NAME, model=facts, run=run, source="log:request", trace_is_run=False
        )
    if name == "user_prompt":
        return generic.base(
            record,
            Telling.USER,
            NAME,
            text=attributes.get("prompt"),
            run=run,
            source="log:prompt",
            trace_is_run=False,
        )
    if name in {"chat_compression", "compaction"}:
        return generic.base(
            record, Telling.COMPACTION, NAME, run=run, source="log:compression", trace_is_run=False
        )
    return None


def log_tool(record: Record) -> ToolFacts:
    """The tool call that a `tool_call` event tells of; Qwen Code has the same event, with a call id."""
    attributes = record.attributes
    name = attributes.get("function_name", "")
    succeeded = truth(attributes.get("success", ""))
    metadata = parse_object(attributes.get("metadata", ""))
    told = brought({"metadata": metadata}).failed if metadata else None
    error_type = attributes.get("error_type", "")
    failed = (
        True if succeeded is False else told if told is not None else None if succeeded is None else False
    )
    tool = ToolFacts(
        name,
        attributes.get("call_id", ""),
        arguments_of(attributes.get("function_args", ""), name),
        failed=failed,
        denied=error_type in _DENIED,
        error=(attributes.get("error") or error_type or None) if failed else None,
    )
    if attributes.get("decision") == "reject" and succeeded is False:
        tool = replace(tool, denied=True)
    return tool


def log_response(record: Record, name: str) -> ModelFacts:
    """The model call that an `api_response` or `api_error` event tells of."""
    attributes = record.attributes
    raw = attributes.get("response_text", "")
    asks, text = output_of(parse(raw)) if raw[:1] in ("{", "[") else ((), raw or None)
    return ModelFacts(
        model=attributes.get("model"),
        provider="google",
        usage=Usage(
            input_tokens=integer(attributes.get("input_token_count", "")),
            output_tokens=integer(attributes.get("output_token_count", "")),
            cached_tokens=integer(attributes.get("cached_content_token_count", "")),
        ),
        finish_reason="tool_calls" if asks else generic.finish_of(attributes.get("finish_reasons", "")),
        asks=asks,
        text=text,
        failed=True if name == "api_error" else None,
        error=attributes.get("error") or attributes.get("error.message"),
    )
