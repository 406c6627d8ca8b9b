"""When two records tell of one call, and what the call is then. Pure functions over partial facts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from collector.conventions.generic import is_control
from collector.conventions.observation import NO_USAGE, Answer, Ask, ModelFacts, Observation, Telling
from collector.conventions.opencode import ASKED, RAN
from collector.conventions.values import BARE, is_denial
from collector.step import MAX_EVALUATIONS, Evaluation, Json, Kind, Outcome, Step, Usage

PARTIAL: Final = "$partial"
SLACK_NS: Final = 5_000_000  # clocks and rounding: a log's duration is in whole milliseconds
HANDOFF: Final = ("transfer_to_", "transfer_back_to_", "handoff_to_")
_SEPARATOR: Final = re.compile(r"[.\-:/]|__")


@dataclass(slots=True)
class Entry:
    """One call, model call or agent run as far as it is known: all records that told of it.

    `number` is its handle. `ask` is the part of a model message that asked for it, `asked_by` the entry of
    that model call, `answer` what was fed back. `step` is what was last said of it, None before. `trace_id`
    and `span_id` are of the record (or model call) that told of it first. `ids` are the call ids by which its
    conversation knows it; `earlier_ns` is when the last call ended that its conversation had before it.
    `weight` is its size in bytes when something was last said of it. `judged` are evaluations that came in
    records of their own; others are in `parts`.
    """

    number: int
    kind: Kind
    step_id: str
    trace_id: str
    span_id: str
    process: str
    group: str
    parts: list[Observation] = field(default_factory=list)
    ask: Ask | None = None
    asked_by: int = -1
    answer: Answer | None = None
    denied: bool = False
    session: str = ""
    above_session: str = ""
    asked_source: str = ""
    start_ns: int = 0
    end_ns: int = 0
    agent: str = ""
    parent_agent: str = ""
    attempt_id: str = ""
    step: Step | None = None
    only_part: bool = False
    wrapper: bool = False
    convention: str = ""
    ids: tuple[str, ...] = ()
    earlier_ns: int = 0
    weight: int = 0
    judged: tuple[Evaluation, ...] = ()


@lru_cache(maxsize=16384)
def same_tool(one: str, other: str) -> bool:
    """Whether two names mean one tool: equal, or equal without the prefix of a plugin, server or agent.

    >>> same_tool("Tools-get_weather", "get_weather"), same_tool("get", "forget"), same_tool("", "x")
    (True, False, True)
    """
    if one == other or not one or not other:
        return True
    longer, shorter = (one, other) if len(one) > len(other) else (other, one)
    return (
        longer.endswith(shorter)
        and _SEPARATOR.search(longer[len(longer) - len(shorter) - 2 : len(longer) - len(shorter)]) is not None
    )


def same_arguments(one: Json, other: Json) -> bool:
    """Whether two records of arguments can be of one call: equal, one unknown, or one only a bare value.

    >>> same_arguments({"city": "Paris"}, {"$value": "Paris"}), same_arguments({"a": 1}, None)
    (True, True)
    >>> same_arguments({"a": 1}, {"a": 2})
    False
    """
    if one is None or other is None or one == other:
        return True
    if not isinstance(one, dict) or not isinstance(other, dict):
        return False
    for bare, full in ((one, other), (other, one)):
        if BARE in bare:
            values = list(full.values())
            value = bare[BARE]
            return bool(values) and (values == [value] or str(values[0]) == str(value) or values == value)
        if PARTIAL in bare:
            return any(full.get(key) == value for key, value in bare.items() if key != PARTIAL) or not (
                full.keys() & bare.keys()
            )
    return False


def overlap_ns(one: Entry | Observation, other: Entry | Observation) -> int:
    """For how long two intervals overlap; negative is the gap between them."""
    return min(one.end_ns, other.end_ns) - max(one.start_ns, other.start_ns)


def contains(outer: Entry | Observation, inner: Entry | Observation) -> bool:
    """Whether one interval lies in the other, give or take the rounding of clocks."""
    return outer.start_ns - SLACK_NS <= inner.start_ns and inner.end_ns <= outer.end_ns + SLACK_NS


def call_id_of(entry: Entry) -> str:
    """The call id that is best for an entry: the model's own, else a record's."""
    if entry.ask is not None and entry.ask.call_id:
        return entry.ask.call_id
    for part in entry.parts:
        if part.tool is not None and part.tool.call_id:
            return part.tool.call_id
    return ""


def arguments_known(entry: Entry) -> Json:
    """The arguments of an entry by its own records and the model's message, best first; None if unknown."""
    found = [
        part.tool.arguments
        for part in entry.parts
        if part.tool is not None and part.tool.arguments is not None
    ]
    whole = [
        value for value in found if not (isinstance(value, dict) and (BARE in value or PARTIAL in value))
    ]
    if whole:
        return whole[0]
    if entry.ask is not None and entry.ask.arguments is not None:
        return entry.ask.arguments
    if not found:
        return None
    value = found[0]
    return (
        {key: item for key, item in value.items() if key != PARTIAL}
        if isinstance(value, dict) and PARTIAL in value
        else value
    )


