"""What a breaker covers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

DEFAULT_TENANT: Final = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What a breaker covers; None is "any". Calls of `session` (and `tool`) are refused while it is open."""

    tenant: str = DEFAULT_TENANT
    service: str | None = None
    session: str
    tool: str | None = None

    def covers(self, tool: str | None) -> bool:
        """Tell whether a call of `tool` in this session is meant.

        A call that names no tool is only covered by a breaker over the whole session.
        """
        return self.tool is None or self.tool == tool
