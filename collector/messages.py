"""Calls that models asked for, until a record of the call turns up or the conversation has moved on."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Final

from collector.conventions.observation import Answer, Ask
from collector.joining import SLACK_NS, Entry, arguments_known, same_arguments, same_tool, tool_of

MAX_PENDING: Final = 512  # asked-for calls of one conversation that wait for a record
MAX_IDS: Final = 4_096  # call ids of one conversation that are remembered
MAX_CALLS: Final = 256  # calls of one conversation that can still be matched
MAX_MODELS: Final = 64
MAX_TURNS: Final = 512
RETOLD_NS: Final = 30_000_000_000  # between a prompt's own event and the model call that first carries it


@dataclass(slots=True)
class Asked:
    """A call that a model asked for, or that was decided upon, and no record has told of yet.

    `by` is the entry of the model call (-1: a decision, or a history whose model call was not seen).
    `from_ns` is when it was asked for at the earliest. `due_ns` is the clock time at which it becomes a
    step by itself (0: the conversation has not moved on yet); `next_ns` the start of what came after it.
    """

    ask: Ask
    by: int
    order: int
    from_ns: int
    until_ns: int
    trace_id: str
    span_id: str
    convention: str
    answer: Answer | None = None
    due_ns: int = 0
    next_ns: int = 0
    decided: bool = False
    aliases: tuple[str, ...] = ()


@dataclass(slots=True)
class Turn:
    """Where a user's text was last seen: at which place of a history (-1: in none), when, in which trace."""

    trace_id: str
    position: int
    start_ns: int
    end_ns: int


def same_turn(known: Turn, turn: Turn, *, lone: bool) -> bool:
    """Whether an equal text is the same turn again: retold, or retried, and not said once more."""
    if turn.start_ns <= known.end_ns + SLACK_NS and known.start_ns <= turn.end_ns + SLACK_NS:
        return True
    if turn.position < 0 or known.position < 0:
        return turn.position != known.position and abs(turn.start_ns - known.start_ns) < RETOLD_NS
    if turn.position != known.position:
        return False
    return lone or turn.trace_id == known.trace_id


@dataclass(slots=True)
class Group:
    """One conversation: asked-for calls, calls by id, recent calls and model calls, user turns seen.

    `foreign` are those of `ids` that the entries of this conversation do not tell by themselves.
    `calls_end_ns` is the latest end of its calls as they were when they were added; `stretched_ns` the latest
    of those that ended later than it had seemed; `touched` tells which conversation was told of last.
    """

    name: str
    pending: list[Asked] = field(default_factory=list)
    ids: OrderedDict[str, int] = field(default_factory=OrderedDict)
    foreign: dict[str, int] = field(default_factory=dict)
    calls: deque[int] = field(default_factory=lambda: deque(maxlen=MAX_CALLS))
    models: deque[int] = field(default_factory=lambda: deque(maxlen=MAX_MODELS))
    turns: OrderedDict[str, Turn] = field(default_factory=OrderedDict)
    saw_tools: bool = False
    last_end_ns: int = 0
    calls_end_ns: int = 0
    stretched_ns: int = 0
    touched: int = 0

    def add_call(self, entry: Entry) -> None:
        """Note that an entry is the conversation's latest call."""
        entry.earlier_ns = self.calls_end_ns
        self.calls_end_ns = max(self.calls_end_ns, entry.end_ns)
        self.calls.append(entry.number)

    def remember_id(self, call_id: str, entry: Entry) -> None:
        """Note that a call id belongs to an entry."""
        if call_id:
            if call_id not in entry.ids:
                entry.ids = (*entry.ids, call_id)
            if entry.group == self.name:
                self.foreign.pop(call_id, None)
            else:
                self.foreign[call_id] = entry.number
            self.note_id(call_id, entry.number)

    def note_id(self, call_id: str, number: int) -> None:
        """Note that a call id belongs to the entry of that number."""
        self.ids[call_id] = number
        self.ids.move_to_end(call_id)
        if len(self.ids) > MAX_IDS:
            gone, _ = self.ids.popitem(last=False)
            self.foreign.pop(gone, None)

    def asked_for(self, call_id: str, after_ns: int = 0) -> Asked | None:
        """The waiting call of that id, the newest that was not asked for after a time (0: any)."""
        for asked in reversed(self.pending):
            if (asked.ask.call_id == call_id or call_id in asked.aliases) and (
                not after_ns or asked.from_ns <= after_ns
            ):
                return asked
        return None

    def new_turn(self, digest: str, turn: Turn, *, lone: bool) -> bool:
        """Whether a user turn is told of for the first time. `lone`: its trace is only one call."""
        known = self.turns.get(digest)
        if known is not None and same_turn(known, turn, lone=lone):
            known.end_ns = max(known.end_ns, turn.end_ns)
            return False
        self.turns[digest] = turn
        self.turns.move_to_end(digest)
        if len(self.turns) > MAX_TURNS:
            self.turns.popitem(last=False)
        return True

    def take(self, other: Group) -> None:
        """Take over another conversation that turned out to be this one."""
        self.pending.extend(other.pending)
        for call_id, number in other.ids.items():
            if self.ids.get(call_id, number) != number or call_id in other.foreign:
                self.foreign[call_id] = number
            self.note_id(call_id, number)
        self.calls.extend(other.calls)
        self.models.extend(other.models)
        self.turns.update(other.turns)
        self.saw_tools = self.saw_tools or other.saw_tools
        self.last_end_ns = max(self.last_end_ns, other.last_end_ns)
        self.stretched_ns = max(self.stretched_ns, other.stretched_ns, self.calls_end_ns)
        self.calls_end_ns = max(self.calls_end_ns, other.calls_end_ns)


def matching(pending: list[Asked], entry: Entry, call_id: str) -> Asked | None:
    """The waiting call that a call's record is of: by id, else the same tool and arguments, asked for last.

    Of calls asked for in one message the first is taken; a call never belongs to a later message.
    """
    best: Asked | None = None
    tool = tool_of(entry)
    arguments = arguments_known(entry)
    for asked in pending:
        if asked.from_ns > entry.start_ns:
            continue
        if call_id and (asked.ask.call_id == call_id or call_id in asked.aliases):
            return asked
        if (
            not same_tool(asked.ask.name, tool)
            or not tool
            or not same_arguments(asked.ask.arguments, arguments)
        ):
            continue
        if asked.until_ns and asked.until_ns < entry.start_ns:
            continue
        if best is None or (asked.from_ns, -asked.order) > (best.from_ns, -best.order):
            best = asked
    return best
