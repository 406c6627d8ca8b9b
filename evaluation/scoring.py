"""First alarms against cases and labels, counted as `score_findings.py` and `score_labels.py` count them."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import polars as pl

from evaluation.shared import STUCK, Case
from evaluation.stats import Share

KIN: Final[Mapping[str, frozenset[str]]] = {"doom_loop": frozenset({"no_progress"})}
"""Kinds that are right for a verdict besides its own name."""
HEALTHY: Final = "healthy"
NO_LOOP: Final = "none"
TOO_EARLY: Final = -3  # calls


@dataclass(frozen=True, slots=True)
class Alarm:
    """The first alarm of a run: the call (from 1) at which it came, the kinds that came at that call."""

    at: int
    kinds: tuple[str, ...] = ()


Alarms = Mapping[str, Alarm]
"""By id of the run. A run without an alarm is not in it."""


def first_alarms(findings: pl.DataFrame) -> dict[str, Alarm]:
    """First alarms out of a table of findings: kinds of `STUCK`, warning or critical."""
    stuck = findings.filter(
        pl.col("kind").is_in(sorted(STUCK)), pl.col("severity").is_in(["warning", "critical"])
    )
    firsts: dict[str, Alarm] = {}
    for run_id, at, kind in stuck.select("id", "at", "kind").sort("id", "at", "kind").iter_rows():
        before = firsts.get(run_id)
        if before is None:
            firsts[run_id] = Alarm(at, (kind,))
        elif before.at == at and kind not in before.kinds:
            firsts[run_id] = Alarm(at, (*before.kinds, kind))
    return firsts


@dataclass(slots=True)
class CaseScore:
    """Counts over cases; `short`: the ids of those that fall short, and why."""

    positives: int = 0
    in_time: int = 0
    right_kind: int = 0
    early: int = 0
    ever: int = 0
    traps: int = 0
    trapped: int = 0
    delays: list[int] = field(default_factory=list)
    short: dict[str, str] = field(default_factory=dict)

    @property
    def recall(self) -> Share:
        """Positives alarmed in time."""
        return Share(self.in_time, self.positives)

    @property
    def false_alarms(self) -> Share:
        """Traps alarmed."""
        return Share(self.trapped, self.traps)

    @property
    def precision(self) -> Share:
        """Of the runs alarmed, those that are positives."""
        return Share(self.ever, self.ever + self.trapped)


def score_cases(cases: Iterable[Case], alarms: Alarms) -> CaseScore:
    """Score first alarms against what is expected of each case. `delays` are calls after `by_call`."""
    score = CaseScore()
    for case in cases:
        if not case.get("contested"):
            _score_case(score, case, alarms.get(str(case["id"])))
    return score


def _score_case(score: CaseScore, case: Case, alarm: Alarm | None) -> None:
    run_id, expect = str(case["id"]), case["expect"]
    verdict = expect["verdict"]
    if verdict == NO_LOOP:
        score.traps += 1
        score.trapped += alarm is not None
        if alarm is not None:
            score.short[run_id] = "trap alarmed"
        return
    score.positives += 1
    score.ever += alarm is not None
    if alarm is not None:
        score.delays.append(alarm.at - int(expect["by_call"]))
    if alarm is None or alarm.at > expect["by_call"]:
        score.short[run_id] = f"missed or late, expected {verdict} by call {expect['by_call']}"
    elif alarm.at < (expect.get("not_before") or 1):
        score.early += 1
        score.short[run_id] = f"too early, before call {expect['not_before']}"
    else:
        score.in_time += 1
        allowed = {verdict, *expect.get("also", ()), *KIN.get(verdict, ())}
        if len(alarm.kinds) == 1 and alarm.kinds[0] in allowed:
            score.right_kind += 1
        elif alarm.kinds:
            score.short[run_id] = f"wrong kind, expected {verdict}"


@dataclass(slots=True)
class LabelScore:
    """Counts over labelled trajectories; by label: how many there are, are alarmed, and get a right kind."""

    total: dict[str, int] = field(default_factory=dict)
    found: dict[str, int] = field(default_factory=dict)
    right: dict[str, int] = field(default_factory=dict)
    delays: list[int] = field(default_factory=list)
    short: dict[str, str] = field(default_factory=dict)

    @property
    def false_alarms(self) -> Share:
        """Healthy runs alarmed."""
        return Share(self.found.get(HEALTHY, 0), self.total.get(HEALTHY, 0))

    @property
    def recall(self) -> Share:
        """Stuck runs alarmed."""
        healthy = self.false_alarms
        return Share(sum(self.found.values()) - healthy.hits, sum(self.total.values()) - healthy.total)

    @property
    def precision(self) -> Share:
        """Of the runs alarmed, those that are stuck."""
        hits = self.recall.hits
        return Share(hits, hits + self.false_alarms.hits)

    @property
    def median_delay(self) -> float | None:
        """In calls; None without an alarm."""
        return statistics.median(self.delays) if self.delays else None

    @property
    def early(self) -> int:
        """Alarms more than three calls before both readers."""
        return sum(delay < TOO_EARLY for delay in self.delays)


def delay_of(row: Case, at: int) -> int:
    """Calls from the readers' call to the alarm at call `at`: 0 between the two, negative before both."""
    readers = [int(row["first_index"]) + 1]
    if row.get("second_first_index") is not None:
        readers.append(int(row["second_first_index"]) + 1)
    return at - max(readers) if at > max(readers) else min(0, at - min(readers))


