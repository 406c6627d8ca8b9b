"""Calls that are known to be dead: each failed for good, and nothing effective has changed since.

In memory, fed from facts (`failed`, `changed`, `ended`); after a restart those of the last hour are recalled.
A call that has been dead for longer is let through once then, fails, and is known again.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from control.action import Action
from control.breakers.verdict import TTL_MS, Decision, Verdict
from control.guidance import known_dead

if TYPE_CHECKING:
    from control.db import Transaction
    from control.facts import Fact, SpoolFacts
    from control.scope import Asked

REASON: Final = "known_dead_call"
RECALLED_NS: Final = 3600 * 10**9
RECALLED: Final = 50_000
"""So many facts at most are looked through after a restart: 0.7 s."""
_SESSIONS_KEPT: Final = 10_000
_CALLS_KEPT: Final = 64
_MAY_PASS: Final = frozenset({"", "transient", "unknown"})
"""Natures of failures after which the same call may well succeed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadCall:
    """One call of a session that failed for good; `error` is what it said last, redacted and short."""

    tool: str
    error_class: str
    error: str
    failures: int = 1


class DeadCalls:
    """Remembers dead calls by session and signature. One thread takes facts, any may ask.

    At most `sessions` sessions, the least recent ones go first, and 64 calls a session.
    """

    def __init__(self, sessions: int = _SESSIONS_KEPT) -> None:
        self._most = sessions
        self._sessions: OrderedDict[str, dict[str, DeadCall]] = OrderedDict()

    def take(self, _tx: Transaction | None, fact: Fact) -> None:
        """Learn from a fact."""
        if fact.kind == "failed":
            self._failed(fact)
        elif fact.kind in ("changed", "ended"):
            self._sessions.pop(fact.session_id, None)

    def recall(self, source: SpoolFacts, upto: int, now_ns: int) -> None:
        """Learn anew, after a restart, from the facts of the last hour up to the one that was taken last.

        Raises `sqlite3.Error` when they cannot be read now.
        """
        for fact in source.recent(upto, now_ns - RECALLED_NS, RECALLED):
            self.take(None, fact)

    def has(self, session: str | None) -> bool:
        """Whether any call of a session is known to be dead."""
        return session in self._sessions

    def get(self, session: str | None, signature: str | None) -> DeadCall | None:
        """Return what is known of a dead call, None when it may be made."""
        if session is None or signature is None:
            return None
        return self._sessions.get(session, {}).get(signature)

    def verdict(self, asked: Asked, revision: int) -> Verdict | None:
        """Refuse a dead call with the error that it had; None when it is none."""
        dead = self.get(asked.session, asked.args)
        if dead is None:
            return None
        return Verdict(
            Decision.DENY,
            known_dead(dead.tool, dead.failures, dead.error_class, dead.error),
            None,
            revision,
            TTL_MS[Decision.DENY],
            strength=Action.REPLAN,
            reason=REASON,
        )

    def _failed(self, fact: Fact) -> None:
        told = fact.payload
        signature = told.get("signature")
        if not fact.session_id or not isinstance(signature, str) or told.get("nature", "") in _MAY_PASS:
            return
        calls = self._sessions.setdefault(fact.session_id, {})
        self._sessions.move_to_end(fact.session_id)
        known = calls.pop(signature, None)
        dead = DeadCall(
            tool=str(told.get("tool") or ""),
            error_class=str(told.get("error_class") or "unknown"),
            error=str(told.get("error") or ""),
        )
        calls[signature] = dead if known is None else replace(dead, failures=known.failures + 1)
        if len(calls) > _CALLS_KEPT:
            del calls[next(iter(calls))]
        if len(self._sessions) > self._most:
            self._sessions.popitem(last=False)
