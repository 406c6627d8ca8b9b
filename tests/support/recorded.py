"""Captures of real frameworks, read into batches as the receivers would."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from collector.batch import Batch
from collector.decode import decode
from collector.reader import StepReader
from collector.receivers.files import read_files
from collector.redact import RedactionSettings, Redactor
from collector.step import Json, Kind, Step, StepAmended, StepEvent, StepSeen

RECORDED = Path(__file__).parent.parent / "testdata" / "captures"
SHARED = Path(__file__).parent.parent.parent.parent / "shared" / "captures"


@dataclass(frozen=True, slots=True)
class Capture:
    """A folder of request bodies and what they are known to tell."""

    folder: Path

    @property
    def name(self) -> str:
        return f"{self.folder.parent.name}/{self.folder.name}"

    @property
    def meta(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads((self.folder / "meta.json").read_text())
        return loaded


def captures(root: Path) -> list[Capture]:
    return [Capture(meta.parent) for meta in sorted(root.glob("*/*/meta.json"))]


@lru_cache(maxsize=8)
def batches(folder: Path) -> tuple[Batch, ...]:
    redactor = Redactor(RedactionSettings())
    decoded = (
        decode(signal, encoding, body, redactor=redactor, now_ns=0)
        for signal, encoding, body, _ in read_files([folder], _no_problem)
    )
    return tuple(each.batch for each in decoded if each.batch is not None)


def _no_problem(path: Path, line: int, reason: str) -> None:
    raise AssertionError(f"{path}:{line}: {reason}")


def rows(batch: Batch, wanted: Sequence[int]) -> Batch:
    """A batch of some rows of another, in the order wanted."""
    agents = set(batch.agent_rows.to_pylist())
    index = pa.array(wanted, pa.uint32())
    kept = pa.array([place for place, row in enumerate(wanted) if row in agents], pa.uint32())
    return Batch(batch.signal, batch.columns.take(index), batch.identity.take(index), kept)


def pieces(batch: Batch, size: int) -> Iterator[Batch]:
    count = batch.columns.num_rows
    for start in range(0, count, size):
        yield rows(batch, range(start, min(start + size, count)))


def final(events: Iterable[StepEvent], into: dict[str, Step] | None = None) -> dict[str, Step]:
    """The last word on every step; checks that none is seen twice and that revisions count up."""
    steps = {} if into is None else into
    for event in events:
        if isinstance(event, StepSeen):
            assert event.step.step_id not in steps
            steps[event.step.step_id] = event.step
        elif isinstance(event, StepAmended):
            before = steps[event.step.step_id]
            assert event.step.revision == before.revision + 1
            steps[event.step.step_id] = event.step
    return steps


def read_offline(parts: Iterable[Batch]) -> dict[str, Step]:
    reader = StepReader(None)
    events: list[StepEvent] = []
    for batch in parts:
        events += reader.push(batch, 0)
    return final(events + reader.drain())


def read_live(parts: Iterable[Batch], every_ns: int = 1_000_000_000) -> dict[str, Step]:
    reader = StepReader()
    steps: dict[str, Step] = {}
    now = 0
    for batch in parts:
        now += every_ns
        final(reader.push(batch, now), steps)
    return final(reader.drain(), steps)


def canonical(value: Json) -> str:
    if isinstance(value, str):
        try:
            return canonical(json.loads(value))
        except ValueError:
            pass
    return json.dumps(value, sort_keys=True)


def calls(steps: dict[str, Step]) -> list[Step]:
    return sorted(
        (step for step in steps.values() if step.kind is Kind.TOOL_CALL),
        key=lambda step: (step.start_ns, step.end_ns),
    )


def told(steps: dict[str, Step]) -> Counter[tuple[str, str, str]]:
    """The calls as a multiset: tool, arguments, outcome."""
    return Counter((step.tool or "", canonical(step.arguments), step.outcome.value) for step in calls(steps))
