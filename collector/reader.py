"""From records to steps: one call told by several spans or logs becomes one step, once.

::

    push ──records──▶ conventions ──Observation──▶ Window ──in order──▶ join ──Entry──▶ StepSeen, StepAmended

A record waits `hold_ns` for those that belong before it, is then joined to the entry of the call it tells
of or begins a new one, and what changed is said. What is said once is never taken back: later records amend.
Rules of joining: `joining`, `calls`, `models`; sessions: `sessions`; calls that only messages show:
`messages`, `unrecorded`; what is remembered: `state`; what is said of it: `saying`.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from collector.batch import Batch
from collector.calls import Calls
from collector.conventions import catalog
from collector.conventions.observation import Answer, Ask, ModelFacts, Observation, Telling, ToolFacts
from collector.conventions.traceloop import FAILURES_WITHOUT_SPAN
from collector.freezing import Thawing, freeze
from collector.joining import (
    Entry,
)
from collector.messages import Asked, Group, Turn
from collector.models import Models
from collector.ordering import Window
from collector.record import Record, records
from collector.saying import Saying
from collector.sessions import Node, Trace, learn_session, remember
from collector.state import MAX_ENTRIES, MAX_TRACES, Counters, Process, State
from collector.step import (
    Json,
    Kind,
    Outcome,
    Step,
    StepEvent,
    Usage,
)
from collector.unrecorded import Unrecorded

HOLD_NS: Final = 500_000_000
MAX_IDENTITIES: Final = 1_000_000


class StepReader:
    """Reads steps out of batches, as they come or held until all is known.

    `hold_ns` is how long a record waits for others (500 ms by default); None holds everything, at most
    `max_held` records, until `drain`: for recorded traces, where the final step is wanted at once. Clock
    times are nanoseconds and the caller's; two readers that are pushed the same at the same times say the
    same. State is bounded by `max_traces` (and as many conversations) and `max_entries` calls; the least
    recently touched go first and are counted. Records of equal identity count once when everything is held;
    live, the filter before the spool sees to it.
    """

    def __init__(
        self,
        hold_ns: int | None = HOLD_NS,
        *,
        max_held: int = 200_000,
        max_traces: int = MAX_TRACES,
        max_entries: int = MAX_ENTRIES,
    ) -> None:
        self._window = Window(hold_ns, max_held)
        self._state = State(
            live=hold_ns is not None, hold_ns=hold_ns or 0, max_traces=max_traces, max_entries=max_entries
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
        """Take a batch that arrived at `now_ns`; return what is due."""
        for record in records(batch):
            observation = self._read(record)
            if observation is None or (self._window.hold_ns is None and self._seen_before(observation)):
                continue
            self._state.counters.observations += 1
            self._window.add(observation, now_ns)
        return self.advance(now_ns)

    def advance(self, now_ns: int) -> list[StepEvent]:
        """Let time pass; return what is due."""
        self._state.now_ns = max(self._state.now_ns, now_ns)
        due = self._window.due(now_ns)
        if due:
            self._join(due)
        if self._state.waiting_groups:
            self._unrecorded.settle(now_ns)
        return self._saying.said() if due or self._state.touched else []

    def drain(self) -> list[StepEvent]:
        """Return all that is left: nothing more will come (what comes nevertheless amends)."""
        self._join(self._window.all())
        self._unrecorded.settle(None)
        for number in [
            number for number, entry in self._state.entries.items() if entry.only_part and entry.step is None
        ]:
            self._unrecorded.adopt_parts(self._state.entries[number])
        return self._saying.said()

    def snapshot(self) -> Json:
        """The reader's state as JSON; `restore` of it goes on as if nothing had happened."""
        return freeze(
            {
                "window": self._window.waiting,
                "traces": list(self._state.traces.values()),
                "groups": list(self._state.groups.values()),
                "processes": dict(self._state.processes),
                "entries": list(self._state.entries.values()),
                "waiting": list(self._state.waiting_groups),
                "next": self._state.next_number,
                "now": self._state.now_ns,
            }
        )

    def restore(self, state: Json) -> None:
        """Take over a state that `snapshot` returned. Raises ValueError when it is none."""
        value = _THAWING.thaw(state)
        if not isinstance(value, dict):
            raise ValueError("a reader's snapshot is an object")  # noqa: TRY004 - the data is wrong, not the call
        self._window.waiting = [tuple(pair) for pair in value["window"]]
        self._state.traces = OrderedDict((trace.trace_id, trace) for trace in value["traces"])
        self._state.groups = OrderedDict((group.name, group) for group in value["groups"])
        self._state.processes = OrderedDict(value["processes"])
        self._state.entries = OrderedDict((entry.number, entry) for entry in value["entries"])
        self._state.waiting_groups = dict.fromkeys(value["waiting"])
        self._state.next_number, self._state.now_ns = value["next"], value["now"]

    def _read(self, record: Record) -> Observation | None:
        try:
            return catalog.read(record)
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
            if telling is Telling.TOOL or (telling is Telling.PART and observation.tool is not None):
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
        if learn_session(trace, observation):
            self._state.regroup(trace, f"s:{trace.session}", trace.session)


_THAWING: Final = Thawing(
    Answer,
    Ask,
    Asked,
    Entry,
    Group,
    Kind,
    ModelFacts,
    Node,
    Observation,
    Outcome,
    Process,
    Step,
    Telling,
    ToolFacts,
    Trace,
    Turn,
    Usage,
)
