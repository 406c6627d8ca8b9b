"""DSPy: tools are spans `X.__call__`, and the loop ends with a tool `finish` that is none."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from collector.conventions import generic
from collector.conventions.observation import Observation, Telling
from collector.record import Record

NAME: Final = "dspy"


def read(record: Record) -> Observation | None:
    """Read a span of one of DSPy's instrumentations."""
    observation = generic.observe(record, NAME)
    if observation is not None and observation.tool is not None and observation.tool.name == "finish":
        return replace(observation, telling=Telling.CONTEXT, tool=None)
    return observation
