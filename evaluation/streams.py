"""Runs through the analyzer, as OTLP: a set is one stream, in its own process; its findings in a table."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import orjson
import polars as pl

from api.analyze import Analysis, Problems
from api.config import Settings
from collector.batch import Signal
from collector.receivers.files import Body
from collector.step import Kind, Outcome, Step
from detectors.protocol import Finding
from detectors.reading import Reading
from evaluation.shared import (
    BUILD,
    ERRORS,
    FURTHER,
    LABELS,
    ROOT,
    SHARED,
    Case,
    Converter,
    converter,
    load,
    path_of,
    read,
)

JUDGED_BY: Final = ("api", "collector", "control", "detectors")
LABELLED: Final = "labelled"
"""The stream of the labelled trajectories alone, for when only the labels are asked for."""
SCHEMA: Final = {
    "set": pl.String,
    "id": pl.String,
    "at": pl.Int32,
    "since": pl.Int32,
    "kind": pl.String,
    "severity": pl.String,
    "shadow": pl.Boolean,
    "rule": pl.String,
    "tool": pl.String,
    "occurrences": pl.Int32,
    "finding": pl.String,
    "summary": pl.String,
}
"""A row a finding and session whenever its kind or severity changes. `at`: calls that had ended at the span
that completed the pattern; `since`: the same of the streak's first span."""


def bodies(cases: Iterable[Case], tool: Converter) -> Iterator[Body]:
    """Cases as request bodies, hours apart, so that no detector over several sessions mixes them."""
    start = tool.EPOCH_NS
    for case in cases:
        yield Signal.TRACES, "json", orjson.dumps(tool.case_to_request(case, start)), str(case["id"])
        start += tool.CASE_SPACING_NS


SOFT_SCHEMA: Final = {"set": pl.String, "id": pl.String, "at": pl.Int32}
"""A row a call that is read as failed although it was reported ok; `at`: its number."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is said of a stream, in order: `findings`, rows of `SCHEMA`; `soft`, rows of `SOFT_SCHEMA`."""

    findings: list[dict[str, Any]] = field(default_factory=list)
    soft: list[dict[str, Any]] = field(default_factory=list)


class _Watch:
    """Notes down what an analysis says of the runs of a stream, by the numbers of their calls."""

    def __init__(self, name: str, cases: Sequence[Case], tool: Converter) -> None:
        self.said = Judgement()
        self._name, self._tool = name, tool
        self._cases = {str(case["id"]): case for case in cases}
        self._done: dict[str, Mapping[str, int]] = {}

    def _numbers(self, session: str) -> Mapping[str, int]:
        if session not in self._done:
            self._done[session] = self._tool.calls_done_at(self._cases[session])
        return self._done[session]

    def note_finding(self, finding: Finding) -> None:
        for session in finding.session_ids or (finding.session_id,):
            if session in self._cases:
                self.said.findings.append(_row(self._name, session, finding, self._numbers(session)))

    def note_soft(self, steps: dict[str, Step]) -> None:
        """Note the soft failures among the steps so far, and let go of the steps: they are many."""
        for step in steps.values():
            if step.kind is Kind.TOOL_CALL and is_soft(step) and step.session_id in self._cases:
                at = self._numbers(step.session_id)[step.span_id]
                self.said.soft.append({"set": self._name, "id": step.session_id, "at": at})
        steps.clear()


def judged(name: str, cases: Sequence[Case], tool: Converter) -> Judgement:
    """What the analyzer says of a stream of cases, made OTLP by `tool`.

    Raises `ValueError` when it could not read or judge any of them.
    """
    problems = Problems(sys.stderr)
    analysis = Analysis(Settings(), problems, keep_steps=True)
    watch = _Watch(name, cases, tool)

    def watched() -> Iterator[Body]:
        for body in bodies(cases, tool):
            yield body
            watch.note_soft(analysis.steps)

    for finding in analysis.feed(watched()):
        watch.note_finding(finding)
    watch.note_soft(analysis.steps)
    if problems.count:
        raise ValueError(f"{name}: {problems.count} requests could not be analyzed")
    return watch.said


