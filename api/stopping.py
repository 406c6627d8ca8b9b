"""What breakers would have stopped: what was spent after a trip, and whether the runs ended well anyway.

Pure: steps and findings come in the order of the history. A breaker over a session is taken to end it there:
every later call, token and US dollar of the session counts as spared. One over a tool refuses that tool's
calls; the agent goes on, so that no tokens are spared. Calls that were refused anyway do not count.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias

from collector.step import Kind, Outcome, RunEnded, Step
from control.policy import Policy
from detectors.operation import operation_of

if TYPE_CHECKING:
    from api.backtesting import Place
    from detectors.protocol import Finding

RUNS_FOLLOWED: Final = 50_000
"""Runs that no breaker has touched and whose end is not known; the least recent go first."""

_SPENDING: Final = (Kind.MODEL_CALL, Kind.COMPACTION)
_FAILED: Final = (Outcome.ERROR, Outcome.SOFT_ERROR)

Price: TypeAlias = Callable[[Step], "float | None"]
"""US dollars of a model call; None: not priced."""


class Ending(StrEnum):
    """How a run ended."""

    GOOD = "good"
    NOT_GOOD = "not good"
    NOT_RECORDED = "not recorded"


GOOD_RUN: Final = (
    "a good run is one whose task is told to have succeeded (recloser.task.success), or, where nothing is"
    " told, one that has ended, its last tool call successful and its last failed operation repeated with"
    " success"
)


@dataclass(slots=True)
class Run:
    """How a run goes. `open_failure` is the last operation that failed and has not succeeded since."""

    run_id: str
    session: str
    task_success: bool | None = None
    last_ok: bool | None = None
    open_failure: str = ""
    ended: bool = False

    def take(self, step: Step) -> None:
        """Follow the run by one step."""
        self.session = step.session_id
        if step.task_success is not None:
            self.task_success = step.task_success
        if step.kind is not Kind.TOOL_CALL or step.outcome not in (*_FAILED, Outcome.OK):
            return
        self.last_ok = step.outcome is Outcome.OK
        if not self.last_ok:
            self.open_failure = operation_of(step.tool or "", step.arguments)
        elif self.open_failure and operation_of(step.tool or "", step.arguments) == self.open_failure:
            self.open_failure = ""

    @property
    def ending(self) -> Ending:
        """How it ended, as far as that can be told; see `GOOD_RUN`."""
        if self.task_success is not None:
            return Ending.GOOD if self.task_success else Ending.NOT_GOOD
        if not self.ended or self.last_ok is None:
            return Ending.NOT_RECORDED
        return Ending.GOOD if self.last_ok and not self.open_failure else Ending.NOT_GOOD


class Runs:
    """The runs of a history, each until it ends; those that somebody holds on to are told their end too."""

    def __init__(self, most: int = RUNS_FOLLOWED) -> None:
        self._runs: OrderedDict[str, Run] = OrderedDict()
        self._most = most

    def take(self, step: Step) -> Run:
        """Follow a step's run."""
        name = step.run_id or step.session_id
        run = self._runs.get(name)
        if run is None:
            run = self._runs[name] = Run(name, step.session_id)
            if len(self._runs) > self._most:
                self._runs.popitem(last=False)
        else:
            self._runs.move_to_end(name)
        run.take(step)
        return run

    def end(self, event: RunEnded) -> None:
        """A run has ended."""
        run = self._runs.pop(event.run_id, None)
        if run is not None:
            run.ended = True


@dataclass(slots=True)
class Spared:
    """What would not have been spent.

    `untold` are model calls whose tokens, `unpriced` those whose price is not known.
    """

    calls: int = 0
    model_calls: int = 0
    tokens: int = 0
    usd: float = 0.0
    untold: int = 0
    unpriced: int = 0

    def spend(self, step: Step, price: Price) -> None:
        """Add a step's cost."""
        if step.kind is Kind.TOOL_CALL:
            self.calls += 1
        elif step.kind in _SPENDING:
            self.model_calls += 1
            told = (step.usage.input_tokens, step.usage.output_tokens)
            self.tokens += sum(count or 0 for count in told)
            self.untold += told == (None, None)
            usd = price(step)
            self.usd += usd or 0.0
            self.unpriced += usd is None

    @property
    def tokens_told(self) -> int | None:
        """The tokens; None when no model call told any."""
        return None if self.model_calls and self.untold == self.model_calls else self.tokens

    @property
    def usd_told(self) -> float | None:
        """The money; None when no model call has a price."""
        return None if self.model_calls and self.unpriced == self.model_calls else self.usd

    @staticmethod
    def sum(parts: Iterable[Spared]) -> Spared:
        """All together."""
        whole = Spared()
        for part in parts:
            for name in ("calls", "model_calls", "tokens", "usd", "untold", "unpriced"):
                setattr(whole, name, getattr(whole, name) + getattr(part, name))
        return whole


@dataclass(slots=True)
class Stop:
    """A session in which a breaker would have opened: by which finding first, where, and what that spares.

    `tools` are those that are refused, None: the whole session is over. `runs` are those of which a call
    would have been refused, by id.
    """

    session: str
    finding_id: str
    kind: str
    summary: str
    place: Place
    tools: set[str] | None
    spared: Spared = field(default_factory=Spared)
    runs: dict[str, Run] = field(default_factory=dict)

    def covers(self, step: Step) -> bool:
        """Whether a step would not have happened, or not gone through."""
        return self.tools is None or (step.kind is Kind.TOOL_CALL and step.tool in self.tools)


class Stops:
    """The breakers that one engine's findings would open under a policy."""

    def __init__(self, policy: Policy, price: Price) -> None:
        self._policy = policy
        self._price = price
        self._stops: dict[str, Stop] = {}

    def spend(self, step: Step, run: Run, *, counted: bool) -> None:
        """Take a step, before what is found at it; `counted` when it is no warm-up."""
        stop = self._stops.get(step.session_id)
        if stop is None or not counted or step.outcome is Outcome.DENIED or not stop.covers(step):
            return
        stop.spared.spend(step, self._price)
        if step.kind is Kind.TOOL_CALL:
            stop.runs.setdefault(run.run_id, run)

    def found(self, finding: Finding, place: Place) -> None:
        """Take what was found at the step before."""
        if finding.evidence.get("shadow"):
            return
        for trip in self._policy.rule_on(finding, place.at_ns).trips:
            if trip.shadow:
                continue
            tool = trip.scope.tool
            stop = self._stops.get(finding.session_id)
            if stop is None:
                tools = None if tool is None else {tool}
                self._stops[finding.session_id] = Stop(
                    finding.session_id, finding.id, finding.kind, finding.summary, place, tools
                )
            elif tool is None:
                stop.tools = None
            elif stop.tools is not None:
                stop.tools.add(tool)

    def all(self) -> list[Stop]:
        """The sessions in which a breaker would have opened, those that spare most first."""
        return sorted(self._stops.values(), key=lambda s: (-s.spared.calls, -s.spared.tokens, s.session))

    def of(self, session: str) -> Stop | None:
        """The stop of one session."""
        return self._stops.get(session)
