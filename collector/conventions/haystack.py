"""Haystack's own tracer: span names instead of kinds, a flag instead of a status."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from collector.batch import Signal
from collector.conventions import generic
from collector.conventions.messages import transcript_of
from collector.conventions.observation import Observation, Telling
from collector.conventions.values import parse, parse_repr
from collector.record import Record

NAME: Final = "haystack"


def read(record: Record) -> Observation | None:
    """Read a span of Haystack's tracer, or of OpenInference's, which knows neither tools nor model calls."""
    if record.signal is Signal.LOGS:
        return None
    if record.scope.startswith("openinference."):
        return _whole_run(record) if record.name == "Agent.run" else generic.observe(record, NAME)
    if record.name == "haystack.agent.step.tool" or "haystack.tool.name" in record.attributes:
        tool = generic.tool_facts(record)
        return generic.base(
            record, Telling.TOOL if tool.name else Telling.CONTEXT, NAME, tool=tool if tool.name else None
        )
    if record.name == "haystack.agent.step.llm":
        return generic.base(record, Telling.MODEL, NAME, model=generic.model_facts(record))
    if record.name == "haystack.agent.run":
        return generic.base(
            record,
            Telling.AGENT,
            NAME,
            model=generic.agent_facts(record),
            name=generic.own_agent(record.attributes),
        )
    return generic.base(record, Telling.CONTEXT, NAME)


def _whole_run(record: Record) -> Observation:
    """`Agent.run` has the whole conversation in its output, as reprs of messages."""
    output = parse(record.attributes.get("output.value", ""))
    messages = output.get("messages") if isinstance(output, dict) else None
    history = (
        [parse_repr(item) if isinstance(item, str) else item for item in messages]
        if isinstance(messages, list)
        else []
    )
    told, answers = transcript_of(history)
    facts = replace(generic.agent_facts(record), told=told, answers=answers)
    return generic.base(record, Telling.AGENT, NAME, model=facts, name=generic.own_agent(record.attributes))
