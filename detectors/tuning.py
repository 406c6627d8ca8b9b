"""One detector's settings, and those that differ for some tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Tuned(Generic[C]):
    """Settings of a detector; `tools` has the ones of tools that are set apart, whole.

    >>> Tuned(3, {"bash": 5}).of("bash"), Tuned(3, {"bash": 5}).of("grep"), Tuned(3).of(None)
    (5, 3, 3)
    """

    base: C
    tools: Mapping[str, C] = field(default_factory=dict)

    def of(self, tool: str | None) -> C:
        """The settings for a call of `tool`."""
        if not self.tools or tool is None:
            return self.base
        return self.tools.get(tool, self.base)
