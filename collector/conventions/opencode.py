"""opencode: the Vercel AI SDK's spans and `Tool.execute` of its own; 89 traces for one prompt were seen.

A call that a plugin refused is an `ai.toolCall` in error without a `Tool.execute`: the reader that joins the
two knows (`executed` tells which is which).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from collector.batch import Signal
from collector.conventions import generic
from collector.conventions.observation import Observation, Telling
from collector.record import Record

NAME: Final = "opencode"
ASKED: Final = "opencode:asked"
RAN: Final = "opencode:ran"
_TITLE: Final = "You are a title generator"  # a model call beside the conversation, about the same text
_HEAD: Final = 200


def read(record: Record) -> Observation | None:
    """Read a span of opencode; its logs tell nothing that its spans do not."""
    if record.signal is Signal.LOGS:
        return None
    if record.name == "Tool.execute":
        tool = generic.tool_facts(record)
        return generic.base(record, Telling.TOOL, NAME, tool=tool, source=RAN, trace_is_run=False)
    observation = generic.observe(record, NAME)
    if observation is None:
        return None
    if observation.telling is Telling.AGENT:
        return replace(observation, telling=Telling.CONTEXT, trace_is_run=False)
    if observation.telling is Telling.CONTEXT and not observation.session:
        return None
    if observation.model is not None and _TITLE in record.attributes.get("ai.prompt.messages", "")[:_HEAD]:
        observation = replace(observation, model=replace(observation.model, user_text=None))
    source = ASKED if observation.telling is Telling.TOOL else record.scope
    return replace(observation, source=source, trace_is_run=False, agent="")
