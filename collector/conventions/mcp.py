"""MCP servers and clients: a trace a request unless the caller's context is passed on; never arguments."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from collector.batch import Signal
from collector.conventions import generic
from collector.conventions.observation import Observation, Telling
from collector.record import Record

NAME: Final = "mcp"
_PREFIXES: Final = ("MCP send tools/call ", "tools/call ", "tool ")


def read(record: Record) -> Observation | None:
    """Read a span of the MCP SDK, FastMCP or another instrumentation of the protocol."""
    if record.signal is Signal.LOGS:
        return None
    attributes = record.attributes
    if (
        attributes.get("gen_ai.tool.name")
        or attributes.get("mcp.method.name") == "tools/call"
        or "tools/call " in record.name
    ):
        tool = generic.tool_facts(record)
        for prefix in _PREFIXES:
            if record.name.startswith(prefix) and not attributes.get("gen_ai.tool.name"):
                tool = replace(tool, name=record.name.removeprefix(prefix))
        if tool.name and "/" not in tool.name:
            return generic.base(record, Telling.TOOL, NAME, tool=tool)
    return generic.base(record, Telling.CONTEXT, NAME)
