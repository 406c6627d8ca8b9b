"""Everything that is measured, in tables: runs, what was said of them, when which rule alarms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

from evaluation.baselines import BASELINES
from evaluation.calls import Entry, events, first_alarm
from evaluation.peers import PEERS
from evaluation.scoring import Alarm, Alarms, first_alarms
from evaluation.shared import (
    BLIND,
    CASES,
    ERRORS,
    FURTHER,
    GROUPS,
    LABELS,
    SECOND,
    SETS,
    Case,
    expanded,
    half,
    identical_at,
    path_of,
    read,
)
from evaluation.stats import Share
from evaluation.streams import LABELLED, judgements, runs_of

RECLOSER: Final = "Recloser"
ALL: Final = "all"
RULES: Final[Mapping[str, Entry]] = {**BASELINES, **PEERS}
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
    """What was measured. `members`: ids by title of the group; `alarms`: by rule, `RECLOSER` first.

    `blind` and `second`: cases written by people who had not read the detectors; `further`: labels of such.
    """

    runs: pl.DataFrame
    findings: pl.DataFrame
    soft: pl.DataFrame
    members: dict[str, list[str]]
    alarms: dict[str, Alarms]
    cases: list[Case] = field(default_factory=list)
    labels: list[Case] = field(default_factory=list)
    blind: list[Case] = field(default_factory=list)
    second: list[Case] = field(default_factory=list)
    further: list[Case] = field(default_factory=list)
    paired: list[Case] = field(default_factory=list)

    @property
    def own(self) -> Alarms:
        """First alarms of Recloser."""
        return self.alarms[RECLOSER]


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


def measure(names: Sequence[str], *, quick: bool, workers: int, rules: bool = True) -> Measured:
    """Measure the named sets, the cases and the labels among them.

    `rules`: baselines and peers too, and the error corpus.
    """
    sets = [name for name in SETS if name in names]
    alone = not {LABELS, FURTHER}.isdisjoint(names) and (quick or sets != list(SETS))
    streams = [name for name in (CASES, BLIND, SECOND, *sets) if name in names] + [LABELLED] * alone
    extra = [ERRORS] if rules else []
    said, soft = judgements([*streams, *extra], quick=quick, workers=workers)
    rows: list[dict[str, object]] = []
    members: dict[str, list[str]] = {}
    kept: dict[str, list[Case]] = {}
    alarms: dict[str, dict[str, Alarm]] = {rule: {} for rule in (RULES if rules else ())}
    for name in streams:
        loaded = runs_of(name, quick=quick)
        rows += [run_row(name, case) for case in loaded]
        for group in GROUPS:
            if group.set == name:
                members[group.title] = [str(case["id"]) for case in loaded if group.member(case)]
        if rules:
            _add_alarms(alarms, loaded)
        kept[name] = loaded if name in (CASES, BLIND, SECOND, "sola_st") else []
    runs = pl.DataFrame(rows, schema=dict(RUN_SCHEMA)).unique("id", keep="first", maintain_order=True)
    return Measured(
        runs=runs,
        findings=said.filter(pl.col("set") != ERRORS),
        soft=soft,
        members=members,
        alarms={RECLOSER: first_alarms(said), **alarms},
        cases=kept.get(CASES, []),
        labels=list(read(path_of(LABELS))) if LABELS in names else [],
        blind=kept.get(BLIND, []),
        second=kept.get(SECOND, []),
        further=list(read(path_of(FURTHER))) if FURTHER in names else [],
        paired=kept.get("sola_st", []),
    )


def _add_alarms(alarms: dict[str, dict[str, Alarm]], cases: Sequence[Case]) -> None:
    for case in cases:
        seen = list(events(case))
        for name, entry in RULES.items():
            at = first_alarm(seen, entry)
            if at is not None:
                alarms[name][str(case["id"])] = Alarm(at)


def membership(measured: Measured) -> pl.DataFrame:
    """A row a group and run, once in the run's half and once in `ALL`, with the run's facts."""
    rows = [(group, run_id) for group, ids in measured.members.items() for run_id in ids]
    of = pl.DataFrame(rows, schema={"group": pl.String, "id": pl.String}, orient="row").join(
        measured.runs, on="id", how="left", maintain_order="left"
    )
    return pl.concat([of, of.with_columns(pl.lit(ALL).alias("half"))])


def alarmed(measured: Measured) -> pl.DataFrame:
    """`membership` once for every rule, with `rule` and `at`, the call of its first alarm or null."""
    of = membership(measured)
    parts = []
    for rule, alarms in measured.alarms.items():
        ats = pl.DataFrame(
            [(run_id, alarm.at) for run_id, alarm in alarms.items()],
            schema={"id": pl.String, "at": pl.Int32},
            orient="row",
        )
        joined = of.join(ats, on="id", how="left", maintain_order="left")
        parts.append(joined.with_columns(pl.lit(rule).alias("rule")))
    return pl.concat(parts)


def rates(found: pl.DataFrame) -> pl.DataFrame:
    """Of `alarmed`, by rule, group and half: runs, those alarmed, calls and tokens made and after the alarm.

    A stop at call n saves the calls after it, n + 1 and on, and their tokens; `metered`: runs with tokens.
    """
    after = pl.when(pl.col("at").is_null()).then(0).otherwise(pl.col("calls") - pl.col("at"))
    spent = pl.col("tokens").list.sum()
    late = (
        pl.when(pl.col("at").is_null())
        .then(0)
        .otherwise(pl.col("tokens").list.slice(pl.col("at")).list.sum())
    )
    return found.group_by("rule", "group", "half", maintain_order=True).agg(
        pl.len().alias("runs"),
        pl.col("at").is_not_null().sum().alias("alarmed"),
        pl.col("calls").sum().alias("calls"),
        after.sum().alias("calls_after"),
        spent.sum().alias("tokens"),
        late.sum().alias("tokens_after"),
        (pl.col("tokens").list.len() > 0).sum().alias("metered"),
        pl.col("at").median().alias("median_at"),
        (pl.col("at") <= pl.col("five_at") + 1).sum().alias("by_sixth"),
    )


def row_of(of: pl.DataFrame, rule: str, group: str, which: str) -> dict[str, Any]:
    """The row of `rates` of a rule, group and half; a group that has no runs there has zeros."""
    found = of.filter(pl.col("rule") == rule, pl.col("group") == group, pl.col("half") == which)
    return found.row(0, named=True) if len(found) else dict.fromkeys(of.columns, 0) | {"median_at": None}


def share_of(of: pl.DataFrame, rule: str, group: str, which: str) -> Share:
    """The share of runs alarmed, out of `rates`."""
    row = row_of(of, rule, group, which)
    return Share(row["alarmed"], row["runs"])


def by_first_kind(measured: Measured) -> pl.DataFrame:
    """By kind of the first alarm: `runs`, those of them that are good, calls and tokens after the alarm."""
    good = {run_id for group in GROUPS if group.healthy for run_id in measured.members.get(group.title, ())}
    told = {run_id for ids in measured.members.values() for run_id in ids}
    firsts = pl.DataFrame(
        [
            (run_id, alarm.at, alarm.kinds[0], run_id in good)
            for run_id, alarm in measured.own.items()
            if run_id in told
        ],
        schema={"id": pl.String, "at": pl.Int32, "kind": pl.String, "good": pl.Boolean},
        orient="row",
    ).join(measured.runs, on="id", how="left", maintain_order="left")
    return (
        firsts.group_by("kind")
        .agg(
            pl.len().alias("runs"),
            pl.col("good").sum(),
            (pl.col("calls") - pl.col("at")).sum().alias("calls_after"),
            pl.col("tokens").list.slice(pl.col("at")).list.sum().sum().alias("tokens_after"),
        )
        .sort("kind")
    )
