"""Hand-off reports of labelled runs against what readers say: how much is filled, how near the onset is."""

from __future__ import annotations

import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from api.analyze import Analysis, Problems
from api.config import Settings
from control.handoff import FIELDS, Handoff, build
from detectors.notes_book import NotesBook, NotesLimits
from evaluation.scoring import HEALTHY, by_round
from evaluation.shared import Case, Converter
from evaluation.stats import Share
from evaluation.streams import bodies

NEAR: Final = 2  # calls
_ROOM: Final = NotesLimits(max_bytes=2**30)


@dataclass(slots=True)
class HandoffScore:
    """Reports of stuck runs, counted.

    `filled`: the share of filled fields of each; `unknown`: how often a field is not; `off`: calls from the
    nearest reader's to the onset's, None where there is none; `short`: what is off, by run.
    """

    filled: list[float] = field(default_factory=list)
    unknown: Counter[str] = field(default_factory=Counter)
    off: list[int | None] = field(default_factory=list)
    short: dict[str, str] = field(default_factory=dict)

    @property
    def runs(self) -> int:
        """How many there are."""
        return len(self.filled)

    @property
    def mean_filled(self) -> float:
        """The share of filled fields in the mean, 0 to 1."""
        return statistics.mean(self.filled) if self.filled else 0.0

    @property
    def near(self) -> Share:
        """Onsets within `NEAR` calls of a reader's."""
        return Share(sum(off is not None and abs(off) <= NEAR for off in self.off), len(self.off))


def reports(cases: Sequence[Case], tool: Converter) -> dict[str, Handoff]:
    """The report of each run at its end, judged through OTLP as one stream, by id of the run.

    Raises `ValueError` when any of them could not be read or judged.
    """
    problems = Problems(sys.stderr)
    analysis = Analysis(Settings(), problems, notes=lambda lens: NotesBook(_ROOM, lens))
    for _ in analysis.feed(bodies(cases, tool)):
        pass
    if problems.count or analysis.notes is None:
        raise ValueError(f"{problems.count} requests could not be analyzed")
    made: dict[str, Handoff] = {}
    for case in cases:
        run_id = str(case["id"])
        notes = analysis.notes.notes(run_id)
        findings = [one for one in analysis.latest.values() if run_id in (one.session_id, *one.session_ids)]
        if notes is not None:
            made[run_id] = build(notes, findings, (), notes.last_ns)
    return made


def score(labels: Iterable[Case], made: Mapping[str, Handoff], tasks: Mapping[str, bool]) -> HandoffScore:
    """Score the reports of the runs that readers call stuck, but of none on which they disagree.

    `tasks` says of which runs the task was recorded: where it was not, the goal that stands in its place is
    the converter's, and does not count.
    """
    told = HandoffScore()
    for row in labels:
        report = made.get(row["id"])
        if row.get("contested") or row["label"] == HEALTHY or report is None:
            continue
        unknown = set(report.unknown) | (set() if tasks.get(row["id"]) else {"goal"})
        told.filled.append(1 - len(unknown) / len(FIELDS))
        told.unknown.update(unknown)
        number = report.onset.number if report.onset is not None else None
        off = None if number is None else min((number - call for call in calls_of(row)), key=abs)
        told.off.append(off)
        if off is None or abs(off) > NEAR:
            told.short[row["id"]] = f"onset {number}, readers {calls_of(row)}: {row['reason']}"
    return told


def calls_of(row: Case) -> list[int]:
    """The call (from 1) at which each reader first says that a run is stuck."""
    told = (row["first_index"], row.get("second_first_index"))
    return [int(index) + 1 for index in told if index is not None]


def scores(
    labels: Sequence[Case], further: Sequence[Case], cases: Sequence[Case], tool: Converter
) -> list[tuple[str, HandoffScore]]:
    """The scores of the two readers' labels and of those of each further round, by title."""
    made = reports(cases, tool)
    tasks = {str(case["id"]): bool(case.get("task")) for case in cases}
    told = [("two readers", score(labels, made, tasks))]
    told += [
        (f"a further reader, round {number}", score(rows, made, tasks)) for number, rows in by_round(further)
    ]
    return told
