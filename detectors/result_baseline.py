"""Result baseline: a result that is unlike all that this tool has returned so far.

For each tool of one version of a service, over all sessions. Nothing is said until `warm_up` results of
`sessions` sessions are known and a model of them is fitted (`detectors.result_fit`). Four rules, each a note:

- `empty`: a result, or a part of it that always held something, is empty, where at most 1 of 100 was.
- `shape`: it is text, a page or broken JSON where 99 of 100 had another form; keys that always were there
  are missing.
- `number`: a number is `orders` of magnitude, and `deviations` robust deviations, from the median of its key,
  and 5 times beyond all but one that were seen.
- `outlier`: length, lines, digits, letters, white space and keys together are farther from each sort of
  results than twice what results of sessions unknown to the fit are (never closer than 6.7 deviations). A
  tool whose results have no stable shape, such as a shell, has neither this rule nor `empty`.

`odd` of the latest `window` results, from `change_sessions` sessions, are a `warning`: the tool's results
have changed. From then on they are learned anew, and when there are enough of them they are what is normal.

Source: mission facts ("HTTP 200 is no success"), design ("implausible against what this tool has returned
so far"). Parameters are counts of results, unless they say otherwise.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from collector.step import Kind, Outcome
from detectors.bounds import is_unknown_session
from detectors.protocol import Finding, Severity, finding_id
from detectors.result_fit import Fitter, inline
from detectors.result_learner import Learner, Pace, session_of
from detectors.result_odd import Odd, Thresholds, oddities
from detectors.result_shape import Form, Part, Shape, shape_of
from detectors.streaks import SPANS_KEPT, Mark, Reported
from detectors.tuning import Tuned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collector.step import Json, Step
    from detectors.reading import Reading

KIND: Final = "soft_failure"
NAME: Final = "result_baseline"
RULE: Final = "result_baseline/1"

_NOTES: Final = 3
_NOTES_PER: Final = 100
_OVER: Final = 1
_ALARM: Final = 1
_SHOWN_CHARS: Final = 80
_SUMMARY_CHARS: Final = 300
_NAMED: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultBaselineConfig:
    """Settings; counts are results of the tool.

    `warm_up` and `sessions`: results and distinct sessions before a fit is asked for. `adopt_after`: results
    between that and its use. `orders`: orders of magnitude. `deviations`: robust deviations. `odd` of the
    latest `window` from `change_sessions` distinct sessions: the tool has changed. `shadow`: findings are
    recorded only.
    """

    shadow: bool = False
    warm_up: int = 60
    sessions: int = 3
    adopt_after: int = 20
    orders: float = 1.5
    deviations: float = 5.0
    window: int = 10
    odd: int = 5
    change_sessions: int = 2

    def __post_init__(self) -> None:
        least = {"warm_up": 30, "sessions": 1, "adopt_after": 1, "window": 2, "odd": 2, "change_sessions": 1}
        for name, value in least.items():
            if getattr(self, name) < value:
                raise ValueError(f"{NAME}.{name} must be at least {value}, not {getattr(self, name)!r}")
        for name, most in (("odd", self.window), ("change_sessions", self.odd)):
            if getattr(self, name) > most:
                raise ValueError(f"{NAME}.{name} must be at most {most}, not {getattr(self, name)!r}")
        for name in ("orders", "deviations"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{NAME}.{name} must be more than 0, not {getattr(self, name)!r}")


_DEFAULTS = Tuned(ResultBaselineConfig())


class _Judged(NamedTuple):
    """One of the latest results. `rule`: why it is odd, empty: it is not."""

    shape: Shape
    session: int
    rule: str
    session_id: str
    mark: Mark

    def json(self, names: dict[str, int]) -> Json:
        """For a checkpoint; names of parts are numbered in `names`, which adds those that are new."""
        form, empty, features, parts, whole, read = self.shape
        told: list[Json] = []
        for part in parts:
            at = names.setdefault(part.name, len(names))
            parent = None if part.parent is None else names.setdefault(part.parent, len(names))
            told.append([at, parent, part.filled, part.opened, part.magnitude])
        shape: list[Json] = [int(form), empty, list(features), told, whole, read]
        return [shape, self.session, self.rule, self.session_id, list(self.mark)]

    @staticmethod
    def load(state: Any, names: Sequence[str]) -> _Judged:  # noqa: ANN401 - JSON that `json` wrote
        """Read what `json` wrote."""
        (form, empty, features, told, whole, read), session, rule, session_id, mark = state
        parts = tuple(
            Part(names[at], None if parent is None else names[parent], *more) for at, parent, *more in told
        )
        shape = Shape(Form(form), empty, tuple(features), parts, whole, read)
        return _Judged(shape, session, rule, session_id, Mark(*mark))


@dataclass(slots=True)
class _Change:
    """A time in which results are not what they were; `fresh` learns what they are now."""

    first: Mark
    fresh: Learner
    results: int
    odd: int
    spans: list[str] = field(default_factory=list)
    said: Reported = field(default_factory=lambda: Reported(revision=0))

    def json(self) -> Json:
        """For a checkpoint."""
        return [
            list(self.first),
            self.fresh.json(),
            self.results,
            self.odd,
            [*self.spans],
            self.said.json(),
        ]


class ResultBaseline:
    """Watches the results of one tool in one version of a service, for all sessions."""

    def __init__(self, tuned: Tuned[ResultBaselineConfig] = _DEFAULTS, fitter: Fitter = inline) -> None:
        self._tuned = tuned
        self._fitter = fitter
        self._clear()

    def _clear(self) -> None:
        self._learner: Learner | None = None
        self._window: deque[_Judged] = deque()
        self._change: _Change | None = None
        self._judged = 0
        self._noted: deque[int] = deque(maxlen=_NOTES)

    def observe(self, reading: Reading) -> Sequence[Finding]:
        """Take one result in, of whatever session; say when it is odd, and when they have changed."""
        step = reading.step
        if (
            step.kind is not Kind.TOOL_CALL
            or step.result is None
            or step.outcome is Outcome.DENIED
            or reading.went_wrong
        ):
            return ()
        config = self._tuned.of(step.tool)
        learner = self._learner
        if learner is None:
            learner = self._learner = self._new_learner(config)
        shape, session = shape_of(step.result), session_of(step.session_id)
        if learner.normal is None:
            learner.add(shape, session)
            return ()
        odd = oddities(shape, learner, Thresholds(config.orders, config.deviations))
        judged = _Judged(shape, session, odd[0].rule if odd else "", step.session_id, Mark.of(step))
        self._judged += 1
        self._window.append(judged)
        if len(self._window) > config.window:
            oldest = self._window.popleft()
            if self._change is None:
                learner.add(oldest.shape, oldest.session)
        if self._change is not None:
            return self._go_on(self._change, judged, reading, config)
        if not odd:
            return ()
        return self._judge(odd, reading, config)

    def snapshot(self) -> Json:
        """All state, as JSON: numbers, names of keys, ids; nothing of what the keys hold."""
        names: dict[str, int] = {}
        window: list[Json] = [one.json(names) for one in self._window]
        return {
            "learner": None if self._learner is None else self._learner.json(),
            "window": window,
            "names": [*names],
            "change": None if self._change is None else self._change.json(),
            "judged": self._judged,
            "noted": [*self._noted],
        }

    def restore(self, state: Json) -> None:
        """Take over a state that `snapshot` returned; a fit that was under way is begun again."""
        self._clear()
        saved: Any = state
        if saved["learner"] is not None:
            self._learner = Learner.load(saved["learner"], self._fitter)
        self._window.extend(_Judged.load(one, saved["names"]) for one in saved["window"])
        if saved["change"] is not None:
            first, fresh, results, odd, spans, said = saved["change"]
            self._change = _Change(
                Mark(*first), Learner.load(fresh, self._fitter), results, odd, list(spans), Reported(*said)
            )
        self._judged = saved["judged"]
        self._noted.extend(saved["noted"])

    def _new_learner(self, config: ResultBaselineConfig) -> Learner:
        return Learner(Pace(config.warm_up, config.sessions, config.adopt_after), self._fitter)

    def _judge(self, odd: Sequence[Odd], reading: Reading, config: ResultBaselineConfig) -> Sequence[Finding]:
        """An odd result, while all is well: the tool has changed, or it is a single one."""
        among = [one for one in self._window if one.rule]
        if len(among) >= config.odd and len({one.session for one in among}) >= config.change_sessions:
            change = self._change = _Change(among[0].mark, self._new_learner(config), 0, len(among) - 1)
            change.spans = [one.mark.span_id for one in among[:-1]]
            latest = list(self._window)
            for one in latest[latest.index(among[0]) : -1]:
                change.fresh.add(one.shape, one.session)
                change.results += 1
            return self._go_on(change, latest[-1], reading, config)
        if len(self._noted) == _NOTES and self._judged - self._noted[0] < _NOTES_PER:
            return ()
        self._noted.append(self._judged)
        return [self._note(odd, reading.step, config)]

    def _go_on(
        self, change: _Change, judged: _Judged, reading: Reading, config: ResultBaselineConfig
    ) -> Sequence[Finding]:
        """The tool has changed: learn what it returns now; say so as it goes on, until it is as it was."""
        change.results += 1
        change.fresh.add(judged.shape, judged.session)
        if change.fresh.normal is not None:
            self._learner = change.fresh
            self._change = None
            self._window.clear()
            return ()
        if not judged.rule:
            if sum(bool(one.rule) for one in self._window) <= _OVER:
                self._change = None
            return ()
        change.odd += 1
        change.spans.append(judged.mark.span_id)
        if len(change.spans) > SPANS_KEPT:
            del change.spans[SPANS_KEPT // 2]
        if not change.said.due(_ALARM, change.odd):
            return ()
        return [self._changed(change, reading.step, config)]

    def _note(self, odd: Sequence[Odd], step: Step, config: ResultBaselineConfig) -> Finding:
        first = odd[0]
        evidence: dict[str, Json] = {
            "rule": first.rule,
            "count": 1,
            "threshold": 1,
            **first.told,
            "also_odd": [one.words[:_SHOWN_CHARS] for one in odd[1:]],
            **self._learned(),
            "service_version": step.service_version,
            "span_ids": [step.span_id],
            "missing": ["session"] if is_unknown_session(step.session_id) else [],
            "resets": [f"at most {_OVER} odd of the latest {config.window} results"],
            "since_onset": {"calls": 1},
        }
        return Finding(
            id=finding_id(RULE, step.step_id),
            kind=KIND,
            severity=Severity.INFO,
            session_id=step.session_id,
            session_ids=(step.session_id,),
            run_id=step.run_id,
            service=step.service,
            agent=step.agent,
            tool=step.tool,
            trace_id=step.trace_id,
            span_id=step.span_id,
            first_span_id=step.span_id,
            step_id=step.step_id,
            started_at=min(step.start_ns, step.end_ns),
            detected_at=step.end_ns,
            occurrences=1,
            summary=f"{step.tool}: reported ok, but its result is {first.words}"[:_SUMMARY_CHARS],
            detector=NAME,
            evidence=evidence,
        )

    def _changed(self, change: _Change, step: Step, config: ResultBaselineConfig) -> Finding:
        among = [one for one in self._window if one.rule]
        sessions = tuple(dict.fromkeys(one.session_id for one in among))
        rules = sorted({one.rule for one in among})
        evidence: dict[str, Json] = {
            "rule": "changed",
            "count": change.odd,
            "threshold": config.odd,
            "fleet": True,
            "rules": [*rules],
            "of_latest": f"{len(among)} of {len(self._window)}",
            "sessions": len(sessions),
            "since_ns": change.first.start_ns,
            "since_step": change.first.step_id,
            "learned_anew_after": config.warm_up + config.adopt_after,
            **self._learned(),
            "service_version": step.service_version,
            "span_ids": [*change.spans],
            "missing": [],
            "resets": [
                f"at most {_OVER} odd of the latest {config.window} results",
                "enough results to learn anew",
            ],
            "since_onset": {"calls": change.results},
        }
        return Finding(
            id=finding_id(RULE, change.first.step_id),
            kind=KIND,
            severity=Severity.WARNING,
            revision=change.said.revision,
            session_id="",
            session_ids=sessions[:_NAMED],
            service=step.service,
            tool=step.tool,
            trace_id=step.trace_id,
            span_id=step.span_id,
            first_span_id=change.first.span_id,
            step_id=step.step_id,
            started_at=min(change.first.start_ns, step.end_ns),
            detected_at=step.end_ns,
            occurrences=change.odd,
            summary=(
                f"{step.tool}: its results have changed, {len(among)} of the latest {len(self._window)} are "
                f"unlike the {self._learned()['learned_results']} before ({', '.join(rules)})"
            ),
            detector=NAME,
            evidence=evidence,
        )

    def _learned(self) -> dict[str, Json]:
        learner = self._learner
        if learner is None:
            return {}
        return {"learned_results": learner.count, "learned_sessions": learner.sessions}
