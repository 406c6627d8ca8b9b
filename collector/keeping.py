"""How what is remembered is written down: pieces by key, so that a checkpoint holds only what changed.

`t`, `g`, `p` and a name are a trace, a conversation, a process; `e` and a number are a block of entries with
neighbouring numbers: they change together, and one larger piece costs less than many. What a step says with
the words of its records is written once. Call ids are not written with their conversation, which may have
thousands: each entry has its own, and the conversation's are gathered from them. `d` and a key are
definitions of tools: model calls have the key, and what stands behind it is written once.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from operator import attrgetter
from typing import Any, Final, TypeVar

from collector.conventions.observation import (
    Answer,
    Ask,
    ModelFacts,
    Observation,
    OwnFacts,
    Telling,
    ToolFacts,
)
from collector.definitions import key_of, known, restored
from collector.freezing import Shape, by_name, each_of, field_names, freeze, maybe, parsed, recent
from collector.joining import Entry, arguments_known, result_text
from collector.messages import MAX_CALLS, MAX_MODELS, Asked, Group, Turn
from collector.ordering import Held
from collector.sessions import Node, Trace
from collector.state import BLOCK, MAX_RECENT, Process, State
from collector.step import Evaluation, Kind, Outcome, Step, ToolDefinition, ToolDefinitions, Usage

DEFINITIONS: Final = "d"  # the first letter of their pieces' keys

R = TypeVar("R", Trace, Group, Process)

_USAGE: Final = Shape(Usage)
_ASK: Final = Shape(Ask)
_ANSWER: Final = Shape(Answer)
_TOOL: Final = Shape(ToolFacts)
_MODEL: Final = Shape(
    ModelFacts,
    usage=_USAGE,
    asks=each_of(_ASK, tuple),
    told=each_of(_ASK, tuple),
    answers=each_of(_ANSWER, tuple),
    offered_tools=tuple,
    definitions=maybe(known),
)
_OWN: Final = Shape(OwnFacts)
_EVALUATION: Final = Shape(Evaluation)
_DEFINITION: Final = Shape(ToolDefinition)
_WRITTEN: Final = ("hash", "chars", "tools")  # of a set of definitions
_OBSERVATION: Final = Shape(
    Observation,
    telling=Telling,
    tool=maybe(_TOOL),
    model=maybe(_MODEL),
    own=maybe(_OWN),
    evaluations=each_of(_EVALUATION, tuple),
)
_STEP: Final = Shape(
    Step,
    kind=Kind,
    outcome=Outcome,
    usage=_USAGE,
    offered_tools=tuple,
    definitions=maybe(known),
    evaluations=each_of(_EVALUATION, tuple),
)
_ENTRY: Final = Shape(
    Entry,
    kind=Kind,
    parts=each_of(_OBSERVATION),
    ask=maybe(_ASK),
    answer=maybe(_ANSWER),
    ids=tuple,
    judged=each_of(_EVALUATION, tuple),
)
_ASKED: Final = Shape(Asked, ask=_ASK, answer=maybe(_ANSWER), aliases=tuple)
_TURN: Final = Shape(Turn)
_GROUP: Final = Shape(
    Group,
    pending=each_of(_ASKED),
    ids=OrderedDict,
    calls=recent(MAX_CALLS),
    models=recent(MAX_MODELS),
    turns=by_name(_TURN),
)
_JUDGED: Final = each_of(_EVALUATION)
_NODE: Final = Shape(Node, telling=Telling)
_TRACE: Final = Shape(
    Trace, nodes=by_name(_NODE), judged=lambda spans: {span: _JUDGED(each) for span, each in spans.items()}
)
_PROCESS: Final = Shape(
    Process, calls=recent(MAX_RECENT), models=recent(MAX_RECENT), tool_sources=set, model_sources=set
)
_HELD: Final = Shape(Held, scopes=tuple, observation=_OBSERVATION)
_WAITING: Final = each_of(_HELD)
_SHAPES: Final = (
    _USAGE, _OWN, _ASK, _ANSWER, _DEFINITION, _TOOL, _MODEL, _OBSERVATION, _EVALUATION, _STEP, _ENTRY, _ASKED,
    _TURN, _GROUP, _NODE, _TRACE, _PROCESS, _HELD,
)  # fmt: skip

MAKE: Final = hashlib.blake2b(
    "\n".join([f"blocks of {BLOCK}", str(_WRITTEN), *(shape.described for shape in _SHAPES)]).encode(),
    digest_size=8,
).hexdigest()
"""Tells states apart that were written by code with other fields."""

_ENTRY_VALUES: Final = attrgetter(*field_names(Entry))
_STEP_AT: Final = field_names(Entry).index("step")
_STEP_VALUES: Final = attrgetter(*field_names(Step))
_ARGUMENTS_AT: Final = field_names(Step).index("arguments")
_RESULT_AT: Final = field_names(Step).index("result")
_GROUP_VALUES: Final = attrgetter(*field_names(Group))
_IDS_AT: Final = field_names(Group).index("ids")


def frozen(state: State, key: str | int) -> bytes | None:
    """One piece of a state: what a key of `State.changed` names; None when that is gone."""
    if isinstance(key, int):
        block = [
            _entry_values(entry)
            for number in range(key * BLOCK, (key + 1) * BLOCK)
            if (entry := state.entries.get(number)) is not None
        ]
        return freeze(block) if block else None
    name = key[1:]
    if key[0] == "g":
        group = state.groups.get(name)
        return None if group is None else freeze(_group_values(group))
    if key[0] == DEFINITIONS:
        definitions = known(name) if name in state.definitions else None
        return (
            None
            if definitions is None
            else freeze([definitions.hash, definitions.chars, list(definitions.tools.values())])
        )
    piece = state.traces.get(name) if key[0] == "t" else state.processes.get(name)
    return None if piece is None else freeze(piece)


def thaw_definitions(state: State, pieces: Mapping[str, bytes]) -> list[ToolDefinitions]:
    """Put all definitions of tools back, before any `thaw`; whoever calls holds them until all is back."""
    held = [_definitions(parsed(piece)) for key, piece in pieces.items() if key.startswith(DEFINITIONS)]
    state.definitions = {key_of(each): each.chars for each in held}
    state.definition_chars = sum(state.definitions.values())
    return held


def _definitions(values: Any) -> ToolDefinitions:  # noqa: ANN401 - JSON
    if not isinstance(values, list) or len(values) != len(_WRITTEN):
        raise ValueError("a state's definitions of tools have other fields")
    digest, chars, tools = values
    return restored(digest, chars, map(_DEFINITION, tools))


def thaw(state: State, key: str, piece: bytes) -> None:
    """Put a piece that `frozen` wrote back. Raises ValueError when it is none. See `gather_ids`."""
    value = parsed(piece)
    kind, name = key[:1], key[1:]
    if kind == "e":
        for entry in map(_entry, value):
            state.entries[entry.number] = entry
    elif kind == "t":
        state.traces[name] = _TRACE(value)
    elif kind == "g":
        state.groups[name] = _GROUP(value)
    elif kind == "p":
        state.processes[name] = _PROCESS(value)
    else:
        raise ValueError(f"no piece of a reader's state: {key}")


def thaw_waiting(piece: bytes) -> list[Held]:
    """Records that waited in the window, as `freeze` wrote them."""
    waiting: list[Held] = _WAITING(parsed(piece))
    return waiting


def gather_ids(state: State) -> None:
    """Put all in the order it was in, give conversations the ids of their calls; after the last `thaw`."""
    state.entries = OrderedDict(sorted(state.entries.items()))
    state.traces, state.groups = _by_touch(state.traces), _by_touch(state.groups)
    state.processes = _by_touch(state.processes)
    for entry in state.entries.values():
        group = state.groups.get(entry.group)
        if group is not None:
            for call_id in entry.ids:
                group.note_id(call_id, entry.number)
    for group in state.groups.values():
        for call_id, number in group.foreign.items():
            group.note_id(call_id, number)


def _by_touch(remembered: OrderedDict[str, R]) -> OrderedDict[str, R]:
    return OrderedDict(sorted(remembered.items(), key=lambda item: item[1].touched))


def _entry_values(entry: Entry) -> list[Any]:
    values = list(_ENTRY_VALUES(entry))
    step = entry.step
    if step is not None:
        said = list(_STEP_VALUES(step))
        said[_ARGUMENTS_AT] = [] if step.arguments is arguments_known(entry) else [step.arguments]
        said[_RESULT_AT] = [] if step.result is result_text(entry) else [step.result]
        values[_STEP_AT] = said
    return values


def _entry(values: Any) -> Entry:  # noqa: ANN401 - JSON
    entry = _ENTRY(values)
    said: Any = entry.step
    if said is not None:
        arguments, result = said[_ARGUMENTS_AT], said[_RESULT_AT]
        said[_ARGUMENTS_AT] = arguments[0] if arguments else arguments_known(entry)
        said[_RESULT_AT] = result[0] if result else result_text(entry)
        entry.step = _STEP(said)
    return entry


def _group_values(group: Group) -> list[Any]:
    values = list(_GROUP_VALUES(group))
    values[_IDS_AT] = {}
    return values
