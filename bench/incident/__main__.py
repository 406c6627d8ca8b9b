"""The incident of the field reports, replayed: `python bench/incident [--spread HOURS] [--only NAME]`.

1,279 sessions, each with 50 compactions in a row that fail because the context is too long, and model calls
that work in between, 250,000 calls in all. Everything goes through the engine with all detectors as they are
shipped, and what they say through the alerts of the control plane, as in production.

Two shapes: `at once` (all sessions in half an hour) and `spread` (they begin one after the other over a day
and last half an hour each). Printed: by which failure each session was alarmed, alerts and pages, the tax,
memory and CPU time.
"""

from __future__ import annotations

import argparse
import heapq
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from collector.step import Kind, Outcome, Step, Usage
from control.alerts import AlertEvent, take_finding
from control.db import ControlDb
from detectors.catalog import build
from detectors.engine import Engine, EngineLimits
from detectors.protocol import Finding, Severity
from detectors.tax import call_price_usd, tax_of

SESSIONS = 1_279
FAILURES = 50
CALLS = 250_000
LASTS_S = 1_800.0
START_NS = 1_704_067_200_000_000_000
CONTEXT = 200_000
INPUT_USD, OUTPUT_USD = 3.0, 15.0
"""Assumed US dollars per million tokens, only to have a price."""


@dataclass
class Seen:
    """What was said of the incident."""

    alarmed_by: Counter[int] = field(default_factory=Counter)
    first_by: str = ""
    findings: Counter[str] = field(default_factory=Counter)
    events: Counter[AlertEvent] = field(default_factory=Counter)
    fleet_alerts: int = 0
    pages_before_fleet: int = 0
    pages_after_fleet: int = 0


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--spread", type=float, default=24.0, help="hours in which sessions of the second shape begin"
    )
    parser.add_argument("--only", choices=("once", "spread"), help="one of the shapes")
    options = parser.parse_args()
    for name, hours in (("once", 0.0), ("spread", options.spread)):
        if options.only in (None, name):
            replay("at once" if name == "once" else f"spread over {hours:g} h", hours)


def replay(name: str, hours: float) -> None:
    """One shape of the incident, from the first step to the printed lines."""
    engine = Engine(build(), EngineLimits())
    seen, failures = Seen(), Counter[str]()
    alarmed: set[str] = set()
    most_bytes = steps = 0
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    spent = 0.0
    with tempfile.TemporaryDirectory() as folder, closing(ControlDb(Path(folder) / "control.db")) as db:
        for step in incident(hours):
            steps += 1
            failures[step.session_id] += step.kind is Kind.COMPACTION
            started = time.process_time()
            found = engine.observe(step)
            spent += time.process_time() - started
            for finding in found:
                note(seen, alarmed, finding, failures)
                decide(seen, db, finding)
            if steps % 1_000 == 0:
                most_bytes = max(most_bytes, engine.estimated_bytes)
    after_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    report(name, seen, steps)
    tax = tax_of(failures.values(), price_usd=price())
    print(
        f"  tax                {tax.calls:,} failing calls, {tax.over:,} beyond a ceiling of {tax.ceiling}: "
        f"US$ {tax.usd:,.0f} at US$ {tax.price_usd:.2f} a call"
    )
    print(
        f"  memory             engine at most {most_bytes / 2**20:.1f} MiB, {len(engine):,} scopes; "
        f"peak RSS {before_kb / 1024:.0f} -> {after_kb / 1024:.0f} MiB"
    )
    print(f"  CPU                {spent:.1f} s in the engine, {spent / steps * 1e6:.0f} us a step")
    for detector, error in engine.errors.items():
        print(f"  DETECTOR FAILED    {detector}: {error.last}")


def note(seen: Seen, alarmed: set[str], finding: Finding, failures: Counter[str]) -> None:
    """Take down by which of its failures a session was alarmed for the first time."""
    seen.findings[f"{finding.detector} {finding.severity.value}"] += 1
    if finding.session_id and finding.severity is not Severity.INFO and finding.session_id not in alarmed:
        alarmed.add(finding.session_id)
        seen.alarmed_by[failures[finding.session_id]] += 1


