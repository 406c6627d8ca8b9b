"""Everything that is measured, in tables: runs, what was said of them, when which rule alarms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import polars as pl

from evaluation.scoring import Alarms, first_alarms
from evaluation.shared import (
    CASES,
    GROUPS,
    LABELS,
    SETS,
    Case,
    expanded,
    half,
    identical_at,
    load,
    path_of,
    read,
)
from evaluation.streams import LABELLED, findings

RUN_SCHEMA: Final[Mapping[str, pl.DataType | type[pl.DataType]]] = {
    "set": pl.String,
    "id": pl.String,
    "half": pl.String,
    "calls": pl.Int32,
    "ok": pl.Int32,
    "tokens": pl.List(pl.Int64),
    "five_at": pl.Int32,
}
"""A row a run. `tokens`: of each call, empty where none were recorded; `five_at`: the call that completes
five identical ones in a row."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured. `members`: ids by title of the group; `alarms`: by rule, Recloser's own first."""

    runs: pl.DataFrame
    findings: pl.DataFrame
    members: dict[str, list[str]]
    cases: list[Case] = field(default_factory=list)
    labels: list[Case] = field(default_factory=list)
    quick: bool = False

    @property
    def alarms(self) -> Alarms:
        """First alarms of Recloser."""
        return first_alarms(self.findings)


def run_row(name: str, case: Case) -> dict[str, object]:
    """A run as a row of `RUN_SCHEMA`."""
    calls = [call for call in expanded(case) if "event" not in call]
    tokens = [int(call.get("tokens") or 0) for call in calls]
    return {
        "set": name,
        "id": str(case["id"]),
        "half": half(str(case["id"])),
        "calls": len(calls),
        "ok": sum(call.get("ok") is True for call in calls),
        "tokens": tokens if any(tokens) else [],
        "five_at": identical_at(case),
    }


def measure(names: Sequence[str], *, quick: bool, workers: int) -> Measured:
    """Measure the named sets, the cases and the labels among them."""
    sets = [name for name in SETS if name in names]
    streams = [name for name in (CASES, *sets) if name in names]
    alone = LABELS in names and (quick or sets != list(SETS))
    said = findings([*streams, *([LABELLED] if alone else [])], quick=quick, workers=workers)
    rows: list[dict[str, object]] = []
    members: dict[str, list[str]] = {}
    cases = load(CASES) if CASES in names else []
    rows += [run_row(CASES, case) for case in cases]
    for name in sets:
        loaded = load(name, quick=quick)
        rows += [run_row(name, case) for case in loaded]
        for group in GROUPS:
            if group.set == name:
                members[group.title] = [str(case["id"]) for case in loaded if group.member(case)]
    labels = list(read(path_of(LABELS))) if LABELS in names else []
    return Measured(pl.DataFrame(rows, schema=RUN_SCHEMA), said, members, cases, labels, quick)
