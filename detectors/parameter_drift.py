"""Parameter drift: right tool, but case, unit or id format slides away from what worked.

What worked is remembered: for each parameter of each tool the last values of calls that succeeded, and their
shapes (`ord_8f3` is `a_9a9`, an ISO date `9-9-9`). A later call of the same tool that goes wrong is compared:

- `spelling`: a value is one that worked, but for case, white space or punctuation;
- `format`: at least `worked` values of a parameter had one shape, and this one has another.

The first such call is a note, `calls` of one tool are a `warning`; a call of the tool that works ends it.
Runs in shadow unless told otherwise: there is no labelled data to measure it with.

>>> [shape_of(t) for t in ("ord_8f3k2", "ORD-17", "2024-03-04", "5 km", "a long text that says something")]
['a_9', 'A-9', '9-9-9', '9 a', None]

Source: mission facts (roots of hallucinated calls: parameter drift in case, unit and id format).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from collector.step import Kind, Outcome
from detectors.bounds import is_unknown_session
from detectors.protocol import Finding, Severity, finding_id
from detectors.scope import Recent
from detectors.streaks import Mark, Reported
from detectors.tuning import Tuned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collector.step import Json, Step
    from detectors.reading import Reading

KIND: Final = "parameter_drift"
RULE: Final = "parameter_drift/1"

_VALUE_CHARS = 40
_VALUES_KEPT = 6
_PARAMETERS_KEPT = 12
_SPANS_KEPT = 6
_WORDS_AT_MOST = 2
_ALNUM = re.compile(r"[A-Za-z]*\d[A-Za-z0-9]*")
_LOWER, _UPPER, _SPACE = re.compile(r"[a-z]+"), re.compile(r"[A-Z]+"), re.compile(r"\s+")
_NOISE = re.compile(r"[\W_]+")
_NOTE, _ALARM = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterDriftConfig:
    """Settings.

    `worked`: values of one shape that worked, before another shape counts as drift. `calls`: calls of one
    tool that went wrong over it, for an alarm. `tools_kept`: tools remembered in a scope. `shadow`:
    findings are recorded only.
    """

    shadow: bool = True
    worked: int = 2
    calls: int = 2
    tools_kept: int = 32

    def __post_init__(self) -> None:
        for name in ("worked", "calls", "tools_kept"):
            if getattr(self, name) < 1:
                raise ValueError(f"{KIND}.{name} must be at least 1, not {getattr(self, name)!r}")


_DEFAULTS = Tuned(ParameterDriftConfig())


@dataclass(slots=True)
class _Tool:
    """What worked of one tool: by parameter the last values; and the drift since, if any."""

    worked: Recent[str, list[str]] = field(default_factory=lambda: Recent(_PARAMETERS_KEPT))
    first: Mark | None = None
    reported: Reported = field(default_factory=Reported)
    count: int = 0
    spans: list[str] = field(default_factory=list)


class ParameterDrift:
    """Watches one scope, one (session, agent)."""

    def __init__(self, tuned: Tuned[ParameterDriftConfig] = _DEFAULTS) -> None:
        self._tuned = tuned
        self._tools = Recent[str, _Tool](tuned.base.tools_kept)

    def observe(self, reading: Reading) -> Sequence[Finding]:
        """Take one step in; return the call whose parameters slid away from what worked."""
        step = reading.step
        if step.kind is not Kind.TOOL_CALL or step.tool is None or not isinstance(step.arguments, Mapping):
            return ()
        if step.outcome is Outcome.DENIED or step.late:
            return ()
        tool = self._tools.touch(step.tool)
        if not reading.went_wrong:
            if step.outcome is Outcome.OK:
                self._learn(step, tool)
            return ()
        if tool is None:
            return ()
        config = self._tuned.of(step.tool)
        for name, value in _formed(step.arguments):
            rule, like = _drift(value, tool.worked.get(name) or [], config.worked)
            if rule:
                return self._say(step, tool, config, (rule, name, value, like))
        return ()

    def snapshot(self) -> Json:
        """All state, as JSON: short values that worked, counters."""
        return [
            [
                name,
                [
                    [[parameter, list(values)] for parameter, values in tool.worked.items()],
                    None if tool.first is None else list(tool.first),
                    tool.reported.json(),
                    tool.count,
                    list(tool.spans),
                ],
            ]
            for name, tool in self._tools.items()
        ]

    def restore(self, state: Json) -> None:
        """Take over a state that `snapshot` returned."""
        self._tools.clear()
        saved: Any = state
        for name, (worked, first, reported, count, spans) in saved:
            tool = _Tool(first=None if first is None else Mark(*first), reported=Reported(*reported))
            for parameter, values in worked:
                tool.worked.put(parameter, list(values))
            tool.count, tool.spans = count, list(spans)
            self._tools.put(name, tool)

    def _learn(self, step: Step, tool: _Tool | None) -> None:
        """A call worked: its values are the measure from now on."""
        if tool is None:
            tool = _Tool()
            self._tools.put(step.tool or "", tool)
        for name, value in _formed(step.arguments):
            values = tool.worked.get(name)
            if values is None:
                tool.worked.put(name, [value])
            elif value not in values:
                values.append(value)
                del values[:-_VALUES_KEPT]
        if tool.count:
            tool.first, tool.reported, tool.count, tool.spans = None, Reported(), 0, []

    def _say(
        self, step: Step, tool: _Tool, config: ParameterDriftConfig, drift: tuple[str, str, str, str]
    ) -> Sequence[Finding]:
        rule, name, value, like = drift
        tool.first = tool.first or Mark.of(step)
        tool.count += 1
        tool.spans = [*tool.spans, step.span_id][-_SPANS_KEPT:]
        rank = _ALARM if tool.count >= config.calls and not is_unknown_session(step.session_id) else _NOTE
        if not tool.reported.due(rank, tool.count):
            return ()
        missing: list[Json] = ["session"] if is_unknown_session(step.session_id) else []
        return [
            Finding(
                id=finding_id(RULE, tool.first.step_id),
                kind=KIND,
                severity=Severity.WARNING if tool.reported.rank == _ALARM else Severity.INFO,
                revision=tool.reported.revision,
                session_id=step.session_id,
                session_ids=(step.session_id,),
                run_id=step.run_id,
                service=step.service,
                agent=step.agent,
                tool=step.tool,
                trace_id=step.trace_id,
                span_id=step.span_id,
                first_span_id=tool.first.span_id,
                step_id=step.step_id,
                started_at=min(tool.first.start_ns, step.end_ns),
                detected_at=step.end_ns,
                occurrences=tool.count,
                summary=f"{step.tool}: {name} {value!r} is not of the form that worked ({like!r})",
                detector=KIND,
                evidence={
                    "rule": rule,
                    "count": tool.count,
                    "threshold": config.calls,
                    "parameter": name,
                    "value": value,
                    "worked": like,
                    "span_ids": list(tool.spans),
                    "missing": missing,
                    "resets": ["a call of the tool that works"],
                    "since_onset": {"calls": tool.count},
                },
            )
        ]


def shape_of(text: str) -> str | None:
    """The form of a value: words as `a` or `A`, what has digits in it as `9`; None for prose."""
    if len(text) > _VALUE_CHARS or text.count(" ") >= _WORDS_AT_MOST:
        return None
    shape = _ALNUM.sub("9", text)
    shape = _UPPER.sub("A", _LOWER.sub("a", shape))
    return _SPACE.sub(" ", shape)


def _formed(arguments: Json) -> Iterator[tuple[str, str]]:
    """Parameters whose value has a form that can drift: name and value as text."""
    if isinstance(arguments, Mapping):
        for name, value in arguments.items():
            if isinstance(value, (str, int, float)) and not isinstance(value, bool):
                text = str(value)
                if text and len(text) <= _VALUE_CHARS and text.count(" ") < _WORDS_AT_MOST:
                    yield name, text


def _drift(value: str, worked: Sequence[str], needed: int) -> tuple[str, str]:
    """Which rule a value breaks, and the value that worked; two empty texts when it is in order."""
    if not worked or value in worked:
        return "", ""
    plain = _NOISE.sub("", value.lower())
    for known in worked:
        if plain and plain == _NOISE.sub("", known.lower()):
            return "spelling", known
    shapes = {shape_of(known) for known in worked}
    # Words alone have no form: only values with digits or punctuation in them do.
    formed = shapes - {"a", "A", "Aa"}
    if len(shapes) == 1 and formed and len(worked) >= needed and shape_of(value) not in shapes:
        return "format", worked[-1]
    return "", ""
