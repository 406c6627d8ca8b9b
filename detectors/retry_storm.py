"""Retry storm: one agent keeps asking an endpoint that is in trouble, without giving it time.

An attempt that fails for a reason that may go away (timeout, rate limit, 5xx, refused connection, also in
band) counts when nobody waited before it: not as long as the failure asked for (`Retry-After`), not clearly
longer than before. Arguments may differ, it is the endpoint that is asked; where they do not, one attempt
more is needed, because that is a doom loop first. A success in between does not clear it, a share of them
does. Calls of one model message are one attempt. Retries of errors that cannot go away are a second rule: the
same call, ten times. Without recorded arguments it is a note.

Source: the rules of other systems (five to six transient failures on one target in five minutes
without growing gaps; ratio-based; Retry-After honoured is fine) and the mission's "retry at most 3".
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from collector.step import Kind, Outcome
from detectors.endpoint import endpoint_of, failure_of, is_local, may_go_away
from detectors.errors import Nature, retry_after_s
from detectors.protocol import Finding, Severity, finding_id
from detectors.retry_line import Line
from detectors.role import Role
from detectors.rows import missing_of, rank_of
from detectors.scope import Recent
from detectors.signature import hash64
from detectors.streaks import Mark, Spent
from detectors.tuning import Tuned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collector.step import Json, Step
    from detectors.errors import Verdict
    from detectors.reading import Reading

KIND: Final = "retry_storm"
RULE: Final = "retry_storm/1"
_SEVERITIES: Final = tuple(Severity)
_ALARM, _CONFIRMED = 1, 2
_RUNS_KEPT: Final = 8
_SPOKEN_NS: Final = 1_000_000_000
_STAYS: Final = frozenset({Nature.STRUCTURAL, Nature.ENVIRONMENTAL})
_HOPELESS: Final = "\x1ehopeless\x1e"
_EXCERPT: Final = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryStormConfig:
    """Thresholds of the detector; counts are attempts, times are seconds.

    `errors`: a warning when transient failures follow each other within `fast_s` on average, `patient_errors`
    when they do not; critical at `confirmed`. `structural`: critical on retries of the same call against an
    error that cannot go away; `structural_models`: the same of model calls and compactions, however far
    apart. `share`: the part of attempts that has to fail. `amplification`: attempts per operation below which
    nothing is said. `window_s`: how far back attempts count. `targets_kept`: bound of the state, in
    endpoints. `shadow`: findings are recorded only.
    """

    shadow: bool = False
    errors: int = 5
    patient_errors: int = 6
    confirmed: int = 10
    structural: int = 10
    structural_models: int = 4
    share: float = 0.7
    amplification: float = 2.0
    window_s: float = 300.0
    fast_s: float = 5.0
    targets_kept: int = 24

    def __post_init__(self) -> None:
        for name in (
            "errors",
            "patient_errors",
            "confirmed",
            "structural",
            "structural_models",
            "targets_kept",
        ):
            if getattr(self, name) < 2:  # noqa: PLR2004 - one attempt is no retry
                raise ValueError(f"{KIND}.{name} must be at least 2, not {getattr(self, name)!r}")
        if not 0 < self.share <= 1:
            raise ValueError(f"{KIND}.share must be more than 0 and at most 1, not {self.share!r}")
        if not self.amplification >= 1:
            raise ValueError(f"{KIND}.amplification must be at least 1, not {self.amplification!r}")
        for name in ("window_s", "fast_s"):
            if not getattr(self, name) > 0:  # nan is not, either
                raise ValueError(f"{KIND}.{name} must be more than 0 seconds, not {getattr(self, name)!r}")


_DEFAULTS = Tuned(RetryStormConfig())


class RetryStorm:
    """Watches one scope, one (session, agent)."""

    def __init__(self, tuned: Tuned[RetryStormConfig] = _DEFAULTS) -> None:
        self._tuned = tuned
        self._clear_all()

    def _clear_all(self) -> None:
        self._lines = Recent[str, Line](self._tuned.base.targets_kept)
        self._unrecorded = Recent[str, bool](self._tuned.base.targets_kept)
        self._spent = Spent()
        self._runs: deque[str] = deque(maxlen=_RUNS_KEPT)
        self._last_ns = 0
        self._turn = 0
        self._after_call = False

    def observe(self, reading: Reading) -> Sequence[Finding]:
        """Take one step in; return the storm that it completes or carries on noticeably."""
        step = reading.step
        kind = step.kind
        if kind is Kind.TOOL_CALL:
            self._spent = self._spent.plus_call()
            self._turn += reading.role is not Role.WAIT
        elif kind is Kind.MODEL_CALL or kind is Kind.COMPACTION:
            self._spent = self._spent.plus_model(step)
        else:
            if kind is Kind.USER_TURN and not step.late and not self._is_fed_back(step):
                self._lines.clear()
                self._enter_run(step)
            return ()
        self._enter_run(step)
        self._last_ns = max(self._last_ns, step.end_ns)
        self._after_call = kind is Kind.TOOL_CALL
        return self._attempt(reading)

    def amend(self, reading: Reading) -> Sequence[Finding]:
        """Take in how a call ended whose end was not known when it was seen."""
        step = reading.step
        if step.outcome is Outcome.UNKNOWN or self._unrecorded.pop(step.step_id) is None:
            return ()
        return self._attempt(reading)

    def absorb(self, state: Json) -> None:
        """Take over what another instance knew of the same scope under another session id, as its past."""
        past = RetryStorm(self._tuned)
        past.restore(state)
        for key, line in past._lines.items():
            present = self._lines.get(key)
            if present is None:
                self._lines.put(key, line)
                continue
            present.attempts.extendleft(reversed(line.attempts))
            present.first, present.onset = line.first, line.onset
            if line.said.rank > present.said.rank:
                present.said = line.said
        self._runs.extendleft(run for run in past._runs if run not in self._runs)

    def snapshot(self) -> Json:
        """All state, as JSON: endpoints, times, counters, hashes, span ids."""
        return {
            "lines": [[key, line.json()] for key, line in self._lines.items()],
            "unrecorded": list(self._unrecorded),
            "spent": list(self._spent),
            "runs": list(self._runs),
            "last_ns": self._last_ns,
            "turn": self._turn,
            "after_call": self._after_call,
        }

    def restore(self, state: Json) -> None:
        """Take over a state that `snapshot` returned."""
        self._clear_all()
        saved: Any = state
        for key, line in saved["lines"]:
            self._lines.put(key, Line.load(line))
        for step_id in saved["unrecorded"]:
            self._unrecorded.put(step_id, value=True)
        self._spent = Spent(*saved["spent"])
        self._runs.extend(saved["runs"])
        self._last_ns, self._after_call = saved["last_ns"], saved["after_call"]
        self._turn = saved["turn"]

    def _is_fed_back(self, step: Step) -> bool:
        """Some frameworks hand results to the model in a user's message, within the run."""
        return step.run_id in self._runs and self._after_call and step.start_ns - self._last_ns < _SPOKEN_NS

    def _enter_run(self, step: Step) -> None:
        """A new run is a new beginning, unless it comes so fast that nobody can have asked for it."""
        if not step.run_id or step.run_id in self._runs:
            return
        if self._runs and step.start_ns - self._last_ns >= self._tuned.base.fast_s * 1e9:
            self._lines.clear()
        self._runs.append(step.run_id)

    def _attempt(self, reading: Reading) -> Sequence[Finding]:
        """Judge a call of a tool or a model."""
        step = reading.step
        verdict = failure_of(reading)
        if verdict is None:
            if step.outcome is Outcome.UNKNOWN:
                self._unrecorded.put(step.step_id, value=True)
            elif self._lines:
                self._worked(reading)
            return ()
        if reading.role is Role.WAIT:
            return ()
        endpoint = endpoint_of(reading)
        if not endpoint:
            return ()
        if may_go_away(verdict, reading.body or ""):
            return self._failed(reading, verdict, endpoint)
        if step.kind is not Kind.TOOL_CALL or verdict.nature in _STAYS:
            return self._failed(reading, verdict, _hopeless_key(reading, endpoint))
        return ()

    def _worked(self, reading: Reading) -> None:
        """A success: one more attempt at its endpoint, and perhaps the end of what others suffered from."""
        step = reading.step
        if step.outcome is Outcome.DENIED:
            return
        endpoint = endpoint_of(reading)
        self._lines.pop(_hopeless_key(reading, endpoint))
        line = self._lines.get(endpoint)
        if line is not None:
            line.attempts.append((step.start_ns, 0))
            line.worked += 1
            if line.share() < self._tuned.of(step.tool).share:
                self._lines.pop(endpoint)
        elif reading.role is Role.CHANGE and not step.late:
            for key in [key for key, line in self._lines.items() if line.local]:
                self._lines.pop(key)

    def _failed(self, reading: Reading, verdict: Verdict, key: str) -> Sequence[Finding]:
        """Count a failure, unless somebody waited for it."""
        step, config = reading.step, self._tuned.of(reading.step.tool)
        hopeless = _HOPELESS in key
        line = self._lines.touch(key)
        if line is not None and not (hopeless and step.kind is not Kind.TOOL_CALL):
            line.forget_before(step.start_ns - int(config.window_s * 1e9))
        if line is None or not line.attempts:
            line = Line(Mark.of(step), self._spent, local=is_local(key.partition(_HOPELESS)[0], reading))
            self._lines.put(key, line)
            what = 1
        elif line.is_same_attempt(step) and not step.late:
            line.end_ns = max(line.end_ns, step.end_ns)
            return ()
        elif step.late:
            what = 1
        else:
            gap = line.pause_before(step)
            line.gaps_ns.append(gap)
            busy = self._turn - line.turn > 1
            what = 2 if line.waited(gap, busy=busy) and not hopeless else 1
        line.attempts.append((step.start_ns, what))
        line.attempt_id, line.turn = step.attempt_id, self._turn
        line.end_ns = max(line.end_ns, step.end_ns)
        asked = None if hopeless else retry_after_s(reading.body or "")
        line.asked_ns = int(asked * 1e9) if asked else 0
        line.keep(step.span_id, hash64(reading.operation), verdict.error_class.value)
        line.call = line.call or reading.call.signature
        line.alike = line.alike and line.call == reading.call.signature and step.kind is Kind.TOOL_CALL
        return () if what > 1 else self._judge(reading, verdict, line, key)

    def _judge(self, reading: Reading, verdict: Verdict, line: Line, key: str) -> Sequence[Finding]:
        """Say what a line's count means."""
        step, config = reading.step, self._tuned.of(reading.step.tool)
        count = line.failures()
        hopeless = _HOPELESS in key
        if hopeless:
            of_model = step.kind is not Kind.TOOL_CALL
            alarm = confirmed = config.structural_models if of_model else config.structural
        else:
            fast = sum(line.gaps_ns) < config.fast_s * 1e9 * max(1, len(line.gaps_ns))
            # One call made again and again is a doom loop first; it becomes a storm when it goes on.
            alarm = (config.errors if fast else config.patient_errors) + line.alike
            confirmed = max(config.confirmed, alarm)
        if count < alarm or line.share() < config.share or line.amplification() < config.amplification:
            return ()
        missing = missing_of(step, arguments=step.kind is Kind.TOOL_CALL)
        rank = rank_of(count, alarm, confirmed, missing)
        if not line.said.due(rank, count):
            return ()
        threshold = confirmed if rank == _CONFIRMED else alarm
        return [self._finding(reading, verdict, line, key, (count, threshold))]

    def _finding(
        self, reading: Reading, verdict: Verdict, line: Line, key: str, counted: tuple[int, int]
    ) -> Finding:
        """What to say of a line: `counted` is the count and the threshold that it reached."""
        config = self._tuned.of(reading.step.tool)
        step = reading.step
        missing = missing_of(step, arguments=step.kind is Kind.TOOL_CALL)
        endpoint, hopeless, _ = key.partition(_HOPELESS)
        count, threshold = counted
        root = line.root()
        gaps: list[Json] = [round(gap / 1e9, 3) for gap in line.gaps_ns]
        span_s = max(1e-9, (step.end_ns - line.attempts[0][0]) / 1e9)
        evidence: dict[str, Json] = {
            "rule": "structural" if hopeless else "transient",
            "count": count,
            "threshold": threshold,
            "endpoint": endpoint,
            "error_class": root,
            "error_classes": dict(line.classes),
            "attempts": len(line.attempts),
            "failed_share": round(line.share(), 3),
            "succeeded": line.worked,
            "operations": len(line.operations),
            "amplification": round(line.amplification(), 2),
            "gaps_s": gaps,
            "rate_per_minute": round(60 * len(line.attempts) / max(span_s, 1.0), 1),
            "window_s": config.window_s,
            "can_go_away": not hopeless,
            "prescription": verdict.prescription.value,
            "example": (reading.body or "").partition("\x1e")[0][:_EXCERPT],
            "span_ids": list(line.spans),
            "missing": missing,
            "resets": _resets(config, hopeless=bool(hopeless)),
            "since_onset": self._spent.since(line.onset),
        }
        if line.asked_ns or line.ignored:
            evidence["asked_s"] = round(line.asked_ns / 1e9, 3)
            evidence["asked_ignored"] = line.ignored
        return Finding(
            id=finding_id(RULE, line.first.step_id),
            kind=KIND,
            severity=_SEVERITIES[line.said.rank],
            revision=line.said.revision,
            session_id=step.session_id,
            session_ids=(step.session_id,),
            run_id=step.run_id,
            service=step.service,
            agent=step.agent,
            tool=step.tool,
            trace_id=step.trace_id,
            span_id=step.span_id,
            first_span_id=line.first.span_id,
            step_id=step.step_id,
            started_at=line.first.start_ns,
            detected_at=step.end_ns,
            occurrences=count,
            summary=_summary(endpoint, root, count, gaps, ignored=line.ignored, hopeless=bool(hopeless)),
            detector=KIND,
            evidence=evidence,
        )


