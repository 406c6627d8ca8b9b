"""The open breakers in memory: what checks are answered from, without touching the disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from control.action import Action
from control.breakers.states import State
from control.guidance import halt_instead

if TYPE_CHECKING:
    from collections.abc import Iterable

    from control.breakers.record import Breaker


class Decision(StrEnum):
    """The answer to a check."""

    ALLOW = "allow"
    DENY = "deny"
    HALT = "halt"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The whole answer to a check.

    `message` is for the model, empty when allowed; `revision` is that of the newest breaker change known;
    `ttl_ms` says how long a client may reuse the answer.
    """

    decision: Decision
    message: str
    breaker_id: str | None
    revision: int
    ttl_ms: int


_TTL_MS: Final = MappingProxyType({Decision.ALLOW: 250, Decision.DENY: 0, Decision.HALT: 1000})
# A refusal is never reused: each one that is asked for again counts towards the halt.


class BreakerIndex:
    """The open breakers in memory: answers checks without touching the disk.

    `check` and `check_all` belong to one thread (the event loop); all else is called with the database's
    transaction lock held. Single dictionary operations are what the two sides share.
    """

    def __init__(self, escalate_after: int) -> None:
        self._escalate_after = escalate_after
        self._by_session: dict[str, tuple[Breaker, ...]] = {}
        self._denied: dict[str, int] = {}
        self._written: dict[str, int] = {}
        self.revision = 0

    def check(self, session_id: str, tool: str | None) -> Verdict:
        """Answer for one call: the most restrictive open breaker that covers it, else allow."""
        strictest = self._strictest(session_id, tool)
        if strictest is None:
            return self._allow()
        self._count(strictest.id)
        return self._refuse(strictest)

    def check_all(self, calls: Iterable[tuple[str, str | None]]) -> list[Verdict]:
        """Answer for the (session, tool) of calls that are made together: they count as one refusal."""
        found = [self._strictest(session_id, tool) for session_id, tool in calls]
        for refusing in {breaker.id for breaker in found if breaker is not None}:
            self._count(refusing)
        return [self._allow() if breaker is None else self._refuse(breaker) for breaker in found]

    def put(self, breaker: Breaker) -> None:
        """Take over a breaker's newest state."""
        session = breaker.scope.session
        known = self._by_session.get(session, ())
        others = tuple(b for b in known if b.id != breaker.id)
        if breaker.state is State.OPEN:
            if all(b.id != breaker.id or b.episode != breaker.episode for b in known):
                self._denied[breaker.id] = self._written[breaker.id] = breaker.denied
            self._by_session[session] = (*others, breaker)
        else:
            if others:
                self._by_session[session] = others
            else:
                self._by_session.pop(session, None)
            self._denied.pop(breaker.id, None)
            self._written.pop(breaker.id, None)
        self.revision = max(self.revision, breaker.revision)

    def open_breakers(self) -> list[Breaker]:
        """Return all open breakers, in no order."""
        return [breaker for breakers in self._by_session.copy().values() for breaker in breakers]

    def denied(self, breaker_id: str, otherwise: int = 0) -> int:
        """Return how many checks an open breaker has refused in this episode."""
        return self._denied.get(breaker_id, otherwise)

    def unwritten(self) -> dict[str, int]:
        """Return the counts of refused checks that the database does not know yet, by breaker."""
        return {key: n for key, n in self._denied.copy().items() if n != self._written.get(key, 0)}

    def written(self, counts: Mapping[str, int]) -> None:
        """Note which counts of refused checks are in the database now."""
        self._written.update((key, n) for key, n in counts.items() if key in self._denied)

    def must_halt(self, breaker: Breaker) -> bool:
        """Tell whether a refusing breaker was ignored so often that it answers `halt` by now."""
        return (
            breaker.action is Action.DENY
            and self._escalate_after > 0
            and self._denied.get(breaker.id, 0) > self._escalate_after
        )

    def _strictest(self, session_id: str, tool: str | None) -> Breaker | None:
        covering = [b for b in self._by_session.get(session_id, ()) if b.scope.covers(tool)]
        return max(covering, key=lambda b: b.action.rank) if covering else None

    def _count(self, breaker_id: str) -> None:
        self._denied[breaker_id] = self._denied.get(breaker_id, 0) + 1

    def _allow(self) -> Verdict:
        return Verdict(Decision.ALLOW, "", None, self.revision, _TTL_MS[Decision.ALLOW])

    def _refuse(self, breaker: Breaker) -> Verdict:
        message = breaker.message_for_model
        if breaker.action is Action.HALT:
            decision = Decision.HALT
        elif self.must_halt(breaker):
            decision, message = Decision.HALT, halt_instead(message)
        else:
            decision = Decision.DENY
        return Verdict(decision, message, breaker.id, self.revision, _TTL_MS[decision])
