"""Soft failure: the tool said ok, the content says otherwise.

What counts as such is said in `detectors.soft_text`: an error page, truncated JSON, a wrapped `isError`, a
status of 400 or more, "timed out" and its like in a short text. Each is a note, once a tool; `in_a_row` of
them from one tool, with no good result of it in between, are a `warning`: dashboards count them as good.

>>> from collector.step import Kind, Outcome, Step
>>> from detectors.reading import Reading
>>> step = {"kind": Kind.TOOL_CALL, "session_id": "s", "start_ns": 1, "end_ns": 2, "tool": "get"}
>>> bad = {"result": '{"success": false}', "outcome": Outcome.OK}
>>> judge = SoftFailure()
>>> [f.severity.value for n in "123" for f in judge.observe(Reading(Step(step_id=n, **step, **bad)))]
['info', 'warning']

Source: mission facts ("HTTP 200 is no success"); measured on real messages that were reported as successes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from collector.step import Kind, Outcome
from detectors.bounds import is_unknown_session
from detectors.protocol import Finding, Severity, finding_id
from detectors.scope import Recent
from detectors.streaks import Mark, Reported
from detectors.tuning import Tuned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collector.step import Json
    from detectors.reading import Reading

KIND: Final = "soft_failure"
RULE: Final = "soft_failure/1"

_SPANS_KEPT = 6
_SHOWN_CHARS = 80
_NOTE, _ALARM = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftFailureConfig:
    """Settings.

    `in_a_row`: soft failures of one tool without a good result of it in between, for an alarm. `tools_kept`:
    tools followed in a scope. `shadow`: findings are recorded only.
    """

    shadow: bool = False
    in_a_row: int = 3
    tools_kept: int = 64

    def __post_init__(self) -> None:
        for name in ("in_a_row", "tools_kept"):
            if getattr(self, name) < 1:
                raise ValueError(f"{KIND}.{name} must be at least 1, not {getattr(self, name)!r}")


_DEFAULTS = Tuned(SoftFailureConfig())


@dataclass(slots=True)
class _Failing:
    """Soft failures of one tool since its last good result."""

    first: Mark
    reported: Reported
    count: int = 0
    spans: tuple[str, ...] = ()


class SoftFailure:
    """Watches one scope, one (session, agent)."""

    def __init__(self, tuned: Tuned[SoftFailureConfig] = _DEFAULTS) -> None:
        self._tuned = tuned
        self._failing = Recent[str, _Failing](tuned.base.tools_kept)

    def observe(self, reading: Reading) -> Sequence[Finding]:
        """Take one step in; return the success that is none."""
        step = reading.step
        if step.kind is not Kind.TOOL_CALL or step.tool is None:
            return ()
        if reading.soft is None:
            if step.outcome is Outcome.OK and not step.late and self._failing:
                self._failing.pop(step.tool)
            return ()
        return self._say(reading, step.tool)

    def snapshot(self) -> Json:
        """All state, as JSON: names of tools, counters, span ids."""
        return [
            [tool, [list(f.first), f.reported.json(), f.count, list(f.spans)]]
            for tool, f in self._failing.items()
        ]

    def restore(self, state: Json) -> None:
        """Take over a state that `snapshot` returned."""
        self._failing.clear()
        saved: Any = state
        for tool, (first, reported, count, spans) in saved:
            self._failing.put(tool, _Failing(Mark(*first), Reported(*reported), count, tuple(spans)))

    def _say(self, reading: Reading, tool: str) -> Sequence[Finding]:
        step, soft, config = reading.step, reading.soft, self._tuned.of(tool)
        failing = self._failing.touch(tool)
        if failing is None:
            failing = _Failing(Mark.of(step), Reported())
            self._failing.put(tool, failing)
        failing.count += 1
        failing.spans = (*failing.spans, step.span_id)[-_SPANS_KEPT:]
        rank = _ALARM if failing.count >= config.in_a_row else _NOTE
        if soft is None or not failing.reported.due(rank, failing.count):
            return ()
        verdict = reading.verdict
        missing: list[Json] = ["session"] if is_unknown_session(step.session_id) else []
        return [
            Finding(
                id=finding_id(RULE, failing.first.step_id),
                kind=KIND,
                severity=Severity.WARNING if failing.reported.rank == _ALARM else Severity.INFO,
                revision=failing.reported.revision,
                session_id=step.session_id,
                session_ids=(step.session_id,),
                run_id=step.run_id,
                service=step.service,
                agent=step.agent,
                tool=tool,
                trace_id=step.trace_id,
                span_id=step.span_id,
                first_span_id=failing.first.span_id,
                step_id=step.step_id,
                started_at=min(failing.first.start_ns, step.end_ns),
                detected_at=step.end_ns,
                occurrences=failing.count,
                summary=f"{tool}: reported ok, but its result says otherwise ({soft.words[:_SHOWN_CHARS]})",
                detector=KIND,
                evidence={
                    "rule": soft.rule,
                    "count": failing.count,
                    "threshold": config.in_a_row,
                    "words": soft.words[:_SHOWN_CHARS],
                    "error_class": verdict.error_class.value if verdict is not None else "unknown",
                    "span_ids": list(failing.spans),
                    "missing": missing,
                    "resets": ["a good result of the tool"],
                    "since_onset": {"calls": failing.count},
                },
            )
        ]