def _hopeless_key(reading: Reading, endpoint: str) -> str:
    """Under which a call is counted that fails for a reason that cannot go away.

    What counts as the same call is said in `detectors.signature`: other arguments are no retry, but a guess.
    Calls of one model are the same whatever they hold, compactions apart.
    """
    return f"{endpoint}{_HOPELESS}{reading.call.signature:016x}"


def _summary(endpoint: str, root: str, count: int, gaps: list[Json], *, ignored: int, hopeless: bool) -> str:
    """One sentence for whoever is on call.

    >>> _summary("api.ex.org", "rate_limit", 5, [0.5, 0.5], ignored=4, hopeless=False)
    'api.ex.org: asked 5 times through rate_limit errors, 0.5 s apart, sooner than it asked for'
    """
    if hopeless:
        return f"{endpoint}: {count} retries of a {root} error that cannot go away by itself"
    told = sorted(gap for gap in gaps if isinstance(gap, float))
    apart = f", {told[len(told) // 2]:.3g} s apart" if told else ""
    how = "sooner than it asked for" if ignored else "without backing off"
    errors = "errors" if root == "unknown" else f"{root} errors"
    return f"{endpoint}: asked {count} times through {errors}{apart}, {how}"


def _resets(config: RetryStormConfig, *, hopeless: bool) -> list[Json]:
    if hopeless:
        return [
            "the same call working",
            "other arguments",
            "a user turn",
            f"{config.window_s:g} s without it",
        ]
    return [
        "pauses that grow, or are as long as asked for",
        f"fewer than {config.share:.0%} of the attempts failing",
        "a user turn",
        f"{config.window_s:g} s without a failure",
    ]
