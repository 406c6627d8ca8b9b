"""Failures in a row that open a breaker although no detector spoke: counted from facts, kept on the disk.

A row is the failed calls of one target (most often a service's tool) without a success in between. Where the
target is of many sessions, the failures have to come from several of them (`Threshold.quorum`): one session
that loops says more of itself than of the tool. Refused calls are no failures, and neither are those of
another nature. Successes are only told for some time after a failure, so that a row which nothing was added
to for longer begins anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson

from control.breakers.cause import Cause
from control.breakers.timing import NS
from control.guidance import MAX_HUMAN_TEXT, failing_for_model
from control.policy import Target, Trip

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from control.breakers.book import Breakers
    from control.db import Transaction
    from control.facts import Fact
    from control.policy import Threshold
    from control.scope import Scope

STRUCTURAL_FAILURES: Final = "failures_in_a_row"
ROW_GAP_S: Final = 600.0
"""A row ends when nothing was added to it for so long."""
_FORGET_S: Final = 86_400.0


class Thresholds:
    """Counts failures in a row, and trips at the policy's thresholds. A taker of facts."""

    def __init__(
        self,
        breakers: Breakers,
        thresholds: Callable[[], Sequence[Threshold]],
        now_ns: Callable[[], int],
    ) -> None:
        self._breakers = breakers
        self._thresholds = thresholds
        self._now_ns = now_ns

    def take(self, tx: Transaction, fact: Fact) -> None:
        """Count a fact for every threshold that it is about."""
        if fact.kind not in ("failed", "worked"):
            return
        target = _target(fact)
        for threshold in self._thresholds():
            if fact.kind == "worked":
                self._worked(tx, threshold, target)
            else:
                scope = threshold.scope(target, str(fact.payload.get("nature") or ""))
                if scope is not None:
                    self._failed(tx, threshold, scope, fact)

    def forget(self, tx: Transaction) -> None:
        """Delete rows that nothing was added to for a day."""
        tx.execute("DELETE FROM failure_rows WHERE updated_ns < ?", (self._now_ns() - int(_FORGET_S * NS),))

    def _worked(self, tx: Transaction, threshold: Threshold, target: Target) -> None:
        for nature in threshold.natures:
            scope = threshold.scope(target, nature)
            if scope is not None:
                tx.execute("DELETE FROM failure_rows WHERE key = ?", (_key(threshold, scope),))

    def _failed(self, tx: Transaction, threshold: Threshold, scope: Scope, fact: Fact) -> None:
        key = _key(threshold, scope)
        at = _at(fact)
        before = _row(tx, key, at)
        failures, last = before.failures + 1, max(at, before.last_ns)
        sessions = with_session(before.sessions, fact.session_id, threshold.quorum)
        tx.execute(
            "INSERT INTO failure_rows (key, failures, sessions, last_ns, updated_ns) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (key) DO UPDATE SET failures = excluded.failures, sessions = excluded.sessions, "
            "last_ns = excluded.last_ns, updated_ns = excluded.updated_ns",
            (key, failures, orjson.dumps(sessions).decode(), last, self._now_ns()),
        )
        if failures >= threshold.failures and len(sessions) >= threshold.quorum:
            trip = Trip(
                rule=threshold.name,
                scope=scope,
                action=threshold.action,
                shadow=threshold.shadow,
                open_s=threshold.open_s,
            )
            # what was counted before the breaker closed is no reason to open it again
            opened = self._breakers.open(tx, trip, lambda: _cause(scope, threshold, failures, fact), at)
            if opened is not None:
                tx.execute("DELETE FROM failure_rows WHERE key = ?", (key,))


@dataclass(frozen=True, slots=True)
class _Row:
    failures: int = 0
    last_ns: int = 0
    sessions: tuple[str, ...] = ()


def with_session(sessions: tuple[str, ...], session: str, quorum: int) -> tuple[str, ...]:
    """Return the sessions of a row with one more failure, `quorum` at most; all unknown ones count as one."""
    return sessions if session in sessions or len(sessions) >= quorum else (*sessions, session)


def _row(tx: Transaction, key: str, at_ns: int) -> _Row:
    """Return the row that a failure goes on with, an empty one when it begins anew."""
    row = tx.one("SELECT failures, sessions, last_ns FROM failure_rows WHERE key = ?", (key,))
    if row is None or abs(at_ns - row["last_ns"]) > ROW_GAP_S * NS:
        return _Row()
    return _Row(row["failures"], row["last_ns"], tuple(orjson.loads(row["sessions"])))


def _cause(scope: Scope, threshold: Threshold, failures: int, fact: Fact) -> Cause:
    natures = ", ".join(sorted(threshold.natures))
    last = fact.payload.get("error_class")
    sessions = f" of {threshold.quorum} sessions or more" if threshold.quorum > 1 else ""
    told = f"{scope}: {failures} failures in a row ({natures}){sessions}, the last one {last}"
    return Cause(
        reason=STRUCTURAL_FAILURES,
        message_for_model=failing_for_model(scope, failures, threshold.action),
        message_for_human=told[:MAX_HUMAN_TEXT],
        session_id=fact.session_id,
    )


def _key(threshold: Threshold, scope: Scope) -> str:
    return orjson.dumps([threshold.name, *scope.key]).decode()


def _at(fact: Fact) -> int:
    ended: Any = fact.payload.get("end_ns")
    return min(ended, fact.created_ns) if isinstance(ended, int) and ended > 0 else fact.created_ns


def _target(fact: Fact) -> Target:
    def said(part: str) -> str | None:
        value = fact.payload.get(part)
        return value if isinstance(value, str) and value else None

    return Target(
        service=said("service"),
        agent=said("agent"),
        session=fact.session_id or None,
        run=said("run_id"),
        tool=said("tool"),
        args=said("signature"),
    )