def is_soft(step: Step) -> bool:
    """Tell whether a call is read as failed although it was not reported so."""
    return step.outcome is Outcome.SOFT_ERROR or Reading(step).soft is not None


def _row(name: str, session: str, finding: Finding, done: Mapping[str, int]) -> dict[str, Any]:
    last = max(done.values())
    return {
        "set": name,
        "id": session,
        "at": done.get(finding.span_id, last),
        "since": done.get(finding.first_span_id, 1),
        "kind": finding.kind,
        "severity": finding.severity.value,
        "shadow": finding.evidence.get("shadow") is True,
        "rule": str(finding.evidence.get("rule", "")),
        "tool": finding.tool or "",
        "occurrences": finding.occurrences,
        "finding": finding.id,
        "summary": finding.summary,
    }


def runs_of(name: str, *, quick: bool) -> list[Case]:
    """The runs of a stream; each message of the error corpus is a run of the one call that it came from."""
    if name == ERRORS:
        return [message_run(row) for row in read(path_of(ERRORS))]
    if name != LABELLED:
        return load(name, quick=quick)
    labels = [row for labels in (LABELS, FURTHER) for row in read(path_of(labels))]
    wanted = {row["id"] for row in labels}
    sets = sorted({row["dataset"] for row in labels})
    return [case for name in sets for case in load(name) if case["id"] in wanted]


def message_run(row: Case) -> Case:
    """A row of the error corpus (`id`, `tool`, `message`, `reported_ok`) as a run of one call."""
    ok = row["reported_ok"]
    text = {"result": row["message"]} if ok else {"error": row["message"]}
    return {"id": row["id"], "calls": [{"tool": row.get("tool") or "tool", "ok": ok, **text}]}


def code_digest() -> str:
    """A digest of all that judges, models that come with it included."""
    digest = hashlib.sha256()
    for folder in JUDGED_BY:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    digest.update(Path(__file__).read_bytes())
    digest.update((SHARED / "tools" / "cases_to_otlp.py").read_bytes())
    return digest.hexdigest()


def _analyze(name: str, quick: bool, target: Path) -> Judgement:  # noqa: FBT001 - a pool's job
    said = judged(name, runs_of(name, quick=quick), converter())
    target.parent.mkdir(parents=True, exist_ok=True)
    written = target.with_suffix(f".{os.getpid()}")
    written.write_bytes(orjson.dumps(said))
    written.replace(target)
    return said


def judgements(
    names: Sequence[str], *, quick: bool = False, workers: int = 2
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """What is said of these streams, as tables of `SCHEMA` and `SOFT_SCHEMA`.

    It is kept in build/ until the code that judges or the data change.
    """
    code = code_digest()
    said: dict[str, Judgement] = {}
    missing: list[tuple[int, str, Path]] = []
    for name in names:
        files = (LABELS, FURTHER) if name == LABELLED else (name,)
        source = b"".join(path_of(file).read_bytes() for file in files)
        key = hashlib.sha256(code.encode() + source).hexdigest()[:16]
        target = BUILD / f"{name}{'-quick' if quick else ''}-{key}.json"
        if target.exists():
            said[name] = Judgement(**orjson.loads(target.read_bytes()))
        else:
            missing.append((len(source), name, target))
    missing.sort(reverse=True)
    if len(missing) == 1 or workers == 1:
        said |= {name: _analyze(name, quick, target) for _, name, target in missing}
    elif missing:
        with ProcessPoolExecutor(min(workers, len(missing)), mp_context=get_context("spawn")) as pool:
            jobs = {name: pool.submit(_analyze, name, quick, target) for _, name, target in missing}
            for name, job in jobs.items():
                said[name] = job.result()
                print(f"analyzed {name}", file=sys.stderr)
    findings = [row for name in names for row in said[name].findings]
    soft = [row for name in names for row in said[name].soft]
    return pl.DataFrame(findings, schema=SCHEMA), pl.DataFrame(soft, schema=SOFT_SCHEMA).unique(
        maintain_order=True
    )
