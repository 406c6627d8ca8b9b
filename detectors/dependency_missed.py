"""Dependency missed: a parallel call is made without what its sibling was about to supply.

The calls of one model message are made at once, so that none can use what another brings. When one of them
needs it, its argument is empty or stale:

- `empty`: an argument is empty or a placeholder (`""`, null, `<order_id>`, `TBD`, `$1.id`, …) and the
  result of a sibling has a field of that name;
- `stale`: an argument holds what the sibling's tool returned under that name earlier, its result of now holds
  another value, and the call went wrong.

The order in which the siblings end does not matter. Each is a note; from `calls` of one tool on it is a
`warning`. Runs in shadow unless told otherwise: there is no labelled data to measure it with.

>>> [is_placeholder(value) for value in ("", None, "<order_id>", "TBD", "{{user.id}}", "$1.id", "ord_8f3", 0)]
[True, True, True, True, True, True, False, False]

Source: mission facts ("parallel calls with a dependency: the second call's argument is empty or stale
although the sibling's result supplies it").
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

import orjson

from collector.step import Kind, Outcome
from detectors.bounds import is_unknown_session
from detectors.protocol import Finding, Severity, finding_id
from detectors.scope import Recent
from detectors.signature import normal_name
from detectors.streaks import Mark, Reported
from detectors.tuning import Tuned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collector.step import Json, Step
    from detectors.reading import Reading

KIND: Final = "dependency_missed"
RULE: Final = "dependency_missed/1"

_SIBLINGS_KEPT = 16
_FIELDS_KEPT = 24
_SUPPLIED_KEPT = 256
_RESULT_CHARS = 16_384
_SPANS_KEPT = 6
_DEPTH = 3
_PLACEHOLDER_CHARS = 80
_NOTE, _ALARM = 0, 1
_PLACEHOLDER = re.compile(
    r"\s*|<[^<>]{1,60}>|\{\{?[^{}]{1,60}\}?\}|\$\{?[\w.\[\]]{1,60}\}?|\[[A-Z_ ]{2,40}\]|[xX]{3,}|\?{1,4}"
    r"|(?i:tbd|todo|null|none|nil|undefined|unknown|placeholder|n/?a|pending|to be (?:determined|filled)"
    r"|result of .{1,60}|output of .{1,60}|from (?:previous|above).{0,60}|previous[ _]\w{1,40})"
)
_GENERIC = frozenset({"id", "name", "value", "key", "data", "result"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DependencyMissedConfig:
    """Settings.

    `calls`: such calls of one tool in a scope, for an alarm. `tools_kept`: tools remembered in a scope.
    `shadow`: findings are recorded only.
    """

    shadow: bool = True
    calls: int = 2
    tools_kept: int = 32

    def __post_init__(self) -> None:
        for name in ("calls", "tools_kept"):
            if getattr(self, name) < 1:
                raise ValueError(f"{KIND}.{name} must be at least 1, not {getattr(self, name)!r}")


_DEFAULTS = Tuned(DependencyMissedConfig())


@dataclass(slots=True)
class _Sibling:
    """A call of the current message: what it lacks, what it was given, what it supplies, by normal name."""

    mark: Mark
    lacks: list[str]
    given: dict[str, int]
    supplies: dict[str, int]
    wrong: bool
    told: bool = False

    def json(self) -> Json:
        return [
            list(self.mark),
            list(self.lacks),
            dict(self.given),
            dict(self.supplies),
            self.wrong,
            self.told,
        ]

    @staticmethod
    def load(state: Any) -> _Sibling:  # noqa: ANN401 - JSON that `json` wrote
        return _Sibling(Mark(*state[0]), list(state[1]), dict(state[2]), dict(state[3]), state[4], state[5])


@dataclass(slots=True)
class _Missed:
    """Such calls of one tool so far."""

    first: Mark
    reported: Reported
    count: int = 0
    spans: tuple[str, ...] = ()


class DependencyMissed:
    """Watches one scope, one (session, agent)."""

    def __init__(self, tuned: Tuned[DependencyMissedConfig] = _DEFAULTS) -> None:
        self._tuned = tuned
        self._clear()

    def _clear(self) -> None:
        self._attempt = ""
        self._siblings: list[_Sibling] = []
        self._supplied = Recent[str, int](_SUPPLIED_KEPT)
        self._missed = Recent[str, _Missed](self._tuned.base.tools_kept)

    def observe(self, reading: Reading) -> Sequence[Finding]:
        """Take one step in; return the calls of its message that lack what a sibling supplies."""
        step = reading.step
        if step.kind is not Kind.TOOL_CALL or step.tool is None or not step.attempt_id:
            return ()
        if step.outcome is Outcome.DENIED or step.late:
            return ()
        if step.attempt_id != self._attempt:
            self._close()
            self._attempt = step.attempt_id
        if len(self._siblings) >= _SIBLINGS_KEPT:
            return ()
        now = _sibling_of(reading)
        findings = [finding for other in self._siblings for finding in self._compare(step, now, other)]
        self._siblings.append(now)
        return findings

    def snapshot(self) -> Json:
        """All state, as JSON: names of fields, hashes of values, counters."""
        return {
            "attempt": self._attempt,
            "siblings": [sibling.json() for sibling in self._siblings],
            "supplied": [[name, value] for name, value in self._supplied.items()],
            "missed": [
                [tool, [list(m.first), m.reported.json(), m.count, list(m.spans)]]
                for tool, m in self._missed.items()
            ],
        }

    def restore(self, state: Json) -> None:
        """Take over a state that `snapshot` returned."""
        self._clear()
        saved: Any = state
        self._attempt = saved["attempt"]
        self._siblings = [_Sibling.load(sibling) for sibling in saved["siblings"]]
        for name, value in saved["supplied"]:
            self._supplied.put(name, value)
        for tool, (first, reported, count, spans) in saved["missed"]:
            self._missed.put(tool, _Missed(Mark(*first), Reported(*reported), count, tuple(spans)))

    def _close(self) -> None:
        """The message is over: what its calls supplied is what the next ones may know."""
        for sibling in self._siblings:
            for name, value in sibling.supplies.items():
                self._supplied.put(f"{sibling.mark.tool}\x1f{name}", value)
        self._siblings = []

    def _compare(self, step: Step, now: _Sibling, other: _Sibling) -> list[Finding]:
        findings: list[Finding] = []
        for needs, supplies in ((now, other), (other, now)):
            if needs.told:
                continue
            rule, name = self._missing(needs, supplies)
            if rule:
                needs.told = True
                findings.extend(self._say(step, needs, supplies, (rule, name)))
        return findings

    def _missing(self, needs: _Sibling, supplies: _Sibling) -> tuple[str, str]:
        """Which rule a call breaks, and the argument; two empty texts when it is in order."""
        for name in needs.lacks:
            if _supplies(supplies, name) is not None:
                return "empty", name
        if needs.wrong:
            for name, value in needs.given.items():
                fresh = _supplies(supplies, name)
                before = self._supplied.get(f"{supplies.mark.tool}\x1f{name}")
                if fresh is not None and before == value and fresh != value:
                    return "stale", name
        return "", ""

    def _say(self, step: Step, needs: _Sibling, supplies: _Sibling, what: tuple[str, str]) -> list[Finding]:
        rule, name = what
        config = self._tuned.of(needs.mark.tool)
        missed = self._missed.touch(needs.mark.tool)
        if missed is None:
            missed = _Missed(needs.mark, Reported())
            self._missed.put(needs.mark.tool, missed)
        missed.count += 1
        missed.spans = (*missed.spans, needs.mark.span_id, supplies.mark.span_id)[-_SPANS_KEPT:]
        rank = _ALARM if missed.count >= config.calls and not is_unknown_session(step.session_id) else _NOTE
        if not missed.reported.due(rank, missed.count):
            return []
        absent: list[Json] = ["session"] if is_unknown_session(step.session_id) else []
        return [
            Finding(
                id=finding_id(RULE, missed.first.step_id),
                kind=KIND,
                severity=Severity.WARNING if missed.reported.rank == _ALARM else Severity.INFO,
                revision=missed.reported.revision,
                session_id=step.session_id,
                session_ids=(step.session_id,),
                run_id=step.run_id,
                service=step.service,
                agent=step.agent,
                tool=needs.mark.tool,
                trace_id=step.trace_id,
                span_id=step.span_id,
                first_span_id=missed.first.span_id,
                step_id=step.step_id,
                started_at=min(missed.first.start_ns, step.end_ns),
                detected_at=step.end_ns,
                occurrences=missed.count,
                summary=f"{needs.mark.tool}: {name} is {rule}; {supplies.mark.tool} beside it supplies it",
                detector=KIND,
                evidence={
                    "rule": rule,
                    "count": missed.count,
                    "threshold": config.calls,
                    "parameter": name,
                    "supplied_by": supplies.mark.tool,
                    "span_ids": list(missed.spans),
                    "missing": absent,
                    "resets": ["calls that are made one after the other"],
                    "since_onset": {"calls": missed.count},
                },
            )
        ]


def is_placeholder(value: Json) -> bool:
    """Whether a value only stands for one that is not known yet."""
    if not isinstance(value, str):
        return value is None
    return len(value) <= _PLACEHOLDER_CHARS and _PLACEHOLDER.fullmatch(value) is not None


def _sibling_of(reading: Reading) -> _Sibling:
    step = reading.step
    lacks: list[str] = []
    given: dict[str, int] = {}
    wrong = reading.went_wrong
    if isinstance(step.arguments, Mapping):
        for name, value in list(step.arguments.items())[:_FIELDS_KEPT]:
            spelled = normal_name(name)
            if is_placeholder(value):
                lacks.append(spelled)
            elif wrong and isinstance(value, (str, int, float)) and not isinstance(value, bool):
                given[spelled] = crc32(str(value).encode("utf-8", "surrogatepass"))
    supplies = {} if wrong else _fields(step.result)
    return _Sibling(Mark.of(step), lacks, given, supplies, wrong)


def _fields(result: str | None) -> dict[str, int]:
    """The fields of a result that is an object, by normal name: hashes of their plain values."""
    if not result or result[:1] not in "{[" or len(result) > _RESULT_CHARS:
        return {}
    try:
        read: Any = orjson.loads(result)
    except ValueError:
        return {}
    fields: dict[str, int] = {}
    for name, value in _leaves(read, 0):
        if len(fields) == _FIELDS_KEPT:
            break
        fields.setdefault(normal_name(name), crc32(value.encode("utf-8", "surrogatepass")))
    return fields


def _leaves(read: Any, depth: int) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - JSON
    if isinstance(read, list):
        for item in read[:3]:
            yield from _leaves(item, depth)
    elif isinstance(read, dict) and depth < _DEPTH:
        for name, value in read.items():
            if isinstance(value, (dict, list)):
                yield from _leaves(value, depth + 1)
            elif value not in (None, "") and not isinstance(value, bool):
                yield name, str(value)


def _supplies(sibling: _Sibling, name: str) -> int | None:
    """What a sibling supplies under an argument's name, `id` where its tool is about that thing included."""
    found = sibling.supplies.get(name)
    if found is not None and name not in _GENERIC:
        return found
    thing = name.removesuffix("id")
    if thing and thing != name and thing in normal_name(sibling.mark.tool):
        return sibling.supplies.get("id")
    return None
