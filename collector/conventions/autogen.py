"""AutoGen: `autogen-core` spans without content, and OpenInference's that call a failing tool fine."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from collector.conventions import generic
from collector.conventions.observation import Observation
from collector.record import Record

NAME: Final = "autogen"


def read(record: Record) -> Observation | None:
    """Read a span of AutoGen; `N.X` of OpenInference is the tool X of agent N."""
    observation = generic.observe(record, NAME)
    if observation is None or observation.tool is None:
        return observation
    owner, dot, name = observation.tool.name.rpartition(".")
    if not dot or not owner.isidentifier() or "gen_ai.tool.name" in record.attributes:
        return observation
    return replace(observation, tool=replace(observation.tool, name=name))
