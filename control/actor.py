"""Who changes things: written into every record and audit entry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Who changed it: a `rule`, the `escalation`, a `person` (a token's name), or the `system` by itself."""

    type: str
    id: str


EXPIRY: Final = Actor(type="system", id="expiry")
