"""The failures of all agents: one tracker a scope, bounded over all, restorable a scope at a time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from collector.step import Kind, RunEnded, SessionsMerged, StepAmended, StepSeen
from detectors.bounds import is_unknown_session
from detectors.keys import SEPARATOR
from detectors.reading import Lens
from detectors.recovery import DEFAULT_CONFIG, Config, Recovery, RecoveryTracker

if TYPE_CHECKING:
    from collector.step import Json, Step, StepEvent

_SWEEP_EVERY: Final = 1024
_SWEEP_SAMPLE: Final = 63


class RecoveryBook:
    """The trackers of all agents: takes events, returns what is settled; bounded, least recent go first.

    Sessions that are only known by their process (`detectors.bounds.is_unknown_session`) are left out: calls
    of different users would answer each other's failures.
    """

    def __init__(self, config: Config = DEFAULT_CONFIG, lens: Lens | None = None) -> None:
        self._config = config
        self._lens = lens or Lens()
        self._scopes: OrderedDict[str, RecoveryTracker] = OrderedDict()
        self._sessions: dict[str, set[str]] = {}
        self._dirty: dict[str, None] = {}
        self._held = 0
        self._touched: dict[str, int] = {}
        self._touches = 0

    def __len__(self) -> int:
        return len(self._scopes)

    def apply(self, event: StepEvent) -> list[Recovery]:
        """Take one event in; return what it settles, and what is to be said again with a higher revision."""
        match event:
            case StepSeen(step):
                return self._observe(step)
            case StepAmended(step):
                key = _key(step.session_id, step.agent)
                return self._in(key, lambda tracker: tracker.amend(self._lens.read(step)))
            case SessionsMerged(old, new):
                return self._merge(old, new)
            case RunEnded(session_id, run_id, _):
                return self._end(session_id, run_id)
        return []

    def changed(self) -> dict[str, Json | None]:
        """Snapshots of the scopes that changed since the last call, by key; None for those that went."""
        changed: dict[str, Json | None] = {}
        for key in self._dirty:
            tracker = self._scopes.get(key)
            changed[key] = (
                {"tracker": tracker.snapshot(), "touched": self._touched[key]}
                if tracker is not None
                else None
            )
        self._dirty.clear()
        return changed

    def restore(self, scopes: Mapping[str, Json]) -> dict[str, Exception]:
        """Take over snapshots in the order of their last use; return by key what cannot be read, and why."""
        loaded: list[tuple[int, str, RecoveryTracker]] = []
        left: dict[str, Exception] = {}
        for key, state in scopes.items():
            saved: Any = state
            try:
                tracker = RecoveryTracker.restored(saved["tracker"], self._config)
                loaded.append((int(saved["touched"]), key, tracker))
            except Exception as error:  # noqa: BLE001 - of another version, or damaged: only what it knew is lost
                left[key] = error
        for touched, key, tracker in sorted(loaded, key=lambda item: item[:2]):
            self._add(key, tracker)
            self._touched[key] = self._touches = touched
        self._dirty.clear()
        return left

    def _observe(self, step: Step) -> list[Recovery]:
        if is_unknown_session(step.session_id):
            return []
        reading = self._lens.read(step)
        key = _key(step.session_id, step.agent)
        if key not in self._scopes:
            self._add(key, RecoveryTracker(step.session_id, step.agent, self._config))
        else:
            self._touch(key)
        settled = self._in(key, lambda one: one.observe(reading))
        if step.kind is Kind.USER_TURN and step.agent is None:
            for other in sorted(self._sessions.get(step.session_id, ())):
                if other != key:
                    settled += self._in(other, lambda one: one.observe(reading))
        if self._touches % _SWEEP_EVERY == 0:
            settled += self._expire()
        while self._are_too_many() and len(self._scopes) > 1:
            settled += self._remove(next(iter(self._scopes)))
        return settled

    def _in(self, key: str, do: Callable[[RecoveryTracker], list[Recovery]]) -> list[Recovery]:
        """Do something in a scope, if there is that scope."""
        tracker = self._scopes.get(key)
        if tracker is None:
            return []
        self._dirty[key] = None
        held = len(tracker)
        said = do(tracker)
        self._held += len(tracker) - held
        return said

    def _are_too_many(self) -> bool:
        return len(self._scopes) > self._config.max_scopes or self._held > self._config.max_failures

    def _add(self, key: str, tracker: RecoveryTracker) -> None:
        self._scopes[key] = tracker
        self._held += len(tracker)
        self._sessions.setdefault(tracker.session_id, set()).add(key)
        self._touch(key)

    def _touch(self, key: str) -> None:
        self._scopes.move_to_end(key)
        self._touches += 1
        self._touched[key] = self._touches

    def _take_out(self, key: str) -> RecoveryTracker:
        tracker = self._scopes.pop(key)
        del self._touched[key]
        self._held -= len(tracker)
        keys = self._sessions[tracker.session_id]
        keys.discard(key)
        if not keys:
            del self._sessions[tracker.session_id]
        self._dirty[key] = None
        return tracker

    def _remove(self, key: str) -> list[Recovery]:
        return self._take_out(key).end()

    def _merge(self, old: str, new: str) -> list[Recovery]:
        said: list[Recovery] = []
        if old == new:
            return said
        for key in sorted(self._sessions.get(old, ())):
            past = self._take_out(key)
            target = _key(new, past.agent)
            if target in self._scopes:
                said += self._in(target, partial(RecoveryTracker.absorb, past=past))
            else:
                said += past.move(new)
                self._add(target, past)
                self._dirty[target] = None
        return said

    def _end(self, session_id: str, run_id: str) -> list[Recovery]:
        settled: list[Recovery] = []
        for key in sorted(self._sessions.get(session_id, ())) if run_id else ():
            settled += self._in(key, lambda tracker: tracker.end(run_id))
        return settled

    def _expire(self) -> list[Recovery]:
        """Let go of scopes that were idle for long, by the median clock of the most recent ones.

        The median, so that a producer whose clock is ahead does not end everybody's failures.
        """
        recent = sorted(one.last_end_ns for one in islice(reversed(self._scopes.values()), _SWEEP_SAMPLE))
        limit = recent[len(recent) // 2] - int(self._config.idle_s * 1e9)
        settled: list[Recovery] = []
        while self._scopes:
            key, tracker = next(iter(self._scopes.items()))
            if tracker.last_end_ns >= limit:
                break
            settled += self._remove(key)
        return settled


def _key(session_id: str, agent: str | None) -> str:
    return f"{session_id}{SEPARATOR}{agent or ''}"
