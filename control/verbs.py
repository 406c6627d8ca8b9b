"""What a token allows, and over what."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final


class Verb(StrEnum):
    """One kind of thing to do. No verb implies another."""

    INGEST = "ingest"
    """Send spans."""
    READ = "read"
    """Look at findings, alerts, breakers, runs, audit."""
    CHECK = "check"
    """Ask before a call, follow breakers, probe, reserve budget: what the guard inside an agent does."""
    TRIP = "trip"
    """Open breakers over sessions and runs."""
    OVERRIDE = "override"
    """Overrule: reset and force breakers, open wide ones, resolve, acknowledge, silence."""
    ADMIN = "admin"
    """Tokens, policy."""


AGENT: Final = frozenset({Verb.INGEST, Verb.READ, Verb.CHECK})
"""What an agent's token has at most: with it an agent can close nothing, its own breaker least of all."""
LIMITABLE: Final = frozenset({Verb.READ, Verb.CHECK, Verb.TRIP, Verb.OVERRIDE})
"""Verbs that a token restricted to services, agents or sessions may have: the others cannot be compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Only:
    """What a token is restricted to: patterns as in a shell (`shop-*`), case kept; none of a kind: any."""

    services: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is a restriction."""
        return bool(self.services or self.agents or self.sessions)

    def of_session(self, session: str | None) -> bool:
        """Tell whether calls of this session may be spoken of, whatever their service and agent are."""
        return not self.sessions or Only(sessions=self.sessions).allows(
            service=None, agent=None, session=session
        )

    def allows(self, *, service: str | None, agent: str | None, session: str | None) -> bool:
        """Tell whether this may be named. What is left out is wider than any pattern.

        An agent is compared without its version (`name@version`).
        """
        name = None if agent is None else agent.rpartition("@")[0] or agent
        asked = ((self.services, service), (self.agents, name), (self.sessions, session))
        return all(
            not patterns or (value is not None and any(fnmatchcase(value, pattern) for pattern in patterns))
            for patterns, value in asked
        )


EVERYTHING: Final = Only()
