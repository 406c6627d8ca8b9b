"""Fleet-wide storms: one target fails for many sessions at once.

Two rules over the calls of all sessions to one target in five minutes, both against the share of failures
that is usual there (12 to 18 % of the calls in production fail, and that is no incident):

`transient`: most calls fail for a reason that may go away, in several sessions. Each alone may look modest.
`same_step`: the same step fails in the same way several times in a row, in several sessions, whatever the
reason: a compaction without a ceiling, a tool whose credentials are gone.

One finding a storm; it belongs to no session, names some, and ends when the share has halved.

Source: peers' rules (13: fleet-wide per target); the field report of 1,279 sessions with 50 and more
consecutive failures of a compaction step each.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from collector.step import Kind, Outcome
from detectors.endpoint import failure_of, may_go_away
from detectors.fleet_line import BUCKET_NS, FleetLine
from detectors.proportions import wilson_low
from detectors.protocol import Finding, Severity, finding_id
from detectors.scope import Recent
from detectors.signature import hash64
from detectors.streaks import SPANS_KEPT, Mark, Reported
from detectors.tuning import Tuned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collector.step import Json, Step
    from detectors.errors import Verdict
    from detectors.reading import Reading

KIND: Final = "retry_storm"
NAME: Final = "fleet_retry_storm"
RULE: Final = "fleet_retry_storm/1"
_CONFIRMED: Final = 2
_MOSTLY_IN_STEP: Final = 0.5
_CALLS: Final = frozenset({Kind.TOOL_CALL, Kind.MODEL_CALL, Kind.COMPACTION})
_EXCERPT: Final = 80
_TARGET_CHARS: Final = 200  # as in the findings of sessions, which are compared with it


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetStormConfig:
    """Thresholds of the detector; all count within `window_s` seconds.

    `sessions`: distinct ones that have to fail. `failures`: failed calls. `share`: the part of the calls that
    has to fail; the storm is over at half of it. `lift`: how many times the usual share the failures have to
    exceed, with 99 % confidence. `in_a_row`: failures of one step in a row, in each of the sessions, for the
    rule `same_step`. `sessions_kept`: failing sessions that are followed one by one. `steps_kept`: steps of
    the target that are told apart. `shadow`: findings are recorded only.
    """

    shadow: bool = False
    sessions: int = 5
    failures: int = 20
    share: float = 0.5
    lift: float = 1.5
    in_a_row: int = 3
    window_s: float = 300.0
    sessions_kept: int = 1024
    steps_kept: int = 16

    def __post_init__(self) -> None:
        for name in ("sessions", "failures", "in_a_row", "steps_kept"):
            if getattr(self, name) < 2:  # noqa: PLR2004 - one is no fleet and no repeat
                raise ValueError(f"{NAME}.{name} must be at least 2, not {getattr(self, name)!r}")
        if self.sessions_kept < 2 * self.sessions:
            raise ValueError(
                f"{NAME}.sessions_kept must be at least twice `sessions`, not {self.sessions_kept!r}"
            )
        if not 0 < self.share <= 1:
            raise ValueError(f"{NAME}.share must be more than 0 and at most 1, not {self.share!r}")
        if not self.lift >= 1:
            raise ValueError(f"{NAME}.lift must be at least 1, not {self.lift!r}")
        if not BUCKET_NS / 1e9 <= self.window_s <= 600:  # noqa: PLR2004 - as many buckets as a line keeps
            raise ValueError(f"{NAME}.window_s must be 10 to 600 seconds, not {self.window_s!r}")


_DEFAULTS = Tuned(FleetStormConfig())


@dataclass(slots=True)
class _Storm:
    """A storm that goes on: its rule and step, since when, and what it has cost so far."""

    rule: str
    step: str
    first: Mark
    since: int
    calls: int = 0
    failed: int = 0
    sessions: int = 0
    classes: dict[str, int] = field(default_factory=dict)
    services: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    spans: list[str] = field(default_factory=list)
    said: Reported = field(default_factory=Reported)


class FleetStorm:
    """Watches one target, for all sessions."""

    def __init__(self, tuned: Tuned[FleetStormConfig] = _DEFAULTS) -> None:
        self._config = tuned.base
        self._span = max(1, int(self._config.window_s * 1e9) // BUCKET_NS)
        self._clear_all()

    def _clear_all(self) -> None:
        self._whole = FleetLine(self._config.sessions_kept)
        self._steps = Recent[str, FleetLine](self._config.steps_kept)
        self._storm: _Storm | None = None

    def observe(self, reading: Reading) -> Sequence[Finding]:
        """Take one call in, of whatever session; return the storm that it completes or carries on."""
        step = reading.step
        if step.kind not in _CALLS or step.outcome is Outcome.DENIED or step.outcome is Outcome.UNKNOWN:
            return ()
        verdict = failure_of(reading)
        name = step.tool or step.kind.value
        line = self._steps.touch(name)
        if line is None:
            line = FleetLine(self._config.sessions_kept)
            self._steps.put(name, line)
        transient = verdict is not None and may_go_away(verdict, reading.body or "")
        number = step.end_ns // BUCKET_NS
        session = 0
        if verdict is not None or line.sessions or self._whole.sessions:
            session = hash64(step.session_id)
        self._count(line, reading, number, session, failed=verdict is not None)
        self._count(self._whole, reading, number, session, failed=transient)
        if self._storm is not None:
            self._carry_on(self._storm, reading, name, verdict)
        if verdict is None:
            return ()
        if self._storm is None:
            self._storm = self._begun(name, line, number, transient=transient)
            if self._storm is None:
                return ()
            self._carry_on(self._storm, reading, name, verdict)
        return self._judge(self._storm, reading, number, verdict)

    def snapshot(self) -> Json:
        """All state, as JSON: counts by time, hashes of sessions, some of their ids."""
        storm = self._storm
        return {
            "whole": self._whole.json(),
            "steps": [[name, line.json()] for name, line in self._steps.items()],
            "storm": None if storm is None else _stored(storm),
        }

    def restore(self, state: Json) -> None:
        """Take over a state that `snapshot` returned."""
        self._clear_all()
        saved: Any = state
        self._whole = FleetLine.load(saved["whole"], self._config.sessions_kept)
        for name, line in saved["steps"]:
            self._steps.put(name, FleetLine.load(line, self._config.sessions_kept))
        self._storm = None if saved["storm"] is None else _loaded(saved["storm"])

    def _count(self, line: FleetLine, reading: Reading, number: int, session: int, *, failed: bool) -> None:
        """Add a call to the target's counts, or to those of one of its steps."""
        bucket, new = line.bucket(number)
        if new and number > line.newest:
            self._turn_over(line, number)
        bucket.calls += 1
        if not failed:
            if line.sessions:
                line.worked(session)
            return
        step = reading.step
        bucket.failed += 1
        if bucket.first is None:
            bucket.first = Mark.of(step)
        family = reading.family
        failing = line.failed(session, number, 0 if family is None else family.hash, step.session_id)
        if failing is not None and failing.in_a_row > 1:
            line.retried(step.start_ns // 1_000_000_000)

    def _turn_over(self, line: FleetLine, number: int) -> None:
        """Ten seconds are over: learn from them, let go of what is too old, see whether a storm has ended."""
        past = line.buckets.get(line.newest)
        storm = self._storm
        if past is not None and storm is None:
            line.learn(past)
        before, line.newest = line.newest, number
        line.forget_before(number - self._span if storm is None else min(storm.since, number - self._span))
        if storm is None or line is not self._line_of(storm):
            return
        calls, failed = line.within(before, min(self._span, before - storm.since + 1))
        if number - before > self._span or failed < calls * self._config.share / 2:
            self._storm = None
            line.forget_before(number - self._span)

    def _line_of(self, storm: _Storm) -> FleetLine | None:
        return self._whole if storm.rule == "transient" else self._steps.get(storm.step)

    def _begun(self, name: str, line: FleetLine, number: int, *, transient: bool) -> _Storm | None:
        """The storm that this failure shows; None when there is none."""
        config = self._config
        since = number - self._span + 1
        rule = ""
        whole = self._whole
        if transient and self._is_unusual(whole, number) and whole.failing_since(since) >= config.sessions:
            rule, line = "transient", whole
        elif self._is_unusual(line, number) and line.stuck_alike(config.in_a_row, since) >= config.sessions:
            rule = "same_step"
        first = line.first_failure(number, self._span) if rule else None
        if first is None:
            return None
        storm = _Storm(rule, name, first, first.start_ns // BUCKET_NS)
        storm.calls, storm.failed = line.within(number, self._span)
        storm.calls, storm.failed = storm.calls - 1, storm.failed - 1  # this one is counted as all others
        return storm

    def _is_unusual(self, line: FleetLine, number: int) -> bool:
        """Tell whether so many calls fail that it cannot be the usual share."""
        config = self._config
        needed = min(config.failures, config.sessions * config.in_a_row)
        calls, failed = line.within(number, self._span)
        if failed < (config.failures if line is self._whole else needed) or failed < config.share * calls:
            return False
        return wilson_low(failed, calls) > min(0.95, config.lift * line.usual_share())

    def _carry_on(self, storm: _Storm, reading: Reading, name: str, verdict: Verdict | None) -> None:
        """Add a call to what a storm has cost."""
        if storm.rule == "same_step" and name != storm.step:
            return
        step = reading.step
        storm.calls += 1
        if verdict is None:
            return
        storm.failed += 1
        root = verdict.error_class.value
        storm.classes[root] = storm.classes.get(root, 0) + 1
        if step.service not in storm.services and len(storm.services) < SPANS_KEPT:
            storm.services.append(step.service)
        storm.spans.append(step.span_id)
        if len(storm.spans) > SPANS_KEPT:
            del storm.spans[SPANS_KEPT // 2]

    def _judge(self, storm: _Storm, reading: Reading, number: int, verdict: Verdict) -> Sequence[Finding]:
        """Say that a storm has begun, or that it has doubled."""
        if not storm.said.due(_CONFIRMED, storm.failed):
            return ()
        line = self._line_of(storm)
        if line is None:
            return ()
        storm.sessions = max(storm.sessions, line.failing_since(storm.since))
        storm.names = list(dict.fromkeys([*storm.names, *line.names()]))[:32]
        calls, failed = line.within(number, self._span)
        busiest, in_step = line.busiest_second()
        step = reading.step
        evidence: dict[str, Json] = {
            "rule": storm.rule,
            "count": storm.failed,
            "threshold": self._config.sessions,
            "fleet": True,
            "target": reading.target[:_TARGET_CHARS],
            "step": storm.step,
            "sessions": storm.sessions,
            "sessions_counted": "exactly" if line.level == 0 else f"every {line.weight}th",
            "calls": storm.calls,
            "failed_share": round(failed / max(1, calls), 3),
            "usual_share": round(line.usual_share(), 3),
            "rate_per_minute": round(60 * failed / _span_s(line, number, self._span), 1),
            "error_class": max(storm.classes, key=lambda one: storm.classes[one]),
            "error_classes": dict(storm.classes),
            "services": list(storm.services),
            "retries_in_busiest_second": busiest,
            "synchronized": busiest >= self._config.sessions and in_step >= _MOSTLY_IN_STEP,
            "prescription": verdict.prescription.value,
            "example": (reading.body or "").partition("\x1e")[0][:_EXCERPT],
            "span_ids": list(storm.spans),
            "missing": [],
            "resets": [f"fewer than {self._config.share / 2:.0%} of the calls failing"],
            "since_onset": {"calls": storm.calls},
        }
        return [_finding(storm, step, evidence)]


def _span_s(line: FleetLine, number: int, span: int) -> float:
    """Seconds that the failures in the window lie apart; ten at least."""
    first = line.first_failure(number, span)
    start = number if first is None else max(number - span + 1, first.start_ns // BUCKET_NS)
    return float((number - start + 1) * BUCKET_NS) / 1e9


def _finding(storm: _Storm, step: Step, evidence: dict[str, Json]) -> Finding:
    what = storm.step if storm.rule == "same_step" else "calls"
    in_step = ", all at the same moments" if evidence["synchronized"] else ""
    return Finding(
        id=finding_id(RULE, storm.first.step_id),
        kind=KIND,
        severity=Severity.CRITICAL,
        revision=storm.said.revision,
        session_id="",
        session_ids=tuple(storm.names),
        service=step.service,
        tool=step.tool if storm.rule == "same_step" else None,
        trace_id=step.trace_id,
        span_id=step.span_id,
        first_span_id=storm.first.span_id,
        step_id=step.step_id,
        started_at=min(storm.first.start_ns, step.end_ns),
        detected_at=step.end_ns,
        occurrences=storm.failed,
        summary=(
            f"{evidence['target']}: {what} failed {storm.failed} times in {storm.sessions} sessions "
            f"({evidence['error_class']}), {evidence['rate_per_minute']} a minute{in_step}"
        ),
        detector=NAME,
        evidence=evidence,
    )


def _stored(storm: _Storm) -> Json:
    return [
        storm.rule,
        storm.step,
        list(storm.first),
        storm.since,
        storm.calls,
        storm.failed,
        storm.sessions,
        dict(storm.classes),
        list(storm.services),
        list(storm.names),
        list(storm.spans),
        [storm.said.rank, storm.said.next_count, storm.said.revision],
    ]


def _loaded(state: Any) -> _Storm:  # noqa: ANN401 - JSON that `_stored` wrote
    rule, step, first, since, calls, failed, sessions, classes, services, names, spans, said = state
    return _Storm(
        rule,
        step,
        Mark(*first),
        since,
        calls,
        failed,
        sessions,
        dict(classes),
        list(services),
        list(names),
        list(spans),
        Reported(*said),
    )
