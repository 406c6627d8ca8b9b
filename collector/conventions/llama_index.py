"""LlamaIndex's own OpenTelemetry package: spans of calls with one repr of their input, cut short."""

from __future__ import annotations

import re
from typing import Final

from collector.batch import Signal
from collector.conventions import generic
from collector.conventions.observation import Observation, Telling, ToolFacts
from collector.conventions.values import MAX_LITERAL, arguments_of, result_of
from collector.record import Record

NAME: Final = "llama_index"
_SUMMARY: Final = ("llamaindex.step.input_summary", "llama_index.step.input_summary")
_TOOL_NAME: Final = re.compile(r"(?:tool_name|name)='([^']+)'")
_TOOL_ID: Final = re.compile(r"tool_id='([^']+)'")
_TOOL_KWARGS: Final = re.compile(r"(?:tool_kwargs|kwargs)['\"]?[=:]\s*(\{[^{}]*\})")


def read(record: Record) -> Observation | None:
    """Read a span of LlamaIndex's own tracer.

    The call's name and arguments are in the repr of the span `call_tool`; the span of the function itself
    has the outcome and neither.
    """
    if record.signal is Signal.LOGS:
        return None
    summary = next((record.attributes[key] for key in _SUMMARY if key in record.attributes), "")
    if (
        record.name.rpartition(".")[2] in {"call_tool", "_call_tool", "acall_tool"}
        or "ToolCall(" in summary[:200]
    ):
        name = _TOOL_NAME.search(summary)
        if name is None:
            return generic.base(record, Telling.CONTEXT, NAME)
        return generic.base(record, Telling.TOOL, NAME, tool=_tool(record, name[1], summary))
    if record.name.startswith("FunctionTool."):
        failed, error = generic.told_by_status(record)
        return generic.base(
            record, Telling.PART, NAME, tool=ToolFacts("", failed=failed, error=error), source="execution"
        )
    return generic.observe(record, NAME)


def _tool(record: Record, name: str, summary: str) -> ToolFacts:
    call_id = _TOOL_ID.search(summary)
    kwargs = _TOOL_KWARGS.search(summary[:MAX_LITERAL])
    seen = result_of(record.attributes.get("llamaindex.step.output_summary", ""))
    failed, error = generic.told_by_status(record)
    return ToolFacts(
        name,
        call_id[1] if call_id else "",
        arguments_of(kwargs[1], name) if kwargs else None,
        seen.text,
        failed or seen.failed,
        error=error or seen.error,
    )
