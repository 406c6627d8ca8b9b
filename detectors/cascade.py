"""Cascade: one root failure or poisoned value, then what comes of it, over tools and agents.

Shapes, each with its root, the steps that came of it (bounded) and the last clean step before it:
`failing_together` (four tools of three agents fail from one cause within a minute), `one_cause` (four tools
of one agent do, from what all tools stand on), `named_upstream` (errors name a tool or agent that failed
before), `wrapper` (whatever the command, it fails because of what all are wrapped in), `value_flow` (what a
bad result brought is in the arguments of later calls, which may all succeed), `delegation_chain` (work is
passed on, none is done), `respawn` (children started one after the other die of one failure), `ping_pong`
(agents hand the same thing to and fro).

Source: loop detector rules 14 and 25, 26, 29, 32 of the public reports; URE-3 of the field reports: about 6 %
of failures cascade, a poisoned value enters shared state and later calls succeed on it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from collector.step import Kind, Outcome
from detectors import shared_cause
from detectors.bounds import is_unknown_session
from detectors.delegation import Delegation
from detectors.protocol import Finding, Severity, finding_id
from detectors.scope import Recent
from detectors.shared_cause import SharedCause
from detectors.spreading import Before, Spread
from detectors.streaks import Reported, Spent
from detectors.taint import Taint
from detectors.tuning import Tuned
from detectors.wrapped import Wrapped

if TYPE_CHECKING:
    from collector.step import Json, Step
    from detectors.reading import Reading

KIND: Final = "cascade"
RULE: Final = "cascade/1"
_SEVERITIES: Final = tuple(Severity)
_REPORTED_KEPT: Final = 32
_SPOKEN_NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CascadeConfig:
    """Thresholds of the detector, by the names that the configuration uses.

    `tools`, `agents`: so many different tools of so many agents that fail from one cause within `window_s`
    seconds are an alarm; critical at twice as many failures. `alone_tools`: so many tools, of any number of
    agents, within `alone_window_s` seconds when errors name a host or an obstacle that all tools stand on.
    `wrapped`: different commands that fail because of what they begin with. `poisoned`: changes made with a
    poisoned value, by two tools at least; one more failures for ids that a failed call named. `depth`: agents
    below the first that pass the same brief on. `respawns`: children that die alike. `handoffs`: hand-offs
    and messages in a row that say nothing new. `shadow`: findings are recorded only.
    """

    shadow: bool = False
    tools: int = 4
    agents: int = 3
    window_s: float = 60.0
    alone_tools: int = 4
    alone_window_s: float = 600.0
    wrapped: int = 3
    poisoned: int = 2
    depth: int = 3
    respawns: int = 3
    handoffs: int = 8

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(field.default, float) and not value > 0:  # nan is not, either
                raise ValueError(f"{KIND}.{field.name} must be more than 0 seconds, not {value!r}")
            if isinstance(field.default, int) and not isinstance(field.default, bool) and value < 2:  # noqa: PLR2004 - one is no cascade
                raise ValueError(f"{KIND}.{field.name} must be at least 2, not {value!r}")


_DEFAULTS = Tuned(CascadeConfig())


class Cascade:
    """Watches all agents of one session."""

    def __init__(self, tuned: Tuned[CascadeConfig] = _DEFAULTS) -> None:
        self._tuned = tuned
        self._causes = SharedCause()
        self._wrapped = Wrapped()
        self._taint = Taint()
        self._delegation = Delegation()
        self._reported = Recent[str, Reported](_REPORTED_KEPT)
        self._clean = ""
        self._spent = Spent()
        self._last_end_ns = 0
        self._after_call = False

    def observe(self, reading: Reading) -> Sequence[Finding]:
        """Take one step in; return the cascades that it completed or carried on noticeably."""
        step = reading.step
        if step.kind is Kind.TOOL_CALL:
            return self._call(reading) if step.tool is not None else ()
        if step.kind is Kind.MODEL_CALL or step.kind is Kind.COMPACTION:
            self._spent = self._spent.plus_model(step)
            self._after_call = False
        elif step.kind is Kind.USER_TURN and not step.late and not self._is_fed_back(step):
            self._wrapped.clear()
            self._delegation.clear()
            self._taint.clear()
        return ()

    def absorb(self, state: Json) -> None:
        """Take over what another instance knew of the same session under another id, if this one is new."""
        if not self._clean and self._causes.is_calm:
            self.restore(state)

    def snapshot(self) -> Json:
        """All state, as JSON: hashes, counters, names, step and span ids, short excerpts."""
        return {
            "causes": self._causes.json(),
            "wrapped": self._wrapped.json(),
            "taint": self._taint.json(),
            "delegation": self._delegation.json(),
            "reported": [
                [step_id, said.rank, said.next_count, said.revision]
                for step_id, said in self._reported.items()
            ],
            "clean": self._clean,
            "spent": list(self._spent),
            "last": [self._last_end_ns, self._after_call],
        }

    def restore(self, state: Json) -> None:
        """Take over a state that `snapshot` returned."""
        saved: Any = state
        self._causes.restore(saved["causes"])
        self._wrapped.restore(saved["wrapped"])
        self._taint.restore(saved["taint"])
        self._delegation.restore(saved["delegation"])
        self._reported.clear()
        for step_id, *said in saved["reported"]:
            self._reported.put(step_id, Reported(*said))
        self._clean = saved["clean"]
        self._spent = Spent(*saved["spent"])
        self._last_end_ns, self._after_call = saved["last"]

    def _is_fed_back(self, step: Step) -> bool:
        """Some frameworks hand results to the model in a user's message."""
        return self._after_call and step.start_ns - self._last_end_ns < _SPOKEN_NS

    def _call(self, reading: Reading) -> Sequence[Finding]:
        step = reading.step
        spent = self._spent
        self._spent = Spent(spent.calls + 1, *spent[1:])
        if step.outcome is Outcome.DENIED:
            return ()
        wrong = reading.went_wrong
        if step.late and not wrong:
            return ()
        config = self._tuned.of(step.tool)
        before = Before(self._clean, self._spent)
        spreads: list[Spread | None] = []
        if wrong:
            limits = shared_cause.Limits(
                config.tools,
                config.agents,
                int(config.window_s * 1e9),
                config.alone_tools,
                int(config.alone_window_s * 1e9),
            )
            spreads += self._causes.fails(reading, before, limits)
            spreads.append(self._wrapped.fails(reading, before, config.wrapped))
        else:
            if not self._causes.is_calm:
                self._causes.works(reading)
            if len(self._wrapped):
                self._wrapped.works(reading)
        spreads.append(self._taint.observe(reading, before, config.poisoned))
        spreads += self._delegation.observe(reading, before, config)
        if not wrong:
            self._clean = step.step_id
        self._last_end_ns, self._after_call = max(self._last_end_ns, step.end_ns), True
        return self._findings(step, spreads) if any(spreads) else ()

    def _findings(self, step: Step, spreads: Iterable[Spread | None]) -> list[Finding]:
        """What is worth a (further) finding; one a root, the most severe."""
        found: dict[str, Finding] = {}
        ranked = sorted([spread for spread in spreads if spread is not None], key=lambda spread: -spread.rank)
        for spread in ranked:
            root_id = spread.root.first.step_id
            if root_id in found:
                continue
            said = self._reported.touch(root_id)
            if said is None:
                said = Reported()
                self._reported.put(root_id, said)
            if said.due(_ranked(spread, step), spread.count):
                found[root_id] = _finding(step, spread, said, self._spent)
        return list(found.values())


