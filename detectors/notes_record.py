"""What is noted of one session as its steps come: pure, bounded, restorable; `detectors.notes` reads it."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from collector.step import Kind, Outcome
from detectors.excerpts import one_line, shown
from detectors.handover import asks_a_person
from detectors.notes import RECENT_KEPT, VERSION, Mark, Notes, of_state
from detectors.notes_done import Done, only_asks
from detectors.notes_found import Findings
from detectors.notes_paths import Paths
from detectors.notes_repeats import END_NS, NUMBER, SPAN_ID, STEP_ID, TOOL, Repeats, Row
from detectors.notes_spent import Spending
from detectors.pacing import SPOKEN_NS
from detectors.role import Role

if TYPE_CHECKING:
    from collector.step import Json, Step, ToolDefinitions
    from detectors.protocol import Finding
    from detectors.reading import Reading

GOAL_CHARS: Final = 500
_TEXT_CHARS: Final = 160
_NAMES_KEPT: Final = 128
_FEW: Final = 8
_TURNS_KEPT: Final = 6
_COMPACTIONS_KEPT: Final = 4
_NOT_RECORDED: Final = "(not recorded)"  # stands for a user's words in the collector
_NO_MARK: Final = Mark(0, "", "", "", 0, "")
# Rough sizes in memory, in bytes: of a session, of a recent call, of a path, a repeat, an effect, a name.
_SIZES: Final = (3_000, 600, 2_200, 900, 700, 80)
_PLACE: Final = ("session_id", "service", "agent", "run_id", "goal", "model", "first_ns", "ended_ns")
_LATEST: Final = ("last_ns", "last_start_ns", "last_user_ns", "seq")
_COUNTS: Final = (
    "calls",
    "failures",
    "denied",
    "model_calls",
    "compactions",
    "user_turns",
    "looks",
    "unclear",
    "asked",
    "dead",
)
_SETS: Final = ("trace_ids", "agents", "task_ids", "unclear_tools", "offered", "tried")
_MARKS: Final = ("start", "first_failure", "last_success")


class Record:
    """See the module.

    `seq` is the `engine_seq` of the last step that is in it; `dead` counts failed calls that are not known to
    have been cleared by a change. Rows of `recent` are in the order of `detectors.notes.Recent`, with the
    signature as a number; plain tuples, because those are not walked through in the search for garbage.
    """

    __slots__ = (
        *_PLACE,
        *_LATEST,
        *_COUNTS,
        *_SETS,
        *_MARKS,
        "_after_call",
        "_definitions",
        "_goal_ns",
        "diagnoses",
        "done",
        "found",
        "paths",
        "pauses",
        "recent",
        "repeats",
        "spent",
        "turns",
    )

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.service = self.run_id = self.model = ""
        self.agent: str | None = None
        self.goal: str | None = None
        self.first_ns = self.last_ns = self.last_start_ns = self.ended_ns = self.last_user_ns = 0
        self.calls = self.failures = self.denied = self.model_calls = self.compactions = 0
        self.user_turns = self.looks = self.unclear = self.asked = 0
        self.seq = self.dead = 0
        self.trace_ids: dict[str, None] = {}
        self.agents: dict[str, None] = {}
        self.task_ids: dict[str, None] = {}
        self.unclear_tools: dict[str, None] = {}
        self.offered: dict[str, None] = {}
        self.tried: dict[str, None] = {}
        self.recent: deque[Row] = deque(maxlen=RECENT_KEPT)
        self.start = self.first_failure = _NO_MARK
        self.last_success: Row | None = None
        self.turns: list[Mark] = []
        self.pauses: list[Mark] = []
        self.paths, self.done, self.repeats, self.spent = Paths(), Done(), Repeats(), Spending()
        self.found = Findings()
        self.diagnoses: deque[str] = deque(maxlen=_FEW)
        self._after_call = False
        self._goal_ns = 0
        self._definitions: ToolDefinitions | None = None  # told again with the next model call

    @property
    def size(self) -> int:
        """Roughly what it takes in memory, in bytes."""
        base, recent, path, repeat, effect, name = _SIZES
        names = len(self.offered) + len(self.tried)
        lists = recent * len(self.recent) + path * len(self.paths) + repeat * len(self.repeats)
        return base + lists + effect * len(self.done) + name * names

    def observe(self, reading: Reading) -> None:
        """Take the next step of the session in."""
        step = reading.step
        self._place(step)
        if step.kind is Kind.TOOL_CALL:
            self._tool_call(reading)
        elif step.kind is Kind.MODEL_CALL or step.kind is Kind.COMPACTION:
            self._model_call(step)
        elif step.kind is Kind.USER_TURN:
            self._user_turn(step)
        if step.offered_tools or step.definitions is not None:
            self._offer(step)
        self._after_call = step.kind is Kind.TOOL_CALL
        self.last_ns = max(self.last_ns, step.end_ns)
        if step.outcome is not Outcome.DENIED:
            self.last_start_ns = max(self.last_start_ns, step.start_ns)

    def amend(self, reading: Reading) -> None:
        """Take a step again of which more is known; it counts as far as it is among the latest ones."""
        step = reading.step
        if step.kind is Kind.TOOL_CALL:
            for position in range(len(self.recent) - 1, -1, -1):
                call = self.recent[position]
                if call[STEP_ID] == step.step_id:
                    self.recent[position] = self._amended(reading, call)
                    self.repeats.left(call)
                    break
        elif step.kind is Kind.MODEL_CALL or step.kind is Kind.COMPACTION:
            self.spent.amend(step)
        self.last_ns = max(self.last_ns, step.end_ns)

    def find(self, finding: Finding) -> None:
        """Something was found in the session; its last step is in the record already."""
        self.found.take(finding, self.recent, self.paths, self.calls)

    def end_run(self, at_ns: int) -> None:
        """Its root has ended; a step that begins later takes that back."""
        if self.last_start_ns <= at_ns:
            self.ended_ns = at_ns

    def absorb(self, past: Record) -> None:
        """Take over what is known of the same session under another id; it happened before."""
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(past, name))
        for name in _LATEST:
            setattr(self, name, max(getattr(self, name), getattr(past, name)))
        for name in _SETS:
            names = dict.fromkeys((*getattr(past, name), *getattr(self, name)))
            setattr(self, name, dict.fromkeys(list(names)[:_NAMES_KEPT]))
        self._absorb_beginning(past)
        rows = sorted((*past.recent, *self.recent), key=lambda row: (row[END_NS], row[STEP_ID]))
        for row in rows[:-RECENT_KEPT]:
            self.repeats.left(row)
        self.recent = deque(rows, maxlen=RECENT_KEPT)
        self.turns = sorted([*past.turns, *self.turns])[-_TURNS_KEPT:]
        self.pauses = sorted([*past.pauses, *self.pauses])[-_COMPACTIONS_KEPT:]
        self.paths.absorb(past.paths)
        self.done.absorb(past.done)
        self.repeats.absorb(past.repeats)
        self.found.absorb(past.found)
        self.spent.absorb(past.spent)

    def state(self) -> dict[str, Json]:
        """All state as JSON, which is also what `detectors.notes.of_state` reads."""
        state: dict[str, Any] = {name: getattr(self, name) for name in (*_PLACE, *_LATEST, *_COUNTS)}
        state |= {name: list(getattr(self, name)) for name in _SETS}
        state |= self.spent.state()
        marks = [self.start, self.first_failure, *self.turns, *self.pauses]
        if self.last_success is not None:
            marks.append(_success(self.last_success))
        return state | {
            "version": VERSION,
            "marks": [tuple(mark) for mark in marks if mark.what],
            "recent": [(*row[:4], _hex(row[4]), *row[5:]) for row in self.recent],
            "paths": list(self.paths),
            "paths_forgotten": self.paths.forgotten,
            "effects": list(self.done),
            "effects_forgotten": self.done.forgotten,
            "repeats": self.repeats.state(),
            "once": self.repeats.once(),
            "found": [list(one) for one in self.found],
            "diagnoses": list(self.diagnoses),
            "inner": [self._after_call, self._goal_ns],
        }

    @classmethod
    def restored(cls, state: Any) -> Record:  # noqa: ANN401 - JSON that `state` wrote
        """Go on from a `state`. Raises `MalformedNotes`, `KeyError`, `TypeError` or `ValueError`."""
        view = of_state(state)
        record = cls(view.session_id)
        for name in (*_PLACE, *_LATEST, *_COUNTS):
            setattr(record, name, state[name])
        for name in _SETS:
            setattr(record, name, dict.fromkeys(state[name]))
        for mark in view.marks:
            if mark.what == "user_turn":
                record.turns.append(mark)
            elif mark.what == "compaction":
                record.pauses.append(mark)
            elif mark.what == "last_success":
                at_ns, _, step_id, span_id, number, tool = mark
                record.last_success = (at_ns, at_ns, None, tool, None, "", None, step_id, span_id, number)
            else:
                setattr(record, mark.what, mark)
        record.recent.extend((*row[:4], _number(row[4]), *row[5:]) for row in view.recent)
        record.paths = Paths(view.paths, view.paths_forgotten)
        record.done = Done(view.effects, view.effects_forgotten)
        record.repeats = Repeats(state["repeats"])
        record.repeats.know_once(state["once"], {row[NUMBER]: row for row in record.recent})
        record.found = Findings(view.found)
        record.spent = Spending.restored(state)
        record.diagnoses.extend(view.diagnoses)
        record._after_call, record._goal_ns = state["inner"]
        return record

    def _place(self, step: Step) -> None:
        """Where a step belongs, and when."""
        self.seq = max(self.seq, step.engine_seq)
        if not self.start.what:
            self.first_ns, self.service = step.start_ns, step.service
            self.start = _mark(step, "start", self.calls, "")
        if step.start_ns > self.ended_ns:
            self.ended_ns = 0
        if step.run_id:
            self.run_id = step.run_id
        if step.agent != self.agent and step.agent and step.agent not in self.agents:
            _add(self.agents, step.agent, _FEW)
            self.agent = self.agent or step.agent
        if step.trace_id and step.trace_id not in self.trace_ids:
            _add(self.trace_ids, step.trace_id, _FEW)
        if step.task_id:
            _add(self.task_ids, step.task_id, _FEW)

    def _tool_call(self, reading: Reading) -> None:
        step, call = reading.step, reading.call
        self.calls += 1
        tool, outcome = step.tool or "", step.outcome
        error_class: str | None = None
        if tool not in self.tried:
            _add(self.tried, tool, _NAMES_KEPT)
        self.spent.call(step.end_ns)
        if outcome is Outcome.DENIED:
            self.denied += 1
        elif reading.went_wrong:
            error_class, outcome = self._failed(reading, self.calls), _as_failed(outcome)
        else:
            self._worked(reading, tool)
        row = (
            step.end_ns,
            step.start_ns,
            step.agent,
            tool,
            call.signature if call.known else None,
            outcome.value,
            error_class,
            step.step_id,
            step.span_id,
            self.calls,
        )
        if outcome is Outcome.OK:
            self.last_success = row
        if len(self.recent) == RECENT_KEPT:
            self.repeats.left(self.recent[0])
        if call.known and not call.noop:
            self.repeats.add(reading, row, self.last_user_ns)
        self.recent.append(row)

    def _failed(self, reading: Reading, number: int) -> str | None:
        self.failures += 1
        self.paths.failed(reading, number)
        if not self.first_failure.what:
            self.first_failure = _mark(reading.step, "first_failure", number, reading.step.tool or "")
        verdict = reading.verdict
        return verdict.error_class.value if verdict is not None else None

    def _worked(self, reading: Reading, tool: str) -> None:
        step = reading.step
        self.paths.worked(reading)
        if step.outcome is not Outcome.OK:
            return
        self.asked += asks_a_person(tool)
        definitions = self._definitions
        definition = definitions.tools.get(tool) if definitions is not None else None
        if self.done.worked(reading, self.calls, definition):
            return
        role = reading.role
        if role is Role.LOOK or (role is Role.OTHER and only_asks(step.arguments)):
            self.looks += 1
            if self.paths.going_on:
                self.diagnoses.append(f"{tool}: {shown(step.arguments, 80)}")
        elif role is Role.OTHER:
            self.unclear += 1
            _add(self.unclear_tools, tool, _FEW)

    def _model_call(self, step: Step) -> None:
        self.spent.model_call(step)
        if step.kind is Kind.COMPACTION:
            self.compactions += 1
            self.pauses.append(_mark(step, "compaction", self.calls, step.outcome.value))
            _keep_ends(self.pauses, _COMPACTIONS_KEPT)
        else:
            self.model_calls += 1
            self.model = step.model or self.model

    def _user_turn(self, step: Step) -> None:
        if self._after_call and step.start_ns - self.last_ns < SPOKEN_NS:
            return  # some frameworks hand results to the model in a user's message
        self.user_turns += 1
        self.last_user_ns = max(self.last_user_ns, step.start_ns)
        text = step.text if step.text and step.text != _NOT_RECORDED else ""
        if text and (self.goal is None or step.start_ns < self._goal_ns):
            self.goal, self._goal_ns = one_line(text, GOAL_CHARS), step.start_ns
        self.turns.append(_mark(step, "user_turn", self.calls, one_line(text, _TEXT_CHARS)))
        _keep_ends(self.turns, _TURNS_KEPT)

    def _offer(self, step: Step) -> None:
        if step.definitions is None:
            names = step.offered_tools
        elif step.definitions is self._definitions:
            return
        else:
            self._definitions = step.definitions
            names = tuple(step.definitions.tools)
        for name in names:
            _add(self.offered, name, _NAMES_KEPT)

    def _amended(self, reading: Reading, row: Row) -> Row:
        step = reading.step
        _, start_ns, agent, tool, signature, told, error_class, *place = row
        before, outcome = Outcome(told), step.outcome
        had_failed = before is Outcome.ERROR or before is Outcome.SOFT_ERROR
        if outcome is Outcome.DENIED:
            self.denied += before is not Outcome.DENIED
        elif reading.went_wrong:
            outcome = _as_failed(outcome)
            if not had_failed:
                error_class = self._failed(reading, place[2])
        elif had_failed:
            self.failures -= 1
            error_class = None
        signature = reading.call.signature if reading.call.known else signature
        return (step.end_ns, start_ns, agent, tool, signature, outcome.value, error_class, *place)

    def _absorb_beginning(self, past: Record) -> None:
        if past.start.what and (not self.start.what or past.first_ns < self.first_ns):
            self.first_ns, self.start = past.first_ns, past.start
            self.agent = past.agent or self.agent
            if past.goal:
                self.goal, self._goal_ns = past.goal, past._goal_ns
        self.goal = self.goal or past.goal
        self.service = self.service or past.service
        self.run_id = self.run_id or past.run_id
        if past.first_failure.what and (
            not self.first_failure.what or past.first_failure.at_ns < self.first_failure.at_ns
        ):
            self.first_failure = past.first_failure
        if self.last_success is None or (
            past.last_success is not None and past.last_success[END_NS] > self.last_success[END_NS]
        ):
            self.last_success = past.last_success


def view_of(record: Record) -> Notes:
    """The record as all others see it."""
    view = of_state({**record.state(), "paths": [], "effects": []})
    return replace(view, paths=tuple(record.paths), effects=tuple(record.done))


def _success(row: Row) -> Mark:
    return Mark(row[END_NS], "last_success", row[STEP_ID], row[SPAN_ID], row[NUMBER], row[TOOL])


def _as_failed(outcome: Outcome) -> Outcome:
    """How a call that went wrong is noted; one that only its content tells of is a soft error."""
    return outcome if outcome is Outcome.ERROR else Outcome.SOFT_ERROR


def _hex(signature: int | None) -> str | None:
    return None if signature is None else f"{signature:016x}"


def _number(signature: str | None) -> int | None:
    return None if signature is None else int(signature, 16)


def _mark(step: Step, what: str, number: int, text: str) -> Mark:
    return Mark(step.start_ns, what, step.step_id, step.span_id, number, text)


def _add(names: dict[str, None], name: str, limit: int) -> None:
    if len(names) < limit:
        names[name] = None


def _keep_ends(marks: list[Mark], limit: int) -> None:
    """Keep the first and the latest ones."""
    if len(marks) > limit:
        del marks[1]
