"""When a result is unlike all that its tool has returned, which call shows it, and what is not said."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from collector.step import Json, Outcome, Step
from detectors.protocol import Finding, Severity
from detectors.reading import Reading
from detectors.result_baseline import ResultBaseline, ResultBaselineConfig
from detectors.result_fit import Answer, Normal, Samples, fit
from detectors.tuning import Tuned
from tests.detectors.stream import Stream, first, judged

LEARNED = 150
BY_SESSION = 10


def quote(dice: random.Random) -> dict[str, Any]:
    """What the tool returns, honestly."""
    return {
        "symbol": "".join(dice.choices("ABCDEFGHIJ", k=dice.randint(3, 4))),
        "price": round(20 * dice.uniform(0.5, 2.0), 2),
        "weight_kg": round(dice.uniform(1.0, 4.0), 3),
        "offers": [{"seller": f"s{dice.randrange(90)}", "stock": dice.randint(5, 60)}] * dice.randint(1, 4),
        "venue": {"city": dice.choice(["Oslo", "Lima", "Rome"]), "open": True},
        "note": dice.choice([None, "ex dividend"]),
    }


def page(dice: random.Random) -> str:
    return f"# Chapter {dice.randint(1, 99)}\n\n" + "\n".join(
        " ".join(dice.choices(["the", "spare", "part", "is", "kept", "in", "store"], k=12))
        for _ in range(dice.randint(18, 26))
    )


def told(count: int, make: Callable[[random.Random], object], seed: int = 1, start: int = 0) -> list[str]:
    dice = random.Random(seed)
    made = [make(dice) for _ in range(count)]
    return [one if isinstance(one, str) else json.dumps(one) for one in made][start:]


def steps_of(
    results: Iterable[str | None], *, by_session: int = BY_SESSION, outcome: Outcome | None = None
) -> list[Step]:
    """Calls of one tool, a new session every so many."""
    stream = Stream()
    for number, result in enumerate(results):
        stream.session = f"session-{number // by_session}"
        stream.call("get_quote", {"n": number}, ok=result, outcome=outcome)
    return stream.steps


def changed(**more: object) -> Callable[[random.Random], dict[str, Any]]:
    return lambda dice: {**quote(dice), **more}


def times(key: str, factor: float) -> Callable[[random.Random], dict[str, Any]]:
    def make(dice: random.Random) -> dict[str, Any]:
        honest = quote(dice)
        return {**honest, key: honest[key] * factor}

    return make


def without(key: str) -> Callable[[random.Random], dict[str, Any]]:
    return lambda dice: {name: value for name, value in quote(dice).items() if name != key}


MAINTENANCE = "<html><head><title>Welcome</title></head><body><p>We are back soon.</p></body></html>"

POISONED = [
    pytest.param(lambda _: "[]", "empty", id="an empty list where there was an object"),
    pytest.param(lambda _: "", "empty", id="nothing"),
    pytest.param(changed(offers=[]), "empty", id="a list that never was empty is"),
    pytest.param(changed(venue=None), "empty", id="an object that always was there is null"),
    pytest.param(lambda _: MAINTENANCE, "shape", id="a page"),
    pytest.param(lambda _: "The market is closed today, come again.", "shape", id="a sentence"),
    pytest.param(without("price"), "shape", id="a key is missing"),
    pytest.param(changed(offers=[{"seller": "s1"}]), "shape", id="a key of a list's items is missing"),
    pytest.param(lambda dice: json.dumps(quote(dice), indent=1)[:-40], "shape", id="JSON that is cut"),
    pytest.param(times("price", 100), "number", id="the price a hundred times"),
    pytest.param(times("weight_kg", 1000), "number", id="grams for kilograms"),
    pytest.param(changed(offers=[{"seller": "s1", "stock": 90_000_000}]), "number", id="a number in a list"),
    pytest.param(changed(debug="x" * 6000), "outlier", id="ten times as long"),
]


@pytest.mark.parametrize(("poisoned", "rule"), POISONED)
def test_one_poisoned_result_is_a_note_at_its_call(
    poisoned: Callable[[random.Random], object], rule: str
) -> None:
    results = [*told(LEARNED, quote), *told(1, poisoned), *told(30, quote, seed=2)]
    [(at, finding)] = judged(steps_of(results), ResultBaseline())
    assert (at, finding.severity, finding.evidence["rule"]) == (LEARNED + 1, Severity.INFO, rule)
    assert finding.kind == "soft_failure"
    assert (finding.session_id, finding.detector) == ("session-15", "result_baseline")


@pytest.mark.parametrize(("poisoned", "rule"), POISONED)
def test_the_fifth_of_ten_is_an_alarm_once_two_sessions_have_seen_it(
    poisoned: Callable[[random.Random], object], rule: str
) -> None:
    # The sixteenth session begins at call 151, the changed results at 156, the seventeenth session at 161.
    results = [*told(LEARNED + 5, quote), *told(20, poisoned)]
    found = judged(steps_of(results), ResultBaseline())
    assert first(found, "warning") == LEARNED + 11
    alarm = next(finding for _, finding in found if finding.severity is Severity.WARNING)
    assert alarm.evidence["rules"] == [rule]
    assert (alarm.session_id, len(alarm.session_ids)) == ("", 2)
    assert alarm.first_span_id == f"span-{LEARNED + 6}"
    # The same streak as the note of the first odd result.
    assert {finding.id for _, finding in found if finding.first_span_id == alarm.first_span_id} == {alarm.id}


def test_a_text_of_another_length_is_an_outlier() -> None:
    short = page(random.Random(5))[:60]
    found = judged(steps_of([*told(LEARNED, page), short, *told(20, page, seed=3)]), ResultBaseline())
    assert [(at, finding.evidence["rule"]) for at, finding in found] == [(LEARNED + 1, "outlier")]


def test_after_a_change_the_new_results_are_learned_and_no_more_is_said() -> None:
    results = [*told(LEARNED, quote), *told(300, times("price", 100), seed=3)]
    found = judged(steps_of(results, by_session=3), ResultBaseline())
    alarms = [at for at, finding in found if finding.severity is Severity.WARNING]
    # At the fifth, then at doublings, until 80 results since the first odd one are learned.
    assert alarms == [LEARNED + 5, LEARNED + 8, LEARNED + 16, LEARNED + 32, LEARNED + 64]
    back = judged(steps_of([*results, *told(20, quote, seed=4)], by_session=3), ResultBaseline())
    assert first([one for one in back if one not in found], "warning") == len(results) + 5


def test_a_change_that_passes_ends() -> None:
    results = [*told(LEARNED, quote), *told(8, without("price")), *told(60, quote, seed=4)]
    judge = ResultBaseline()
    found = judged(steps_of([*results, *told(8, without("price"))], by_session=3), judge)
    alarms = [(at, finding.id) for at, finding in found if finding.severity is Severity.WARNING]
    assert [at for at, _ in alarms] == [LEARNED + 5, LEARNED + 8, len(results) + 5, len(results) + 8]
    assert len({name for _, name in alarms}) == 2


@pytest.mark.parametrize(
    ("results", "by_session"),
    [
        pytest.param([*told(78, quote), "", MAINTENANCE], 10, id="warm-up"),
        pytest.param([*told(400, quote), "", MAINTENANCE], 1000, id="one session is not enough"),
        pytest.param(told(1500, quote), 10, id="healthy JSON"),
        pytest.param(told(600, page), 10, id="healthy texts"),
        pytest.param(
            told(800, lambda dice: quote(dice) if dice.random() < 0.9 else {"found": 0}),
            10,
            id="two sorts",
        ),
        pytest.param(
            told(600, lambda dice: "x\n" * int(10 ** dice.uniform(0, 3.5)) if dice.random() < 0.9 else ""),
            10,
            id="a shell",
        ),
        pytest.param(
            told(600, lambda dice: {f"user_{dice.randrange(10**6)}": dice.randrange(9)}),
            10,
            id="keys are values",
        ),
        pytest.param(
            told(600, lambda dice: {"id": dice.randrange(10**9), "bytes": int(10 ** dice.uniform(0, 9))}),
            10,
            id="numbers of any size",
        ),
    ],
)
def test_nothing_is_said_of(results: Sequence[str], by_session: int) -> None:
    assert judged(steps_of(results, by_session=by_session), ResultBaseline()) == []


def test_one_session_alone_makes_no_alarm() -> None:
    found = judged(steps_of([*told(LEARNED, quote), *told(10, without("price"))]), ResultBaseline())
    assert {finding.severity for _, finding in found} == {Severity.INFO}
    assert [at for at, _ in found] == [LEARNED + 1, LEARNED + 2, LEARNED + 3]


@pytest.mark.parametrize("outcome", [Outcome.ERROR, Outcome.SOFT_ERROR, Outcome.DENIED])
def test_calls_that_went_wrong_are_not_judged(outcome: Outcome) -> None:
    learned, wrong = steps_of(told(LEARNED, quote)), steps_of([""] * 20, outcome=outcome)
    assert judged([*learned, *wrong], ResultBaseline()) == []


def test_results_that_are_not_recorded_are_not_judged() -> None:
    assert judged(steps_of([*told(LEARNED, quote), *[None] * 20]), ResultBaseline()) == []


class Slow:
    """A fitter that counts; each answer is made when it is waited for."""

    def __init__(self) -> None:
        self.asked: list[Samples] = []
        self.waited = 0

    def __call__(self, samples: Samples) -> Answer:
        self.asked.append(samples)
        return self._wait

    def _wait(self) -> Normal:
        self.waited += 1
        return fit(self.asked[-1])


def test_a_fit_is_asked_for_at_one_result_and_waited_for_at_a_later_one() -> None:
    fitter = Slow()
    judge = ResultBaseline(fitter=fitter)
    moments: list[tuple[int, int]] = []
    for step in steps_of(told(100, quote)):
        judge.observe(Reading(step))
        moments.append((len(fitter.asked), fitter.waited))
    assert (moments.index((1, 0)) + 1, moments.index((1, 1)) + 1) == (60, 80)
    assert len(fitter.asked[0].rows) == 50  # not the first ten, whose keys were not known yet


@pytest.mark.parametrize("every", [7, 33])
def test_it_goes_on_from_a_snapshot_also_while_a_fit_is_under_way(every: int) -> None:
    results = [*told(LEARNED, quote), *told(90, times("price", 100), seed=3), *told(250, quote, seed=5)]
    steps = steps_of(results, by_session=3)
    whole = ResultBaseline()
    expected = [finding for step in steps for finding in whole.observe(Reading(step))]
    assert {finding.severity for finding in expected} == {Severity.INFO, Severity.WARNING}
    found: list[Finding] = []
    judge = ResultBaseline()
    for at in range(0, len(steps), every):
        found += [finding for step in steps[at : at + every] for finding in judge.observe(Reading(step))]
        state: Json = json.loads(json.dumps(judge.snapshot()))
        judge = ResultBaseline()
        judge.restore(state)
    assert found == expected
    assert json.dumps(judge.snapshot()) == json.dumps(whole.snapshot())


def test_its_state_holds_no_contents_and_is_small() -> None:
    def wide(dice: random.Random) -> dict[str, Any]:
        return {f"a key with a long name that is number {n}": dice.randint(1, 10**9) for n in range(60)}

    judge = ResultBaseline()
    steps = steps_of([*told(LEARNED, wide), *told(60, lambda _: "secret words", seed=2)], by_session=3)
    assert first(judged(steps, judge), "warning") == LEARNED + 5
    state = json.dumps(judge.snapshot(), separators=(",", ":"))
    assert len(state) < 32 * 1024
    assert "secret" not in state


def test_findings_are_within_bounds() -> None:
    results = [*told(LEARNED, quote), *told(40, without("price"), seed=3)]
    for _, finding in judged(steps_of(results, by_session=3), ResultBaseline()):
        assert len(json.dumps(finding.evidence)) < 4096
        assert isinstance(finding.evidence["missing"], list)
        assert finding.started_at <= finding.detected_at
        assert finding.summary.startswith("get_quote: ")


def test_a_tool_has_settings_of_its_own() -> None:
    tuned = Tuned(ResultBaselineConfig(), {"get_quote": ResultBaselineConfig(orders=3.0)})
    results = [*told(LEARNED, quote), *told(20, times("price", 100), seed=3)]
    assert judged(steps_of(results, by_session=3), ResultBaseline(tuned)) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("warm_up", 29),
        ("sessions", 0),
        ("adopt_after", 0),
        ("odd", 11),
        ("orders", 0.0),
        ("change_sessions", 6),
    ],
)
def test_settings_out_of_range_are_refused(field: str, value: float) -> None:
    given: dict[str, Any] = {field: value}
    with pytest.raises(ValueError, match=f"result_baseline.{field} must be"):
        ResultBaselineConfig(**given)