def decide(seen: Seen, db: ControlDb, finding: Finding) -> None:
    """Make an alert of a finding, as the control plane does."""
    with db.transaction() as tx:
        taken = take_finding(tx, finding, (), finding.detected_at)
    if taken is None:
        return
    seen.events[taken[1]] += 1
    if taken[1] is not AlertEvent.FIRE:
        return
    if finding.evidence.get("fleet"):
        seen.fleet_alerts += 1
    elif seen.fleet_alerts:
        seen.pages_after_fleet += 1
    else:
        seen.pages_before_fleet += 1


def report(name: str, seen: Seen, steps: int) -> None:
    """Print what was said."""
    by = ", ".join(f"{count:,} by failure {at}" for at, count in sorted(seen.alarmed_by.items()))
    late = SESSIONS - sum(count for at, count in seen.alarmed_by.items() if at <= 5)  # noqa: PLR2004 - what is asked for
    print(f"{name}: {SESSIONS:,} sessions, {steps:,} calls, {FAILURES} failing compactions each")
    print(f"  alarm              {by}; {late} later than the fifth")
    covered = seen.events[AlertEvent.COVER]
    print(f"  alerts             {seen.fleet_alerts} of the fleet, which covers {covered:,} of sessions")
    print(
        f"  pages              for single sessions: {seen.pages_before_fleet} before the fleet's, "
        f"{seen.pages_after_fleet} after it"
    )
    print(f"  findings           {dict(sorted(seen.findings.items()))}")


def price() -> float:
    """What a compaction of a full context costs."""
    return call_price_usd(CONTEXT, 0, input_usd_per_million=INPUT_USD, output_usd_per_million=OUTPUT_USD)


def incident(hours: float) -> Iterator[Step]:
    """All steps in the order of time; sessions begin within `hours`."""
    lag = hours * 3600 / SESSIONS
    return heapq.merge(
        *(session(n, n * lag if hours else n * LASTS_S / FAILURES / SESSIONS) for n in range(SESSIONS)),
        key=lambda step: (step.start_ns, step.step_id),
    )


def session(number: int, begins_s: float) -> Iterator[Step]:
    """One session: model calls that work, and compactions that fail again and again."""
    working = CALLS - SESSIONS * FAILURES
    models = working // SESSIONS + (number < working % SESSIONS)
    name, at = f"session-{number:04}", 0
    pause_s = LASTS_S / FAILURES
    for failure in range(FAILURES):
        calls = models * (failure + 1) // FAILURES - models * failure // FAILURES
        for call in range(calls):
            at += 1
            second = begins_s + failure * pause_s + pause_s * (call + 1) / (calls + 2)
            yield step_of(name, at, second, Kind.MODEL_CALL, CONTEXT - 9_000 + at)
        at += 1
        second = begins_s + failure * pause_s + pause_s * (calls + 1) / (calls + 2)
        yield step_of(name, at, second, Kind.COMPACTION, CONTEXT + at)


def step_of(session_id: str, at: int, second: float, kind: Kind, tokens: int) -> Step:
    """One call of the incident."""
    start = START_NS + int(second * 1e9)
    failed = kind is Kind.COMPACTION
    return Step(
        step_id=f"{session_id}/{at}",
        kind=kind,
        session_id=session_id,
        run_id=f"{session_id}/run",
        service="coding-agent",
        agent="main",
        start_ns=start,
        end_ns=start + 900_000_000,
        trace_id=f"{session_id}/run",
        span_id=f"{session_id}/{at}",
        outcome=Outcome.ERROR if failed else Outcome.OK,
        error=f"prompt is too long: {tokens} tokens > {CONTEXT} maximum" if failed else None,
        model="a-model",
        provider="a-provider",
        usage=Usage(input_tokens=None if failed else tokens, output_tokens=None if failed else 200),
        text=None if failed else f"step {at} of {session_id}",
    )


if __name__ == "__main__":
    main()
