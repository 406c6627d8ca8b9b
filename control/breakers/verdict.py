"""The answer to a check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from collector.step import Json
from control.action import Action


class Decision(StrEnum):
    """What to do with the call."""

    ALLOW = "allow"
    DENY = "deny"
    HALT = "halt"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The whole answer to a check.

    `message` is for the model, empty when allowed; `revision` is that of the newest breaker change known;
    `ttl_ms` says how long a client may reuse the answer, `retry_after_s` after what time asking again makes
    sense (None: not by itself). `strength` and `reason` say how and why it is refused. `override`: the
    forced-closed breaker that lets the call through although another one is open. `lease_id`: the call is a
    probe, its outcome is to be reported. `probe`: the half-open breaker that may grant such a lease.
    """

    decision: Decision
    message: str
    breaker_id: str | None
    revision: int
    ttl_ms: int
    strength: Action | None = None
    reason: str | None = None
    retry_after_s: float | None = None
    lease_id: str | None = None
    override: str | None = None
    quarantine: Mapping[str, Json] | None = None
    probe: str | None = None


TTL_MS: Final = MappingProxyType({Decision.ALLOW: 250, Decision.DENY: 0, Decision.HALT: 1000})
"""A refusal is never reused: each one that is asked for again counts towards the halt."""


def allowed_probe(verdict: Verdict, lease_id: str) -> Verdict:
    """Turn the refusal of a half-open breaker into the leave for one probe."""
    return replace(
        verdict,
        decision=Decision.ALLOW,
        message="",
        lease_id=lease_id,
        strength=None,
        reason=None,
        retry_after_s=None,
        probe=None,
        ttl_ms=0,
    )
