"""Tool calls: which records tell of one and the same, and which part of a model message asked for it."""

from __future__ import annotations

from typing import Final

from collector.conventions.observation import Ask, Observation, Telling
from collector.joining import (
    SLACK_NS,
    Entry,
    arguments_known,
    call_id_of,
    contains,
    overlap_ns,
    same_arguments,
    same_tool,
    step_identity,
    tool_of,
)
from collector.messages import Asked, Group, matching
from collector.sessions import Node, Trace, nearest
from collector.state import Process, State
from collector.step import (
    Kind,
)

BETWEEN: Final = (Telling.AGENT, Telling.MODEL, Telling.COMPACTION)


class Calls:
    """Joins records of tool calls to entries."""

    def __init__(self, state: State) -> None:
        self._state = state

    def tool(self, observation: Observation) -> None:
        """Take a record of a tool call, or of a part of one."""
        tool = observation.tool
        if tool is None:
            return
        trace = self._state.traces.get(observation.trace_id) if observation.trace_id else None
        group = self._state.group(self._state.group_name(trace, observation))
        if not tool.executed:
            self._decided(observation, group)
            return
        process = self._state.process(observation.process)
        entry = self._known_call(observation, trace, group, process)
        if entry is None:
            entry = self._state.new(
                observation, Kind.TOOL_CALL, group, step_identity(observation, tool.call_id)
            )
            entry.only_part = observation.telling is Telling.PART
            group.add_call(entry)
            process.calls.append(entry.number)
        else:
            self._state.counters.joined += 1
            if not entry.parts:
                process.calls.append(entry.number)
        self._state.into(entry, observation, trace)
        group.remember_id(tool.call_id, entry)
        if observation.telling is Telling.TOOL:
            group.saw_tools = True
            process.tool_sources.add(observation.source)
            self._ask_of(entry, group)

    def _known_call(
        self, observation: Observation, trace: Trace | None, group: Group, process: Process
    ) -> Entry | None:
        tool = observation.tool
        if tool is None:
            return None
        if trace is not None and not observation.is_log:
            node = trace.nodes.get(observation.span_id)
            foretold = self._state.entries.get(node.entry) if node is not None else None
            if foretold is not None and foretold.kind is Kind.TOOL_CALL:
                return foretold
            number = nearest(trace, observation.parent_span_id, Telling.TOOL, BETWEEN)
            entry = self._state.entries.get(number)
            if entry is not None and self._nested(entry, observation):
                return entry
        for each in self._state.near(group, observation.process) if tool.call_id else ():
            entry = self._state.entries.get(each.ids.get(tool.call_id, -1))
            if entry is not None and entry.kind is Kind.TOOL_CALL and self._same_id(entry, observation):
                return entry
        if not tool.name:
            return None
        return self._elsewhere(observation, group, process)

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
        if observation.start_ns + SLACK_NS < entry.start_ns:
            return False
        return entry.ask is None or same_arguments(entry.ask.arguments, tool.arguments)

    def _elsewhere(self, observation: Observation, group: Group, process: Process) -> Entry | None:
        """The same call as another instrumentation of the process told it, in whatever trace."""
        tool = observation.tool
        sources = process.tool_sources
        crosses = len(sources) > 1 or (sources and observation.source not in sources)
        best: Entry | None = None
        if tool is None:
            return None
        for number in reversed(process.calls) if crosses else ():
            entry = self._state.entries.get(number)
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
            entry = self._state.entries.get(number)
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

    def _ask_of(self, entry: Entry, group: Group) -> None:
        """Find the part of a model message that asked for a call."""
        if entry.ask is not None:
            return
        call_id = call_id_of(entry)
        for each in self._state.near(group, entry.process):
            asked = matching(each.pending, entry, call_id) if each.pending else None
            if asked is not None:
                each.pending.remove(asked)
                self._state.changed.add(f"g{each.name}")
                self.give_ask(entry, asked, each)
                return

    def give_ask(self, entry: Entry, asked: Asked, group: Group) -> None:
        """Tie a call to the part of a model message that asked for it."""
        entry.ask, entry.asked_by = asked.ask, asked.by
        entry.answer = entry.answer or asked.answer
        own = self._state.groups.get(entry.group, group)
        for call_id in (asked.ask.call_id, *asked.aliases):
            group.remember_id(call_id, entry)
            own.remember_id(call_id, entry)
        self._state.changed.add(f"g{own.name}")
        self._state.touch(entry)

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
        self._state.wait(asked, group)

    def found_parent(self, trace: Trace, parent: Observation) -> None:
        """A parent that was missing has come: look again at what is below it."""
        for number in trace.orphans.pop(parent.span_id, ()):
            entry = self._state.entries.get(number)
            if entry is None or not entry.parts:
                continue
            part = entry.parts[0]
            before = (entry.agent, entry.parent_agent)
            self._state.look_up(entry, trace, part)
            if entry.step is not None and before != (entry.agent, entry.parent_agent):
                self._state.touch(entry)
            wanted = (
                Telling.TOOL
                if entry.kind is Kind.TOOL_CALL
                else Telling.MODEL
                if entry.kind is Kind.MODEL_CALL
                else None
            )
            if wanted is None:
                continue
            outer = self._state.entries.get(
                nearest(
                    trace,
                    part.parent_span_id,
                    wanted,
                    BETWEEN if wanted is Telling.TOOL else (Telling.AGENT, Telling.TOOL),
                )
            )
            if outer is not None and outer is not entry:
                if wanted is Telling.MODEL or self._nested(outer, part):
                    self._absorb(outer, entry)
            elif outer is None and parent.telling is wanted and parent.span_id in trace.nodes:
                self._foretell(trace.nodes[parent.span_id], entry, parent)

    def _foretell(self, node: Node, entry: Entry, parent: Observation) -> None:
        """The parent itself will be joined in a moment: to this entry, if it tells of the same call."""
        if parent.telling is Telling.TOOL:
            if node.entry < 0 and self._nested(entry, parent):
                node.entry = entry.number
            return
        other = self._state.entries.get(node.entry)
        if other is None:
            node.entry = entry.number
        elif other is not entry and overlap_ns(other, entry) <= 0:
            node.telling = Telling.CONTEXT

    def _absorb(self, one: Entry, other: Entry) -> None:
        """Two entries turned out to be one; what was said stays the identity."""
        keep, gone = (other, one) if other.step is not None and one.step is None else (one, other)
        if gone.step is not None:
            self._state.counters.joined_too_late += 1
            return
        for part in gone.parts:
            trace = self._state.traces.get(part.trace_id)
            self._state.add_part(keep, part)
            if trace is not None and part.span_id in trace.nodes:
                trace.nodes[part.span_id].entry = keep.number
                self._state.changed.add(f"t{trace.trace_id}")
        if keep.ask is None and gone.ask is not None:
            keep.ask, keep.asked_by = gone.ask, gone.asked_by
        keep.answer = keep.answer or gone.answer
        group = self._state.groups.get(keep.group)
        if group is not None:
            for call_id in gone.ids:
                group.remember_id(call_id, keep)
        self._state.drop(gone)
        self._state.touch(keep)
        self._state.counters.joined += 1
