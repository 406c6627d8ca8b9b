"""What is known of one session, for those who decide about it and for the person who takes it over.

A `Notes` is a bounded, frozen view of a session: figures, its latest calls, its failing paths grouped, what
it did to the world, and marks of time. `detectors/notes_record.py` keeps it up to date; it travels as JSON.
Times are unix nanoseconds, a `number` counts the session's tool calls from 1, refused ones included. None
means that nobody told. All texts are excerpts of what was redacted before.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

if TYPE_CHECKING:
    from collector.step import Json

VERSION: Final = 1
RECENT_KEPT: Final = 24


class MalformedNotes(Exception):  # noqa: N818 - says what is wrong with the notes, as `MalformedFinding` does
    """These are no notes that this version can read."""


class Recent(NamedTuple):
    """One of the latest tool calls. `signature` is that of `detectors.signature.call_of` in 16 hex digits.

    `signature` is None when the arguments were not recorded; `error_class` None when the call did not fail.
    """

    end_ns: int
    start_ns: int
    agent: str | None
    tool: str
    signature: str | None
    outcome: str
    error_class: str | None
    step_id: str
    span_id: str
    number: int


class Mark(NamedTuple):
    """A moment of the session.

    `what`: `start`, `first_failure`, `last_success`, `user_turn`, `compaction`. `number`: the tool calls that
    had been made by then.
    """

    at_ns: int
    what: str
    step_id: str
    span_id: str
    number: int
    text: str


class Minute(NamedTuple):
    """What one minute of event time used. `start_ns` is a multiple of 60 seconds."""

    start_ns: int
    calls: int
    tokens: int
    cost_usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FailingPath:
    """Failures of one operation with one class of error: something that was tried and did not work.

    `operation` is that of `detectors.operation`; `signatures` are the different calls, the first ones, in
    16 hex digits; `rule` says which rule told the class, empty where the text model guessed or nobody knew.
    `run_first_*` are those of the first failure since the operation last succeeded, `run` counts from there,
    `stuck_*` are those of the third, 0 or empty until then;
    `recovered_ns` is when the operation succeeded after the last failure, 0 if it did not.
    """

    tool: str
    operation: str
    error_class: str
    nature: str
    prescription: str
    rule: str
    count: int
    run: int
    first_ns: int
    last_ns: int
    first_number: int
    last_number: int
    first_step_id: str
    last_step_id: str
    first_span_id: str
    last_span_id: str
    run_first_ns: int
    run_first_number: int
    run_first_step_id: str
    run_first_span_id: str
    arguments: str
    error: str
    stuck_ns: int = 0
    stuck_number: int = 0
    stuck_step_id: str = ""
    stuck_span_id: str = ""
    signatures: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    longest_gap_ns: int = 0
    recovered_ns: int = 0


class Found(NamedTuple):
    """A finding of the session as it stands among its calls; `detectors.notes_found` says what an onset is.

    `at_ns` and `number`: when it was found, an alarm when it became one. `began_number` is 0 and
    `began_step_id` empty when the streak began before the latest calls.
    """

    finding_id: str
    kind: str
    severity: str
    revision: int
    summary: str
    at_ns: int
    number: int
    began_ns: int
    began_number: int
    began_step_id: str
    began_span_id: str
    onset_ns: int
    onset_number: int
    onset_step_id: str
    onset_span_id: str


class Repeat(NamedTuple):
    """One call that was made again, in 16 hex digits of `signature`, and how often.

    `same` counts the latest ones that brought back the same, with no user's turn in between; `run_first_*`
    are those of the first of these. `information` is what it brought back last, as 64 bits.
    """

    signature: str
    tool: str
    arguments: str
    times: int
    same: int
    failed: bool
    first_ns: int
    last_ns: int
    information: int
    run_first_ns: int
    run_first_number: int
    run_first_step_id: str
    run_first_span_id: str
    last_number: int
    last_step_id: str
    last_span_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SideEffect:
    """Calls that worked and did something to the world.

    `level`: `critical` or `write` by `detectors.side_effects`, whose `source` says who says so; `change` for
    calls that change files, settings and the like, by their name or command. `keyed`: each carried an
    idempotency key, so that a repeat is safe.
    """

    tool: str
    level: str
    source: str
    arguments: str
    count: int
    first_ns: int
    last_ns: int
    first_number: int
    step_id: str
    span_id: str
    keyed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """See the module.

    `last_ns` is the end of the last step, `last_start_ns` the start of the last step that no brake refused,
    `ended_ns` when its root ended with nothing after it (0 = running), `last_user_ns` the last user turn
    (0 = none). `goal` is what the user asked for first. `looks` counts calls that only read, `unclear` those
    that worked and of which nothing tells what they do (`unclear_tools`); `asked` those that asked a person.
    `diagnoses` are the latest calls that only read while something was failing. `model` is that of the last
    model call. `paths_forgotten` and `effects_forgotten` count those that there was no room for.
    """

    session_id: str
    service: str = ""
    agent: str | None = None
    run_id: str = ""
    goal: str | None = None
    first_ns: int = 0
    last_ns: int = 0
    last_start_ns: int = 0
    ended_ns: int = 0
    last_user_ns: int = 0
    calls: int = 0
    failures: int = 0
    denied: int = 0
    model_calls: int = 0
    compactions: int = 0
    user_turns: int = 0
    looks: int = 0
    unclear: int = 0
    asked: int = 0
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    model: str = ""
    trace_ids: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    task_ids: tuple[str, ...] = ()
    recent: tuple[Recent, ...] = ()
    paths: tuple[FailingPath, ...] = ()
    paths_forgotten: int = 0
    repeats: tuple[Repeat, ...] = ()
    found: tuple[Found, ...] = ()
    effects: tuple[SideEffect, ...] = ()
    effects_forgotten: int = 0
    diagnoses: tuple[str, ...] = ()
    unclear_tools: tuple[str, ...] = ()
    offered: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()
    marks: tuple[Mark, ...] = ()
    minutes: tuple[Minute, ...] = ()

    @property
    def tokens(self) -> int | None:
        """Tokens used so far, None when no model call told any."""
        if self.input_tokens is None and self.output_tokens is None:
            return None
        return (self.input_tokens or 0) + (self.output_tokens or 0)

    @property
    def not_tried(self) -> tuple[str, ...]:
        """Tools that were offered and never called, in the order in which they were offered."""
        tried = frozenset(self.tried)
        return tuple(tool for tool in self.offered if tool not in tried)


def to_json(notes: Notes) -> bytes:
    """Write notes as JSON; the small records (`Recent`, `Repeat`, `Mark`, `Minute`) as arrays."""
    state: dict[str, Json] = {name: getattr(notes, name) for name in _names(Notes)}
    for name in _TUPLES:
        state[name] = [list(row) for row in getattr(notes, name)]
    return orjson.dumps({"version": VERSION, **state})


def as_dict(notes: Notes) -> dict[str, Any]:
    """Notes as plain data for people: every record by the names of its fields."""
    told: dict[str, Any] = orjson.loads(to_json(notes))
    for name, kind in _TUPLES.items():
        told[name] = [dict(zip(kind._fields, row, strict=False)) for row in told[name]]
    return {**told, "tokens": notes.tokens, "not_tried": list(notes.not_tried)}


def from_json(payload: bytes | str) -> Notes:
    """Read what `to_json` or a record's checkpoint wrote; what a newer version added is left out.

    Raises `MalformedNotes` that says what is wrong.
    """
    try:
        state = orjson.loads(payload)
        if not isinstance(state, dict):
            raise MalformedNotes("notes: expected an object")
        return of_state(state)
    except orjson.JSONDecodeError as error:
        raise MalformedNotes(f"notes: no JSON: {error}") from error


def of_state(state: dict[str, Any]) -> Notes:
    """Make notes of decoded JSON. Raises `MalformedNotes`."""
    try:
        told = {name: state[name] for name in _names(Notes) if name in state}
        for name, kind in _TUPLES.items():
            width = len(kind._fields)
            told[name] = tuple(kind(*row[:width]) for row in told.get(name, ()))
        for name, record in _RECORDS.items():
            told[name] = tuple(_record(record, row) for row in told.get(name, ()))
        for name in _NAMES:
            told[name] = tuple(map(str, told.get(name, ())))
        return Notes(**told)
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedNotes(f"notes: {type(error).__name__}: {error}") from error


def _record(kind: Any, row: Any) -> Any:  # noqa: ANN401 - a dataclass, and JSON
    told = {name: row[name] for name in _names(kind) if name in row}
    for name in ("signatures", "agents"):
        if name in told:
            told[name] = tuple(map(str, told[name]))
    return kind(**told)


@lru_cache(maxsize=16)
def _names(kind: Any) -> tuple[str, ...]:  # noqa: ANN401 - a dataclass
    return tuple(field.name for field in fields(kind))


_TUPLES: Final[dict[str, Any]] = {
    "recent": Recent,
    "marks": Mark,
    "minutes": Minute,
    "repeats": Repeat,
    "found": Found,
}
_RECORDS: Final[dict[str, Any]] = {"paths": FailingPath, "effects": SideEffect}
_NAMES: Final = (
    "trace_ids",
    "agents",
    "task_ids",
    "diagnoses",
    "unclear_tools",
    "offered",
    "tried",
)
