"""When a call is known to be dead, and when it may have come to life again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.step import Outcome, Step
from detectors.known_dead_call import KnownDeadCall, KnownDeadCallConfig
from detectors.protocol import Finding
from detectors.tuning import Tuned
from tests.detectors.case_steps import BLIND_CASES, CASES, read_cases, steps_of
from tests.detectors.stream import Stream, first, judged

GONE = "FileNotFoundError: no such file: a.py"
PATH = {"path": "a.py"}


def told(steps: Sequence[Step]) -> list[tuple[int, Finding]]:
    return judged(steps, KnownDeadCall())


def dead(count: int, error: str = GONE, **more: Any) -> Stream:  # noqa: ANN401 - fields of Step
    stream = Stream()
    for n in range(count):
        stream.model(100 + n).call("open_file", PATH, error=error, **more)
    return stream


@pytest.mark.parametrize(
    "error",
    [
        GONE,
        "401 Unauthorized: token expired",
        "missing required parameter 'mode'",
        "permission denied",
        "bash: rg: command not found",
    ],
)
def test_it_is_known_at_its_first_repeat(error: str) -> None:
    found = told(dead(4, error).steps)
    assert (first(found, "info"), first(found, "warning"), first(found, "critical")) == (2, 4, None)


def test_it_says_what_would_have_helped_and_what_it_cost() -> None:
    finding = told(dead(2).steps)[0][1]
    evidence = finding.evidence
    assert evidence["error_class"] == "not_found"
    assert evidence["prescription"] == "replan"
    assert evidence["between"] == {"calls": 1, "input_tokens": 101, "output_tokens": 101}
    assert evidence["rule"] == "fed_back"
    assert evidence["span_ids"] == ["span-2", "span-4"]


@pytest.mark.parametrize(
    "error", ["503 Service Unavailable", "Read timed out", "429 Too Many Requests", "flurble"]
)
def test_what_may_go_away_or_is_unknown_is_not_dead(error: str) -> None:
    assert told(dead(6, error).steps) == []


def test_a_failure_that_was_not_fed_back_is_not_known() -> None:
    stream = Stream().model(1)
    stream.call("open_file", PATH, error=GONE, attempt_id="m1").call(
        "open_file", PATH, error=GONE, attempt_id="m1"
    )
    assert told(stream.steps) == []
    stream.model(1).call("open_file", PATH, error=GONE, attempt_id="m2")
    assert first(told(stream.steps), "info") == 3


@pytest.mark.parametrize(("attempts", "at"), [(["a", "a"], None), (["a", "b"], 2), ([None, None], 2)])
def test_without_model_calls_the_next_attempt_tells(attempts: list[str | None], at: int | None) -> None:
    stream = Stream()
    for attempt in attempts:
        stream.call("open_file", PATH, error=GONE, attempt_id=attempt)
    assert first(told(stream.steps), "info") == at


def test_calls_side_by_side_were_not_fed_back() -> None:
    stream = Stream().call("open_file", PATH, error=GONE)
    started = stream.steps[0].start_ns
    stream.call("open_file", PATH, error=GONE, start_ns=started)
    assert told(stream.steps) == []


def test_reading_in_between_changes_nothing() -> None:
    stream = dead(1).model(1).call("list_files", {"path": "."}, ok="b.py").model(1)
    assert first(told(stream.call("open_file", PATH, error=GONE).steps), "info") == 3


@pytest.mark.parametrize(
    "between",
    [
        lambda stream: stream.call("write_file", {"path": "b.py"}, ok="written"),
        lambda stream: stream.call("bash", {"command": "make"}, ok="built"),
        lambda stream: stream.call("bash", {"command": "cd x && rm y"}, error="rm: y: no such file"),
        lambda stream: stream.call("refresh_token", {}, ok="ok"),
        lambda stream: stream.call("open_file", PATH, error="IsADirectoryError: a.py"),
        lambda stream: stream.call("open_file", PATH, ok="text"),
        lambda stream: stream.call("list_files", {"path": "."}, ok="b.py", after=300.0),
        lambda stream: stream.user(),
    ],
)
def test_what_may_bring_it_to_life(between: Any) -> None:  # noqa: ANN401 - a function of a stream
    stream = between(dead(1).model(1)).model(1)
    assert told(stream.call("open_file", PATH, error=GONE).steps) == []


def test_a_change_that_was_made_before_is_none() -> None:
    stream = Stream().model(1).call("write_file", {"path": "b.py"}, ok="written")
    stream.model(1).call("open_file", PATH, error=GONE)
    stream.model(1).call("write_file", {"path": "b.py"}, ok="written")
    stream.model(1).call("open_file", PATH, error=GONE)
    assert first(told(stream.steps), "info") == 4


def test_another_call_is_another_call() -> None:
    stream = Stream()
    for n in range(6):
        stream.model(1).call("open_file", {"path": f"{n}.py"}, error=f"no such file: {n}.py")
    assert told(stream.steps) == []


def test_a_refusal_is_no_failure() -> None:
    assert told(dead(5, outcome=Outcome.DENIED).steps) == []


def test_without_arguments_it_stays_a_note() -> None:
    stream = Stream()
    for _ in range(6):
        stream.model(1).call("open_file", None, error=GONE)
    found = told(stream.steps)
    assert (first(found, "info"), first(found, "warning")) == (2, None)
    assert found[0][1].evidence["missing"] == ["arguments"]


def test_the_least_recent_is_forgotten_first() -> None:
    stream = Stream()
    for name in "abca":
        stream.model(1).call("open_file", {"path": name}, error=GONE)
    small = KnownDeadCall(Tuned(KnownDeadCallConfig(remembered=2)))
    assert judged(stream.steps, small) == []
    assert first(told(stream.steps), "info") == 4


@pytest.mark.parametrize(
    "case",
    [
        case
        for path in (CASES, BLIND_CASES)
        for case in read_cases(path)
        if case["expect"]["verdict"] == "none"
    ],
    ids=lambda case: str(case["id"]),
)
def test_traps_bring_no_alarm(case: dict[str, Any]) -> None:
    assert first(told([step for _, step in steps_of(case)]), "warning", "critical") is None


@given(st.lists(st.sampled_from(["a", "b", "c"]), max_size=30))
def test_it_speaks_of_repeats_only(paths: list[str]) -> None:
    stream = Stream()
    for path in paths:
        stream.model(1).call("open_file", {"path": path}, error=GONE)
    repeated = {at for at, path in enumerate(paths, 1) if path in paths[: at - 1]}
    found = told(stream.steps)
    assert {at for at, _ in found} <= repeated
    assert bool(found) == bool(repeated)


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match=r"known_dead_call\.alarm must be at least 1"):
        KnownDeadCallConfig(alarm=0)
    with pytest.raises(ValueError, match=r"known_dead_call\.patience_s must be more than 0"):
        KnownDeadCallConfig(patience_s=float("nan"))
