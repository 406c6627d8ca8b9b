"""The breakers in memory: what checks are answered from, without touching the disk."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from control.action import Action
from control.breakers.changes import Change, Changes
from control.breakers.precedence import NOTHING, decide
from control.breakers.settings import BreakerSettings
from control.breakers.shapes import Shapes
from control.breakers.states import State
from control.breakers.strength import strength_after
from control.breakers.verdict import TTL_MS, Decision, Verdict
from control.guidance import half_open_text, stronger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from control.breakers.changes import Follower
    from control.breakers.precedence import Outcome
    from control.breakers.record import Breaker
    from control.dead_calls import DeadCalls
    from control.scope import Asked, Scope

_NS: Final = 1_000_000_000
_SESSIONS_KEPT: Final = 10_000
"""Sessions whose ignored refusals of one wide breaker are counted; the first ones go first."""
_SEEN_KEPT: Final = 100_000
"""Sessions that asked, kept until the next turn takes them: a turn that does not come costs no more."""
IGNORED_GAP_S: Final = 300.0
"""Who heeds a wide breaker for so long, and then meets it again, has not ignored it: it counts anew.

An agent that does ignore it comes back after a model call, seconds later; a wide breaker may be open for an
hour, or for days when a person holds it, and long conversations must not be halted for each new question.
"""


class BreakerIndex:
    """All breakers that are not closed, in memory: answers checks without touching the disk.

    Refusals of one breaker and session within `same_turn_s` seconds count as one.

    `check`, `check_all` and `count_refused` belong to one thread (the event loop); all else is called with
    the database's transaction lock held. Single dictionary operations are what the two sides share.
    """

    def __init__(
        self,
        escalate_after: int = 3,
        *,
        settings: BreakerSettings | None = None,
        same_turn_s: float = 0.0,
    ) -> None:
        self.settings = settings or BreakerSettings(escalate_after=escalate_after)
        self.revision = 0
        self.changes = Changes()
        self._seen: dict[str, None] = {}
        self._now_ns: Callable[[], int] = lambda: 0
        self._shapes = Shapes()
        self._lock = threading.Lock()
        self._denied: dict[str, int] = {}
        self._written: dict[str, int] = {}
        self._leased: dict[str, int] = {}
        self.dead_calls: DeadCalls | None = None
        self._ignored: dict[str, dict[str, tuple[int, int]]] = {}
        self.sparing = False
        """Too much was stopped by itself: who ignores a wide breaker is refused, and not halted, for now."""
        self._by_id: dict[str, Breaker] = {}
        self._timed: dict[str, int] = {}
        self._half_open: set[str] = set()
        self._refusing: set[str] = set()
        self._same_turn_ns = int(same_turn_s * _NS)
        self._counted_at: dict[tuple[str, str], int] = {}

    def check(self, asked: Asked) -> Verdict:
        """Answer for one call, by the precedence of `control/breakers/precedence.py`."""
        outcome = self._outcome(asked)
        if outcome.refusing is None:
            return self._unrefused(asked, outcome)
        self._count_turn(outcome.refusing, asked.session)
        return self._refuse(outcome.refusing, asked.session)

    def check_all(self, calls: Iterable[Asked]) -> list[Verdict]:
        """Answer for calls that are made together: they count as one refusal of a breaker and session."""
        found = [(asked, self._outcome(asked)) for asked in calls]
        refused = {(o.refusing.id, a.session): o.refusing for a, o in found if o.refusing is not None}
        for (_, session), breaker in refused.items():
            self._count_turn(breaker, session)
        return [
            self._unrefused(a, outcome)
            if outcome.refusing is None
            else self._refuse(outcome.refusing, a.session)
            for a, outcome in found
        ]

    def count_refused(self, breaker_id: str, session: str | None, count: int) -> None:
        """Count refusals that a client made by itself: they too were ignored when they go on."""
        breaker = self.by_id(breaker_id)
        if breaker is not None and breaker.state.refuses and count > 0:
            self._count(breaker, session, count)

    def wants_args(self, session: str | None) -> bool:
        """Whether the signature of arguments can make a difference: making it costs more than the check."""
        if self.dead_calls is not None and self.dead_calls.has(session):
            return True
        return self._shapes.by_args

    def peek(self, asked: Asked) -> Verdict:
        """Answer as `check` does, and count nothing: for those who only look."""
        outcome = self._outcome(asked)
        if outcome.refusing is None:
            return self._unrefused(asked, outcome)
        return self._refuse(outcome.refusing, asked.session)

    def covering(self, scope: Scope) -> list[Breaker]:
        """Return the breakers that cover every call of a scope: those of equal or wider scopes."""
        return [breaker for breaker in self._shapes if breaker.scope.contains(scope)]

    def half_open(self, asked: Asked) -> tuple[Breaker, ...]:
        """Return the half-open breakers that a call may only pass as a probe; none when it is refused."""
        return self._outcome(asked).half_open

    def half_open_covering(self, asked: Asked) -> list[Breaker]:
        """Return every half-open breaker that covers a call."""
        return [b for b in self._shapes.covering(asked) if b.state is State.HALF_OPEN]

    def put(self, breaker: Breaker) -> None:
        """Take over a breaker's newest state."""
        with self._lock:
            known = self._shapes.get(breaker.scope)
            if breaker.state is State.CLOSED:
                self._shapes.remove(breaker.scope)
                for kept in (self._by_id, self._denied, self._written, self._ignored):
                    kept.pop(breaker.id, None)
            else:
                if known is None or known.episode != breaker.episode:
                    self._denied[breaker.id] = self._written[breaker.id] = breaker.denied
                    self._ignored.pop(breaker.id, None)
                self._shapes.put(breaker)
                self._by_id[breaker.id] = breaker
            self._note(breaker)
            self.revision = max(self.revision, breaker.revision)

    def apply(self, breaker: Breaker) -> None:
        """Take over a change that is on disk, and tell those who follow."""
        self.put(breaker)
        kept = None if breaker.state is State.CLOSED else breaker
        self.changes.add(Change(breaker.revision, breaker.id, kept))

    def snapshot(self) -> tuple[int, tuple[Breaker, ...]]:
        """Return the newest revision, and all breakers that are not closed, as they are at it."""
        with self._lock:
            return self.revision, tuple(sorted(self._shapes, key=lambda b: b.revision))

    def subscribe(self, follower: Follower) -> Callable[[], None]:
        """Tell `follower` of every change after its commit, in the writer's thread; return what ends that.

        Nothing is missed by one who subscribes first and takes a snapshot then.
        """
        return self.changes.subscribe(follower)

    def changes_since(self, revision: int) -> list[Change] | None:
        """Return the changes after a revision, None when they are not kept (any more)."""
        return self.changes.since(revision)

    @property
    def open_count(self) -> int:
        """How many breakers refuse calls."""
        return len(self._refusing)

    @property
    def any_half_open(self) -> bool:
        """Whether any breaker is half open."""
        return bool(self._half_open)

    def due(self, now_ns: int) -> list[str]:
        """Return the breakers whose time has come, the earliest first."""
        timed = list(self._timed.items())  # persons change breakers in threads of their own
        return [key for until, key in sorted((until, key) for key, until in timed) if until <= now_ns]

    def by_id(self, breaker_id: str) -> Breaker | None:
        """Return a breaker that is not closed."""
        return self._by_id.get(breaker_id)

    def open_breakers(self) -> list[Breaker]:
        """Return all breakers that refuse calls, in no order."""
        return [breaker for breaker in self._shapes if breaker.state.refuses]

    def denied(self, breaker_id: str, otherwise: int = 0) -> int:
        """Return how many checks a breaker has refused in this episode."""
        return self._denied.get(breaker_id, otherwise)

    def unwritten(self) -> dict[str, int]:
        """Return the counts of refused checks that the database does not know yet, by breaker."""
        return {key: n for key, n in self._denied.copy().items() if n != self._written.get(key, 0)}

    def written(self, counts: Mapping[str, int]) -> None:
        """Note which counts of refused checks are in the database now."""
        self._written.update((key, n) for key, n in counts.items() if key in self._denied)

    def leases(self, breaker_id: str, under_way: int) -> None:
        """Note how many probes of a half-open breaker are under way."""
        if under_way:
            self._leased[breaker_id] = under_way
        else:
            self._leased.pop(breaker_id, None)

    def strength(self, breaker: Breaker) -> Action:
        """Return how strong a breaker of one session or run is by now, ignored refusals counted."""
        if not breaker.scope.of_one_run:
            return breaker.action
        refused = self._denied.get(breaker.id, breaker.denied) - breaker.denied_before
        return strength_after(breaker.action, refused, self.settings)

    def clock(self, now_ns: Callable[[], int]) -> None:
        """Tell the time by this clock, for answers that say when to ask again."""
        self._now_ns = now_ns

    def take_seen(self) -> dict[str, None]:
        """Return the sessions that asked since the last time."""
        seen, self._seen = self._seen, {}
        return seen

    def ignoring(self) -> list[tuple[Breaker, str]]:
        """Return wide breakers with each session that ignored one so often that it is to be halted."""
        found: list[tuple[Breaker, str]] = []
        for breaker_id, sessions in self._ignored.copy().items():
            breaker = self.by_id(breaker_id)
            if breaker is None or not breaker.state.refuses or breaker.action is Action.HALT:
                continue
            for session in sessions.copy():
                refused = self._ignored_by(breaker_id, session)
                if strength_after(breaker.action, refused, self.settings) is Action.HALT:
                    found.append((breaker, session))
        return found

    def halted(self, breaker_id: str, session: str) -> None:
        """Forget what a session ignored of a wide breaker: it has a breaker of its own now."""
        self._ignored.get(breaker_id, {}).pop(session, None)

    def _note(self, breaker: Breaker) -> None:
        """Keep what is asked for often: who is due, half open, refusing."""
        if breaker.until is None or breaker.state is State.CLOSED:
            self._timed.pop(breaker.id, None)
        else:
            self._timed[breaker.id] = breaker.until
        for known, member in (
            (self._half_open, breaker.state is State.HALF_OPEN),
            (self._refusing, breaker.state.refuses),
        ):
            if member:
                known.add(breaker.id)
            else:
                known.discard(breaker.id)
        if breaker.state is not State.HALF_OPEN:
            self._leased.pop(breaker.id, None)

    def _outcome(self, asked: Asked) -> Outcome:
        if asked.session is not None and len(self._seen) < _SEEN_KEPT:
            self._seen[asked.session] = None
        covering = self._shapes.covering(asked)
        if not covering:
            return NOTHING
        if any(b.state is State.FORCED_CLOSED for b in covering):
            now = self._now_ns()
            covering = [held for held in (_as_of(b, now) for b in covering) if held is not None]
        return decide(covering, lambda breaker: self._strength_for(breaker, asked.session))

    def _strength_for(self, breaker: Breaker, session: str | None) -> Action:
        if breaker.scope.of_one_run or session is None:
            return self.strength(breaker)
        refused = self._ignored_by(breaker.id, session)
        strength = strength_after(breaker.action, refused, self.settings)
        if self.sparing and strength is Action.HALT:
            return max(Action.DENY, breaker.action, key=lambda action: action.rank)
        return strength

    def _ignored_by(self, breaker_id: str, session: str) -> int:
        """Return how many refusals of a wide breaker a session has ignored, none of them long ago."""
        refused, last = self._ignored.get(breaker_id, {}).get(session, (0, 0))
        return refused if self._now_ns() - last <= IGNORED_GAP_S * _NS else 0

    def _count_turn(self, breaker: Breaker, session: str | None) -> None:
        """Count a refusal, but one only of calls that a model makes together: nothing was refused before."""
        if session is not None and self._same_turn_ns:
            key, now = (breaker.id, session), self._now_ns()
            last = self._counted_at.pop(key, None)
            same = last is not None and 0 <= now - last < self._same_turn_ns
            self._counted_at[key] = last if last is not None and same else now
            if len(self._counted_at) > _SESSIONS_KEPT:
                self._counted_at.pop(next(iter(self._counted_at)), None)
            if same:
                return
        self._count(breaker, session, 1)

    def _count(self, breaker: Breaker, session: str | None, count: int) -> None:
        self._denied[breaker.id] = self._denied.get(breaker.id, 0) + count
        if session is not None and not breaker.scope.of_one_run:
            sessions = self._ignored.setdefault(breaker.id, {})
            if session not in sessions and len(sessions) >= _SESSIONS_KEPT:
                sessions.pop(next(iter(sessions)), None)
            refused = self._ignored_by(breaker.id, session) + count
            sessions[session] = (refused, self._now_ns())

    def _unrefused(self, asked: Asked, outcome: Outcome) -> Verdict:
        if outcome.half_open:
            return self._probing(outcome.half_open)
        if self.dead_calls is not None and asked.args is not None and outcome.override is None:
            dead = self.dead_calls.verdict(asked, self.revision)
            if dead is not None:
                return dead
        override = None if outcome.override is None else outcome.override.id
        return Verdict(Decision.ALLOW, "", None, self.revision, TTL_MS[Decision.ALLOW], override=override)

    def _probing(self, half_open: tuple[Breaker, ...]) -> Verdict:
        """Refuse, and say whose lease would let it through: all of them must have one to give."""
        strongest = max(half_open, key=lambda b: (b.action.rank, -b.scope.width, b.id))
        free = all(self._leased.get(b.id, 0) < self.settings.probes for b in half_open)
        return Verdict(
            Decision.DENY,
            half_open_text(strongest.scope),
            strongest.id,
            self.revision,
            TTL_MS[Decision.DENY],
            strength=Action.DENY,
            reason=strongest.reason,
            retry_after_s=self.settings.probe_ttl_s,
            probe=strongest.id if free else None,
        )

    def _refuse(self, breaker: Breaker, session: str | None) -> Verdict:
        strength = self._strength_for(breaker, session)
        decision = Decision.HALT if strength is Action.HALT else Decision.DENY
        return Verdict(
            decision,
            stronger(breaker.message_for_model, breaker.action, strength),
            breaker.id,
            self.revision,
            TTL_MS[decision],
            strength=strength,
            reason=breaker.reason,
            retry_after_s=None if strength is Action.HALT else self._retry_after(breaker),
            quarantine=breaker.quarantine,
        )

    def _retry_after(self, breaker: Breaker) -> float | None:
        if breaker.until is None:
            return None
        return max(0.0, round((breaker.until - self._now_ns()) / _NS, 3))


def _as_of(breaker: Breaker, now_ns: int) -> Breaker | None:
    """See a breaker without a hold whose time is over: until its end is written it lets nothing through."""
    if breaker.state is not State.FORCED_CLOSED or breaker.until is None or breaker.until > now_ns:
        return breaker
    if breaker.resumes is not State.OPEN:
        return None
    return replace(breaker, state=State.OPEN, action=breaker.resumes_action or breaker.action)
