"""Codex: log events with attribute `event.name`; its spans are internals and are left alone.

`success="true"` says only that the tool was run: the exit code is in the output's text. A call that a hook
blocked has a decision and never a result.
"""

from __future__ import annotations

from typing import Final

from collector.batch import Signal
from collector.conventions import generic
from collector.conventions.observation import ModelFacts, Observation, Telling, ToolFacts
from collector.conventions.values import arguments_of, begun, integer, result_of, truth
from collector.record import Record
from collector.step import Usage

NAME: Final = "codex"


def read(record: Record) -> Observation | None:  # noqa: PLR0911 - one event a line
    """Read an event of Codex."""
    if record.signal is not Signal.LOGS:
        return None
    attributes = record.attributes
    name = attributes.get("event.name", "").removeprefix("codex.")
    run = attributes.get("conversation.id", "")
    start = begun(record.end_ns, attributes.get("duration_ms", ""))
    if name == "tool_result":
        return generic.base(
            record, Telling.TOOL, NAME, tool=_result(record), run=run, start_ns=start, source="log:result"
        )
    if name == "tool_decision":
        return generic.base(
            record, Telling.PART, NAME, tool=_decision(record), run=run, source="log:decision"
        )
    if name == "sse_event" and attributes.get("input_token_count"):
        return generic.base(record, Telling.MODEL, NAME, model=_response(record), run=run, source="log:api")
    if name == "user_prompt":
        return generic.base(
            record, Telling.USER, NAME, text=attributes.get("prompt"), run=run, source="log:prompt"
        )
    if name in {"compaction", "context_compacted", "conversation_compacted"}:
        return generic.base(record, Telling.COMPACTION, NAME, run=run, source="log:compaction")
    if name == "api_request":
        return _request(record, run, start)
    return None


def _result(record: Record) -> ToolFacts:
    attributes = record.attributes
    tool = attributes.get("tool_name", "")
    brought = result_of(attributes.get("output", ""))
    failed = True if truth(attributes.get("success", "")) is False else brought.failed
    return ToolFacts(
        tool,
        attributes.get("call_id", ""),
        arguments_of(attributes.get("arguments", ""), tool),
        brought.text,
        failed,
        brought.denied,
        brought.error or (brought.text if failed else None),
    )


def _decision(record: Record) -> ToolFacts:
    attributes = record.attributes
    denied = attributes.get("decision", "").lower() in {"denied", "rejected", "abort", "aborted"}
    return ToolFacts(
        attributes.get("tool_name", ""),
        attributes.get("call_id", ""),
        denied=denied,
        executed=denied,
        error=f"{attributes.get('decision')} by {attributes.get('source', '')}" if denied else None,
    )


def _response(record: Record) -> ModelFacts:
    attributes = record.attributes
    return ModelFacts(
        model=attributes.get("model"),
        provider=attributes.get("provider_name"),
        usage=Usage(
            input_tokens=integer(attributes.get("input_token_count", "")),
            output_tokens=integer(attributes.get("output_token_count", "")),
            cached_tokens=integer(attributes.get("cached_token_count", "")),
        ),
    )


def _request(record: Record, run: str, start: int) -> Observation | None:
    """One attempt; those that succeed are told again by `response.completed`."""
    attributes = record.attributes
    status = integer(attributes.get("http.response.status_code", ""))
    error = attributes.get("error.message", "")
    if not error and (status is None or status < 400):  # noqa: PLR2004 - HTTP's own number
        return None
    facts = ModelFacts(model=attributes.get("model"), failed=True, error=error or f"HTTP {status}")
    return generic.base(
        record, Telling.MODEL, NAME, model=facts, run=run, start_ns=start, source="log:attempt"
    )
