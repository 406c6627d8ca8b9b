"""A few steps, failures and findings of one service, written down the short way."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import Any

from collector.step import Kind, Outcome, Step, Usage
from detectors.protocol import Finding, Severity
from detectors.recovery import Recovery
from storage.client import StoreClient
from storage.metrics.catalog import BY_NAME
from storage.metrics.metric import measure
from storage.metrics.selection import Selection
from storage.rows import failure_rows
from storage.writer import Writer
from tests.storage.rows_for_tests import full_recovery

START_NS = 1_762_000_000 * 10**9  # 2025-11-01 12:26:40 UTC
SECOND_NS = 10**9
_NAMES = itertools.count(1)


@dataclass
class Story:
    """What happened at one service, a second a step, in one session of one agent unless said otherwise."""

    store: StoreClient
    service: str = field(default_factory=lambda: f"svc{next(_NAMES)}")
    steps: list[Step] = field(default_factory=list)
    failures: list[Recovery] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def add(self, kind: Kind, **more: Any) -> Step:  # noqa: ANN401 - fields of Step
        number = len(self.steps)
        start = START_NS + number * SECOND_NS
        told: dict[str, Any] = {
            "step_id": f"{self.service}/{number}",
            "session_id": f"{self.service}-s",
            "start_ns": start,
            "end_ns": start + SECOND_NS // 2,
            "service": self.service,
            "service_version": "1",
            "agent": "a",
            "engine_seq": number + 1,
        }
        step = Step(kind=kind, **(told | more))
        self.steps.append(step)
        return step

    def call(self, tool: str, outcome: str = "ok", **more: Any) -> Step:  # noqa: ANN401 - fields of Step
        return self.add(Kind.TOOL_CALL, tool=tool, outcome=Outcome(outcome), **more)

    def model(self, tokens: int | None = None, output: int | None = None, **more: Any) -> Step:  # noqa: ANN401 - fields of Step
        return self.add(Kind.MODEL_CALL, usage=Usage(input_tokens=tokens, output_tokens=output), **more)

    def run(self, **more: Any) -> Step:  # noqa: ANN401 - fields of Step
        return self.add(Kind.AGENT_RUN, **more)

    def failure(self, **more: Any) -> Recovery:  # noqa: ANN401 - fields of Recovery
        number = len(self.failures)
        said = replace(
            full_recovery(f"{self.service}/f{number}"),
            failed_ns=START_NS + number * SECOND_NS,
            service=self.service,
            session_id=f"{self.service}-s",
        )
        self.failures.append(replace(said, **more))
        return self.failures[-1]

    def finding(self, kind: str, step: Step, occurrences: int, **more: Any) -> None:  # noqa: ANN401 - fields of Finding
        number = len(self.findings)
        told: dict[str, Any] = {
            "id": f"{self.service}-{number}",
            "kind": kind,
            "severity": Severity.WARNING,
            "session_id": step.session_id,
            "started_at": START_NS,
            "detected_at": step.end_ns,
            "occurrences": occurrences,
            "summary": kind,
            "service": self.service,
            "agent": step.agent,
            "tool": step.tool,
            "step_id": step.step_id,
        }
        self.findings.append(Finding(**(told | more)))

    def measured(self, name: str, *by: str, **more: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - fields of Selection
        """Write it, measure."""
        self.write()
        within = Selection(since_ns=START_NS, until_ns=START_NS + 3600 * SECOND_NS, service=self.service)
        return measure(self.store, BY_NAME[name], replace(within, **more), by).table.to_dicts()

    def write(self) -> None:
        """Write all of it; what was written before comes again in the same revision."""
        writer, token = Writer(self.store), f"{self.service}-{len(self.steps)}-{len(self.failures)}"
        writer.insert_steps(self.steps, token)
        if self.failures:
            writer.insert_packed("failures", failure_rows(self.failures), token)
        writer.insert_findings(self.findings, token)
