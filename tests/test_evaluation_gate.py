"""A regression is seen here before anybody runs the whole evaluation: real runs, judged through OTLP.

The bounds are what was reached when they were last raised, with one of slack. `make eval` tells more.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import case_otlp
import polars as pl

from evaluation.scoring import Alarms, by_round, first_alarms, score_cases, score_labels
from evaluation.shared import Case, read
from evaluation.streams import SCHEMA, judged

DATA = Path(__file__).parent / "testdata"
RUNS = DATA / "evaluation"
CASES = DATA / "cases/agents-that-loop-and-agents-that-only-seem-to.jsonl"
SECOND_BLIND_CASES = DATA / "cases/blind-second.jsonl"

LEAST_CASES_OF_THE_RIGHT_KIND = 50
LEAST_SECOND_CASES_OF_THE_RIGHT_KIND = 59
MOST_SECOND_CASES_TOO_EARLY = 3
MOST_TRAPS = 1
LEAST_STUCK_RUNS = 35
LEAST_STUCK_RUNS_OF_ROUND_3 = 31
MOST_HEALTHY_RUNS = 1
MOST_DELAY = 1
MOST_EARLY = 2
MOST_EARLY_OF_ROUND_3 = 1
MOST_GOOD_RUNS = 1


@cache
def rows(path: Path) -> list[Case]:
    return list(read(path))


@cache
def alarms(path: Path) -> Alarms:
    return first_alarms(pl.DataFrame(judged(path.stem, rows(path), case_otlp).findings, schema=SCHEMA))


def test_cases_are_alarmed_in_time_and_traps_are_not() -> None:
    score = score_cases(rows(CASES), alarms(CASES))
    assert (score.positives, score.traps) == (51, 39)
    assert score.right_kind >= LEAST_CASES_OF_THE_RIGHT_KIND, score.short
    assert score.trapped <= MOST_TRAPS, score.short


def test_cases_of_a_second_writer_who_had_not_read_the_detectors_are_too() -> None:
    score = score_cases(rows(SECOND_BLIND_CASES), alarms(SECOND_BLIND_CASES))
    assert (score.positives, score.traps) == (63, 43)
    assert score.right_kind >= LEAST_SECOND_CASES_OF_THE_RIGHT_KIND, score.short
    assert score.early <= MOST_SECOND_CASES_TOO_EARLY, score.short
    assert score.trapped <= MOST_TRAPS, score.short


def test_what_two_readers_call_stuck_is_alarmed_and_what_they_call_healthy_is_not() -> None:
    path = RUNS / "runs-that-two-readers-labelled.jsonl.gz"
    score = score_labels(rows(RUNS / "what-the-readers-say-of-them.jsonl"), alarms(path))
    assert (score.recall.total, score.false_alarms.total) == (36, 11)
    assert score.recall.hits >= LEAST_STUCK_RUNS, score.short
    assert score.false_alarms.hits <= MOST_HEALTHY_RUNS, score.short
    assert score.median_delay is not None
    assert score.median_delay <= MOST_DELAY
    assert score.early <= MOST_EARLY


def test_so_are_runs_that_a_reader_labelled_after_the_rules_were_written() -> None:
    path = RUNS / "runs-that-a-further-reader-labelled.jsonl.gz"
    labels = dict(by_round(rows(RUNS / "labels-of-further-readers.jsonl")))[3]
    score = score_labels(labels, alarms(path))
    assert (score.recall.total, score.false_alarms.total) == (36, 22)
    assert score.recall.hits >= LEAST_STUCK_RUNS_OF_ROUND_3, score.short
    assert score.false_alarms.hits <= MOST_HEALTHY_RUNS, score.short
    assert score.median_delay is not None
    assert score.median_delay <= MOST_DELAY
    assert score.early <= MOST_EARLY_OF_ROUND_3


def test_runs_that_came_to_a_good_end_are_left_alone() -> None:
    path = RUNS / "runs-that-came-to-a-good-end.jsonl.gz"
    assert len(rows(path)) == 64
    assert len(alarms(path)) <= MOST_GOOD_RUNS, alarms(path)
