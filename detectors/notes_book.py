"""The notes of all sessions, and the facts that their steps are; bounded, restorable a session at a time.

A record remembers the last step that is in it by its `engine_seq`. Notes may be written more often than
checkpoints are: what then happens again after a crash is in them already, and is passed over.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from collector.step import Kind, Outcome, RunEnded, SessionsMerged, StepAmended, StepSeen
from detectors.bounds import is_unknown_session
from detectors.dead_calls import may_have_changed
from detectors.errors import Nature
from detectors.facts import Fact, ToolFacts, changed, ended
from detectors.notes_record import Record, view_of
from detectors.reading import Lens

if TYPE_CHECKING:
    from collector.step import Json, Step, StepEvent
    from detectors.notes import Notes
    from detectors.protocol import Finding
    from detectors.reading import Reading

TOOLS: Final = ""
"""The key of what is known of tools, among the sessions' in a checkpoint."""
_MEASURE_AT: Final = frozenset({1, 8, 32})
_MEASURE_EVERY: Final = 128
_SESSIONS_OF_ONE: Final = 64  # finding
_DEADLY: Final = frozenset({Nature.STRUCTURAL, Nature.ENVIRONMENTAL, Nature.SEMANTIC})


@dataclass(frozen=True, slots=True, kw_only=True)
class NotesLimits:
    """How many sessions are noted at once, and in how much memory (estimated bytes); the least recent go."""

    max_sessions: int = 20_000
    max_bytes: int = 64 * 1024 * 1024

    def __post_init__(self) -> None:
        for name in ("max_sessions", "max_bytes"):
            if getattr(self, name) <= 0:
                raise ValueError(f"notes.{name} must be more than 0, not {getattr(self, name)!r}")


class _Held:
    """A record, with its size as it was estimated last and its place in the order of use."""

    __slots__ = ("record", "size", "steps", "touched")

    def __init__(self, record: Record) -> None:
        self.record = record
        self.size = self.steps = self.touched = 0

    def state(self) -> dict[str, Json]:
        """All state but the size, as JSON."""
        return {**self.record.state(), "touched": self.touched, "steps": self.steps}


