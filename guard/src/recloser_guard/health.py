"""How well the control plane is heard: since when nothing came, and what has been counted."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import Callable

_LOG = logging.getLogger("recloser_guard")
NEVER = float("-inf")


@dataclass(frozen=True)
class Status:
    """The guard at a moment.

    `state`: `starting` (nothing heard yet), `live` (told of each change at once), `polling` (no stream gets
    through: asked for), `reconnecting`, `stale` (nothing heard for longer than the warning time), `lost`
    (for so long that the fail modes apply), `refused` (the token is not accepted), `closed`. `staleness_s`
    is the age of the last sign of life in seconds, infinite before the first one; `revision` the newest
    change known.
    """

    state: str
    staleness_s: float
    revision: int
    breakers: int
    reconnects: int
    refetches: int
    refusals: int
    halts: int
    allowed_unreachable: int
    refused_unreachable: int
    unreported: int
    defects: int
    last_error: str | None


class Health:
    """Staleness and counters. Times are those of the monotonic clock, in seconds."""

    def __init__(self, clock: Callable[[], float], warn_after: float, apply_after: float) -> None:
        self._clock = clock
        self._warn_after = warn_after
        self._apply_after = apply_after
        self._lock = threading.Lock()
        self._warned = False
        self.contact_at = NEVER
        self.mode = "starting"
        self.counts = dict.fromkeys(
            ("reconnects", "refetches", "refusals", "halts", "allowed_unreachable", "refused_unreachable",
             "defects"), 0,
        )  # fmt: skip
        self.last_error: str | None = None

    def contact(self, mode: str) -> None:
        """Something came from the sidecar."""
        self.contact_at = self._clock()
        self.mode = mode
        if self._warned:
            self._warned = False
            _LOG.info("recloser is heard again")

    def trouble(self, why: str, *, refused: bool = False) -> None:
        """Note that it could not be reached, or that it refused the token. Logged when it is news."""
        if refused and self.mode != "refused":
            _LOG.error("recloser refuses this guard's token, breakers are not heard: %s", why)
        self.mode = "refused" if refused else "reconnecting"
        self.last_error = why

    def count(self, what: str) -> None:
        """Count one."""
        with self._lock:
            self.counts[what] += 1

    def staleness(self) -> float:
        """Seconds since the last sign of life."""
        return self._clock() - self.contact_at

    def lost(self) -> bool:
        """Tell whether the fail modes apply."""
        return self._clock() - self.contact_at > self._apply_after

    def tick(self) -> None:
        """Warn once when nothing has been heard for too long."""
        stale = self.staleness()
        if stale > self._warn_after and not self._warned:
            self._warned = True
            if self.contact_at == NEVER:
                _LOG.warning("recloser has not been heard yet, the fail modes apply: %s", self.last_error)
                return
            _LOG.warning(
                "recloser has not been heard for %.0f s; what is known stays in force, and after %.0f s the "
                "fail modes apply: %s", stale, self._apply_after, self.last_error,
            )  # fmt: skip

    def state(self) -> str:
        """Name the state, as in `Status`."""
        stale = self.staleness()
        if self.mode in ("refused", "closed"):
            return self.mode
        if self.contact_at == NEVER:
            return "starting"
        if stale > self._apply_after:
            return "lost"
        if stale > self._warn_after:
            return "stale"
        return self.mode

    def status(self, *, revision: int, breakers: int, unreported: int) -> Status:
        """Put it all together."""
        with self._lock:
            return Status(
                state=self.state(),
                staleness_s=self.staleness(),
                revision=revision,
                breakers=breakers,
                unreported=unreported,
                last_error=self.last_error,
                **self.counts,
            )

    def forked(self) -> None:
        """In a child process: the lock may be held by a thread that does not exist there."""
        self._lock = threading.Lock()