def tool_of(entry: Entry) -> str:
    """The tool's name, by the outermost record that has one, else by the model's message."""
    for part in entry.parts:
        if part.tool is not None and part.tool.name:
            return part.tool.name
    return entry.ask.name if entry.ask is not None else ""


def add_part(entry: Entry, part: Observation) -> None:
    """Take one more record into an entry, keeping the outermost first."""
    if part.telling is not Telling.PART:
        entry.only_part = False
    entry.parts.append(part)
    if len(entry.parts) == 1:
        entry.start_ns, entry.end_ns = part.start_ns, part.end_ns
        return
    entry.parts.sort(
        key=lambda each: (each.telling is Telling.PART, each.is_log, each.start_ns, -each.end_ns)
    )
    spans = [each for each in entry.parts if not each.is_log] or entry.parts
    entry.start_ns = min(each.start_ns for each in spans)
    entry.end_ns = max(each.end_ns for each in spans)


def outcome_of(entry: Entry) -> tuple[Outcome, str | None]:
    """How a tool call ended, and the error's text. Any record that says "failed" decides."""
    failed, told_fine, denied, error = False, False, entry.denied, None
    for part in entry.parts:
        if part.tool is None:
            continue
        denied = denied or part.tool.denied
        failed = failed or part.tool.failed is True
        told_fine = told_fine or part.tool.failed is False or part.tool.executed
        error = error or part.tool.error
    if failed and not denied:
        sources = {part.source for part in entry.parts}
        denied = ASKED in sources and RAN not in sources
    if denied or (entry.answer is not None and is_denial(entry.answer.text)):
        return Outcome.DENIED, error
    if entry.answer is not None:
        told_fine = told_fine or bool(entry.answer.text) or entry.answer.failed is False
        if entry.answer.failed is True:
            failed, error = True, error or entry.answer.text[:2000]
    if failed:
        return Outcome.ERROR, error
    return (Outcome.OK, None) if told_fine else (Outcome.UNKNOWN, None)


def result_text(entry: Entry) -> str | None:
    """What the call brought back, by the outermost record that has it, else as it was fed to the model."""
    for part in entry.parts:
        if part.tool is not None and part.tool.result is not None:
            return part.tool.result
    return entry.answer.text if entry.answer is not None else None


def innermost_usage(parts: Sequence[Observation]) -> Usage:
    """The usage of a model call that several records tell: the innermost's, so that none counts twice."""
    best = NO_USAGE
    for part in parts:
        if part.model is not None and part.model.usage != NO_USAGE:
            told = part.model.usage
            best = Usage(
                input_tokens=told.input_tokens if told.input_tokens is not None else best.input_tokens,
                output_tokens=told.output_tokens if told.output_tokens is not None else best.output_tokens,
                cached_tokens=told.cached_tokens if told.cached_tokens is not None else best.cached_tokens,
            )
    return best


def evaluations_of(entry: Entry) -> tuple[Evaluation, ...]:
    """All evaluations of an entry, each once, those of its own spans first."""
    found = [each for part in entry.parts if part.evaluations for each in part.evaluations]
    if not found:
        return entry.judged
    return tuple(dict.fromkeys((*found, *entry.judged)))[:MAX_EVALUATIONS]


def first_told(values: Iterable[str | None]) -> str | None:
    """The first that is not empty."""
    for value in values:
        if value:
            return value
    return None


def is_handover(tool: str) -> bool:
    """Whether a tool that only a message shows is control flow: a hand-off, a final answer."""
    return is_control(tool) or tool.startswith(HANDOFF)


def step_identity(observation: Observation, call_id: str) -> str:
    """A step's identity by the record that told of it first: span, else session and call, else the record."""
    if not observation.is_log and observation.trace_id:
        return observation.trace_id + observation.span_id
    if call_id and observation.session:
        return f"{observation.session}:{call_id}"
    return f"{observation.identity:016x}"


def same_model_call(entry: Entry, observation: Observation, facts: ModelFacts) -> bool:
    """Whether two instrumentations told of one model call: one response, or equal tokens at one time."""
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
