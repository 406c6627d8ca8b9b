"""Logfire's own instrumentations of the OpenAI Agents SDK and the OpenAI client: templates as span names."""

from __future__ import annotations

from typing import Final

from collector.batch import Signal
from collector.conventions import generic
from collector.conventions.observation import Observation, Telling, ToolFacts
from collector.conventions.spellings import CALL_ID
from collector.conventions.values import arguments_of, result_of
from collector.record import Record

NAME: Final = "logfire"


def read(record: Record) -> Observation | None:
    """Read a span of `logfire.openai_agents`, `logfire.openai` and the like."""
    attributes = record.attributes
    if record.signal is Signal.LOGS or attributes.get("logfire.span_type") == "pending_span":
        return None
    template = attributes.get("logfire.msg_template") or record.name
    if template.startswith("Function:"):
        name = attributes.get("name", "") or attributes.get("gen_ai.tool.name", "")
        seen = result_of(attributes.get("output", ""))
        failed, error = generic.told_by_status(record)
        tool = ToolFacts(
            name,
            CALL_ID.pick(attributes),
            arguments_of(attributes.get("input", ""), name),
            seen.text,
            failed or seen.failed,
            error=error or seen.error,
        )
        return generic.base(
            record, Telling.TOOL if name else Telling.CONTEXT, NAME, tool=tool if name else None
        )
    if template.startswith("Agent run"):
        return generic.base(
            record, Telling.AGENT, NAME, model=generic.agent_facts(record), name=attributes.get("name", "")
        )
    if template.startswith(("Handoff", "OpenAI Agents trace", "Custom span", "Guardrail")):
        return generic.base(record, Telling.CONTEXT, NAME)
    return generic.observe(record, NAME)
