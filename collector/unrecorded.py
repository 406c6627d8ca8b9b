"""Calls that no record tells of: derived from messages once the conversation has moved on."""

from __future__ import annotations

from dataclasses import replace
from heapq import heappop

from collector.joining import (
    Entry,
)
from collector.messages import Asked, Group
from collector.state import State
from collector.step import (
    Kind,
)


class Unrecorded:
    """Makes entries of calls that only messages show."""

    def __init__(self, state: State) -> None:
        self._state = state

    def settle(self, now_ns: int | None) -> None:
        """Make steps of calls that no record told of, once the conversation moved on. None: all is over."""
        for name in list(self._state.groups) if now_ns is None else self._due_groups(now_ns):
            group = self._state.groups.get(name)
            if group is None:
                continue
            due = [
                each for each in group.pending if now_ns is None or (each.due_ns and each.due_ns <= now_ns)
            ]
            if not due:
                continue
            self._state.changed.add(f"g{name}")
            gone = {id(each) for each in due}
            group.pending = [each for each in group.pending if id(each) not in gone]
            for asked in sorted(due, key=lambda each: (each.from_ns, each.order)):
                if asked.due_ns or not (group.saw_tools or asked.decided):
                    self._derive(asked, group)

    def _due_groups(self, now_ns: int) -> list[str]:
        dues, names = self._state.dues, []
        while dues and dues[0][0] <= now_ns:
            names.append(heappop(dues)[1])
        return names

    def _derive(self, asked: Asked, group: Group) -> None:
        if asked.ask.call_id and asked.ask.call_id in group.ids:
            entry = self._state.entries.get(group.ids[asked.ask.call_id])
            if entry is not None and entry.asked_by in (asked.by, -1):
                entry.answer = entry.answer or asked.answer
                self._state.touch(entry)
                return
        by = self._state.entries.get(asked.by)
        process = (
            by.process
            if by is not None
            else self._state.traces[asked.trace_id].process
            if asked.trace_id in self._state.traces
            else ""
        )
        if (
            asked.answer is not None
            and asked.answer.failed is None
            and self._state.process(process).hides_failures
        ):
            asked.answer = replace(asked.answer, failed=True)
        trace = self._state.traces.get(asked.trace_id)
        start = by.end_ns if by is not None else asked.from_ns
        told = by.parts[0] if by is not None and by.parts else None
        entry = Entry(
            self._state.next_number,
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
        self._state.next_number += 1
        self._state.entries[entry.number] = entry
        group.add_call(entry)
        for call_id in (asked.ask.call_id, *asked.aliases):
            group.remember_id(call_id, entry)
        self._state.touch(entry)
        self._state.counters.derived += 1

    def adopt_parts(self, entry: Entry) -> None:
        """Logs about a model call whose span never came are the model call."""
        if entry.kind is Kind.MODEL_CALL and any(
            part.model and part.model.usage.input_tokens for part in entry.parts
        ):
            entry.only_part = False
            self._state.touch(entry)
