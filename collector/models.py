"""Model calls, agents and user turns: joined to entries, and what messages tell of tool calls."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from heapq import heappush
from typing import Final

from collector.calls import Calls
from collector.conventions.observation import Answer, Ask, ModelFacts, Observation, Telling
from collector.joining import (
    SLACK_NS,
    Entry,
    arguments_known,
    call_id_of,
    is_handover,
    overlap_ns,
    same_arguments,
    same_model_call,
    same_tool,
    step_identity,
    tool_of,
)
from collector.messages import Asked, Group, Turn, matching
from collector.sessions import Node, Trace, climb, nearest
from collector.state import BLOCK, State
from collector.step import (
    Kind,
)

KINDS: Final = {
    Telling.TOOL: Kind.TOOL_CALL,
    Telling.MODEL: Kind.MODEL_CALL,
    Telling.AGENT: Kind.AGENT_RUN,
    Telling.USER: Kind.USER_TURN,
    Telling.COMPACTION: Kind.COMPACTION,
}


class Models:
    """Joins records of everything but tool calls to entries."""

    def __init__(self, state: State, calls: Calls) -> None:
        self._state = state
        self._calls = calls

    def model(self, observation: Observation) -> None:
        """Take a record of a model call, or messages of one."""
        facts = observation.model
        if facts is None:
            return
        trace = self._state.traces.get(observation.trace_id) if observation.trace_id else None
        group = self._state.group(self._state.group_name(trace, observation))
        if trace is not None and not observation.is_log:
            # A trace of very many spans may have forgotten this one already.
            placed = trace.nodes.get(observation.span_id)
            if placed is not None and placed.telling is Telling.CONTEXT:
                return
        if observation.telling is Telling.PART and not observation.attached:
            self._fed_back(observation, facts, group)
            return
        entry = self._known_model(observation, trace)
        if entry is None:
            entry = self._state.new(
                observation, Kind.MODEL_CALL, group, step_identity(observation, facts.response_id)
            )
            entry.only_part = observation.telling is Telling.PART
            group.models.append(entry.number)
            self._state.process(observation.process).models.append(entry.number)
        else:
            self._state.counters.joined += 1
            group = self._state.group(entry.group)
        self._state.process(observation.process).model_sources.add(observation.source)
        self._state.into(entry, _without_history(observation, facts), trace)
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
            known = self._state.entries.get(node.entry) if node is not None else None
            if known is not None and known.kind is Kind.MODEL_CALL:
                return known
            if not observation.is_log:
                number = nearest(
                    trace, observation.parent_span_id, Telling.MODEL, (Telling.AGENT, Telling.TOOL)
                )
                outer = self._state.entries.get(number)
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
        self._state.changed.add(outer.number // BLOCK)
        return second

    def _model_elsewhere(self, observation: Observation) -> Entry | None:
        facts = observation.model
        process = self._state.process(observation.process)
        sources = process.model_sources
        if facts is None or not sources or (len(sources) == 1 and observation.source in sources):
            return None
        for number in reversed(process.models):
            entry = self._state.entries.get(number)
            if entry is None or any(part.source == observation.source for part in entry.parts):
                continue
            if overlap_ns(entry, observation) < -SLACK_NS or not entry.parts:
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
        # Never 0, which says that the conversation has not moved on: recorded traces have no clock.
        due_ns = max(1, self._state.now_ns + self._state.hold_ns)
        moved = False
        for asked in group.pending:
            if (
                asked.due_ns
                or asked.by == (entry.number if entry else -1)
                or (shows_history and not asked.answer)
            ):
                continue
            if self._moved_on(asked, observation):
                asked.due_ns, asked.next_ns = due_ns, observation.start_ns
                moved = True
        if moved and due_ns:
            heappush(self._state.dues, (due_ns, group.name))

    def _moved_on(self, asked: Asked, observation: Observation) -> bool:
        by = self._state.entries.get(asked.by)
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
            entry = self._state.entries.get(number)
            if (
                entry is not None
                and entry.ask is None
                and entry.end_ns <= observation.start_ns + SLACK_NS
                and call_id_of(entry) in ("", ask.call_id)
                and same_tool(tool_of(entry), ask.name)
                and same_arguments(arguments_known(entry), ask.arguments)
            ):
                entry.ask = ask
                group.remember_id(ask.call_id, entry)
                self._state.touch(entry)
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
            self._state.now_ns + self._state.hold_ns,
            observation.start_ns,
        )
        self._state.wait(asked, group)

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
        entry = self._state.entries.get(group.ids.get(answer.call_id, -1)) if answer.call_id else None
        if entry is not None and entry.answer is None and entry.start_ns <= observation.start_ns:
            entry.answer = answer
            self._state.touch(entry)

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
            if self._waits_already(ask, order, observation, group, entry):
                continue
            done = self._state.entries.get(group.ids.get(ask.call_id, -1)) if ask.call_id else None
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
            self._state.wait(asked, group)
            self._give_to_known(asked, group, entry)

    def _waits_already(
        self, ask: Ask, order: int, observation: Observation, group: Group, entry: Entry
    ) -> bool:
        """Whether the call is waiting already; what another record of the same message adds is taken over."""
        known = group.asked_for(ask.call_id) if ask.call_id else None
        if not ask.call_id:
            known = next(
                (each for each in group.pending if each.by == entry.number and each.order == order), None
            )
        if known is None or not (known.by < 0 or known.by == entry.number or self._overlap(known.by, entry)):
            return False
        if known.by < 0:
            known.by, known.from_ns, known.until_ns = entry.number, observation.start_ns, 0
            known.decided = False
        if known.ask.arguments is None and ask.arguments is not None:
            known.ask = ask
        return True

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
            call = self._state.entries.get(number)
            if (
                call is not None
                and call.asked_by == entry.number
                and same_tool(tool_of(call), ask.name)
                and same_arguments(arguments_known(call), ask.arguments)
            ):
                group.remember_id(ask.call_id, call)
                self._state.changed.add(number // BLOCK)
                return

    def _overlap(self, number: int, entry: Entry) -> bool:
        other = self._state.entries.get(number)
        return other is None or overlap_ns(other, entry) >= 0

    def _asked_before(self, done: Entry, entry: Entry, ask: Ask) -> bool:
        """Whether a call of that id is the one now asked for, told again; else it is an older one."""
        if done.asked_by == entry.number or (done.asked_by >= 0 and self._overlap(done.asked_by, entry)):
            return True
        if done.ask is None and done.start_ns >= entry.start_ns:
            done.ask, done.asked_by = ask, entry.number
            self._state.touch(done)
            return True
        if done.ask is not None and done.asked_by < 0:
            done.asked_by = entry.number if done.start_ns >= entry.start_ns else -1
            self._state.changed.add(done.number // BLOCK)
            return True
        return done.start_ns >= entry.start_ns and done.ask is not None

    def _give_to_known(self, asked: Asked, group: Group, entry: Entry) -> None:
        """A model call that came after the record of the call it asked for."""
        best: Entry | None = None
        for number in group.calls:
            call = self._state.entries.get(number)
            if call is None or call.ask is not None or not call.parts or call.start_ns < entry.start_ns:
                continue
            if best is not None and call.start_ns >= best.start_ns:
                continue
            if matching([asked], call, call_id_of(call)) is not None:
                best = call
        if best is not None and not self._model_between(group, entry, best):
            group.pending.remove(asked)
            self._calls.give_ask(best, asked, group)

    def _model_between(self, group: Group, entry: Entry, call: Entry) -> bool:
        for number in group.models:
            model = self._state.entries.get(number)
            if (
                model is not None
                and model is not entry
                and entry.end_ns <= model.start_ns
                and model.end_ns <= call.start_ns
            ):
                return True
        return False

    def _turn(self, observation: Observation, facts: ModelFacts, trace: Trace | None, group: Group) -> None:
        """A user's text at the end of a model call's input is a turn if the conversation did not have it."""
        if not facts.user_text or observation.telling is not Telling.MODEL:
            return
        if trace is not None and climb(trace, observation.parent_span_id).in_tool:
            return
        self._user(observation, facts.user_text, facts.user_position, group)

    def _user(self, observation: Observation, text: str, position: int, group: Group) -> None:
        digest = hashlib.blake2b(text.strip().encode(), digest_size=12).hexdigest()
        trace = self._state.traces.get(observation.trace_id)
        turn = Turn(observation.trace_id, position, observation.start_ns, observation.end_ns)
        if not group.new_turn(digest, turn, lone=trace is not None and trace.lone):
            return
        entry = self._state.new(
            observation, Kind.USER_TURN, group, f"{step_identity(observation, digest)}:user"
        )
        entry.parts = [
            replace(
                observation, telling=Telling.USER, model=None, text=text[:2000], end_ns=observation.start_ns
            )
        ]
        entry.end_ns = observation.start_ns
        self._state.touch(entry)

    def other(self, observation: Observation) -> None:
        """Take a record of an agent, a user turn or a compaction."""
        trace = self._state.traces.get(observation.trace_id) if observation.trace_id else None
        group = self._state.group(self._state.group_name(trace, observation))
        if observation.telling is Telling.USER:
            self._user(observation, observation.text or "(not recorded)", -1, group)
            return
        if observation.telling is Telling.AGENT:
            if observation.text:
                self._user(observation, observation.text, -1, group)
            if observation.model is not None and observation.model.told:
                self._transcript(observation, observation.model, group)
            if not observation.name or (trace is not None and self._same_agent_above(trace, observation)):
                return
        entry = self._state.new(
            observation, KINDS[observation.telling], group, step_identity(observation, observation.name)
        )
        self._state.into(entry, observation, trace)

    def _same_agent_above(self, trace: Trace, observation: Observation) -> bool:
        above = climb(trace, observation.parent_span_id)
        return above.agent == observation.name and not above.in_tool

    def _transcript(self, observation: Observation, facts: ModelFacts, group: Group) -> None:
        """An agent's span with the whole conversation, where no other span tells of the calls in it."""
        answers = {answer.call_id: answer for answer in facts.answers if answer.call_id}
        for order, ask in enumerate(facts.told):
            if is_handover(ask.name) or (
                ask.call_id and (ask.call_id in group.ids or group.asked_for(ask.call_id))
            ):
                continue
            self._state.wait(
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
                    self._state.now_ns + self._state.hold_ns,
                    observation.end_ns,
                ),
                group,
            )


def _without_history(observation: Observation, facts: ModelFacts) -> Observation:
    """What is kept of a record of a model call: what came before the call is used once, when it is joined."""
    if not facts.told and not facts.answers and facts.user_text is None:
        return observation
    return replace(observation, model=replace(facts, told=(), answers=(), user_text=None))
