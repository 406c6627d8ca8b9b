"""Haystack's own tracer: span names instead of kinds, a flag instead of a status."""

from __future__ import annotations

from typing import Final

from collector.batch import Signal
from collector.conventions import generic
from collector.conventions.observation import Observation, Telling
from collector.record import Record

NAME: Final = "haystack"


def read(record: Record) -> Observation | None:
    """Read a span of Haystack's tracer."""
    if record.signal is Signal.LOGS:
        return None
    if record.name == "haystack.agent.step.tool" or "haystack.tool.name" in record.attributes:
        tool = generic.tool_facts(record)
        return generic.base(record, Telling.TOOL if tool.name else Telling.CONTEXT, NAME, tool=tool if tool.name else None)
    if record.name == "haystack.agent.step.llm":
        return generic.base(record, Telling.MODEL, NAME, model=generic.model_facts(record))
    if record.name == "haystack.agent.run":
        return generic.base(record, Telling.AGENT, NAME, model=generic.agent_facts(record), name=generic.own_agent(record.attributes))
    return generic.base(record, Telling.CONTEXT, NAME)
