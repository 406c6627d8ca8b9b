"""Whose steps a detector sees together: the scope of its state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from collector.step import Kind
from detectors.reading import Reading

SEPARATOR: Final = "\x1f"


@dataclass(frozen=True, slots=True)
class Key:
    """A way to part steps: one instance of a detector for each value of `of`; None leaves a step out.

    `of_session`: a scope lies within one session (which `of` need not name), ends with it and follows it when
    two ids turn out to be one; otherwise it is of the whole fleet. `of_agent`: it is also of one agent.
    """

    name: str
    of: Callable[[Reading], str | None]
    of_session: bool
    of_agent: bool = False


def _agent(reading: Reading) -> str:
    return reading.step.agent or ""


def _session(_: Reading) -> str:
    return ""


def _target(reading: Reading) -> str | None:
    return reading.target or None


def _tool(reading: Reading) -> str | None:
    step = reading.step
    if step.kind is not Kind.TOOL_CALL or step.tool is None:
        return None
    return SEPARATOR.join((step.service, step.service_version, step.tool))


def _service_agent(reading: Reading) -> str:
    step = reading.step
    return f"{step.service}{SEPARATOR}{step.agent or ''}"


by_agent: Final = Key("agent", _agent, of_session=True, of_agent=True)
"""One (session, agent): what most detectors judge."""
by_session: Final = Key("session", _session, of_session=True)
"""All agents of a session together."""
by_target: Final = Key("target", _target, of_session=False)
"""All calls of the fleet to one target: a server, a model's provider, or a tool where no server is told."""
by_tool: Final = Key("tool", _tool, of_session=False)
"""All calls of the fleet of one tool in one version of a service."""
by_service_agent: Final = Key("service_agent", _service_agent, of_session=False)
"""All runs of one agent of a service."""
