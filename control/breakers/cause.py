"""What a breaker opens for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from collector.step import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why it opens: the reason's code, the texts, and the finding behind it, if there is one."""

    reason: str
    message_for_model: str
    message_for_human: str
    finding_id: str = ""
    finding_revision: int = 0
    session_id: str = ""
    quarantine: Mapping[str, Json] | None = None
