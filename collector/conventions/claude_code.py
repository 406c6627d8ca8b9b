"""Claude Code: log events `claude_code.*` and beta spans. Booleans and numbers come as texts.

The tool span never says that its tool failed (its child `claude_code.tool.execution` does), and the log of a
result has no trace of its own. A decision event names a call before it ran; a rejected one is all there is
of a refused call.
"""

from __future__ import annotations

from typing import Final

from collector.batch import Signal
from collector.conventions import generic
from collector.conventions.observation import ModelFacts, Observation, Telling, ToolFacts
from collector.conventions.spellings import CALL_ID
from collector.conventions.values import arguments_of, begun, integer, number, truth
from collector.record import Record
from collector.step import Json, Usage

NAME: Final = "claude_code"


def read(record: Record) -> Observation | None:
    """Read a span or an event of Claude Code."""
    if record.signal is Signal.LOGS:
        return _read_log(record)
    kind = record.attributes.get("span.type") or record.name.removeprefix("claude_code.")
    if kind == "tool.execution":
        return generic.base(record, Telling.PART, NAME, tool=_execution(record), source="execution")
    if kind == "tool":
        tool = generic.tool_facts(record)
        return generic.base(record, Telling.TOOL, NAME, tool=_with_command(tool, record))
    if kind == "interaction":
        return generic.base(
            record,
            Telling.AGENT,
            NAME,
            model=generic.agent_facts(record),
            name="claude-code",
            text=record.attributes.get("user_prompt"),
        )
    if kind == "llm_request":
        facts = generic.model_facts(record)
        telling = Telling.COMPACTION if generic.is_compaction(record) else Telling.MODEL
        return generic.base(record, telling, NAME, model=facts)
    return generic.base(record, Telling.CONTEXT, NAME)


def _with_command(tool: ToolFacts, record: Record) -> ToolFacts:
    for attribute, parameter in (("full_command", "command"), ("file_path", "file_path")):
        value = record.attributes.get(attribute)
        if value and tool.arguments is None:
            return ToolFacts(
                tool.name,
                tool.call_id,
                {parameter: value, "$partial": True},
                tool.result,
                tool.failed,
                tool.denied,
                tool.error,
            )
    return tool


def _execution(record: Record) -> ToolFacts:
    attributes = record.attributes
    failed, error = generic.told_by_status(record)
    return ToolFacts("", CALL_ID.pick(attributes), failed=failed, error=error)


def _read_log(record: Record) -> Observation | None:
    attributes = record.attributes
    name = (attributes.get("event.name") or record.event_name or record.body).removeprefix("claude_code.")
    run = attributes.get("prompt.id", "")
    start = begun(record.end_ns, attributes.get("duration_ms", ""))
    if name == "tool_result":
        return generic.base(
            record, Telling.TOOL, NAME, tool=_result(record), run=run, start_ns=start, source=f"log:{name}"
        )
    if name == "tool_decision":
        denied = attributes.get("decision") == "reject"
        tool = ToolFacts(
            attributes.get("tool_name", ""),
            attributes.get("tool_use_id", ""),
            _parameters(record),
            denied=denied,
            executed=denied,
            error=f"rejected by {attributes.get('source', '')}" if denied else None,
        )
        telling = Telling.TOOL if denied else Telling.PART
        return generic.base(record, telling, NAME, tool=tool, run=run, source=f"log:{name}")
    if name in {"api_request", "api_error"}:
        return generic.base(
            record,
            _request_kind(record),
            NAME,
            model=_request(record, name),
            run=run,
            start_ns=start,
            source="log:api",
        )
    if name == "user_prompt":
        return generic.base(
            record, Telling.USER, NAME, text=attributes.get("prompt"), run=run, source=f"log:{name}"
        )
    if name == "compaction":
        return generic.base(record, Telling.COMPACTION, NAME, run=run, start_ns=start, source=f"log:{name}")
    return None


def _request_kind(record: Record) -> Telling:
    return Telling.COMPACTION if "compact" in record.attributes.get("query_source", "") else Telling.MODEL


def _parameters(record: Record) -> Json:
    attributes = record.attributes
    raw = attributes.get("tool_input")
    if raw:
        return arguments_of(raw, attributes.get("tool_name", ""))
    parameters = arguments_of(attributes.get("tool_parameters", ""), attributes.get("tool_name", ""))
    return {**parameters, "$partial": True} if isinstance(parameters, dict) else None


def _result(record: Record) -> ToolFacts:
    attributes = record.attributes
    succeeded = truth(attributes.get("success", ""))
    error = attributes.get("error") or attributes.get("error_type") or None
    return ToolFacts(
        attributes.get("tool_name", ""),
        attributes.get("tool_use_id", ""),
        _parameters(record),
        failed=None if succeeded is None else not succeeded,
        error=error if succeeded is False else None,
        denied=attributes.get("decision_type") == "reject" and succeeded is False,
    )


def _request(record: Record, name: str) -> ModelFacts:
    attributes = record.attributes
    cached = integer(attributes.get("cache_read_tokens", ""))
    plain = integer(attributes.get("input_tokens", ""))
    total = (
        None
        if plain is None
        else plain + (cached or 0) + (integer(attributes.get("cache_creation_tokens", "")) or 0)
    )
    return ModelFacts(
        model=attributes.get("model"),
        provider="anthropic",
        usage=Usage(
            input_tokens=total,
            output_tokens=integer(attributes.get("output_tokens", "")),
            cached_tokens=cached,
        ),
        failed=True if name == "api_error" else None,
        error=attributes.get("error"),
        cost_usd=number(attributes.get("cost_usd", "")),
    )
