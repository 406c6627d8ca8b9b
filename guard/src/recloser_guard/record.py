"""A breaker as the sidecar shows it, read for deciding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from recloser_guard.errors import GuardError
from recloser_guard.moments import unix_seconds

PARTS = ("tenant", "service", "agent", "session", "run", "tool", "args", "model")
"""The parts of a scope, in the order of the tuples here."""
_SESSION, _RUN = PARTS.index("session"), PARTS.index("run")
RANKS = {"replan": 0, "deny": 1, "halt": 2}
OPEN, HALF_OPEN = "open", "half_open"
FORCED_OPEN, FORCED_CLOSED = "forced_open", "forced_closed"
FORCED = frozenset({FORCED_OPEN, FORCED_CLOSED})
DECIDING = frozenset({OPEN, HALF_OPEN, FORCED_OPEN, FORCED_CLOSED})
"""The states that say anything about a call; `closed` and `shadow` do not."""


class Breaker(NamedTuple):
    """What the guard keeps of a breaker.

    `scope` has a value or None ("any") for each of `PARTS`; `rank` is that of its strength; `until` is when
    it lets calls through or tries one (unix seconds), None when it does not by itself; `over_at` likewise
    when it or the person's hold on it ends.
    """

    id: str
    scope: tuple[str | None, ...]
    state: str
    strength: str
    rank: int
    revision: int
    episode: int
    reason: str
    message: str
    until: float | None
    over_at: float | None
    quarantine: Mapping[str, Any] | None

    @property
    def wide(self) -> int:
        """How many parts are "any"."""
        return self.scope.count(None)

    @property
    def of_one_run(self) -> bool:
        """Whether it is about one session or run, and not about the calls of many."""
        return self.scope[_SESSION] is not None or self.scope[_RUN] is not None


def breaker_from(shown: Mapping[str, Any]) -> Breaker:
    """Read a breaker from its JSON; raises `GuardError` for what is not one.

    Fields that are not known are ignored, a strength that is not known counts as `halt`: a newer sidecar
    must not be obeyed less.
    """
    try:
        scope = shown["scope"]
        strength, state = str(shown["action"]), str(shown["state"])
        return Breaker(
            id=str(shown["id"]),
            scope=tuple(None if scope.get(part) is None else str(scope[part]) for part in PARTS),
            state=state,
            strength=strength if strength in RANKS else "halt",
            rank=RANKS.get(strength, RANKS["halt"]),
            revision=int(shown["revision"]),
            episode=int(shown.get("episode", 0)),
            reason=str(shown.get("reason", "")),
            message=str(shown.get("message_for_model", "")),
            until=unix_seconds(shown.get("until")),
            over_at=unix_seconds(shown.get("forced_until" if state in FORCED else "until")),
            quarantine=shown.get("quarantine"),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise GuardError(f"not a breaker: {error!r} in {str(shown)[:200]}") from error
