"""What the guard says about a call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ALLOW = "allow"
DENY = "deny"
HALT = "halt"
UNREACHABLE = "unreachable"


@dataclass(frozen=True)
class Decision:
    """The answer for one call; true when the call may go ahead.

    `decision` is `allow`, `deny` (do not make this call, give `message_for_model` to the model) or `halt`
    (end the run). `because` says why: `closed` (no breaker covers the call), `override` (somebody forced a
    breaker closed), `probe` (a half-open breaker lent a try), `unreachable` (nobody could be asked and the
    fail mode decided), `half_open` (all tries are lent), `ignored` (refused too often without effect), else
    the reason of the breaker, for example `doom_loop`.

    `strength` is `replan`, `deny` or `halt`; `retry_after` is in seconds, None when waiting does not help;
    `quarantine` names what is tainted: `{"tainted_steps": [...], "last_clean_step": ...}`; `revision` is the
    newest change of any breaker that was known; `override` is the breaker that lets the call through.
    """

    decision: str
    because: str
    message_for_model: str = ""
    breaker_id: str | None = None
    strength: str | None = None
    retry_after: float | None = None
    quarantine: Mapping[str, Any] | None = None
    revision: int = 0
    override: str | None = None
    lease_id: str | None = None

    @property
    def allowed(self) -> bool:
        """Whether the call may go ahead."""
        return self.decision == ALLOW

    @property
    def halted(self) -> bool:
        """Whether the run must end."""
        return self.decision == HALT

    @property
    def unreachable(self) -> bool:
        """Whether this was decided without the control plane, by the fail mode."""
        return self.because == UNREACHABLE

    def __bool__(self) -> bool:
        return self.decision == ALLOW
