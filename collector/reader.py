"""From records to steps: one call told by several spans or logs becomes one step, once.

::

    push ──records──▶ conventions ──Observation──▶ Window ──in order──▶ join ──Entry──▶ StepSeen, StepAmended

A record waits `hold_ns` for those that belong before it, is then joined to the entry of the call it tells
of or begins a new one, and what changed is said. What is said once is never taken back: later records amend.
Rules of joining: `joining`, `calls`, `models`; sessions: `sessions`; calls that only messages show:
`messages`, `unrecorded`; what is remembered: `state`, written down: `keeping`; what is said of it: `saying`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import orjson

from collector.batch import Batch
from collector.calls import Calls
from collector.conventions import catalog
from collector.conventions.observation import Observation, Telling
from collector.conventions.traceloop import FAILURES_WITHOUT_SPAN
from collector.freezing import freeze
from collector.keeping import (
    DEFINITIONS,
    MAKE,
    frozen,
    gather_ids,
    thaw,
    thaw_definitions,
    thaw_waiting,
)
from collector.models import Models
from collector.naming import with_names_kept
from collector.ordering import Window
from collector.record import Record, records
from collector.saying import Saying
from collector.sessions import Trace, keep_judgement, learn_session, learn_task, remember
from collector.state import MAX_ENTRIES, MAX_ENTRY_BYTES, MAX_TRACES, Counters, State
from collector.step import StepEvent
from collector.unrecorded import Unrecorded

HOLD_NS: Final = 500_000_000
HELD_BYTES: Final = 64 * 1024**2  # of records that wait, by estimate
RECORDED_BYTES: Final = 512 * 1024**2  # the same where everything is held
MAX_IDENTITIES: Final = 1_000_000
_WINDOW: Final = "window"  # a key's first letter tells what it is of, see `keeping`
_REST: Final = "rest"
_PLAIN: Final = ("next_number", "now_ns", "clock_ns", "shift_ns", "said", "asked_bytes", "touches")


class StepReader:
    """Reads steps out of batches, as they come or held until all is known.

    `hold_ns` is how long a record waits for others (500 ms by default); None holds everything, at most
    `max_held` records, until `drain`: for recorded traces, where the final step is wanted at once. Clock
    times are nanoseconds and the caller's; two readers that are pushed the same at the same times say the
    same. State is bounded by `max_traces` (and as many conversations), the least recently touched go
    first, and by `max_entries` calls that weigh `max_entry_bytes`, the oldest go first; what went is counted.
    Records of equal identity count once when everything is held; live, the filter before the spool sees to
    it.
    """

    def __init__(
        self,
        hold_ns: int | None = HOLD_NS,
        *,
        max_held: int = 50_000,
        max_traces: int = MAX_TRACES,
        max_entries: int = MAX_ENTRIES,
        max_entry_bytes: int = MAX_ENTRY_BYTES,
    ) -> None:
        self._window = Window(hold_ns, max_held, RECORDED_BYTES if hold_ns is None else HELD_BYTES)
        self._state = State(
            live=hold_ns is not None,
            hold_ns=hold_ns or 0,
            max_traces=max_traces,
            max_entries=max_entries,
            max_entry_bytes=max_entry_bytes,
        )
        self._calls = Calls(self._state)
        self._models = Models(self._state, self._calls)
        self._unrecorded = Unrecorded(self._state)
        self._saying = Saying(self._state)
        self._identities: OrderedDict[int, None] = OrderedDict()

    @property
    def counters(self) -> Counters:
        """What the reader did and had to forget."""
        return self._state.counters

    def push(self, batch: Batch, now_ns: int) -> list[StepEvent]:
        """Let time pass until `now_ns`, then take a batch that arrived at it; return what was due."""
        try:
            events = self.advance(now_ns)
        finally:  # what was due may fail; what comes now may not be lost with it
            self._take(batch)
        while self._window.full:
            self._join(self._window.overflow())
            events += self._saying.said()
        return events

    def advance(self, now_ns: int) -> list[StepEvent]:
        """Let time pass; return what is due.

        All that is due at one time is said before what is due later: to let time pass in one step or in many
        says the same. Time that goes back (somebody set the clock) goes on from where it was.
        """
        state = self._state
        if now_ns < state.clock_ns:
            state.shift_ns += state.clock_ns - now_ns
        state.clock_ns = now_ns
        now_ns += state.shift_ns
        events: list[StepEvent] = []
        while (at_ns := self._next_ns()) is not None and at_ns <= now_ns:
            state.now_ns = max(state.now_ns, at_ns)
            self._join(self._window.due(at_ns))
            self._unrecorded.settle(at_ns)
            events += self._saying.said()
        state.now_ns = max(state.now_ns, now_ns)
        return events

    def _next_ns(self) -> int | None:
        """When something is due next."""
        window_ns, dues = self._window.due_ns(), self._state.dues
        if not dues:
            return window_ns
        return dues[0][0] if window_ns is None else min(window_ns, dues[0][0])

    def _take(self, batch: Batch) -> None:
        for record in records(batch):
            observation = self._read(record)
            if observation is None or (self._window.hold_ns is None and self._seen_before(observation)):
                continue
            self._state.counters.observations += 1
            self._window.add(self._with_definitions(observation), self._state.now_ns)

    def _with_definitions(self, observation: Observation) -> Observation:
        model = observation.model
        if model is None or model.definitions is None or self._state.keeps(model.definitions):
            return observation
        return replace(observation, model=replace(model, definitions=None))

    def drain(self) -> list[StepEvent]:
        """Return all that is left: nothing more will come (what comes nevertheless amends)."""
        self._join(self._window.all())
        self._unrecorded.settle(None)
        for number in [
            number for number, entry in self._state.entries.items() if entry.only_part and entry.step is None
        ]:
            self._unrecorded.adopt_parts(self._state.entries[number])
        return self._saying.said()

    @property
    def said(self) -> int:
        """How many steps were said: the `engine_seq` of the latest."""
        return self._state.said

    def number_from(self, said: int) -> None:
        """Go on numbering steps after `said`, where a state that knew it was lost."""
        self._state.said = max(self._state.said, said)

    def snapshot(self) -> dict[str, bytes]:
        """The reader's whole state in pieces of JSON; `restore` goes on as if nothing had happened."""
        self._state.changed = self._state.keys()
        return {key: piece for key, piece in self.changes().items() if piece is not None}

    def changes(self) -> dict[str, bytes | None]:
        """The pieces of the state that changed since `changes` or `snapshot` was last called.

        A piece of None is gone. Kept by key, newest wins, they are what `snapshot` would have returned.
        What cannot be written stays as it was written last, and is counted.
        """
        state = self._state
        for unheld in state.unheld():
            state.let_go(unheld)
        changed, state.changed = state.changed, set()
        pieces: dict[str, bytes | None] = {}
        for key in changed:
            name = f"e{key}" if isinstance(key, int) else key
            try:
                name.encode()  # a key with half a character is for no database
                pieces[name] = frozen(state, key)
            except Exception:  # noqa: BLE001 - whatever one piece holds, the others are written
                state.counters.unwritable += 1
        pieces[_WINDOW] = self._frozen_window()
        pieces[_REST] = freeze([MAKE, *(getattr(state, name) for name in _PLAIN)])
        return pieces

    def restore(self, pieces: Mapping[str, bytes]) -> None:
        """Take over the pieces of a state, into a new reader. Raises ValueError when they are none."""
        if not pieces:
            return
        state = self._state
        make, *rest = orjson.loads(pieces.get(_REST, b"[0]"))
        if make != MAKE:
            raise ValueError(f"a reader's state of another make: {make}, not {MAKE}")
        window, thawed = self._window.waiting, State()
        held = thaw_definitions(thawed, pieces)
        for key, piece in sorted(pieces.items(), key=lambda item: (len(item[0]), item[0])):
            if key == _WINDOW:
                window = thaw_waiting(piece)
            elif key != _REST and not key.startswith(DEFINITIONS):
                thaw(thawed, key, piece)
        gather_ids(thawed)
        self._window.restore(window)
        state.entries, state.traces = thawed.entries, thawed.traces
        state.groups, state.processes = thawed.groups, thawed.processes
        state.definitions, state.definition_chars = thawed.definitions, thawed.definition_chars
        for name, value in zip(_PLAIN, rest, strict=True):
            setattr(state, name, value)
        for group in state.groups.values():
            state.expect(group)
        del held  # from here on those hold them who were told of them
        state.entry_bytes = sum(entry.weight for entry in thawed.entries.values())

    def _frozen_window(self) -> bytes:
        """The records that wait; should one of them be one that cannot be written, those that can."""
        waiting = self._window.waiting
        try:
            return freeze(waiting)
        except Exception:  # noqa: BLE001 - see `changes`
            can = [held for held in waiting if _can_be_written(held)]
            self._state.counters.unwritable += len(waiting) - len(can)
            return freeze(can)

    def _read(self, record: Record) -> Observation | None:
        try:
            observation = catalog.read(record)
            return None if observation is None else with_names_kept(observation)
        except Exception:  # noqa: BLE001 - whatever one record holds, the others are read; it is counted
            self.counters.unreadable += 1
            return None

    def _seen_before(self, observation: Observation) -> bool:
        if observation.identity in self._identities:
            self._state.counters.resent += 1
            return True
        self._identities[observation.identity] = None
        if len(self._identities) > MAX_IDENTITIES:
            self._identities.popitem(last=False)
        return False

    def _join(self, observations: list[Observation]) -> None:
        for observation in observations:
            if observation.trace_id:
                self._place(observation)
        for observation in observations:
            telling = observation.telling
            if observation.evaluations and observation.tool is None and observation.model is None:
                self._judged(observation)
            elif telling is Telling.TOOL or (telling is Telling.PART and observation.tool is not None):
                self._calls.tool(observation)
            elif telling is Telling.MODEL or telling is Telling.PART:
                self._models.model(observation)
            elif telling is not Telling.CONTEXT:
                self._models.other(observation)

    def _place(self, observation: Observation) -> None:
        """First pass: links between spans, sessions, agents; so that all is known before calls are joined."""
        trace = self._state.trace(observation)
        if observation.source == FAILURES_WITHOUT_SPAN:
            self._state.process(observation.process).hides_failures = True
        if not observation.is_log:
            was_lone = trace.lone
            remember(trace, observation)
            if trace.lone and not was_lone and not trace.session:
                self._state.regroup(trace, f"p:{trace.process}", f"process:{trace.process}")
            elif not trace.lone and trace.group.startswith("p:"):
                trace.group = f"s:{trace.session}" if trace.session else f"t:{trace.trace_id}"
            if observation.span_id in trace.orphans:
                self._calls.found_parent(trace, observation)
            if not observation.parent_span_id and trace.root_ended_ns and trace.is_run:
                self._state.ended.append(trace)
        if observation.own is not None and learn_task(trace, observation):
            self._task_ended(trace)
        if learn_session(trace, observation):
            self._state.regroup(trace, f"s:{trace.session}", trace.session)

    def _judged(self, observation: Observation) -> None:
        """An evaluation of a span: of the step that it tells of, now or once it has come."""
        trace = self._state.traces.get(observation.trace_id)
        if trace is None:
            return
        node = trace.nodes.get(observation.span_id)
        entry = self._state.entries.get(node.entry) if node is not None else None
        if entry is not None:
            self._state.judge(entry, observation.evaluations)
        else:
            keep_judgement(trace, observation)

    def _task_ended(self, trace: Trace) -> None:
        """Whether the task succeeded is told by a span around the agent's, which ends after it was said."""
        for node in trace.nodes.values():
            entry = self._state.entries.get(node.entry) if node.telling is Telling.AGENT else None
            if entry is not None:
                self._state.touch(entry)


def _can_be_written(value: object) -> bool:
    try:
        freeze(value)
    except Exception:  # noqa: BLE001 - see `StepReader.changes`
        return False
    return True