def score_labels(labels: Sequence[Case], alarms: Alarms) -> LabelScore:
    """Score first alarms against the labels; those on which the readers disagree are left out."""
    score = LabelScore()
    for row in labels:
        if row.get("contested"):
            continue
        label, alarm = row["label"], alarms.get(row["id"])
        for table in (score.total, score.found, score.right):
            table.setdefault(label, 0)
        score.total[label] += 1
        if (alarm is not None) == (label == HEALTHY):
            said = "false alarm" if alarm else f"missed at call {int(row['first_index']) + 1}"
            score.short[row["id"]] = f"{said}, {label}: {row['reason']}"
        if alarm is None:
            continue
        score.found[label] += 1
        score.right[label] += bool(alarm.kinds) and alarm.kinds[0] in (label, row.get("second_label"))
        if label != HEALTHY:
            score.delays.append(delay_of(row, alarm.at))
    return score


def by_round(labels: Iterable[Case]) -> list[tuple[int, list[Case]]]:
    """Labels of further readers by the round in which they were made, in its order."""
    rounds: dict[int, list[Case]] = {}
    for row in labels:
        rounds.setdefault(int(row["round"]), []).append(row)
    return sorted(rounds.items())


@dataclass(frozen=True, slots=True)
class Judged:
    """A labelled run and its first alarm. `accepted`: kinds that are right; `delay`: in calls, if any."""

    truth: str
    accepted: frozenset[str]
    kind: str | None
    delay: int | None


def judged_cases(cases: Iterable[Case], alarms: Alarms) -> list[Judged]:
    """The cases that are not contested; the delay is from `by_call`, negative before it."""
    found = []
    for case in cases:
        if case.get("contested"):
            continue
        expect, alarm = case["expect"], alarms.get(str(case["id"]))
        verdict = HEALTHY if expect["verdict"] == NO_LOOP else expect["verdict"]
        accepted = frozenset({verdict, *expect.get("also", ()), *KIN.get(verdict, ())})
        delay = alarm.at - int(expect["by_call"]) if alarm is not None and verdict != HEALTHY else None
        found.append(Judged(verdict, accepted, alarm.kinds[0] if alarm and alarm.kinds else None, delay))
    return found


def judged_labels(labels: Iterable[Case], alarms: Alarms) -> list[Judged]:
    """The labelled runs that are not contested; the delay as of `delay_of`."""
    found = []
    for row in labels:
        if row.get("contested"):
            continue
        label, alarm = row["label"], alarms.get(row["id"])
        accepted = frozenset({label, row.get("second_label") or label})
        delay = delay_of(row, alarm.at) if alarm is not None and label != HEALTHY else None
        found.append(Judged(label, accepted, alarm.kinds[0] if alarm and alarm.kinds else None, delay))
    return found


@dataclass(frozen=True, slots=True)
class KindScore:
    """How one kind is found and said.

    Of the runs labelled so: `alarmed` with any kind, `right` with an accepted one. Of the first alarms that
    say so: `stuck` on runs that are stuck at all, `right_said` where the kind is accepted.
    """

    kind: str
    alarmed: Share
    right: Share
    stuck: Share
    right_said: Share
    median_delay: float | None


def by_kind(judged: Sequence[Judged]) -> list[KindScore]:
    """Every kind that is labelled or said, sorted."""
    kinds = {item.truth for item in judged} | {item.kind for item in judged if item.kind}
    return [_kind_score(kind, judged) for kind in sorted(kinds - {HEALTHY})]


def _kind_score(kind: str, judged: Sequence[Judged]) -> KindScore:
    labelled = [item for item in judged if item.truth == kind]
    said = [item for item in judged if item.kind == kind]
    delays = [item.delay for item in labelled if item.delay is not None]
    return KindScore(
        kind,
        alarmed=Share(sum(item.kind is not None for item in labelled), len(labelled)),
        right=Share(sum(item.kind in item.accepted for item in labelled), len(labelled)),
        stuck=Share(sum(item.truth != HEALTHY for item in said), len(said)),
        right_said=Share(sum(kind in item.accepted for item in said), len(said)),
        median_delay=statistics.median(delays) if delays else None,
    )
