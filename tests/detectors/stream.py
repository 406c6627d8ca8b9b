"""Steps of one agent, written down the short way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from collector.step import Json, Kind, Outcome, Step, Usage
from detectors.doom_loop import DoomLoop
from detectors.protocol import Detector, Finding
from detectors.reading import Lens
from detectors.tool_policy import DEFAULT_POLICY, ToolPolicy

START_NS = 1_704_067_200_000_000_000
SECOND_NS = 1_000_000_000


@dataclass
class Stream:
    """Builds steps one after the other; `now_ns` moves on by each step's pause and duration."""

    session: str = "s"
    agent: str | None = "main"
    run: str = "run-1"
    now_ns: int = START_NS
    steps: list[Step] = field(default_factory=list)

    def call(
        self,
        tool: str,
        arguments: Json = None,
        *,
        ok: str | None = None,
        error: str | None = None,
        outcome: Outcome | None = None,
        after: float = 2.0,
        **more: Any,  # noqa: ANN401 - fields of Step
    ) -> Stream:
        """Add a tool call: `ok` its result, `error` its error; `after` seconds of pause before it."""
        told = Outcome.ERROR if error is not None else Outcome.OK
        self._add(
            Kind.TOOL_CALL,
            after,
            tool=tool,
            arguments=arguments,
            result=ok,
            error=error,
            outcome=told if outcome is None else outcome,
            **more,
        )
        return self

    def model(self, tokens: int | None = None, *, cost: float | None = None, **more: Any) -> Stream:  # noqa: ANN401 - fields of Step
        """Add a model call."""
        usage = Usage(input_tokens=tokens, output_tokens=tokens)
        self._add(more.pop("kind", Kind.MODEL_CALL), 0.0, usage=usage, cost_usd=cost, **more)
        return self

    def user(self, *, agent: str | None = "main", after: float = 5.0, text: str | None = None) -> Stream:
        """Add a user's turn."""
        self._add(Kind.USER_TURN, after, agent=agent, text=text)
        return self

    def times(self, count: int, tool: str, arguments: Json = None, **more: Any) -> Stream:  # noqa: ANN401 - fields of Step
        """Add the same call several times."""
        for _ in range(count):
            self.call(tool, arguments, **more)
        return self

    def _add(self, kind: Kind, after: float, **more: Any) -> None:  # noqa: ANN401 - fields of Step
        number = len(self.steps) + 1
        start = self.now_ns + int(after * SECOND_NS)
        self.now_ns = start + SECOND_NS // 10
        values: dict[str, Any] = {
            "step_id": f"{self.session}/{self.agent}/{number}",
            "session_id": self.session,
            "run_id": self.run,
            "agent": self.agent,
            "start_ns": start,
            "end_ns": self.now_ns,
            "trace_id": self.run,
            "span_id": f"span-{number}",
        }
        self.steps.append(Step(kind=kind, **{**values, **more}))


def judged(
    steps: Iterable[Step], detector: Detector | None = None, policy: ToolPolicy = DEFAULT_POLICY
) -> list[tuple[int, Finding]]:
    """All findings, each with the number (from 1) of the tool call that completed it."""
    detector = detector if detector is not None else DoomLoop()
    lens = Lens(policy)
    found: list[tuple[int, Finding]] = []
    calls = 0
    for step in steps:
        calls += step.kind is Kind.TOOL_CALL
        found += [(calls, finding) for finding in detector.observe(lens.read(step))]
    return found


def first(found: Sequence[tuple[int, Finding]], *severities: str) -> int | None:
    """The number of the call at which a finding of one of the severities came first."""
    return next((at for at, finding in found if finding.severity in severities), None)
