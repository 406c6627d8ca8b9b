"""Runs through the analyzer, as OTLP: a set is one stream, in its own process; its findings in a table."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import orjson
import polars as pl

from api.analyze import Analysis, Problems
from api.config import Settings
from collector.batch import Signal
from collector.receivers.files import Body
from detectors.protocol import Finding
from evaluation.shared import BUILD, ROOT, SHARED, Case, Converter, converter, load, path_of, read

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


def judged(name: str, cases: Sequence[Case], tool: Converter) -> list[dict[str, Any]]:
    """What the analyzer says of a stream of cases, made OTLP by `tool`: rows of `SCHEMA`, in its order.

    Raises `ValueError` when it could not read or judge any of them.
    """
    problems = Problems(sys.stderr)
    analysis = Analysis(Settings(), problems)
    by_id = {str(case["id"]): case for case in cases}
    done: dict[str, Mapping[str, int]] = {}
    rows: list[dict[str, Any]] = []
    for finding in analysis.feed(bodies(cases, tool)):
        for session in finding.session_ids or (finding.session_id,):
            if session in by_id:
                if session not in done:
                    done[session] = tool.calls_done_at(by_id[session])
                rows.append(_row(name, session, finding, done[session]))
    if problems.count:
        raise ValueError(f"{name}: {problems.count} requests could not be analyzed")
    return rows


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
    """The runs of a stream."""
    if name != LABELLED:
        return load(name, quick=quick)
    labels = list(read(path_of("labels")))
    wanted = {row["id"] for row in labels}
    sets = sorted({row["dataset"] for row in labels})
    return [case for name in sets for case in load(name) if case["id"] in wanted]


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


def _analyze(name: str, quick: bool, target: Path) -> list[dict[str, Any]]:  # noqa: FBT001 - a pool's job
    rows = judged(name, runs_of(name, quick=quick), converter())
    target.parent.mkdir(parents=True, exist_ok=True)
    written = target.with_suffix(f".{os.getpid()}")
    written.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    written.replace(target)
    return rows


def findings(names: Sequence[str], *, quick: bool = False, workers: int = 2) -> pl.DataFrame:
    """What the analyzer says of these streams, as rows of `SCHEMA`; kept until code or data change."""
    code = code_digest()
    rows: dict[str, list[dict[str, Any]]] = {}
    missing: list[tuple[int, str, Path]] = []
    for name in names:
        source = b"" if name == LABELLED else path_of(name).read_bytes()
        key = hashlib.sha256(code.encode() + source).hexdigest()[:16]
        target = BUILD / f"{name}{'-quick' if quick else ''}-{key}.jsonl"
        if target.exists():
            rows[name] = [orjson.loads(line) for line in target.read_bytes().splitlines()]
        else:
            missing.append((len(source), name, target))
    missing.sort(reverse=True)
    if len(missing) == 1 or workers == 1:
        rows |= {name: _analyze(name, quick, target) for _, name, target in missing}
    elif missing:
        with ProcessPoolExecutor(min(workers, len(missing)), mp_context=get_context("spawn")) as pool:
            jobs = {name: pool.submit(_analyze, name, quick, target) for _, name, target in missing}
            for name, job in jobs.items():
                rows[name] = job.result()
                print(f"analyzed {name}", file=sys.stderr)
    return pl.DataFrame([row for name in names for row in rows[name]], schema=SCHEMA)
