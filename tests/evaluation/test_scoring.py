from __future__ import annotations

import polars as pl
import pytest

from evaluation.pairs import PairScore, episodes, score_pairs, streaks
from evaluation.scoring import (
    Alarm,
    by_kind,
    by_round,
    delay_of,
    first_alarms,
    judged_cases,
    score_cases,
    score_labels,
)
from evaluation.shared import Case
from evaluation.soft import rates_of_ok, score_soft
from evaluation.stats import Share
from evaluation.streams import SCHEMA, SOFT_SCHEMA


def said(
    run: str, at: int, kind: str = "doom_loop", severity: str = "warning", **more: object
) -> dict[str, object]:
    row = dict.fromkeys(SCHEMA)
    return {
        **row,
        "set": "s",
        "id": run,
        "at": at,
        "since": 1,
        "kind": kind,
        "severity": severity,
        "finding": kind,
        **more,
    }


def findings(*rows: dict[str, object]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=SCHEMA)


def test_the_first_alarm_is_the_first_warning_that_says_stuck() -> None:
    table = findings(
        said("r", 2, severity="info"),
        said("r", 3, kind="soft_failure", severity="critical"),
        said("r", 6),
        said("r", 5, kind="flail", severity="critical"),
        said("r", 5, kind="doom_loop"),
        said("quiet", 1, severity="info"),
    )
    assert first_alarms(table) == {"r": Alarm(5, ("doom_loop", "flail"))}


def case(run: str, verdict: str, **more: object) -> Case:
    return {"id": run, "expect": {"verdict": verdict, "by_call": 6, **more}}


CASES = [
    case("in time", "flail", not_before=3),
    case("kin", "doom_loop"),
    case("other kind", "cascade", also=["retry_storm"]),
    case("two kinds", "flail"),
    case("late", "flail"),
    case("early", "flail", not_before=3),
    case("missed", "doom_loop"),
    case("trap", "none"),
    case("quiet trap", "none"),
    {**case("nobody knows", "none"), "contested": True},
]
ALARMS = {
    "in time": Alarm(6, ("flail",)),
    "kin": Alarm(4, ("no_progress",)),
    "other kind": Alarm(4, ("doom_loop",)),
    "two kinds": Alarm(4, ("doom_loop", "flail")),
    "late": Alarm(7, ("flail",)),
    "early": Alarm(2, ("flail",)),
    "trap": Alarm(9, ("flail",)),
    "nobody knows": Alarm(1, ("flail",)),
}


def test_cases_are_scored_by_the_first_alarm() -> None:
    score = score_cases(CASES, ALARMS)
    assert (score.positives, score.in_time, score.right_kind, score.early, score.ever) == (7, 4, 2, 1, 6)
    assert (score.traps, score.trapped) == (2, 1)
    assert score.precision == Share(6, 7)
    assert sorted(score.delays) == [-4, -2, -2, -2, 0, 1]
    assert sorted(score.short) == ["early", "late", "missed", "other kind", "trap", "two kinds"]


def test_kinds_are_scored_as_labelled_and_as_said() -> None:
    flail = next(kind for kind in by_kind(judged_cases(CASES, ALARMS)) if kind.kind == "flail")
    assert (flail.alarmed, flail.right) == (Share(4, 4), Share(3, 4))
    assert (flail.stuck, flail.right_said) == (Share(3, 4), Share(3, 4))
    assert flail.median_delay == -1


@pytest.mark.parametrize(("at", "delay"), [(3, -2), (5, 0), (7, 0), (8, 0), (9, 1)])
def test_between_the_two_readers_there_is_no_delay(at: int, delay: int) -> None:
    assert delay_of({"first_index": 4, "second_first_index": 7}, at) == delay


def test_labels_are_scored_without_what_readers_disagree_on() -> None:
    def label(run: str, kind: str, first: int | None, **more: object) -> Case:
        return {"id": run, "label": kind, "first_index": first, "second_label": kind, "reason": "", **more}

    labels = [
        label("found", "flail", 3, second_label="doom_loop"),
        label("early", "doom_loop", 9),
        label("missed", "cascade", 2),
        label("well", "healthy", None),
        label("alarmed", "healthy", None),
        label("nobody knows", "flail", 3, contested=True),
    ]
    alarms = {
        "found": Alarm(6, ("doom_loop",)),
        "early": Alarm(6, ("flail",)),
        "alarmed": Alarm(1, ("flail",)),
        "nobody knows": Alarm(1, ("flail",)),
    }
    score = score_labels(labels, alarms)
    assert (score.recall, score.false_alarms, score.precision) == (Share(2, 3), Share(1, 2), Share(2, 3))
    assert (score.right["flail"], score.right["doom_loop"]) == (1, 0)
    assert (score.median_delay, score.early) == (-1.0, 1)
    assert sorted(score.short) == ["alarmed", "missed"]


def test_an_episode_is_a_stretch_of_repeating_pairs() -> None:
    labels = ["Repetition", "Follow-up", "Repetition", "Divergence", "Divergence", "Repetition", "Follow-up"]
    assert episodes(labels) == [(1, 3)]
    assert episodes(["Repetition"] * 3) == [(1, 2, 3)]
    assert episodes([]) == []


def test_alarms_are_right_where_people_see_repetition() -> None:
    labels = ["Repetition", "Repetition", "Follow-up", "Follow-up", "Follow-up", "Repetition", "Repetition"]
    runs: list[Case] = [{"id": "r", "human_pair_labels": labels}, {"id": "without labels"}]
    table = findings(
        said("r", 3, since=1, finding="one"),
        said("r", 5, since=1, severity="critical", finding="one"),
        said("r", 6, since=4, finding="two"),
        said("r", 8, since=6, finding="a note", severity="info"),
        said("r", 8, since=7, finding="three"),
    )
    assert streaks(table) == {"r": [(1, 3), (4, 6), (7, 8)]}
    assert score_pairs(runs, streaks(table)) == PairScore(Share(1, 3), Share(1, 2), Share(4, 7))


def test_soft_failures_are_scored_by_their_call() -> None:
    errors = [
        {"id": "a", "reported_ok": True, "message": "timed out"},
        {"id": "b", "reported_ok": True, "message": "no\ncanvas"},
        {"id": "c", "reported_ok": False, "message": "exit 1"},
    ]
    table = pl.DataFrame({"set": ["s", "s"], "id": ["a", "c"], "at": [1, 1]}, schema=SOFT_SCHEMA)
    score = score_soft(errors, table)
    assert (score.precision, score.recall, score.missed) == (Share(1, 2), Share(1, 2), ("no canvas",))
    runs = pl.DataFrame({"set": ["s", "s", "quiet"], "ok": [10, 20, 5]})
    assert rates_of_ok(table, runs) == [("s", 2, 30), ("quiet", 0, 5)]


def test_labels_of_further_readers_are_told_by_round() -> None:
    rows: list[Case] = [{"id": "a", "round": 3}, {"id": "b", "round": 2}, {"id": "c", "round": 3}]
    assert [(number, [row["id"] for row in part]) for number, part in by_round(rows)] == [
        (2, ["b"]),
        (3, ["a", "c"]),
    ]
