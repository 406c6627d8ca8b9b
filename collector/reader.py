"""From records to steps: one call told by several spans or logs becomes one step, once.

::

    push ──records──▶ conventions ──Observation──▶ Window ──in order──▶ join ──Entry──▶ StepSeen, StepAmended

A record waits `hold_ns` for those that belong before it, is then joined to the entry of the call it tells
of or begins a new one, and what changed is said. What is said once is never taken back: later records amend.
The rules of joining are in `joining`, those of sessions in `sessions`, calls that only messages show in `messages`.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from collector.batch import Batch
from collector.conventions import catalog, generic
from collector.conventions.observation import Answer, Ask, ModelFacts, Observation, Telling, ToolFacts
from collector.conventions.traceloop import FAILURES_WITHOUT_SPAN
from collector.freezing import Thawing, freeze
from collector.joining import (
    Entry,
    add_part,
    arguments_known,
    call_id_of,
    contains,
    first_told,
    innermost_usage,
    outcome_of,
    overlap_ns,
    result_text,
    same_arguments,
    same_tool,
    tool_of,
)
from collector.messages import MAX_PENDING, Asked, Group, matching
from collector.ordering import Window
from collector.record import records
from collector.sessions import Climb, Node, Trace, climb, learn_session, nearest, remember, session_id
from collector.step import (
    Json,
    Kind,
    Outcome,
    RunEnded,
    SessionsMerged,
    Step,
    StepAmended,
    StepEvent,
    StepSeen,
    Usage,
)

HOLD_NS: Final = 500_000_000
MAX_TRACES: Final = 20_000
MAX_GROUPS: Final = 20_000
MAX_PROCESSES: Final = 4_096
MAX_ENTRIES: Final = 50_000
MAX_RECENT: Final = 128  # calls of one process that another instrumentation may tell of again
MAX_IDENTITIES: Final = 1_000_000
SLACK_MODEL_NS: Final = 5_000_000
HANDOFF: Final = ("transfer_to_", "transfer_back_to_", "handoff_to_")

_KINDS: Final = {
    Telling.TOOL: Kind.TOOL_CALL,
    Telling.MODEL: Kind.MODEL_CALL,
    Telling.AGENT: Kind.AGENT_RUN,
    Telling.USER: Kind.USER_TURN,
    Telling.COMPACTION: Kind.COMPACTION,
}
_BETWEEN: Final = (Telling.AGENT, Telling.MODEL, Telling.COMPACTION)


@dataclass(slots=True)
class Process:
    """Recent calls and model calls of one process, and which instrumentations told of them."""

    calls: deque[int] = field(default_factory=lambda: deque(maxlen=MAX_RECENT))
    models: deque[int] = field(default_factory=lambda: deque(maxlen=MAX_RECENT))
    tool_sources: set[str] = field(default_factory=set)
    model_sources: set[str] = field(default_factory=set)
    hides_failures: bool = False


@dataclass(slots=True)
class Counters:
    """What the reader did and had to forget, for metrics."""

    observations: int = 0
    joined: int = 0
    derived: int = 0
    forgotten_traces: int = 0
    forgotten_groups: int = 0
    forgotten_entries: int = 0
    joined_too_late: int = 0
    resent: int = 0


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
        self._max_traces = max_traces
        self._max_entries = max_entries
        self._traces: OrderedDict[str, Trace] = OrderedDict()
        self._groups: OrderedDict[str, Group] = OrderedDict()
        self._processes: OrderedDict[str, Process] = OrderedDict()
        self._entries: OrderedDict[int, Entry] = OrderedDict()
        self._waiting_groups: dict[str, None] = {}
        self._identities: OrderedDict[int, None] = OrderedDict()
        self._next = 0
        self._touched: dict[int, None] = {}
        self._events: list[StepEvent] = []
        self._ended: list[Trace] = []
        self._now = 0
        self.counters = Counters()

    def push(self, batch: Batch, now_ns: int) -> list[StepEvent]:
        """Take a batch that arrived at `now_ns`; return what is due."""
        for record in records(batch):
            observation = catalog.read(record)
            if observation is None or (self._window.hold_ns is None and self._seen_before(observation)):
                continue
            self.counters.observations += 1
            self._window.add(observation, now_ns)
        return self.advance(now_ns)

    def advance(self, now_ns: int) -> list[StepEvent]:
        """Let time pass; return what is due."""
        self._now = max(self._now, now_ns)
        due = self._window.due(now_ns)
        if due:
            self._join(due)
        if self._waiting_groups:
            self._settle(now_ns)
        return self._said() if due or self._touched else []

    def drain(self) -> list[StepEvent]:
        """Return all that is left: nothing more will come (what comes nevertheless amends)."""
        self._join(self._window.all())
        self._settle(None)
        for number in [
            number for number, entry in self._entries.items() if entry.only_part and entry.step is None
        ]:
            self._adopt_parts(self._entries[number])
        return self._said()

    def snapshot(self) -> Json:
        """The reader's state as JSON; `restore` of it goes on as if nothing had happened."""
        return freeze(
            {
                "window": self._window.waiting,
                "traces": list(self._traces.values()),
                "groups": list(self._groups.values()),
                "processes": dict(self._processes),
                "entries": list(self._entries.values()),
                "waiting": list(self._waiting_groups),
                "next": self._next,
                "now": self._now,
            }
        )

    def restore(self, state: Json) -> None:
        """Take over a state that `snapshot` returned. Raises ValueError when it is none."""
        value = _THAWING.thaw(state)
        if not isinstance(value, dict):
            raise ValueError("a reader's snapshot is an object")  # noqa: TRY004 - the data is wrong, not the call
        self._window.waiting = [tuple(pair) for pair in value["window"]]
        self._traces = OrderedDict((trace.trace_id, trace) for trace in value["traces"])
        self._groups = OrderedDict((group.name, group) for group in value["groups"])
        self._processes = OrderedDict(value["processes"])
        self._entries = OrderedDict((entry.number, entry) for entry in value["entries"])
        self._waiting_groups = dict.fromkeys(value["waiting"])
        self._next, self._now = value["next"], value["now"]

    # -- taking records in -------------------------------------------------------------------------

    def _seen_before(self, observation: Observation) -> bool:
        if observation.identity in self._identities:
            self.counters.resent += 1
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
                self._tool(observation)
            elif telling is Telling.MODEL or telling is Telling.PART:
                self._model(observation)
            elif telling is not Telling.CONTEXT:
                self._other(observation)

    def _place(self, observation: Observation) -> None:
        """First pass: links between spans, sessions, agents; so that all is known before calls are joined."""
        trace = self._trace(observation)
        if observation.source == FAILURES_WITHOUT_SPAN:
            self._process(observation.process).hides_failures = True
        if not observation.is_log:
            was_lone = trace.lone
            remember(trace, observation)
            if trace.lone and not was_lone and not trace.session:
                self._regroup(trace, f"p:{trace.process}", f"process:{trace.process}")
            elif not trace.lone and trace.group.startswith("p:"):
                trace.group = f"s:{trace.session}" if trace.session else f"t:{trace.trace_id}"
            if observation.span_id in trace.orphans:
                self._found_parent(trace, observation)
            if not observation.parent_span_id and trace.root_ended_ns and trace.is_run:
                self._ended.append(trace)
        if learn_session(trace, observation):
            self._regroup(trace, f"s:{trace.session}", trace.session)

    def _trace(self, observation: Observation) -> Trace:
        trace = self._traces.get(observation.trace_id)
        if trace is None:
            own = f"p:{observation.process}" if observation.is_log else f"t:{observation.trace_id}"
            trace = Trace(observation.trace_id, own, observation.process)
            self._traces[observation.trace_id] = trace
            if len(self._traces) > self._max_traces:
                self._traces.popitem(last=False)
                self.counters.forgotten_traces += 1
        else:
            self._traces.move_to_end(observation.trace_id)
        return trace

    def _group_name(self, trace: Trace | None, observation: Observation) -> str:
        if trace is not None:
            trace.used = True
            return trace.group
        return f"s:{observation.session}" if observation.session else f"p:{observation.process}"

    def _group(self, name: str) -> Group:
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = Group(name)
            if len(self._groups) > MAX_GROUPS:
                gone, _ = self._groups.popitem(last=False)
                self._waiting_groups.pop(gone, None)
                self.counters.forgotten_groups += 1
        else:
            self._groups.move_to_end(name)
        return group

    def _regroup(self, trace: Trace, new: str, session: str) -> None:
        """A trace's session became known: its conversation is the session's."""
        old = trace.group
        if old == new:
            return
        if not old.startswith("t:"):
            trace.group = new
            return
        former = self._groups.pop(old, None)
        trace.group = new
        if former is not None:
            self._group(new).take(former)
            if self._waiting_groups.pop(old, 0) is None:
                self._waiting_groups[new] = None
            for number in (*former.calls, *former.models):
                entry = self._entries.get(number)
                if entry is not None:
                    entry.group = new
        if trace.fallback_used:
            trace.fallback_used = False
            self._events.append(SessionsMerged(trace.trace_id, session))

    def _process(self, name: str) -> Process:
        process = self._processes.get(name)
        if process is None:
            process = self._processes[name] = Process()
            if len(self._processes) > MAX_PROCESSES:
                self._processes.popitem(last=False)
        else:
            self._processes.move_to_end(name)
        return process

    def _new(self, observation: Observation, kind: Kind, group: Group, step_id: str) -> Entry:
        entry = Entry(
            self._next,
            kind,
            step_id,
            observation.trace_id,
            observation.span_id,
            observation.process,
            group.name,
            start_ns=observation.start_ns,
            end_ns=observation.end_ns,
        )
        self._next += 1
        self._entries[entry.number] = entry
        if len(self._entries) > self._max_entries:
            gone, _ = self._entries.popitem(last=False)
            self._touched.pop(gone, None)
            self.counters.forgotten_entries += 1
        return entry

    # -- tool calls --------------------------------------------------------------------------------

    def _tool(self, observation: Observation) -> None:
        tool = observation.tool
        if tool is None:
            return
        trace = self._traces.get(observation.trace_id) if observation.trace_id else None
        group = self._group(self._group_name(trace, observation))
        if not tool.executed:
            self._decided(observation, group)
            return
        entry = self._known_call(observation, trace, group)
        if entry is None:
            entry = self._new(observation, Kind.TOOL_CALL, group, step_identity(observation, tool.call_id))
            entry.only_part = observation.telling is Telling.PART
            group.calls.append(entry.number)
            self._process(observation.process).calls.append(entry.number)
        else:
            self.counters.joined += 1
            if not entry.parts:
                self._process(observation.process).calls.append(entry.number)
        self._into(entry, observation, trace)
        group.remember_id(tool.call_id, entry.number)
        if observation.telling is Telling.TOOL:
            group.saw_tools = True
            self._process(observation.process).tool_sources.add(observation.source)
            self._ask_of(entry, group, trace)

    def _into(self, entry: Entry, observation: Observation, trace: Trace | None) -> None:
        add_part(entry, observation)
        self._touched[entry.number] = None
        if entry.number in self._entries:
            self._entries.move_to_end(entry.number)
        if trace is None or observation.is_log:
            return
        node = trace.nodes.get(observation.span_id)
        if node is not None:
            node.entry = entry.number
        self._look_up(entry, trace, observation)

    def _look_up(self, entry: Entry, trace: Trace, observation: Observation) -> Climb:
        found = climb(trace, observation.parent_span_id)
        entry.agent = entry.agent or found.agent
        entry.parent_agent = entry.parent_agent or found.parent_agent
        if found.session:
            if entry.step is not None and entry.step.session_id not in (found.session, trace.trace_id):
                self._events.append(SessionsMerged(entry.step.session_id, found.session))
                entry.step = replace(entry.step, session_id=found.session)
            entry.above_session = found.session
        if found.missing:
            trace.orphans.setdefault(found.missing, []).append(entry.number)
        return found

    def _known_call(self, observation: Observation, trace: Trace | None, group: Group) -> Entry | None:
        tool = observation.tool
        if tool is None:
            return None
        if trace is not None and not observation.is_log:
            node = trace.nodes.get(observation.span_id)
            foretold = self._entries.get(node.entry) if node is not None else None
            if foretold is not None and foretold.kind is Kind.TOOL_CALL:
                return foretold
            number = nearest(trace, observation.parent_span_id, Telling.TOOL, _BETWEEN)
            entry = self._entries.get(number)
            if entry is not None and self._nested(entry, observation):
                return entry
        for each in self._near(group, observation.process) if tool.call_id else ():
            entry = self._entries.get(each.ids.get(tool.call_id, -1))
            if entry is not None and entry.kind is Kind.TOOL_CALL and self._same_id(entry, observation):
                return entry
        if not tool.name:
            return None
        return self._elsewhere(observation, group)

    def _nested(self, entry: Entry, observation: Observation) -> bool:
        tool = observation.tool
        if tool is None:
            return False
        if tool.call_id and tool.call_id == call_id_of(entry):
            return True
        return same_tool(tool_of(entry), tool.name) and same_arguments(arguments_known(entry), tool.arguments)

    def _same_id(self, entry: Entry, observation: Observation) -> bool:
        """One call id, one call; unless one reporter tells of it twice at different times."""
        tool = observation.tool
        if tool is None or not same_tool(tool_of(entry), tool.name):
            return False
        for part in entry.parts:
            if part.source == observation.source and part.telling is observation.telling:
                return overlap_ns(part, observation) > 0
        if entry.parts:
            return True
        if observation.start_ns + SLACK_MODEL_NS < entry.start_ns:
            return False
        return entry.ask is None or same_arguments(entry.ask.arguments, tool.arguments)

    def _elsewhere(self, observation: Observation, group: Group) -> Entry | None:
        """The same call as another instrumentation of the process told it, in whatever trace."""
        tool = observation.tool
        process = self._process(observation.process)
        sources = process.tool_sources
        crosses = len(sources) > 1 or (sources and observation.source not in sources)
        best: Entry | None = None
        if tool is None:
            return None
        for number in reversed(process.calls) if crosses else ():
            entry = self._entries.get(number)
            if entry is None or overlap_ns(entry, observation) < 0 or not self._could_be(entry, observation):
                continue
            if best is None or abs(entry.start_ns - observation.start_ns) < abs(
                best.start_ns - observation.start_ns
            ):
                best = entry
        if best is not None:
            return best
        return self._said_already(observation, group)

    def _could_be(self, entry: Entry, observation: Observation) -> bool:
        tool = observation.tool
        if tool is None or entry.kind is not Kind.TOOL_CALL or not entry.parts:
            return False
        if any(part.source == observation.source for part in entry.parts):
            return False
        mine, theirs = (
            tool.call_id,
            next((p.tool.call_id for p in entry.parts if p.tool and p.tool.call_id), ""),
        )
        if mine and theirs and mine != theirs and entry.parts[0].convention == observation.convention:
            return False
        if any(
            part.session
            and observation.session
            and part.session_rank == observation.session_rank
            and part.session != observation.session
            for part in entry.parts
        ):
            return False
        return same_tool(tool_of(entry), tool.name) and same_arguments(arguments_known(entry), tool.arguments)

    def _said_already(self, observation: Observation, group: Group) -> Entry | None:
        """A call that was derived from messages and whose own record comes only now."""
        tool = observation.tool
        if tool is None or tool.call_id:
            return None
        for number in group.calls:
            entry = self._entries.get(number)
            if (
                entry is not None
                and not entry.parts
                and entry.ask is not None
                and contains(entry, observation)
                and same_tool(entry.ask.name, tool.name)
                and same_arguments(entry.ask.arguments, tool.arguments)
            ):
                return entry
        return None

    def _ask_of(self, entry: Entry, group: Group, trace: Trace | None) -> None:
        """Find the part of a model message that asked for a call."""
        if entry.ask is not None:
            return
        call_id = call_id_of(entry)
        for each in self._near(group, entry.process):
            asked = matching(each.pending, entry, call_id) if each.pending else None
            if asked is not None:
                each.pending.remove(asked)
                self._give_ask(entry, asked, each)
                return

    def _near(self, group: Group, process: str) -> tuple[Group, ...]:
        """The conversation, and the one of the process's calls of which the trace says nothing."""
        lone = self._groups.get(f"p:{process}")
        return (group,) if lone is None or lone is group else (group, lone)

    def _give_ask(self, entry: Entry, asked: Asked, group: Group) -> None:
        entry.ask, entry.asked_by = asked.ask, asked.by
        entry.answer = entry.answer or asked.answer
        for call_id in (asked.ask.call_id, *asked.aliases):
            group.remember_id(call_id, entry.number)
        self._touched[entry.number] = None

    def _decided(self, observation: Observation, group: Group) -> None:
        tool = observation.tool
        if tool is None or (tool.call_id and tool.call_id in group.ids):
            return
        asked = Asked(
            Ask(tool.call_id, tool.name, tool.arguments),
            -1,
            0,
            observation.start_ns,
            0,
            observation.trace_id,
            observation.span_id,
            observation.convention,
            decided=True,
        )
        self._wait(asked, group)

    def _wait(self, asked: Asked, group: Group) -> None:
        group.pending.append(asked)
        self._waiting_groups[group.name] = None
        if len(group.pending) > MAX_PENDING:
            group.pending.pop(0)

    def _found_parent(self, trace: Trace, parent: Observation) -> None:
        """A parent that was missing has come: look again at what is below it."""
        for number in trace.orphans.pop(parent.span_id, ()):
            entry = self._entries.get(number)
            if entry is None or not entry.parts:
                continue
            part = entry.parts[0]
            before = (entry.agent, entry.parent_agent)
            self._look_up(entry, trace, part)
            if entry.step is not None and before != (entry.agent, entry.parent_agent):
                self._touched[entry.number] = None
            wanted = (
                Telling.TOOL
                if entry.kind is Kind.TOOL_CALL
                else Telling.MODEL
                if entry.kind is Kind.MODEL_CALL
                else None
            )
            if wanted is None:
                continue
            outer = self._entries.get(
                nearest(
                    trace,
                    part.parent_span_id,
                    wanted,
                    _BETWEEN if wanted is Telling.TOOL else (Telling.AGENT, Telling.TOOL),
                )
            )
            if outer is not None and outer is not entry:
                if wanted is Telling.MODEL or self._nested(outer, part):
                    self._absorb(outer, entry)
            elif outer is None and parent.telling is wanted:
                self._foretell(trace.nodes[parent.span_id], entry, parent)

    def _foretell(self, node: Node, entry: Entry, parent: Observation) -> None:
        """The parent itself will be joined in a moment: to this entry, if it tells of the same call."""
        if parent.telling is Telling.TOOL:
            if node.entry < 0 and self._nested(entry, parent):
                node.entry = entry.number
            return
        other = self._entries.get(node.entry)
        if other is None:
            node.entry = entry.number
        elif other is not entry and overlap_ns(other, entry) <= 0:
            node.telling = Telling.CONTEXT

    def _absorb(self, one: Entry, other: Entry) -> None:
        """Two entries turned out to be one; what was said stays the identity."""
        keep, gone = (other, one) if other.step is not None and one.step is None else (one, other)
        if gone.step is not None:
            self.counters.joined_too_late += 1
            return
        for part in gone.parts:
            trace = self._traces.get(part.trace_id)
            add_part(keep, part)
            if trace is not None and part.span_id in trace.nodes:
                trace.nodes[part.span_id].entry = keep.number
        if keep.ask is None and gone.ask is not None:
            keep.ask, keep.asked_by = gone.ask, gone.asked_by
        keep.answer = keep.answer or gone.answer
        self._entries.pop(gone.number, None)
        self._touched.pop(gone.number, None)
        self._touched[keep.number] = None
        self.counters.joined += 1

    # -- model calls -------------------------------------------------------------------------------

    def _model(self, observation: Observation) -> None:
        facts = observation.model
        if facts is None:
            return
        trace = self._traces.get(observation.trace_id) if observation.trace_id else None
        group = self._group(self._group_name(trace, observation))
        if (
            trace is not None
            and not observation.is_log
            and trace.nodes[observation.span_id].telling is Telling.CONTEXT
        ):
            return
        if observation.telling is Telling.PART and not observation.attached:
            self._fed_back(observation, facts, group)
            return
        entry = self._known_model(observation, trace)
        if entry is None:
            entry = self._new(
                observation, Kind.MODEL_CALL, group, step_identity(observation, facts.response_id)
            )
            entry.only_part = observation.telling is Telling.PART
            group.models.append(entry.number)
            self._process(observation.process).models.append(entry.number)
        else:
            self.counters.joined += 1
            group = self._groups.get(entry.group, group)
        self._process(observation.process).model_sources.add(observation.source)
        self._into(entry, observation, trace)
        if trace is not None and observation.attached:
            node = trace.nodes.get(observation.span_id)
            if node is None:
                node = trace.nodes[observation.span_id] = Node("", Telling.PART, "")
            if node.telling is Telling.AGENT:
                entry.only_part = False
            elif node.entry < 0:
                node.entry = entry.number
        self._fed_back(observation, facts, group, entry)
        self._asked(observation, facts, group, entry)
        self._turn(observation, facts, trace, group)

    def _known_model(self, observation: Observation, trace: Trace | None) -> Entry | None:
        if trace is not None:
            node = trace.nodes.get(observation.span_id)
            known = self._entries.get(node.entry) if node is not None else None
            if known is not None and known.kind is Kind.MODEL_CALL:
                return known
            if not observation.is_log:
                number = nearest(
                    trace, observation.parent_span_id, Telling.MODEL, (Telling.AGENT, Telling.TOOL)
                )
                outer = self._entries.get(number)
                if (
                    outer is not None
                    and outer.kind is Kind.MODEL_CALL
                    and not self._second_child(outer, observation)
                ):
                    return outer
        return self._model_elsewhere(observation)

    def _second_child(self, outer: Entry, observation: Observation) -> bool:
        """Whether the ancestor wraps several model calls, of which this is not the first."""
        inner = [
            part for part in outer.parts if part.span_id != outer.span_id or part.start_ns != outer.start_ns
        ]
        second = any(
            part.source == observation.source and overlap_ns(part, observation) <= 0 for part in inner
        )
        outer.wrapper = outer.wrapper or second
        return second

    def _model_elsewhere(self, observation: Observation) -> Entry | None:
        facts = observation.model
        process = self._process(observation.process)
        sources = process.model_sources
        if facts is None or not sources or (len(sources) == 1 and observation.source in sources):
            return None
        for number in reversed(process.models):
            entry = self._entries.get(number)
            if entry is None or any(part.source == observation.source for part in entry.parts):
                continue
            if overlap_ns(entry, observation) < -SLACK_MODEL_NS or not entry.parts:
                continue
            if same_model_call(entry, observation, facts):
                return entry
        return None

    def _fed_back(
        self, observation: Observation, facts: ModelFacts, group: Group, entry: Entry | None = None
    ) -> None:
        """What came before a model call: results of calls, and calls that only the history shows."""
        answered = {answer.call_id: answer for answer in facts.answers if answer.call_id}
        for ask in facts.told:
            self._told_by_history(observation, ask, group, answered)
        for answer in facts.answers:
            self._answered(answer, observation, group)
        if observation.telling is Telling.PART and entry is None:
            return
        shows_history = bool(facts.told or facts.answers or facts.user_text)
        for asked in group.pending:
            if (
                asked.due_ns
                or asked.by == (entry.number if entry else -1)
                or (shows_history and not asked.answer)
            ):
                continue
            if self._moved_on(asked, observation):
                asked.due_ns = self._now + (self._window.hold_ns or 0)
                asked.next_ns = observation.start_ns

    def _moved_on(self, asked: Asked, observation: Observation) -> bool:
        by = self._entries.get(asked.by)
        border = max(asked.from_ns, by.end_ns if by is not None else 0)
        return observation.start_ns >= border and observation.end_ns > asked.from_ns

    def _told_by_history(
        self, observation: Observation, ask: Ask, group: Group, answered: dict[str, Answer]
    ) -> None:
        if (
            not ask.call_id
            or is_handover(ask.name)
            or ask.call_id in group.ids
            or group.asked_for(ask.call_id) is not None
        ):
            return
        if ask.call_id not in answered:
            return
        for number in group.calls:
            entry = self._entries.get(number)
            if (
                entry is not None
                and entry.ask is None
                and entry.end_ns <= observation.start_ns + SLACK_MODEL_NS
                and call_id_of(entry) in ("", ask.call_id)
                and same_tool(tool_of(entry), ask.name)
                and same_arguments(arguments_known(entry), ask.arguments)
            ):
                entry.ask = ask
                group.remember_id(ask.call_id, number)
                self._touched[number] = None
                return
        asked = Asked(
            ask,
            -1,
            len(group.pending),
            observation.start_ns - 1,
            observation.start_ns,
            observation.trace_id,
            observation.span_id,
            observation.convention,
            answered[ask.call_id],
            self._now + (self._window.hold_ns or 0),
            observation.start_ns,
        )
        self._wait(asked, group)

    def _answered(self, answer: Answer, observation: Observation, group: Group) -> None:
        asked = (
            group.asked_for(answer.call_id, observation.start_ns)
            if answer.call_id
            else next(
                (
                    each
                    for each in group.pending
                    if each.answer is None and same_tool(each.ask.name, answer.name) and answer.name
                ),
                None,
            )
        )
        if asked is not None:
            asked.answer = asked.answer or answer
            return
        entry = self._entries.get(group.ids.get(answer.call_id, -1)) if answer.call_id else None
        if entry is not None and entry.answer is None and entry.start_ns <= observation.start_ns:
            entry.answer = answer
            self._touched[entry.number] = None

    def _asked(self, observation: Observation, facts: ModelFacts, group: Group, entry: Entry) -> None:
        if facts.asks and entry.asked_source and entry.asked_source != observation.source:
            for order, ask in enumerate(facts.asks):
                self._asked_again(ask, order, group, entry)
            return
        if facts.asks:
            entry.asked_source = observation.source
        for order, ask in enumerate(facts.asks):
            if is_handover(ask.name):
                continue
            known = group.asked_for(ask.call_id) if ask.call_id else None
            if known is None and not ask.call_id:
                known = next(
                    (each for each in group.pending if each.by == entry.number and each.order == order), None
                )
            if known is not None:
                if known.by < 0 or known.by == entry.number or self._overlap(known.by, entry):
                    if known.by < 0:
                        known.by, known.from_ns, known.until_ns = entry.number, observation.start_ns, 0
                        known.decided = False
                    if known.ask.arguments is None and ask.arguments is not None:
                        known.ask = ask
                    continue
            done = self._entries.get(group.ids.get(ask.call_id, -1)) if ask.call_id else None
            if done is not None and self._asked_before(done, entry, ask):
                continue
            asked = Asked(
                ask,
                entry.number,
                order,
                observation.start_ns,
                0,
                observation.trace_id,
                observation.span_id,
                observation.convention,
            )
            self._wait(asked, group)
            self._give_to_known(asked, group, entry)

    def _asked_again(self, ask: Ask, order: int, group: Group, entry: Entry) -> None:
        """Another instrumentation tells of the same message, perhaps with ids of its own."""
        for asked in group.pending:
            if asked.by == entry.number and asked.order == order and same_tool(asked.ask.name, ask.name):
                if ask.call_id not in (asked.ask.call_id, *asked.aliases):
                    asked.aliases = (*asked.aliases, ask.call_id)
                if asked.ask.arguments is None:
                    asked.ask = replace(asked.ask, arguments=ask.arguments)
                return
        for number in group.calls:
            call = self._entries.get(number)
            if (
                call is not None
                and call.asked_by == entry.number
                and same_tool(tool_of(call), ask.name)
                and same_arguments(arguments_known(call), ask.arguments)
            ):
                group.remember_id(ask.call_id, number)
                return

    def _overlap(self, number: int, entry: Entry) -> bool:
        other = self._entries.get(number)
        return other is None or overlap_ns(other, entry) >= 0

    def _asked_before(self, done: Entry, entry: Entry, ask: Ask) -> bool:
        """Whether a call of that id is the one now asked for (told again), or an older one with the same id."""
        if done.asked_by == entry.number or (done.asked_by >= 0 and self._overlap(done.asked_by, entry)):
            return True
        if done.ask is None and done.start_ns >= entry.start_ns:
            done.ask, done.asked_by = ask, entry.number
            self._touched[done.number] = None
            return True
        if done.ask is not None and done.asked_by < 0:
            done.asked_by = entry.number if done.start_ns >= entry.start_ns else -1
            return True
        return done.start_ns >= entry.start_ns and done.ask is not None

    def _give_to_known(self, asked: Asked, group: Group, entry: Entry) -> None:
        """A model call that came after the record of the call it asked for."""
        best: Entry | None = None
        for number in group.calls:
            call = self._entries.get(number)
            if call is None or call.ask is not None or not call.parts or call.start_ns < entry.start_ns:
                continue
            if best is not None and call.start_ns >= best.start_ns:
                continue
            if matching([asked], call, call_id_of(call)) is not None:
                best = call
        if best is not None and not self._model_between(group, entry, best):
            group.pending.remove(asked)
            self._give_ask(best, asked, group)

    def _model_between(self, group: Group, entry: Entry, call: Entry) -> bool:
        for number in group.models:
            model = self._entries.get(number)
            if (
                model is not None
                and model is not entry
                and entry.end_ns <= model.start_ns
                and model.end_ns <= call.start_ns
            ):
                return True
        return False

    def _turn(self, observation: Observation, facts: ModelFacts, trace: Trace | None, group: Group) -> None:
        """A user's text at the end of a model call's input is a turn when the conversation did not have it."""
        if not facts.user_text or observation.telling is not Telling.MODEL:
            return
        if trace is not None and climb(trace, observation.parent_span_id).in_tool:
            return
        self._user(observation, facts.user_text, f"{facts.user_position}:", group)

    def _user(self, observation: Observation, text: str, position: str, group: Group) -> None:
        digest = hashlib.blake2b(text.strip().encode(), digest_size=12).hexdigest()
        if not group.new_turn(position + digest):
            return
        entry = self._new(observation, Kind.USER_TURN, group, f"{step_identity(observation, digest)}:user")
        entry.parts = [
            replace(
                observation, telling=Telling.USER, model=None, text=text[:2000], end_ns=observation.start_ns
            )
        ]
        entry.end_ns = observation.start_ns
        self._touched[entry.number] = None

    # -- agents, user turns, compactions -----------------------------------------------------------

    def _other(self, observation: Observation) -> None:
        trace = self._traces.get(observation.trace_id) if observation.trace_id else None
        group = self._group(self._group_name(trace, observation))
        if observation.telling is Telling.USER:
            text = observation.text or ""
            known = text not in {"", "[REDACTED]", "<REDACTED>"}
            self._user(
                observation, text or "(not recorded)", "" if known else f"{observation.start_ns}:", group
            )
            return
        if observation.telling is Telling.AGENT:
            if observation.text:
                self._user(observation, observation.text, "", group)
            if observation.model is not None and observation.model.told:
                self._transcript(observation, observation.model, group)
            if not observation.name or (trace is not None and self._same_agent_above(trace, observation)):
                return
        entry = self._new(
            observation, _KINDS[observation.telling], group, step_identity(observation, observation.name)
        )
        self._into(entry, observation, trace)

    def _transcript(self, observation: Observation, facts: ModelFacts, group: Group) -> None:
        """An agent's span with the whole conversation, where no other span tells of the calls in it."""
        answers = {answer.call_id: answer for answer in facts.answers if answer.call_id}
        for order, ask in enumerate(facts.told):
            if is_handover(ask.name) or (
                ask.call_id and (ask.call_id in group.ids or group.asked_for(ask.call_id))
            ):
                continue
            self._wait(
                Asked(
                    ask,
                    -1,
                    order,
                    observation.start_ns,
                    observation.end_ns,
                    observation.trace_id,
                    observation.span_id,
                    observation.convention,
                    answers.get(ask.call_id),
                    self._now + (self._window.hold_ns or 0),
                    observation.end_ns,
                ),
                group,
            )

    def _same_agent_above(self, trace: Trace, observation: Observation) -> bool:
        above = climb(trace, observation.parent_span_id)
        return above.agent == observation.name and not above.in_tool

    # -- calls that only messages show -------------------------------------------------------------

    def _settle(self, now_ns: int | None) -> None:
        """Make steps of calls that no record told of, once the conversation has moved on. None: all is over."""
        for name in list(self._waiting_groups):
            group = self._groups.get(name)
            if group is None or not group.pending:
                self._waiting_groups.pop(name, None)
                continue
            due = [
                each for each in group.pending if now_ns is None or (each.due_ns and each.due_ns <= now_ns)
            ]
            if not due:
                continue
            gone = {id(each) for each in due}
            group.pending = [each for each in group.pending if id(each) not in gone]
            for asked in sorted(due, key=lambda each: (each.from_ns, each.order)):
                if asked.due_ns or not (group.saw_tools or asked.decided):
                    self._derive(asked, group)
            if not group.pending:
                self._waiting_groups.pop(name, None)

    def _derive(self, asked: Asked, group: Group) -> None:
        if asked.ask.call_id and asked.ask.call_id in group.ids:
            entry = self._entries.get(group.ids[asked.ask.call_id])
            if entry is not None and entry.asked_by in (asked.by, -1):
                entry.answer = entry.answer or asked.answer
                return
        by = self._entries.get(asked.by)
        process = (
            by.process
            if by is not None
            else self._traces[asked.trace_id].process
            if asked.trace_id in self._traces
            else ""
        )
        if asked.answer is not None and asked.answer.failed is None and self._process(process).hides_failures:
            asked.answer = replace(asked.answer, failed=True)
        trace = self._traces.get(asked.trace_id)
        start = by.end_ns if by is not None else asked.from_ns
        told = by.parts[0] if by is not None and by.parts else None
        entry = Entry(
            self._next,
            Kind.TOOL_CALL,
            "",
            asked.trace_id,
            asked.span_id,
            process,
            group.name,
            ask=asked.ask,
            asked_by=asked.by,
            answer=asked.answer,
            denied=asked.decided,
            start_ns=start,
            end_ns=max(asked.next_ns or start, start),
            agent=by.agent if by is not None else "",
            parent_agent=by.parent_agent if by is not None else "",
            convention=asked.convention,
        )
        identity = f"{asked.trace_id}{asked.span_id}" or group.name
        entry.step_id = f"{identity}:{asked.ask.call_id or asked.order}"
        entry.session = told.session if told is not None else ""
        if told is None and group.name.startswith("s:"):
            entry.session = group.name[2:]
        if trace is None and not entry.session:
            entry.session = f"process:{process}" if group.name.startswith("p:") else group.name[2:]
        self._next += 1
        self._entries[entry.number] = entry
        group.calls.append(entry.number)
        for call_id in (asked.ask.call_id, *asked.aliases):
            group.remember_id(call_id, entry.number)
        self._touched[entry.number] = None
        self.counters.derived += 1

    def _adopt_parts(self, entry: Entry) -> None:
        """Logs about a model call whose span never came are the model call."""
        if entry.kind is Kind.MODEL_CALL and any(
            part.model and part.model.usage.input_tokens for part in entry.parts
        ):
            entry.only_part = False
            self._touched[entry.number] = None

    # -- saying it ---------------------------------------------------------------------------------

    def _said(self) -> list[StepEvent]:
        events, self._events = self._events, []
        seen: list[StepSeen] = []
        amended: list[StepAmended] = []
        touched, self._touched = self._touched, {}
        ordered = sorted(
            (e for n in touched if (e := self._entries.get(n)) is not None),
            key=lambda e: (e.start_ns, e.number),
        )
        for entry in ordered:
            if entry.only_part or (entry.wrapper and entry.step is None):
                continue
            step = self._step(entry)
            if entry.step is None:
                entry.step = step
                seen.append(StepSeen(step))
            elif (
                step := replace(
                    step,
                    session_id=entry.step.session_id,
                    late=entry.step.late,
                    attempt_id=entry.step.attempt_id or step.attempt_id,
                    revision=entry.step.revision,
                )
            ) != entry.step:
                entry.step = replace(step, revision=entry.step.revision + 1)
                amended.append(StepAmended(entry.step))
        seen.sort(key=lambda event: (event.step.end_ns, event.step.start_ns, event.step.step_id))
        events.extend(self._lateness(seen))
        events.extend(amended)
        events.extend(self._run_ends())
        return events

    def _lateness(self, seen: list[StepSeen]) -> Iterable[StepEvent]:
        for event in seen:
            group = self._groups.get(f"s:{event.step.session_id}") or self._groups.get(
                f"t:{event.step.session_id}"
            )
            if group is None:
                yield event
            elif event.step.end_ns < group.last_end_ns and self._window.hold_ns is not None:
                yield StepSeen(replace(event.step, late=True))
            else:
                group.last_end_ns = event.step.end_ns
                yield event

    def _run_ends(self) -> Iterable[StepEvent]:
        ended, self._ended = self._ended, []
        for trace in ended:
            if not trace.lone and trace.is_run:
                yield RunEnded(trace.session or trace.trace_id, trace.trace_id, trace.root_ended_ns)

    def _step(self, entry: Entry) -> Step:
        trace = self._traces.get(entry.trace_id) if entry.trace_id else None
        best = entry.parts[0] if entry.parts else None
        session = self._session(entry, trace, best)
        agent = first_told([*(part.agent for part in entry.parts), entry.agent])
        step = Step(
            step_id=entry.step_id,
            kind=entry.kind,
            session_id=session,
            start_ns=entry.start_ns,
            end_ns=entry.end_ns,
            run_id=self._run(entry, trace, session),
            service=best.service if best else "",
            agent=agent,
            parent_agent=entry.parent_agent if entry.parent_agent != agent and entry.parent_agent else None,
            user=first_told([*(part.user for part in entry.parts), trace.user if trace else ""]),
            trace_id=best.trace_id if best else entry.trace_id,
            span_id=best.span_id if best else entry.span_id,
            parent_span_id=best.parent_span_id if best else "",
            convention=best.convention if best else entry.convention,
        )
        if entry.kind is Kind.TOOL_CALL:
            return self._tool_step(entry, step)
        if entry.kind is Kind.USER_TURN:
            return replace(step, text=best.text if best else None, outcome=Outcome.OK)
        return self._model_step(entry, step)

    def _session(self, entry: Entry, trace: Trace | None, best: Observation | None) -> str:
        if trace is not None and trace.session:
            own = next((p.session for p in entry.parts if p.session and p.session_rank == trace.rank), "")
            return entry.above_session or own or trace.session
        told = min((p for p in entry.parts if p.session), key=lambda p: p.session_rank, default=None)
        if told is not None:
            return told.session
        for part in entry.parts:
            other = self._traces.get(part.trace_id)
            if other is not None and other.session:
                return other.session
        if entry.session:
            return entry.session
        runs = [t for p in entry.parts if (t := self._traces.get(p.trace_id)) is not None and not t.lone]
        if trace is not None and not trace.lone:
            runs.insert(0, trace)
        if runs:
            runs[0].fallback_used = True
            return runs[0].trace_id
        return session_id(trace, best, entry.process)

    def _run(self, entry: Entry, trace: Trace | None, session: str) -> str:
        told = first_told(part.run for part in entry.parts)
        if trace is not None and trace.is_run and not trace.lone:
            return trace.trace_id
        return told or session

    def _tool_step(self, entry: Entry, step: Step) -> Step:
        outcome, error = outcome_of(entry)
        if not entry.attempt_id:
            entry.attempt_id = self._attempt(entry)
        return replace(
            step,
            tool=tool_of(entry),
            arguments=arguments_known(entry),
            result=result_text(entry),
            call_id=call_id_of(entry) or None,
            attempt_id=entry.attempt_id or None,
            outcome=outcome,
            error=error,
        )

    def _attempt(self, entry: Entry) -> str:
        """Calls of one model message are one attempt; without model calls, those that overlap are."""
        by = self._entries.get(entry.asked_by)
        if by is not None:
            return by.step_id
        group = self._groups.get(entry.group)
        if group is None:
            return ""
        latest: Entry | None = None
        for number in reversed(group.models):
            model = self._entries.get(number)
            if (
                model is not None
                and model.end_ns <= entry.start_ns + SLACK_MODEL_NS
                and (latest is None or model.end_ns > latest.end_ns)
            ):
                latest = model
        if latest is not None:
            return latest.step_id
        for number in reversed(group.calls):
            call = self._entries.get(number)
            if call is not None and call is not entry and call.attempt_id and overlap_ns(call, entry) > 0:
                return call.attempt_id
        return entry.step_id

    def _model_step(self, entry: Entry, step: Step) -> Step:
        facts = [part.model for part in entry.parts if part.model is not None]
        failed = any(each.failed for each in facts)
        return replace(
            step,
            outcome=Outcome.ERROR if failed else Outcome.OK,
            error=first_told(each.error for each in facts) if failed else None,
            model=first_told(each.model for each in facts),
            provider=first_told(each.provider for each in facts),
            usage=innermost_usage(entry.parts),
            cost_usd=next((each.cost_usd for each in facts if each.cost_usd is not None), None),
            offered_tools=next((each.offered_tools for each in facts if each.offered_tools), ()),
            finish_reason="tool_calls"
            if any(each.asks for each in facts)
            else first_told(each.finish_reason for each in facts),
            text=first_told(each.text for each in facts),
        )


def is_handover(tool: str) -> bool:
    """Whether a tool that only a message shows is control flow: a hand-off to another agent, a final answer."""
    return generic.is_control(tool) or tool.startswith(HANDOFF)


def step_identity(observation: Observation, call_id: str) -> str:
    """A step's identity by the record that told of it first: span, else session and call, else the record."""
    if not observation.is_log and observation.trace_id:
        return observation.trace_id + observation.span_id
    if call_id and observation.session:
        return f"{observation.session}:{call_id}"
    return f"{observation.identity:016x}"


def same_model_call(entry: Entry, observation: Observation, facts: ModelFacts) -> bool:
    """Whether two instrumentations told of one model call: one response, or the same tokens at the same time."""
    for part in entry.parts:
        told = part.model
        if told is None:
            continue
        if told.response_id and told.response_id == facts.response_id:
            return True
        if not (contains(entry, observation) or contains(observation, entry)):
            continue
        mine, theirs = facts.usage, told.usage
        if mine.output_tokens is None or theirs.output_tokens is None:
            return part.session == observation.session and bool(part.session)
        if (mine.input_tokens, mine.output_tokens) == (theirs.input_tokens, theirs.output_tokens):
            return True
    return False


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
    Usage,
)
