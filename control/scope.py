"""What a breaker covers, and the call that is asked about."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

DEFAULT_TENANT: Final = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A call that is about to be made, as far as the caller says. None: it does not say.

    `args` is the 16-hex signature of tool and arguments (`detectors.signature.call_of`).
    """

    tenant: str = DEFAULT_TENANT
    service: str | None = None
    agent: str | None = None
    agent_version: str | None = None
    session: str | None = None
    run: str | None = None
    tool: str | None = None
    args: str | None = None
    model: str | None = None

    @property
    def versioned_agent(self) -> str | None:
        """The agent as a scope over one version names it; None when either half is not said."""
        if self.agent is None or self.agent_version is None:
            return None
        return f"{self.agent}@{self.agent_version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What a breaker covers; None is "any". `agent` is a name, or `name@version` for that version only."""

    tenant: str = DEFAULT_TENANT
    service: str | None = None
    agent: str | None = None
    session: str | None = None
    run: str | None = None
    tool: str | None = None
    args: str | None = None
    model: str | None = None

    def covers(self, asked: Asked) -> bool:
        """Tell whether a call is meant: every part that is set must equal what the call says.

        A call that does not say a part is not covered by a scope that names it.

        >>> Scope(tool="fetch").covers(Asked(session="s", tool="fetch"))
        True
        >>> Scope(session="s", tool="fetch").covers(Asked(session="s"))
        False
        >>> Scope(agent="buyer@2").covers(Asked(agent="buyer", agent_version="1"))
        False
        """
        return (
            self.tenant == asked.tenant
            and self.service in (None, asked.service)
            and (self.agent is None or self.agent in (asked.agent, asked.versioned_agent))
            and self.session in (None, asked.session)
            and self.run in (None, asked.run)
            and self.tool in (None, asked.tool)
            and self.args in (None, asked.args)
            and self.model in (None, asked.model)
        )

    @property
    def key(self) -> tuple[str | None, ...]:
        """All eight parts in their order: equal for equal scopes only."""
        return (
            self.tenant,
            self.service,
            self.agent,
            self.session,
            self.run,
            self.tool,
            self.args,
            self.model,
        )

    @property
    def width(self) -> int:
        """How many parts are "any": 0 for one exact call, 7 for a whole tenant."""
        return self.key.count(None)

    def contains(self, other: Scope) -> bool:
        """Tell whether every call that `other` covers is covered by this scope: it is equal or wider.

        >>> Scope(tool="t").contains(Scope(session="s", tool="t"))
        True
        >>> Scope(tool="t").contains(Scope(session="s"))
        False
        >>> Scope(agent="buyer").contains(Scope(agent="buyer@2"))
        True
        """
        return all(
            mine is None or mine == theirs or (part == "agent" and _versions_of(mine, theirs))
            for part, mine, theirs in zip(PARTS, self.key, other.key, strict=True)
        )

    @property
    def of_one_run(self) -> bool:
        """Whether it is about one session or one run: such a breaker never closes by itself."""
        return self.session is not None or self.run is not None

    def check(self) -> None:
        """Raise `ValueError` that names the part which is empty: "any" is null, not an empty text."""
        for part, value in zip(PARTS, self.key, strict=True):
            if value == "":
                raise ValueError(f"scope.{part}: must not be empty; leave it out for any")

    def __str__(self) -> str:
        """Write the parts that are set, for logs and audit: `session=s tool=t`."""
        said = [
            f"{part}={value}"
            for part, value in zip(PARTS[1:], self.key[1:], strict=True)
            if value is not None
        ]
        return " ".join(said) if said else f"tenant={self.tenant}"


PARTS: Final = tuple(field.name for field in fields(Scope))
"""The eight parts in their order, the tenant first."""


def _versions_of(wide: str, narrow: str | None) -> bool:
    return narrow is not None and "@" not in wide and narrow.startswith(f"{wide}@")
