"""What is remembered between records: traces, conversations, processes, entries; all of it bounded."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from heapq import heappush
from typing import Final

from collector.conventions.observation import Observation
from collector.definitions import key_of, known
from collector.joining import (
    Entry,
    add_part,
)
from collector.messages import MAX_PENDING, Asked, Group
from collector.sessions import Climb, Trace, climb
from collector.step import (
    MAX_EVALUATIONS,
    Evaluation,
    Kind,
    SessionsMerged,
    StepEvent,
    ToolDefinitions,
)
from collector.weighing import weight_of_asked, weight_of_entry

MAX_TRACES: Final = 20_000
MAX_GROUPS: Final = 20_000
MAX_PROCESSES: Final = 4_096
MAX_ENTRIES: Final = 50_000
MAX_ENTRY_BYTES: Final = 128 * 1024**2  # of all entries, by estimate
MAX_DEFINITION_CHARS: Final = 16 * 1024**2  # of all definitions of tools, as they were recorded
RECOUNT: Final = 256  # definitions that did not fit, until it is looked again which ones are still held
MAX_ASKED_BYTES: Final = 64 * 1024**2  # of all calls that wait for their own records
BLOCK: Final = 32  # entries with neighbouring numbers that are written down together
MAX_RECENT: Final = 128  # calls of one process that another instrumentation may tell of again


@dataclass(slots=True)
class Process:
    """Recent calls and model calls of one process, and which instrumentations told of them.

    `touched` tells which process was told of last.
    """

    calls: deque[int] = field(default_factory=lambda: deque(maxlen=MAX_RECENT))
    models: deque[int] = field(default_factory=lambda: deque(maxlen=MAX_RECENT))
    tool_sources: set[str] = field(default_factory=set)
    model_sources: set[str] = field(default_factory=set)
    hides_failures: bool = False
    touched: int = 0


@dataclass(slots=True)
class Counters:
    """What the reader did and had to forget, for metrics."""

    observations: int = 0
    joined: int = 0
    derived: int = 0
    forgotten_traces: int = 0
    forgotten_groups: int = 0
    forgotten_entries: int = 0
    forgotten_asked: int = 0
    forgotten_definitions: int = 0
    joined_too_late: int = 0
    resent: int = 0
    unreadable: int = 0
    unwritable: int = 0


@dataclass(slots=True)
class State:
    """Everything that the reader knows, least recently touched first, and what is to be said.

    `touched` are entries of which something is new; `dues` a heap of when a conversation has calls to say
    that only messages show; `hold_ns` how long such a call waits for its own record; `live` whether steps are
    said as they come; `said` how many were. `now_ns` is the reader's time, which never goes back: `clock_ns`,
    what the caller's clock said last, and `shift_ns`, by how much that was set back in all. `touches` counts
    what was told of traces, conversations and processes. `entry_bytes` is what all entries weigh,
    `asked_bytes` what all calls that wait for their own records weigh at most. `definitions` are the keys of
    the definitions of tools that records brought, with their lengths, in all `definition_chars`. `changed`
    names what is to be written down: `t`, `g`, `p`, `d` and the name of a trace, conversation, process or set
    of definitions, or the number of a block of entries.
    """

    live: bool = True
    hold_ns: int = 0
    max_traces: int = MAX_TRACES
    max_entries: int = MAX_ENTRIES
    max_entry_bytes: int = MAX_ENTRY_BYTES
    max_asked_bytes: int = MAX_ASKED_BYTES
    max_definition_chars: int = MAX_DEFINITION_CHARS
    traces: OrderedDict[str, Trace] = field(default_factory=OrderedDict)
    groups: OrderedDict[str, Group] = field(default_factory=OrderedDict)
    processes: OrderedDict[str, Process] = field(default_factory=OrderedDict)
    entries: OrderedDict[int, Entry] = field(default_factory=OrderedDict)
    dues: list[tuple[int, str]] = field(default_factory=list)
    touched: dict[int, None] = field(default_factory=dict)
    events: list[StepEvent] = field(default_factory=list)
    ended: list[Trace] = field(default_factory=list)
    next_number: int = 0
    touches: int = 0
    now_ns: int = 0
    clock_ns: int = 0
    shift_ns: int = 0
    said: int = 0
    entry_bytes: int = 0
    asked_bytes: int = 0
    definitions: dict[str, int] = field(default_factory=dict)
    definition_chars: int = 0
    changed: set[str | int] = field(default_factory=set)
    counters: Counters = field(default_factory=Counters)

    def keys(self) -> set[str | int]:
        """The keys of everything that is remembered."""
        return {
            *(f"t{name}" for name in self.traces),
            *(f"g{name}" for name in self.groups),
            *(f"p{name}" for name in self.processes),
            *(f"d{name}" for name in self.definitions),
            *(number // BLOCK for number in self.entries),
        }

    def touch(self, entry: Entry) -> None:
        """Note that something is new of an entry."""
        self.touched[entry.number] = None
        self.changed.add(entry.number // BLOCK)

    def trace(self, observation: Observation) -> Trace:
        """The trace of a record, new if it has to be."""
        self.changed.add(f"t{observation.trace_id}")
        trace = self.traces.get(observation.trace_id)
        if trace is None:
            own = f"p:{observation.process}" if observation.is_log else f"t:{observation.trace_id}"
            trace = Trace(observation.trace_id, own, observation.process)
            self.traces[observation.trace_id] = trace
            if len(self.traces) > self.max_traces:
                gone, _ = self.traces.popitem(last=False)
                self.changed.add(f"t{gone}")
                self.counters.forgotten_traces += 1
        else:
            self.traces.move_to_end(observation.trace_id)
        self.touches += 1
        trace.touched = self.touches
        return trace

    def group_name(self, trace: Trace | None, observation: Observation) -> str:
        """The conversation a record belongs to, by its trace's name for it, else by its own session."""
        if trace is not None:
            trace.used = True
            return trace.group
        return f"s:{observation.session}" if observation.session else f"p:{observation.process}"

    def group(self, name: str) -> Group:
        """The conversation of that name, new if it has to be."""
        self.changed.add(f"g{name}")
        group = self.groups.get(name)
        if group is None:
            group = self.groups[name] = Group(name)
            if len(self.groups) > MAX_GROUPS:
                gone, _ = self.groups.popitem(last=False)
                self.changed.add(f"g{gone}")
                self.counters.forgotten_groups += 1
        else:
            self.groups.move_to_end(name)
        self.touches += 1
        group.touched = self.touches
        return group

    def regroup(self, trace: Trace, new: str, session: str) -> None:
        """A trace's session became known: its conversation is the session's."""
        old = trace.group
        if old == new:
            return
        if not old.startswith("t:"):
            trace.group = new
            return
        former = self.groups.pop(old, None)
        self.changed.update((f"g{old}", f"t{trace.trace_id}"))
        trace.group = new
        if former is not None:
            now = self.group(new)
            now.take(former)
            self.expect(now)
            for number in {*former.calls, *former.models, *former.ids.values()}:
                entry = self.entries.get(number)
                if entry is not None:
                    entry.group = new
                    self.changed.add(number // BLOCK)
        if trace.fallback_used:
            trace.fallback_used = False
            self.events.append(SessionsMerged(trace.trace_id, session))

    def process(self, name: str) -> Process:
        """The process of that name, new if it has to be."""
        self.changed.add(f"p{name}")
        process = self.processes.get(name)
        if process is None:
            process = self.processes[name] = Process()
            if len(self.processes) > MAX_PROCESSES:
                gone, _ = self.processes.popitem(last=False)
                self.changed.add(f"p{gone}")
        else:
            self.processes.move_to_end(name)
        self.touches += 1
        process.touched = self.touches
        return process

    def new(self, observation: Observation, kind: Kind, group: Group, step_id: str) -> Entry:
        """A new entry, told of first by a record."""
        entry = Entry(
            self.next_number,
            kind,
            step_id,
            observation.trace_id,
            observation.span_id,
            observation.process,
            group.name,
            start_ns=observation.start_ns,
            end_ns=observation.end_ns,
        )
        self.next_number += 1
        self.entries[entry.number] = entry
        self.changed.add(entry.number // BLOCK)
        if len(self.entries) > self.max_entries:
            self._forget_oldest()
        return entry

    def weigh(self, entry: Entry) -> None:
        """Note what an entry weighs now."""
        before, entry.weight = entry.weight, weight_of_entry(entry)
        self.entry_bytes += entry.weight - before

    def drop(self, entry: Entry) -> None:
        """Forget an entry."""
        if self.entries.pop(entry.number, None) is not None:
            self.entry_bytes -= entry.weight
        self.changed.add(entry.number // BLOCK)
        self.touched.pop(entry.number, None)

    def trim(self) -> None:
        """Forget the oldest entries, and the longest idle conversations' waiting calls, that are too heavy.

        Only after what is new was said, so that nothing is forgotten unsaid.
        """
        while self.entry_bytes > self.max_entry_bytes and len(self.entries) > 1:
            self._forget_oldest()
        if self.asked_bytes > self.max_asked_bytes:
            self._trim_asked()

    def _forget_oldest(self) -> None:
        oldest = next(iter(self.entries.values()))
        self.drop(oldest)
        # As after a restart: a conversation knows the ids of the calls that are remembered.
        ids = self.groups[oldest.group].ids if oldest.group in self.groups else {}
        for call_id in oldest.ids:
            if ids.get(call_id) == oldest.number:
                del ids[call_id]
        self.counters.forgotten_entries += 1

    def _trim_asked(self) -> None:
        """Weigh all that waits; make room for a quarter more when it is too much."""
        weights = {
            name: sum([weight_of_asked(asked) for asked in group.pending])
            for name, group in self.groups.items()
            if group.pending
        }
        self.asked_bytes = sum(weights.values())
        if self.asked_bytes <= self.max_asked_bytes:
            return
        for name, weight in weights.items():
            if self.asked_bytes <= self.max_asked_bytes * 3 // 4:
                break
            self.counters.forgotten_asked += len(self.groups[name].pending)
            self.groups[name].pending.clear()
            self.changed.add(f"g{name}")
            self.asked_bytes -= weight

    def add_part(self, entry: Entry, observation: Observation) -> None:
        """Take one more record into an entry and nothing else; it may end later than it had seemed."""
        before_ns = entry.end_ns
        add_part(entry, observation)
        if entry.end_ns > before_ns and (group := self.groups.get(entry.group)) is not None:
            group.stretched_ns = max(group.stretched_ns, entry.end_ns)

    def into(self, entry: Entry, observation: Observation, trace: Trace | None) -> None:
        """Take one more record into an entry."""
        self.add_part(entry, observation)
        self.touch(entry)
        if trace is None or observation.is_log:
            return
        node = trace.nodes.get(observation.span_id)
        if node is not None:
            node.entry = entry.number
        if trace.judged and (judged := trace.judged.pop(observation.span_id, None)):
            self.judge(entry, judged)
        self.look_up(entry, trace, observation)

    def judge(self, entry: Entry, evaluations: Sequence[Evaluation]) -> None:
        """Take evaluations that came in records of their own into the entry that they are of."""
        judged = tuple(dict.fromkeys((*entry.judged, *evaluations)))[:MAX_EVALUATIONS]
        if judged != entry.judged:
            entry.judged = judged
            self.touch(entry)

    def keeps(self, definitions: ToolDefinitions) -> bool:
        """Note definitions of tools that a record brought; False when there are too many to remember more."""
        key = key_of(definitions)
        if key in self.definitions:
            return True
        if self.definition_chars + definitions.chars > self.max_definition_chars:
            if self.counters.forgotten_definitions % RECOUNT == 0:
                self._recount()
            if self.definition_chars + definitions.chars > self.max_definition_chars:
                self.counters.forgotten_definitions += 1
                return False
        self.definitions[key] = definitions.chars
        self.definition_chars += definitions.chars
        self.changed.add(f"d{key}")
        return True

    def _recount(self) -> None:
        for key in self.unheld():
            self.let_go(key)

    def unheld(self) -> list[str]:
        """The keys of definitions that nobody holds any more."""
        return [key for key in self.definitions if known(key) is None]

    def let_go(self, key: str) -> None:
        """Forget definitions that nobody holds."""
        self.definition_chars -= self.definitions.pop(key, 0)
        self.changed.add(f"d{key}")

    def look_up(self, entry: Entry, trace: Trace, observation: Observation) -> Climb:
        """Take an entry's agents and session from the spans above a record of it."""
        found = climb(trace, observation.parent_span_id)
        self.changed.update((entry.number // BLOCK, f"t{trace.trace_id}"))
        entry.agent = entry.agent or found.agent
        entry.parent_agent = entry.parent_agent or found.parent_agent
        if found.session:
            if entry.step is not None and entry.step.session_id not in (found.session, trace.trace_id):
                self.events.append(SessionsMerged(entry.step.session_id, found.session))
                entry.step = replace(entry.step, session_id=found.session)
            entry.above_session = found.session
        if found.missing:
            trace.orphans.setdefault(found.missing, []).append(entry.number)
        return found

    def near(self, group: Group, process: str) -> tuple[Group, ...]:
        """The conversation, and the one of the process's calls of which the trace says nothing."""
        lone = self.groups.get(f"p:{process}")
        return (group,) if lone is None or lone is group else (group, lone)

    def wait(self, asked: Asked, group: Group) -> None:
        """Let a call that was asked for wait for its own record."""
        group.pending.append(asked)
        self.asked_bytes += weight_of_asked(asked)
        if asked.due_ns:
            heappush(self.dues, (asked.due_ns, group.name))
        if len(group.pending) > MAX_PENDING:
            group.pending.pop(0)

    def expect(self, group: Group) -> None:
        """Note when the conversation has calls to say that only messages show."""
        for due_ns in {asked.due_ns for asked in group.pending if asked.due_ns}:
            heappush(self.dues, (due_ns, group.name))