def _ranked(spread: Spread, step: Step) -> int:
    """The rank that the evidence allows."""
    return min(spread.rank, 1) if _missing(step) else spread.rank


def _missing(step: Step) -> list[Json]:
    return ["session"] if is_unknown_session(step.session_id) else []


def _finding(step: Step, spread: Spread, said: Reported, spent: Spent) -> Finding:
    root = spread.root
    evidence: dict[str, Json] = {
        "rule": spread.rule,
        "count": spread.count,
        "threshold": spread.threshold,
        "missing": _missing(step),
        "root_step_id": root.first.step_id,
        "root_tool": root.first.tool[:80],
        "root_agent": root.agent[:80],
        "root_excerpt": root.excerpt,
        "last_clean_step_id": root.clean,
        "span_ids": list(root.spans),
        "dependents": list(root.steps),
        **spread.told,
        "resets": list(spread.resets),
        "since_onset": spent.since(root.onset),
    }
    return Finding(
        id=finding_id(RULE, root.first.step_id),
        kind=KIND,
        severity=_SEVERITIES[said.rank],
        revision=said.revision,
        session_id=step.session_id,
        session_ids=(step.session_id,),
        run_id=step.run_id,
        service=step.service,
        agent=step.agent,
        tool=step.tool,
        trace_id=step.trace_id,
        span_id=step.span_id,
        first_span_id=root.first.span_id,
        step_id=step.step_id,
        started_at=min(root.first.start_ns, step.end_ns),
        detected_at=step.end_ns,
        occurrences=max(2, len(root.spans), spread.count),
        summary=spread.summary,
        detector=KIND,
        evidence=evidence,
    )


def cascaded_from(finding: Finding) -> Mapping[str, str]:
    """Which steps a finding says have come of which root: step id to the root's step id.

    A long cascade is said again at each doubling, and each revision names some of its latest steps: the union
    over revisions is what is known. A failure that is among them has cascaded. Empty for other kinds.
    """
    root, steps = finding.evidence.get("root_step_id"), finding.evidence.get("dependents")
    if finding.kind != KIND or not isinstance(root, str) or not isinstance(steps, (list, tuple)):
        return {}
    return {step: root for step in steps if isinstance(step, str) and step != root}


def share_cascaded(failed: Iterable[str], findings: Iterable[Finding]) -> float | None:
    """The share of failed steps, by id, that have come of another failure, 0..1; None when nothing failed.

    >>> share_cascaded([], []), share_cascaded(["a", "b"], [])
    (None, 0.0)
    """
    cascaded = {step for finding in findings for step in cascaded_from(finding)}
    steps = set(failed)
    return len(steps & cascaded) / len(steps) if steps else None
