"""Tool degraded: a tool's success fell below what it was, or below what a team asks of it.

One tool in one version of a service, over all sessions. The latest calls are compared with those before them:
the upper bound of their success (Wilson's 99 % interval) has to lie below the lower bound of the usual one,
less a margin. What is learned in bad times is no measure, so nothing is learned until the tool has recovered.

Source: the mission's sources: when a tool's success falls below its threshold, shrink the candidate set to
the business domain's minimum.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from collector.step import Kind, Outcome
from detectors.proportions import wilson_high, wilson_low
from detectors.protocol import Finding, Severity, finding_id
from detectors.signature import hash64
from detectors.streaks import SPANS_KEPT, Mark, Reported
from detectors.tuning import Tuned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collector.step import Json
    from detectors.reading import Reading

KIND: Final = "tool_degraded"
RULE: Final = "tool_degraded/1"
_ALARM: Final = 1
_LEARNED_CALLS: Final = 20_000
_NAMED: Final = 16
_ADVICE: Final = "offer the model only the tools that this business domain needs at least, without this one"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDegradedConfig:
    """Thresholds of the detector; counts are calls of the tool.

    `recent`: the latest ones that are judged, `per_session` of a session at most: who fails once fails again.
    `calls`: of these at least. `learned`: calls before them that
    have to be known. `sessions`: distinct ones that have to see failures. `margin`: how far below the usual
    success the recent one has to lie; the tool has recovered at half of it. `min_success`: an absolute floor,
    whatever is usual; 0 is off. `shadow`: findings are recorded only.
    """

    shadow: bool = False
    recent: int = 60
    per_session: int = 2
    calls: int = 20
    learned: int = 100
    sessions: int = 5
    margin: float = 0.1
    min_success: float = 0.0

    def __post_init__(self) -> None:
        for name in ("recent", "calls", "learned", "sessions"):
            if getattr(self, name) < 2:  # noqa: PLR2004 - one call is no rate
                raise ValueError(f"{KIND}.{name} must be at least 2, not {getattr(self, name)!r}")
        if self.per_session < 1:
            raise ValueError(f"{KIND}.per_session must be at least 1, not {self.per_session!r}")
        if self.calls > self.recent:
            raise ValueError(f"{KIND}.calls must be at most recent, not {self.calls!r}")
        for name in ("margin", "min_success"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(
                    f"{KIND}.{name} must be at least 0 and less than 1, not {getattr(self, name)!r}"
                )


_DEFAULTS = Tuned(ToolDegradedConfig())


@dataclass(slots=True)
class _Failure:
    """A failed call among the latest: who saw it, why it failed."""

    name: str
    error_class: str
    mark: Mark

    def json(self) -> Json:
        """The failure for a checkpoint."""
        return [self.name, self.error_class, list(self.mark)]


@dataclass(slots=True)
class _Bad:
    """A time in which the tool is degraded: its first failure, the floor it fell through, calls since."""

    first: Mark
    usual: float
    failed: int
    said: Reported = field(default_factory=Reported)

    def json(self) -> Json:
        """The time for a checkpoint."""
        said = self.said
        return [list(self.first), self.usual, self.failed, said.rank, said.next_count, said.revision]


class ToolDegraded:
    """Watches one tool of one version of a service, for all sessions."""

    def __init__(self, tuned: Tuned[ToolDegradedConfig] = _DEFAULTS) -> None:
        self._tuned = tuned
        self._clear_all()

    def _clear_all(self) -> None:
        self._recent: deque[tuple[int, _Failure | None]] = deque()
        self._of_session: dict[int, int] = {}
        self._failed = 0
        self._learned_calls = 0
        self._learned_failed = 0
        self._bad: _Bad | None = None

    def observe(self, reading: Reading) -> Sequence[Finding]:
        """Take one call in, of whatever session; say when too many of the latest have failed."""
        step = reading.step
        if (
            step.kind is not Kind.TOOL_CALL
            or step.outcome is Outcome.DENIED
            or step.outcome is Outcome.UNKNOWN
        ):
            return ()
        config = self._tuned.of(step.tool)
        verdict = reading.verdict
        session = hash64(step.session_id)
        before = self._of_session.get(session, 0)
        if before >= config.per_session:
            return ()
        self._of_session[session] = before + 1
        failure = None
        if verdict is not None:
            failure = _Failure(step.session_id, verdict.error_class.value, Mark.of(step))
            self._failed += 1
        self._recent.append((session, failure))
        if len(self._recent) > config.recent:
            self._learn(*self._recent.popleft())
        if failure is None:
            if self._bad is not None and self._has_recovered(self._bad, config):
                self._bad = None
            return ()
        return self._judge(reading, config)

    def snapshot(self) -> Json:
        """All state, as JSON: counts, and the failures among the latest calls."""
        recent: list[Json] = [[session, None if one is None else one.json()] for session, one in self._recent]
        return {
            "recent": recent,
            "learned": [self._learned_calls, self._learned_failed],
            "bad": None if self._bad is None else self._bad.json(),
        }

    def restore(self, state: Json) -> None:
        """Take over a state that `snapshot` returned."""
        self._clear_all()
        saved: Any = state
        for session, one in saved["recent"]:
            self._recent.append((session, one and _Failure(one[0], one[1], Mark(*one[2]))))
            self._of_session[session] = self._of_session.get(session, 0) + 1
        self._failed = len(self._failures())
        self._learned_calls, self._learned_failed = saved["learned"]
        if saved["bad"] is not None:
            first, usual, failed, *said = saved["bad"]
            self._bad = _Bad(Mark(*first), usual, failed, Reported(*said))

    def _failures(self) -> list[_Failure]:
        return [one for _, one in self._recent if one is not None]

    def _learn(self, session: int, oldest: _Failure | None) -> None:
        """A call is recent no more: what it was is usual, unless these are bad times."""
        self._of_session[session] -= 1
        if not self._of_session[session]:
            del self._of_session[session]
        self._failed -= oldest is not None
        if self._bad is not None:
            return
        self._learned_calls += 1
        self._learned_failed += oldest is not None
        if self._learned_calls > _LEARNED_CALLS:
            self._learned_calls //= 2
            self._learned_failed //= 2

    def _usual(self) -> float:
        return 1 - self._learned_failed / self._learned_calls if self._learned_calls else 1.0

    def _has_recovered(self, bad: _Bad, config: ToolDegradedConfig) -> bool:
        calls = len(self._recent)
        return 1 - self._failed / calls >= bad.usual - config.margin / 2

    def _floor(self, config: ToolDegradedConfig) -> float:
        """The success below which the tool is degraded; 0 while too little is known."""
        if self._learned_calls < config.learned:
            return config.min_success
        low = wilson_low(self._learned_calls - self._learned_failed, self._learned_calls)
        return max(config.min_success, low - config.margin)

    def _judge(self, reading: Reading, config: ToolDegradedConfig) -> Sequence[Finding]:
        bad = self._bad
        if bad is None:
            calls = len(self._recent)
            if calls < config.calls or wilson_high(calls - self._failed, calls) >= self._floor(config):
                return ()
            failures = self._failures()
            if len({one.name for one in failures}) < config.sessions:
                return ()
            known = self._learned_calls >= config.learned
            usual = self._usual() if known else config.min_success
            bad = self._bad = _Bad(failures[0].mark, usual, len(failures) - 1)
        bad.failed += 1
        if not bad.said.due(_ALARM, bad.failed):
            return ()
        return [self._finding(reading, bad, config)]

    def _finding(self, reading: Reading, bad: _Bad, config: ToolDegradedConfig) -> Finding:
        step = reading.step
        failures = self._failures()
        classes = Counter(one.error_class for one in failures)
        calls = len(self._recent)
        success = 1 - len(failures) / calls
        root = classes.most_common(1)[0][0]
        evidence: dict[str, Json] = {
            "rule": "success_fell",
            "count": bad.failed,
            "threshold": round(self._floor(config), 3),
            "fleet": True,
            "success": round(success, 3),
            "usual_success": round(bad.usual, 3),
            "calls": calls,
            "learned_calls": self._learned_calls,
            "sessions": len({one.name for one in failures}),
            "error_class": root,
            "error_classes": dict(classes.most_common(8)),
            "advice": _ADVICE,
            "service_version": step.service_version,
            "span_ids": [one.mark.span_id for one in failures[-SPANS_KEPT:]],
            "missing": [],
            "resets": [f"{bad.usual - config.margin / 2:.0%} of the latest {config.recent} calls working"],
            "since_onset": {"calls": bad.failed},
        }
        return Finding(
            id=finding_id(RULE, bad.first.step_id),
            kind=KIND,
            severity=Severity.WARNING,
            revision=bad.said.revision,
            session_id="",
            session_ids=tuple(dict.fromkeys(one.name for one in failures))[:_NAMED],
            service=step.service,
            tool=step.tool,
            trace_id=step.trace_id,
            span_id=step.span_id,
            first_span_id=bad.first.span_id,
            step_id=step.step_id,
            started_at=min(bad.first.start_ns, step.end_ns),
            detected_at=step.end_ns,
            occurrences=bad.failed,
            summary=(
                f"{step.tool}: {success:.0%} of the latest {calls} calls worked, usually {bad.usual:.0%} do "
                f"(mostly {root} errors, {evidence['sessions']} sessions)"
            ),
            detector=KIND,
            evidence=evidence,
        )
