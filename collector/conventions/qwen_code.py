"""Qwen Code: spans close to the semantic conventions, and Gemini CLI's logs with call ids."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from collector.batch import Signal
from collector.conventions import gemini_cli, generic
from collector.conventions.observation import Observation, Telling, ToolFacts
from collector.conventions.spellings import CALL_ID
from collector.record import Record

NAME: Final = "qwen_code"
_DENIED: Final = frozenset({"execution_denied", "pre_hook_blocked", "policy_violation", "stop_execution"})


def read(record: Record) -> Observation | None:
    """Read a span or an event of Qwen Code."""
    if record.signal is Signal.LOGS:
        observation = gemini_cli.read(record)
        if observation is None:
            return None
        tool = observation.tool
        return replace(
            observation,
            convention=NAME,
            tool=_judged(tool, record) if tool else None,
            agent=record.attributes.get("subagent_name", "") or observation.agent,
        )
    if record.name.endswith((".tool.execution", ".tool.blocked_on_user")):
        failed, error = generic.told_by_status(record)
        tool = ToolFacts("", CALL_ID.pick(record.attributes), failed=failed, error=error)
        return generic.base(record, Telling.PART, NAME, tool=tool, source="execution")
    observation = generic.observe(record, NAME)
    if observation is None or observation.tool is None:
        return observation
    return replace(observation, tool=_judged(observation.tool, record))


def _judged(tool: ToolFacts, record: Record) -> ToolFacts:
    attributes = record.attributes
    told = {attributes.get("error_type"), attributes.get("error.type"), attributes.get("tool.failure_kind")}
    if told & _DENIED:
        return replace(tool, denied=True)
    return tool
