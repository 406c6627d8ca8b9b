"""Learned budget: a session used far more tokens than healthy ones of the same agent do.

One agent of a service, over all sessions. A session is finished when it has been idle, and healthy when its
last call worked and nothing was said of it. Of the latest finished healthy ones the 95th percentile is taken;
nothing is said before there are enough of them. A learned ceiling is a suspicion: a warning, never more.

Source: the mission's sources: a self-healing budget of M tokens per task.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from collector.step import Kind
from detectors.bounds import is_unknown_session
from detectors.protocol import Finding, Severity, finding_id
from detectors.scope import Recent
from detectors.streaks import Mark, Reported
from detectors.tuning import Tuned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collector.step import Json
    from detectors.reading import Reading

KIND: Final = "budget"
NAME: Final = "learned_budget"
RULE: Final = "learned_budget/1"
_ALARM: Final = 1
_COUNTS_FROM: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedBudgetConfig:
    """Settings of the detector.

    `factor`: how many times the healthy quantile a session may use. `quantile`: of healthy sessions' tokens.
    `learned`: finished healthy sessions that have to be known. `kept`: the latest of them. `idle_s`: seconds
    after which a session is finished. `open_kept`: sessions that are followed at the same time. `shadow`:
    findings are recorded only.
    """

    shadow: bool = False
    factor: float = 3.0
    quantile: float = 0.95
    learned: int = 50
    kept: int = 512
    idle_s: float = 1800.0
    open_kept: int = 512

    def __post_init__(self) -> None:
        if not self.factor >= 1:
            raise ValueError(f"{NAME}.factor must be at least 1, not {self.factor!r}")
        if not 0 < self.quantile < 1:
            raise ValueError(f"{NAME}.quantile must be more than 0 and less than 1, not {self.quantile!r}")
        for name in ("learned", "kept", "open_kept"):
            if getattr(self, name) < 2:  # noqa: PLR2004 - one session is no distribution
                raise ValueError(f"{NAME}.{name} must be at least 2, not {getattr(self, name)!r}")
        if self.learned > self.kept:
            raise ValueError(f"{NAME}.learned must be at most kept, not {self.learned!r}")
        if not self.idle_s > 0:
            raise ValueError(f"{NAME}.idle_s must be more than 0 seconds, not {self.idle_s!r}")


_DEFAULTS = Tuned(LearnedBudgetConfig())


@dataclass(slots=True)
class _Session:
    """A session that goes on."""

    first: Mark
    tokens: int = 0
    calls: int = 0
    last_ns: int = 0
    failing: bool = False
    said: Reported | None = None


class LearnedBudget:
    """Watches one agent of a service, for all sessions."""

    def __init__(self, tuned: Tuned[LearnedBudgetConfig] = _DEFAULTS) -> None:
        self._config = tuned.base
        self._clear_all()

    def _clear_all(self) -> None:
        self._open = Recent[str, _Session](self._config.open_kept)
        self._in_order: deque[int] = deque()
        self._sorted: list[int] = []

    def observe(self, reading: Reading) -> Sequence[Finding]:
        """Take one step in, of whatever session; say when the session uses far more than healthy ones."""
        step = reading.step
        if step.kind is Kind.TOOL_CALL:
            session = self._open.touch(step.session_id)
            if session is not None:
                session.failing = reading.went_wrong
                session.last_ns = max(session.last_ns, step.end_ns)
            return ()
        if step.kind is not Kind.MODEL_CALL and step.kind is not Kind.COMPACTION:
            return ()
        self._finish_before(step.end_ns - int(self._config.idle_s * 1e9))
        session = self._open.touch(step.session_id)
        if session is None:
            session = _Session(Mark.of(step))
            if len(self._open) >= self._open.limit:
                self._finish_oldest()
            self._open.put(step.session_id, session)
        session.tokens += (step.usage.input_tokens or 0) + (step.usage.output_tokens or 0)
        session.calls += 1
        session.last_ns = max(session.last_ns, step.end_ns)
        session.failing = reading.failed
        if len(self._sorted) < self._config.learned:
            return ()
        usual = self._usual()
        ceiling = self._config.factor * usual
        if ceiling <= 0 or session.tokens < ceiling:
            return ()
        if session.said is None:
            session.said = Reported()
        if not session.said.due(_ALARM, int(_COUNTS_FROM * session.tokens / ceiling)):
            return ()
        return [self._finding(reading, session, session.said, usual)]

    def snapshot(self) -> Json:
        """All state, as JSON: session ids, token counts."""
        return {
            "open": [
                [
                    name,
                    list(one.first),
                    one.tokens,
                    one.calls,
                    one.last_ns,
                    one.failing,
                    None if one.said is None else [one.said.rank, one.said.next_count, one.said.revision],
                ]
                for name, one in self._open.items()
            ],
            "healthy": list(self._in_order),
        }

    def restore(self, state: Json) -> None:
        """Take over a state that `snapshot` returned."""
        self._clear_all()
        saved: Any = state
        for name, first, tokens, calls, last_ns, failing, said in saved["open"]:
            reported = None if said is None else Reported(*said)
            self._open.put(name, _Session(Mark(*first), tokens, calls, last_ns, failing, reported))
        self._in_order.extend(saved["healthy"])
        self._sorted = sorted(self._in_order)

    def _usual(self) -> int:
        """The quantile of the finished healthy sessions."""
        return self._sorted[min(len(self._sorted) - 1, int(self._config.quantile * len(self._sorted)))]

    def _finish_before(self, limit_ns: int) -> None:
        """Finish the sessions that have been idle."""
        while (oldest := self._open.oldest()) is not None and oldest[1].last_ns < limit_ns:
            self._finish_oldest()

    def _finish_oldest(self) -> None:
        oldest = self._open.oldest()
        if oldest is None:
            return
        name, session = oldest
        self._open.pop(name)
        if session.failing or session.said is not None or not session.tokens:
            return
        self._in_order.append(session.tokens)
        insort(self._sorted, session.tokens)
        if len(self._in_order) > self._config.kept:
            del self._sorted[bisect_left(self._sorted, self._in_order.popleft())]

    def _finding(self, reading: Reading, session: _Session, said: Reported, usual: int) -> Finding:
        step = reading.step
        ceiling = self._config.factor * usual
        evidence: dict[str, Json] = {
            "rule": "learned_tokens",
            "count": session.tokens,
            "threshold": round(ceiling),
            "usual_tokens": usual,
            "quantile": self._config.quantile,
            "learned_sessions": len(self._sorted),
            "span_ids": [session.first.span_id, step.span_id],
            "missing": ["session"] if is_unknown_session(step.session_id) else [],
            "resets": [f"{self._config.idle_s:g} s without a call"],
            "since_onset": {"calls": session.calls},
        }
        return Finding(
            id=finding_id(RULE, session.first.step_id),
            kind=KIND,
            severity=Severity.WARNING,
            revision=said.revision,
            session_id=step.session_id,
            session_ids=(step.session_id,),
            run_id=step.run_id,
            service=step.service,
            agent=step.agent,
            trace_id=step.trace_id,
            span_id=step.span_id,
            first_span_id=session.first.span_id,
            step_id=step.step_id,
            started_at=min(session.first.start_ns, step.end_ns),
            detected_at=step.end_ns,
            occurrences=max(2, session.calls),
            summary=(
                f"{session.tokens:,} tokens used; {self._config.quantile:.0%} of this agent's healthy "
                f"sessions stay below {usual:,}"
            ),
            detector=NAME,
            evidence=evidence,
        )