class NotesBook:
    """See the module. Sessions that are only known by their process have no notes; their tools have facts."""

    def __init__(self, limits: NotesLimits | None = None, lens: Lens | None = None) -> None:
        self._limits = limits or NotesLimits()
        self._lens = lens or Lens()
        self._ignored = frozenset(self._lens.policy.ignore)
        self._sessions: OrderedDict[str, _Held] = OrderedDict()
        self._tools = ToolFacts()
        self._dirty: dict[str, None] = {}
        self._bytes = 0
        self._touches = 0
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def estimated_bytes(self) -> int:
        """Estimated memory of all notes, in bytes."""
        return self._bytes

    def apply(self, event: StepEvent) -> list[Fact]:
        """Take one event in; return the facts that it is, in order."""
        if type(event) is StepSeen:  # nearly always
            return self._observe(event.step)
        match event:
            case StepAmended(step):
                return self._amend(step)
            case SessionsMerged(old, new):
                self._merge(old, new)
            case RunEnded(session_id, _, at_ns):
                held = self._sessions.get(session_id)
                if held is not None:
                    held.record.end_run(at_ns)
                    self._dirty[session_id] = None
                return [ended(event)]
        return []

    def found(self, finding: Finding) -> None:
        """Note down a finding with the sessions that it is about; after its last step was applied."""
        for session_id in dict.fromkeys((finding.session_id, *finding.session_ids[:_SESSIONS_OF_ONE])):
            held = self._sessions.get(session_id)
            if held is not None:
                held.record.find(finding)
                self._dirty[session_id] = None

    def notes(self, session_id: str) -> Notes | None:
        """What is noted of a session."""
        held = self._sessions.get(session_id)
        return None if held is None else view_of(held.record)

    def changed(self) -> dict[str, Json | None]:
        """State by session of what changed since the last call, None for what went; of tools by `TOOLS`."""
        changes = self.states(self._dirty)
        self._dirty.clear()
        if self._tools.dirty:
            changes[TOOLS] = self._tools.state()
            self._tools.dirty = False
        return changes

    def forget_changes(self) -> None:
        """Forget what changed: for whoever writes no checkpoints, lest the names pile up."""
        self._dirty.clear()
        self._tools.dirty = False

    def states(self, session_ids: Iterable[str]) -> dict[str, Json | None]:
        """State of these sessions as it is now, None for those that are not noted."""
        states: dict[str, Json | None] = {}
        for session_id in session_ids:
            held = self._sessions.get(session_id)
            states[session_id] = (
                None
                if held is None
                else {**held.record.state(), "touched": held.touched, "steps": held.steps}
            )
        return states

    def restore(self, states: Mapping[str, Json]) -> dict[str, Exception]:
        """Take over states in the order of their last use; return by key what cannot be read, and why."""
        left: dict[str, Exception] = {}
        loaded: list[tuple[int, str, _Held]] = []
        for key, state in states.items():
            saved: Any = state
            try:
                if key == TOOLS:
                    self._tools.restore(saved)
                    continue
                held = _Held(Record.restored(saved))
                held.touched, held.steps = int(saved["touched"]), int(saved["steps"])
                loaded.append((held.touched, key, held))
            except Exception as error:  # noqa: BLE001 - of another version, or damaged: only what it knew is lost
                left[key] = error
        for touched, key, held in sorted(loaded, key=lambda item: item[:2]):
            self._sessions[key] = held
            self._touches = max(self._touches, touched)
            self._measure(held)
        self._dirty.clear()
        return left

    def _observe(self, step: Step) -> list[Fact]:
        if step.tool is not None and step.tool in self._ignored:
            return []
        reading = self._lens.read(step)
        facts: list[Fact] = []
        if step.kind is Kind.TOOL_CALL:
            fact = self._tools.observe(reading)
            if fact is not None:
                facts.append(fact)
        if is_unknown_session(step.session_id):
            return facts
        held = self._held(step.session_id)
        if step.engine_seq and step.engine_seq <= held.record.seq:
            return facts  # it happens again
        held.record.observe(reading)
        if held.record.dead or reading.failed:
            why = _clears(held.record, reading)
            if why:
                held.record.dead = 0
                facts.append(changed(step, why))
        held.steps += 1
        if held.steps in _MEASURE_AT or held.steps % _MEASURE_EVERY == 0:
            self._measure(held)
            self._shrink(step.session_id)
        return facts

    def _amend(self, step: Step) -> list[Fact]:
        if step.tool is not None and step.tool in self._ignored:
            return []
        reading = self._lens.read(step)
        held = self._sessions.get(step.session_id)
        if held is not None:
            held.record.amend(reading)
            self._dirty[step.session_id] = None
        if step.kind is not Kind.TOOL_CALL or not reading.failed:
            return []
        fact = self._tools.observe(reading)
        return [] if fact is None else [fact]

    def _held(self, session_id: str) -> _Held:
        held = self._sessions.get(session_id)
        if held is None:
            held = self._sessions[session_id] = _Held(Record(session_id))
            if len(self._sessions) > self._limits.max_sessions:
                self._evict(next(iter(self._sessions)))
        else:
            self._sessions.move_to_end(session_id)
        self._touches += 1
        held.touched = self._touches
        self._dirty[session_id] = None
        return held

    def _merge(self, old: str, new: str) -> None:
        past = self._sessions.pop(old, None) if old != new else None
        if past is None:
            return
        self._dirty[old] = None
        self._bytes -= past.size
        held = self._held(new)
        held.record.absorb(past.record)
        held.steps += past.steps
        self._measure(held)
        self._shrink(new)

    def _measure(self, held: _Held) -> None:
        size = held.record.size
        self._bytes += size - held.size
        held.size = size

    def _shrink(self, keep: str) -> None:
        while self._bytes > self._limits.max_bytes and len(self._sessions) > 1:
            session_id = next(iter(self._sessions))
            if session_id == keep:
                break
            self._evict(session_id)

    def _evict(self, session_id: str) -> None:
        self._bytes -= self._sessions.pop(session_id).size
        self._dirty[session_id] = None
        self.evicted += 1


def _clears(record: Record, reading: Reading) -> str:
    """Why the failed calls of a session may not be dead any more; empty: they are as dead as before."""
    step = reading.step
    if step.kind is Kind.USER_TURN:
        return "user_turn" if record.dead and record.last_user_ns == step.start_ns else ""
    if step.kind is not Kind.TOOL_CALL or step.outcome is Outcome.DENIED:
        return ""
    if reading.failed:
        verdict = reading.verdict
        record.dead += verdict is not None and verdict.nature in _DEADLY and reading.call.known
        return ""
    return "call" if record.dead and may_have_changed(reading) else ""
