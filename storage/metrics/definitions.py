"""Changes of tool definitions: a service offers a tool that it had described otherwise before."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from storage.client import StoreClient
    from storage.metrics.selection import Selection

LEAST_PREFIX: Final = 4
"""Digits of a hash that may stand for the whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionChange:
    """A tool's definition that was first seen at `at_ns` (unix nanoseconds) in the stead of another one.

    `changed` names what differs: `description`, `parameters`.
    """

    service: str
    service_version: str
    tool: str
    at_ns: int
    before: str
    after: str
    changed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DefinitionsFound:
    """What a hash stands for: sets of definitions, and the tool when it is that of a single tool."""

    sets: tuple[str, ...]
    tool: str | None


def changes(client: StoreClient, selection: Selection) -> list[DefinitionChange]:
    """Definitions first seen in the window, of tools that the service had offered otherwise before."""
    service = " AND service = {service:String}" if selection.service is not None else ""
    rows = client.rows(
        "SELECT service, tool, tool_hash, argMin(service_version, first),"  # noqa: S608 - constants
        " toUnixTimestamp64Nano(min(first)) AS at, any(described), any(schema) FROM"
        " (SELECT service, service_version, tool, any(tool_definitions.tool_hash) AS tool_hash,"
        "  min(tool_definitions.first_seen) AS first, any(tool_definitions.description) AS described,"
        "  any(tool_definitions.parameters) AS schema FROM tool_definitions"
        f" WHERE first_seen < fromUnixTimestamp64Nano({{until:Int64}}){service}"
        " GROUP BY service, service_version, definitions_hash, tool)"
        " GROUP BY service, tool, tool_hash ORDER BY service, tool, at, tool_hash",
        selection.parameters(),
    )
    found = []
    for (service_name, tool, before, _, _, *old), (
        next_service,
        next_tool,
        after,
        version,
        at,
        *new,
    ) in pairwise(rows):
        if (service_name, tool) != (next_service, next_tool) or at < selection.since_ns:
            continue
        names = ("description", "parameters")
        found.append(
            DefinitionChange(
                service=service_name,
                service_version=version,
                tool=tool,
                at_ns=at,
                before=before,
                after=after,
                changed=tuple(name for name, a, b in zip(names, old, new, strict=True) if a != b),
            )
        )
    return sorted(found, key=lambda change: (change.at_ns, change.service, change.tool))


def find(client: StoreClient, prefix: str) -> list[DefinitionsFound]:
    """What hashes that begin with `prefix` stand for; sets of definitions come before single tools."""
    rows = client.rows(
        "SELECT DISTINCT definitions_hash FROM tool_definitions"
        " WHERE startsWith(definitions_hash, {prefix:String}) ORDER BY definitions_hash LIMIT 10",
        {"prefix": prefix},
    )
    if rows:
        return [DefinitionsFound((found,), None) for (found,) in rows]
    rows = client.rows(
        "SELECT tool, tool_hash, groupUniqArray(definitions_hash) FROM tool_definitions"
        " WHERE startsWith(tool_hash, {prefix:String})"
        " GROUP BY tool, tool_hash ORDER BY tool, tool_hash LIMIT 10",
        {"prefix": prefix},
    )
    return [DefinitionsFound(tuple(sorted(sets)), tool) for tool, _, sets in rows]
