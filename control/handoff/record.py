"""The hand-off report as data. Times are unix nanoseconds, a `number` counts tool calls from 1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

FIELDS: Final = (
    "goal",
    "timeline",
    "failing_paths",
    "causes",
    "onset",
    "side_effects",
    "not_tried",
    "next_step",
    "cost",
    "links",
)
"""The required fields, in the order in which they are shown."""
NO_NEWS: Final = "no_news"
"""Stands for a class of error on a path that fails at nothing and brings nothing new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One line of the timeline. `number` is the call it happened at, 0 when that is not known."""

    at_ns: int
    what: str
    text: str
    number: int = 0
    step_id: str = ""
    span_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """Failures of one operation with one class of error. `recovered`: it worked after the last of them.

    The class `no_news` is of one call that worked and brought back the same each time: no failure, but a path
    that leads nowhere. `different` counts the different calls among them, as far as they were kept, 0 where
    none was recorded.
    """

    tool: str
    operation: str
    error_class: str
    prescription: str
    failures: int
    in_a_row: int
    different: int
    first_number: int
    last_number: int
    first_ns: int
    last_ns: int
    arguments: str
    error: str
    recovered: bool
    step_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why it is stuck, and what speaks for that."""

    text: str
    evidence: str
    step_ids: tuple[str, ...] = ()
    finding_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Causes:
    """`confirmed`: the records say so themselves, more than once. `suspected`: they suggest it."""

    confirmed: tuple[Cause, ...] = ()
    suspected: tuple[Cause, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Onset:
    """Since which call it is stuck (`detectors.notes_found` says what that is).

    `began_*` is the first call of the streak, `found_*` the one at which it was found, `latest_*` the one of
    what is said of it now; numbers are 0 where they are not known. `rule` says what the onset follows from.
    """

    number: int
    at_ns: int
    step_id: str
    span_id: str
    trace_id: str
    rule: str
    began_number: int = 0
    began_ns: int = 0
    found_number: int = 0
    found_ns: int = 0
    latest_number: int = 0
    latest_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Calls that did something to the world. `repeat_safe`: each carried an idempotency key."""

    tool: str
    level: str
    arguments: str
    times: int
    last_ns: int
    repeat_safe: bool
    step_id: str
    span_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """What was done, and calls of which nothing tells what they did (`unclear` calls of `unclear_tools`).

    `more` counts those that there was no room for.
    """

    done: tuple[Effect, ...] = ()
    more: int = 0
    unclear: int = 0
    unclear_tools: tuple[str, ...] = ()
    reads: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Untried:
    """Something that was not tried, and how that is known."""

    what: str
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStep:
    """What to do next, by the prescription of the error's class."""

    text: str
    prescription: str
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What the session has used; None where nobody told. `*_per_minute` are of its last five minutes.

    `calls_since_onset` counts from the onset on, None when that is not known.
    """

    calls: int
    model_calls: int
    failures: int
    denied: int
    tokens: int | None
    usd: float | None
    seconds: float
    calls_since_onset: int | None
    calls_per_minute: float | None
    tokens_per_minute: float | None
    usd_per_minute: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A span to look at; `trace_id` is empty where the session has several traces and nobody told which."""

    what: str
    trace_id: str
    span_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A breaker that refuses calls of the session; `scope` has the parts that are set."""

    id: str
    state: str
    action: str
    scope: Mapping[str, str]
    since_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Handoff:
    """See the module. A field that nothing was recorded for is None or empty, and named in `unknown`.

    `state` is `running`, `stopped` (a breaker halts it) or `ended`. `kind`, `severity` and `headline` are
    those of the finding that is the reason, empty when nothing was found. `held_by`: what refuses its calls
    at that moment.
    """

    session_id: str
    run_id: str
    service: str
    agent: str | None
    made_ns: int
    state: str
    kind: str
    severity: str
    headline: str
    goal: str | None
    timeline: tuple[Moment, ...]
    failing_paths: tuple[Path, ...]
    causes: Causes
    onset: Onset | None
    side_effects: Effects | None
    not_tried: tuple[Untried, ...]
    next_step: NextStep | None
    cost: Cost | None
    links: tuple[Link, ...]
    unknown: tuple[str, ...] = ()
    held_by: tuple[Held, ...] = ()

    def filled(self) -> float:
        """The share of the required fields that evidence stands behind, 0 to 1."""
        return 1 - len(self.unknown) / len(FIELDS)
