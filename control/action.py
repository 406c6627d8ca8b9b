"""How strong a breaker is."""

from __future__ import annotations

from enum import StrEnum


class Action(StrEnum):
    """`replan` refuses and says how to go on instead, `deny` refuses the call, `halt` ends the run."""

    REPLAN = "replan"
    DENY = "deny"
    HALT = "halt"

    @property
    def rank(self) -> int:
        """0 for replan, 1 for deny, 2 for halt: the higher one wins."""
        return ("replan", "deny", "halt").index(self.value)
