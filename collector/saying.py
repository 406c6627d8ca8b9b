"""What is said of entries: each step once, then amendments; sessions that merged, runs that ended."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from operator import attrgetter
from typing import TypedDict

from collector.conventions.observation import Observation, OwnFacts
from collector.joining import (
    SLACK_NS,
    Entry,
    arguments_known,
    call_id_of,
    evaluations_of,
    first_told,
    innermost_usage,
    outcome_of,
    overlap_ns,
    result_text,
    tool_of,
)
from collector.messages import Group
from collector.sessions import Trace, session_id
from collector.state import State
from collector.step import (
    Evaluation,
    Kind,
    Outcome,
    RunEnded,
    Step,
    StepAmended,
    StepEvent,
    StepSeen,
)


class Fields(TypedDict):
    """The fields of a step that are read alike for every kind."""

    step_id: str
    kind: Kind
    session_id: str
    start_ns: int
    end_ns: int
    run_id: str
    service: str
    agent: str | None
    parent_agent: str | None
    user: str | None
    trace_id: str
    span_id: str
    parent_span_id: str
    convention: str
    late: bool
    engine_seq: int
    service_version: str
    target: str | None
    expected_tool: str | None
    task_id: str | None
    task_success: bool | None
    evaluations: tuple[Evaluation, ...]


class Saying:
    """Turns entries of which something is new into events."""

    def __init__(self, state: State) -> None:
        self._state = state

    def said(self) -> list[StepEvent]:
        """Return what is new: merged sessions, steps by their end, amendments, ends of runs."""
        events, self._state.events = self._state.events, []
        touched, self._state.touched = self._state.touched, {}
        entries = [entry for number in touched if (entry := self._state.entries.get(number)) is not None]
        new: list[Entry] = []
        amended: list[StepAmended] = []
        entries.sort(key=attrgetter("start_ns", "number"))
        for entry in entries:
            self._state.weigh(entry)
            if entry.only_part or (entry.wrapper and entry.step is None):
                continue
            if entry.kind is Kind.TOOL_CALL and not entry.attempt_id:
                entry.attempt_id = self._attempt(entry)
            if entry.step is None:
                new.append(entry)
                continue
            step = _as_said_before(self._step(entry), entry.step)
            if step != entry.step:
                entry.step = replace(step, revision=step.revision + 1)
                amended.append(StepAmended(entry.step))
        events.extend(self._first_said(new))
        events.extend(amended)
        events.extend(self._run_ends())
        self._state.trim()
        return events

    def _first_said(self, entries: list[Entry]) -> Iterable[StepSeen]:
        """New steps in the order of their end; one that ended before what its session has said is late."""
        entries.sort(key=attrgetter("end_ns", "start_ns", "step_id"))
        for entry in entries:
            entry.step = self._step(entry)
            yield StepSeen(entry.step)

    def _is_late(self, session: str, end_ns: int) -> bool:
        group = self._group_of(session)
        if group is None:
            return False
        if end_ns < group.last_end_ns and self._state.live:
            return True
        group.last_end_ns = end_ns
        self._state.changed.add(f"g{group.name}")
        return False

    def _group_of(self, session: str) -> Group | None:
        groups = self._state.groups
        if session.startswith("process:"):
            return groups.get(f"p:{session.removeprefix('process:')}")
        return groups.get(f"s:{session}") or groups.get(f"t:{session}")

    def _run_ends(self) -> Iterable[StepEvent]:
        ended, self._state.ended = self._state.ended, []
        for trace in ended:
            if not trace.lone and trace.is_run:
                yield RunEnded(trace.session or trace.trace_id, trace.trace_id, trace.root_ended_ns)

    def _step(self, entry: Entry) -> Step:
        trace = self._state.traces.get(entry.trace_id) if entry.trace_id else None
        best = entry.parts[0] if entry.parts else None
        session = self._session(entry, trace, best)
        agent = first_told([part.agent for part in entry.parts]) or entry.agent or None
        late, number = False, 0
        if entry.step is None:
            late = self._is_late(session, entry.end_ns)
            number = self._state.said = self._state.said + 1
        fields: Fields = {
            "step_id": entry.step_id,
            "kind": entry.kind,
            "session_id": session,
            "start_ns": entry.start_ns,
            "end_ns": entry.end_ns,
            "run_id": self._run(entry, trace, session),
            "service": best.service if best else "",
            "agent": agent,
            "parent_agent": entry.parent_agent
            if entry.parent_agent != agent and entry.parent_agent
            else None,
            "user": first_told([part.user for part in entry.parts])
            or (trace.user if trace else None)
            or None,
            "trace_id": best.trace_id if best else entry.trace_id,
            "span_id": best.span_id if best else entry.span_id,
            "parent_span_id": best.parent_span_id if best else "",
            "convention": best.convention if best else entry.convention,
            "late": late,
            "engine_seq": number,
            "service_version": best.version if best else "",
            "target": None
            if entry.kind is Kind.USER_TURN
            else first_told([part.target for part in entry.parts]),
            "expected_tool": None,
            "task_id": (trace.task_id or None) if trace is not None else None,
            "task_success": None,
            "evaluations": evaluations_of(entry),
        }
        own = [part.own for part in entry.parts if part.own is not None]
        if own or (trace is not None and trace.task_success is not None):
            _say_own(fields, own, entry, trace)
        if entry.kind is Kind.TOOL_CALL:
            return self._tool_step(entry, fields)
        if entry.kind is Kind.USER_TURN:
            return Step(**fields, text=best.text if best else None, outcome=Outcome.OK)
        return self._model_step(entry, fields)

    def _session(self, entry: Entry, trace: Trace | None, best: Observation | None) -> str:
        if trace is not None and trace.session:
            own = first_told([p.session for p in entry.parts if p.session_rank == trace.rank])
            return entry.above_session or own or trace.session
        told = min((p for p in entry.parts if p.session), key=lambda p: p.session_rank, default=None)
        if told is not None:
            return told.session
        for part in entry.parts:
            other = self._state.traces.get(part.trace_id)
            if other is not None and other.session:
                return other.session
        if entry.session:
            return entry.session
        runs = [
            t for p in entry.parts if (t := self._state.traces.get(p.trace_id)) is not None and not t.lone
        ]
        if trace is not None and not trace.lone:
            runs.insert(0, trace)
        if runs:
            runs[0].fallback_used = True
            self._state.changed.add(f"t{runs[0].trace_id}")
            return runs[0].trace_id
        return session_id(trace, best, entry.process)

    def _run(self, entry: Entry, trace: Trace | None, session: str) -> str:
        if trace is not None and trace.is_run and not trace.lone:
            return trace.trace_id
        return first_told([part.run for part in entry.parts]) or session

    def _tool_step(self, entry: Entry, fields: Fields) -> Step:
        outcome, error = outcome_of(entry)
        return Step(
            **fields,
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
        by = self._state.entries.get(entry.asked_by)
        if by is not None:
            return by.step_id
        group = self._state.groups.get(entry.group)
        if group is None:
            return ""
        known, latest = self._state.entries, None
        for number in reversed(group.models):
            model = known.get(number)
            if (
                model is not None
                and model.end_ns <= entry.start_ns + SLACK_NS
                and (latest is None or model.end_ns > latest.end_ns)
            ):
                latest = model
        if latest is not None:
            return latest.step_id
        start_ns = entry.start_ns
        for number in reversed(group.calls):
            call = known.get(number)
            if call is None or call is entry:
                continue
            if call.attempt_id and call.end_ns > start_ns and overlap_ns(call, entry) > 0:
                return call.attempt_id
            if call.earlier_ns <= start_ns and group.stretched_ns <= start_ns:
                break  # all before it had ended
        return entry.step_id

    def _model_step(self, entry: Entry, fields: Fields) -> Step:
        facts = [part.model for part in entry.parts if part.model is not None]
        failed = any(each.failed for each in facts)
        return Step(
            **fields,
            outcome=Outcome.ERROR if failed else Outcome.OK,
            error=first_told(each.error for each in facts) if failed else None,
            model=first_told(each.model for each in facts),
            provider=first_told(each.provider for each in facts),
            usage=innermost_usage(entry.parts),
            cost_usd=next((each.cost_usd for each in facts if each.cost_usd is not None), None),
            offered_tools=next((each.offered_tools for each in facts if each.offered_tools), ()),
            definitions=next((each.definitions for each in facts if each.definitions), None),
            finish_reason="tool_calls"
            if any(each.asks for each in facts)
            else first_told(each.finish_reason for each in facts),
            text=first_told(each.text for each in facts),
        )


def _say_own(fields: Fields, own: list[OwnFacts], entry: Entry, trace: Trace | None) -> None:
    """What our own attributes say. An outermost agent's task may have ended by what another span says."""
    fields["expected_tool"] = first_told(each.expected_tool for each in own)
    fields["task_id"] = first_told(each.task_id for each in own) or fields["task_id"]
    told = next((each.task_success for each in own if each.task_success is not None), None)
    outermost = entry.kind is Kind.AGENT_RUN and entry.agent in ("", fields["agent"])
    if told is None and trace is not None and outermost:
        told = trace.task_success
    fields["task_success"] = told


def _as_said_before(step: Step, before: Step) -> Step:
    """A step as it is known now, but with what never changes once it was said."""
    return replace(
        step,
        session_id=before.session_id,
        late=before.late,
        engine_seq=before.engine_seq,
        attempt_id=before.attempt_id or step.attempt_id,
        revision=before.revision,
    )
