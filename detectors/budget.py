"""Budget: an agent or a session has used up what it was given to heal itself, or to spend.

Self-healing: failures in a row, and failed variations of a call in a row, of one agent since the user last
spoke. Spending: calls, tokens, US dollars of a session, and its wall time since the user last spoke. Fan-out:
how deep agents delegate, how many children one has, how many runs begin in a minute. Each ceiling has its own
finding: a warning at four fifths, critical when it is reached. Ceilings on spending are off until one is set;
the others have defaults that healthy runs do not reach, and are a warning then, never more.

Source: the mission's sources: N failures in a row, or K perturbations, or M tokens, then hand over to a
person with a report of what was tried.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from collector.step import Kind, Outcome
from detectors.bounds import is_unknown_session
from detectors.protocol import Finding, Severity, finding_id
from detectors.scope import Recent
from detectors.streaks import SPANS_KEPT, Mark, Reported, Spent
from detectors.tuning import Tuned

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from collector.step import Json, Step
    from detectors.reading import Reading

KIND: Final = "budget"
RULE: Final = "budget/1"
_SEVERITIES: Final = tuple(Severity)
_ALARM, _CONFIRMED = 1, 2
_NEAR: Final = 0.8
_AGENTS_KEPT: Final = 64
_TRIED_KEPT: Final = 8
_SPAWNS_KEPT: Final = 256
_MINUTE_NS: Final = 60_000_000_000
_NAME_CHARS: Final = 80
_HEALS: Final = ("failures", "perturbations")
_WORDS: Final = {
    "failures": "{value:.0f} calls in a row failed, {ceiling:.0f} are allowed",
    "perturbations": "{value:.0f} variations in a row failed, {ceiling:.0f} are allowed",
    "calls": "{value:.0f} calls of {ceiling:.0f}",
    "tokens": "{value:,.0f} tokens of {ceiling:,.0f}",
    "cost_usd": "US$ {value:.2f} of {ceiling:.2f}",
    "wall_s": "{value:.0f} s of {ceiling:.0f} since the user last spoke",
    "depth": "agents delegate {value:.0f} levels deep, {ceiling:.0f} are allowed",
    "breadth": "{value:.0f} children of one agent, {ceiling:.0f} are allowed",
    "spawns_a_minute": "{value:.0f} agent runs began within a minute, {ceiling:.0f} are allowed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetConfig:
    """Ceilings; 0 is off. A warning at four fifths, critical when reached; defaults only warn.

    `failures`: failed calls in a row of one agent; those of one model message are one. `perturbations`:
    failed calls in a row of one tool of one agent, each with other arguments than the one before. Both start
    anew when the user speaks. `calls`, `tokens` (input and output), `cost_usd`: of a session. `wall_s`:
    seconds since the user last spoke.
    `depth`: levels of delegation. `breadth`: children of one agent. `spawns_a_minute`: agent runs that begin.
    `shadow`: findings are recorded only.
    """

    shadow: bool = False
    failures: int = 20
    perturbations: int = 20
    calls: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    wall_s: float = 0.0
    depth: int = 10
    breadth: int = 100
    spawns_a_minute: int = 200

    def __post_init__(self) -> None:
        for name in _WORDS:
            if not getattr(self, name) >= 0:  # nan is not, either
                raise ValueError(f"{KIND}.{name} must be 0 (off) or more, not {getattr(self, name)!r}")


_DEFAULTS = Tuned(BudgetConfig())


@dataclass(slots=True)
class _Agent:
    """What one agent of the session is at."""

    failures: int = 0
    perturbations: int = 0
    tool: str = ""
    call: int = 0
    attempt_id: str = ""
    first: Mark | None = None
    parent: str = ""
    children: int = 0
    spans: list[str] = field(default_factory=list)
    tried: list[str] = field(default_factory=list)

    def healed(self) -> None:
        """A call worked, or a person spoke: the budget is whole again."""
        self.failures = self.perturbations = self.call = 0
        self.tool, self.first = "", None
        self.spans.clear()
        self.tried.clear()

    def json(self) -> Json:
        """The agent for a checkpoint."""
        return [
            self.failures,
            self.perturbations,
            self.tool,
            self.call,
            self.attempt_id,
            None if self.first is None else list(self.first),
            self.parent,
            self.children,
            list(self.spans),
            list(self.tried),
        ]

    @staticmethod
    def load(state: Any) -> _Agent:  # noqa: ANN401 - JSON that `json` wrote
        """Read what `json` wrote."""
        failures, perturbations, tool, call, attempt, first, parent, children, spans, tried = state
        mark = None if first is None else Mark(*first)
        agent = _Agent(failures, perturbations, tool, call, attempt, mark, parent, children)
        agent.spans, agent.tried = list(spans), list(tried)
        return agent


class Budget:
    """Watches one session, all of its agents."""

    def __init__(self, tuned: Tuned[BudgetConfig] = _DEFAULTS) -> None:
        self._tuned = tuned
        self._clear_all()

    def _clear_all(self) -> None:
        self._agents = Recent[str, _Agent](_AGENTS_KEPT)
        self._said: dict[str, Reported] = {}
        self._spawns: deque[int] = deque(maxlen=_SPAWNS_KEPT)
        self._spent = Spent()
        self._first: Mark | None = None
        self._spoken_ns = 0

    def observe(self, reading: Reading) -> Sequence[Finding]:
        """Take one step in; return the ceilings that it comes near to or reaches."""
        step = reading.step
        kind = step.kind
        if self._first is None:
            self._first, self._spoken_ns = Mark.of(step), step.start_ns
        if kind is Kind.USER_TURN:
            if not step.late:
                self._user_spoke(step)
            return ()
        agent, known = self._agent(step)
        if kind is Kind.AGENT_RUN:
            self._spawns.append(step.start_ns)
        elif kind is Kind.TOOL_CALL:
            self._spent = self._spent.plus_call()
            if not step.late:
                self._call(reading, agent)
        else:
            self._spent = self._spent.plus_model(step)
        config = self._tuned.of(step.tool)
        return [
            self._finding(reading, agent, name, value, ceiling)
            for name, value, ceiling in self._used(step, agent, config, known=known)
            if ceiling and self._is_due(step, name, value, ceiling)
        ]

    def snapshot(self) -> Json:
        """All state, as JSON: counts, names of agents and tools, span ids."""
        return {
            "agents": [[name, agent.json()] for name, agent in self._agents.items()],
            "said": {key: [one.rank, one.next_count, one.revision] for key, one in self._said.items()},
            "spawns": list(self._spawns),
            "spent": list(self._spent),
            "first": None if self._first is None else list(self._first),
            "spoken_ns": self._spoken_ns,
        }

    def restore(self, state: Json) -> None:
        """Take over a state that `snapshot` returned."""
        self._clear_all()
        saved: Any = state
        for name, agent in saved["agents"]:
            self._agents.put(name, _Agent.load(agent))
        self._said = {key: Reported(*one) for key, one in saved["said"].items()}
        self._spawns.extend(saved["spawns"])
        self._spent = Spent(*saved["spent"])
        self._first = None if saved["first"] is None else Mark(*saved["first"])
        self._spoken_ns = saved["spoken_ns"]

    def _user_spoke(self, step: Step) -> None:
        self._spoken_ns = max(self._spoken_ns, step.end_ns)
        for agent in self._agents.values():
            agent.healed()
        for key in [
            key for key in self._said if key.partition("/")[0] in {"failures", "perturbations", "wall_s"}
        ]:
            del self._said[key]

    def _agent(self, step: Step) -> tuple[_Agent, bool]:
        """The agent of a step, and whether it was known; a new one counts as a child of its parent."""
        name = step.agent or ""
        agent = self._agents.touch(name)
        if agent is not None:
            return agent, True
        agent = _Agent(parent=step.parent_agent or "")
        self._agents.put(name, agent)
        parent = self._agents.get(agent.parent) if agent.parent and agent.parent != name else None
        if parent is not None:
            parent.children += 1
        return agent, False

    def _call(self, reading: Reading, agent: _Agent) -> None:
        """Count a failed call, or begin anew after one that worked."""
        step = reading.step
        verdict = reading.verdict
        if verdict is None:
            if agent.failures and step.outcome is not Outcome.DENIED and step.outcome is not Outcome.UNKNOWN:
                agent.healed()
                for name in _HEALS:
                    self._said.pop(_key(step, name), None)
            return
        tool, call = step.tool or "", reading.call.signature
        if agent.first is None:
            agent.first = Mark.of(step)
        elif step.attempt_id and step.attempt_id == agent.attempt_id:
            return
        agent.attempt_id = step.attempt_id or ""
        agent.failures += 1
        if tool != agent.tool:
            agent.perturbations = 1
        elif call != agent.call:
            agent.perturbations += 1
        agent.tool, agent.call = tool, call
        agent.spans.append(step.span_id)
        if len(agent.spans) > SPANS_KEPT:
            del agent.spans[SPANS_KEPT // 2]
        tried = f"{reading.operation[:_NAME_CHARS]}: {verdict.error_class}"
        if tried not in agent.tried:
            agent.tried = [*agent.tried, tried][-_TRIED_KEPT:]

    def _used(
        self, step: Step, agent: _Agent, config: BudgetConfig, *, known: bool
    ) -> Iterator[tuple[str, float, float]]:
        """What may have changed with this step, and its ceiling."""
        if agent.failures:
            yield "failures", agent.failures, config.failures
            yield "perturbations", agent.perturbations, config.perturbations
        if config.calls:
            yield "calls", self._spent.calls, config.calls
        if config.tokens:
            yield "tokens", (self._spent.input_tokens or 0) + (self._spent.output_tokens or 0), config.tokens
        if config.cost_usd:
            yield "cost_usd", round(self._spent.cost_usd or 0.0, 9), config.cost_usd
        if config.wall_s:
            yield "wall_s", max(0, step.end_ns - self._spoken_ns) / 1e9, config.wall_s
        if not known:
            yield "depth", self._depth(step.agent or ""), config.depth
            parent = self._agents.get(agent.parent)
            if parent is not None:
                yield "breadth", parent.children, config.breadth
        if step.kind is Kind.AGENT_RUN:
            since = step.start_ns - _MINUTE_NS
            yield "spawns_a_minute", sum(start > since for start in self._spawns), config.spawns_a_minute

    def _depth(self, name: str) -> int:
        """How many agents stand above one."""
        seen = {name}
        depth = 0
        agent = self._agents.get(name)
        while agent is not None and agent.parent and agent.parent not in seen:
            seen.add(agent.parent)
            depth += 1
            agent = self._agents.get(agent.parent)
        return depth

    def _is_due(self, step: Step, name: str, value: float, ceiling: float) -> bool:
        """Tell whether a ceiling is near or reached, and that is news. Defaults only warn."""
        given = ceiling != getattr(_DEFAULTS.base, name)
        if value < (_NEAR * ceiling if given else ceiling):
            return False
        sure = given and value >= ceiling and not is_unknown_session(step.session_id)
        said = self._said.setdefault(_key(step, name), Reported())
        return said.due(_CONFIRMED if sure else _ALARM, int(8 * value / ceiling))

    def _finding(self, reading: Reading, agent: _Agent, name: str, value: float, ceiling: float) -> Finding:
        step = reading.step
        said = self._said[_key(step, name)]
        heals = name in _HEALS
        first = (agent.first if heals else self._first) or Mark.of(step)
        missing: list[Json] = ["session"] if is_unknown_session(step.session_id) else []
        evidence: dict[str, Json] = {
            "rule": name,
            "count": round(value, 6),
            "threshold": ceiling,
            "used": round(value / ceiling, 3),
            "hand_over": value >= ceiling,
            "span_ids": list(agent.spans) if heals else [step.span_id],
            "missing": missing,
            "resets": ["a call that works", "a user turn"] if heals else [],
            "since_onset": self._spent.since(Spent()),
        }
        if heals:
            evidence["tried"] = list(agent.tried)
        return Finding(
            id=finding_id(RULE, f"{name}/{first.step_id}"),
            kind=KIND,
            severity=_SEVERITIES[said.rank],
            revision=said.revision,
            session_id=step.session_id,
            session_ids=(step.session_id,),
            run_id=step.run_id,
            service=step.service,
            agent=step.agent,
            tool=step.tool if heals else None,
            trace_id=step.trace_id,
            span_id=step.span_id,
            first_span_id=first.span_id,
            step_id=step.step_id,
            started_at=min(first.start_ns, step.end_ns),
            detected_at=step.end_ns,
            occurrences=max(2, agent.failures if heals else self._spent.calls),
            summary="budget: " + _WORDS[name].format(value=value, ceiling=ceiling),
            detector=KIND,
            evidence=evidence,
        )


def _key(step: Step, name: str) -> str:
    """Under which it is remembered that a ceiling was said: those of healing are of one agent."""
    return f"{name}/{step.agent or ''}" if name in _HEALS else name
