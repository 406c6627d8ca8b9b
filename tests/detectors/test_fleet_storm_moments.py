"""Many sessions and one target: when a fleet-wide storm is said, and when it is not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.step import Kind, Outcome, Step
from detectors.catalog import build
from detectors.engine import Engine
from detectors.fleet_line import FleetLine
from detectors.fleet_storm import FleetStorm, FleetStormConfig
from detectors.keys import by_target
from detectors.protocol import Finding, Severity
from detectors.reading import Reading
from detectors.tuning import Tuned
from tests.detectors.stream import SECOND_NS, START_NS

BUSY = "503 Service Unavailable"
TOO_LONG = "prompt is too long: 214,301 tokens > 200,000 maximum"


def step(
    number: int,
    session: int,
    second: float,
    error: str | None,
    **more: Any,  # noqa: ANN401 - fields of Step
) -> Step:
    start = START_NS + int(second * SECOND_NS)
    fields: dict[str, Any] = {
        "kind": Kind.TOOL_CALL,
        "tool": "search",
        "service": "shop",
        "result": None if error else f"{number} hits",
    }
    return Step(
        step_id=f"{session}/{number}",
        span_id=f"span-{session}-{number}",
        session_id=f"session-{session}",
        start_ns=start,
        end_ns=start + SECOND_NS // 10,
        outcome=Outcome.ERROR if error else Outcome.OK,
        error=error,
        **{**fields, **more},
    )


def rounds(
    sessions: int,
    count: int,
    error: str | None = BUSY,
    **more: Any,  # noqa: ANN401 - fields of Step
) -> Iterator[Step]:
    """Every session once in each round; a round takes ten seconds."""
    for number in range(count):
        for session in range(sessions):
            yield step(number, session, number * 10 + session * 10 / sessions, error, **more)


def said(steps: Iterable[Step], storm: FleetStorm | None = None) -> list[tuple[int, Finding]]:
    storm = storm if storm is not None else FleetStorm()
    return [(n, finding) for n, one in enumerate(steps, 1) for finding in storm.observe(Reading(one))]


def test_a_target_that_fails_for_all_is_one_storm_from_the_twentieth_failure_on() -> None:
    found = said(rounds(10, 20))
    assert [at for at, _ in found] == [20, 32, 64, 128]
    assert len({finding.id for _, finding in found}) == 1
    finding = found[0][1]
    assert (finding.kind, finding.severity, finding.session_id) == ("retry_storm", Severity.CRITICAL, "")
    assert finding.session_ids == tuple(f"session-{n}" for n in range(10))
    evidence = finding.evidence
    assert (evidence["fleet"], evidence["rule"], evidence["target"]) == (True, "transient", "shop/search")
    assert (evidence["sessions"], evidence["calls"], evidence["error_class"]) == (10, 20, "unavailable")
    assert evidence["rate_per_minute"] == 60.0


def test_one_session_alone_is_no_fleet() -> None:
    assert said(rounds(1, 200)) == []
    assert said(rounds(4, 100)) == []


def test_each_session_may_be_modest() -> None:
    steps = [step(0, session, session * 2.0, BUSY) for session in range(40)]
    assert [at for at, _ in said(steps)] == [20, 32]


def test_sessions_that_fail_hours_apart_have_nothing_to_do_with_each_other() -> None:
    steps = [step(n, session, session * 7200 + n, BUSY) for session in range(12) for n in range(15)]
    assert said(steps) == []


def mostly_working(share: float, calls: int, sessions: int = 200) -> Iterator[Step]:
    every = round(1 / share)
    for n in range(calls):
        yield step(n, n * 7 % sessions, n * 0.1, BUSY if n % every == 0 else None)


@pytest.mark.parametrize("share", [0.15, 0.2, 0.33])
def test_what_always_fails_now_and_then_is_no_incident(share: float) -> None:
    assert said(mostly_working(share, 5000)) == []


def test_what_rises_above_its_usual_share_is() -> None:
    storm = FleetStorm()
    assert said(mostly_working(0.15, 5000), storm) == []
    later = [step(n, n % 50, 900 + n * 0.1, BUSY) for n in range(100)]
    (at, finding), *_ = said(later, storm)
    assert at == 20
    assert 0.1 < float(str(finding.evidence["usual_share"])) < 0.2


def test_it_ends_when_the_target_works_again_and_the_next_one_is_another() -> None:
    storm = FleetStorm()
    first = said(rounds(10, 10), storm)
    assert said([step(n, n % 10, 110 + n * 0.5, None) for n in range(800)], storm) == []
    second = said([step(1000 + n, n % 10, 1000 + n * 0.5, BUSY) for n in range(60)], storm)
    assert {finding.id for _, finding in first}.isdisjoint(finding.id for _, finding in second)
    assert second[0][1].revision == 0


def compactions(sessions: int, count: int) -> Iterator[Step]:
    return rounds(sessions, count, TOO_LONG, kind=Kind.COMPACTION, tool=None, provider="anthropic")


def test_a_step_that_keeps_failing_in_many_sessions_is_said_at_the_third_failure_of_the_fifth() -> None:
    found = said(compactions(100, 4))
    assert found[0][0] == 2 * 100 + 5
    evidence = found[0][1].evidence
    assert (evidence["rule"], evidence["step"], evidence["target"]) == (
        "same_step",
        "compaction",
        "anthropic",
    )
    assert found[0][1].summary.startswith("anthropic: compaction failed 205 times in 100 sessions")


def test_a_failing_step_is_seen_although_the_models_calls_work() -> None:
    steps: list[Step] = []
    for one in compactions(20, 6):
        steps.append(one)
        session = int(one.session_id.removeprefix("session-"))
        steps += [
            step(
                n,
                session,
                (one.start_ns - START_NS) / SECOND_NS,
                None,
                kind=Kind.MODEL_CALL,
                provider="anthropic",
            )
            for n in range(4)
        ]
    found = said(steps)
    assert found[0][1].evidence["step"] == "compaction"
    assert (found[0][0] - 1) // 5 + 1 == 2 * 20 + 5


def test_sessions_that_fail_each_in_its_own_way_are_no_storm() -> None:
    texts = [
        "no such table: a",
        "permission denied",
        "missing field x",
        "0 rows",
        "syntax error",
        "too large",
    ]
    steps = [
        step(n, session, n * 10 + session, texts[session % 6] + "!" * session)
        for n in range(8)
        for session in range(6)
    ]
    assert said(steps) == []


def test_retries_in_the_same_second_are_told() -> None:
    steps = [step(n, session, n * 30 + session * 0.01, BUSY) for n in range(8) for session in range(8)]
    evidence = said(steps)[-1][1].evidence
    assert (evidence["synchronized"], evidence["retries_in_busiest_second"]) == (True, 8)


def test_retries_all_over_the_place_are_not_synchronized() -> None:
    assert said(rounds(5, 40))[-1][1].evidence["synchronized"] is False


def test_through_the_engine_there_is_one_finding_without_a_session() -> None:
    engine = Engine({"fleet_retry_storm": build()["fleet_retry_storm"]})
    found = [finding for one in rounds(10, 10) for finding in engine.observe(one)]
    assert {(finding.session_id, finding.detector) for finding in found} == {("", "fleet_retry_storm")}
    assert len({finding.id for finding in found}) == 1
    assert build()["fleet_retry_storm"].key is by_target


def test_it_goes_on_from_a_snapshot_in_the_middle_of_a_storm() -> None:
    steps = list(compactions(30, 12))
    whole = said(steps)
    storm, found = FleetStorm(), list[tuple[int, Finding]]()
    for at in range(0, len(steps), 23):
        found += [(at + n, finding) for n, finding in said(steps[at : at + 23], storm)]
        state = storm.snapshot()
        storm = FleetStorm()
        storm.restore(state)
    assert found == whole


def test_more_sessions_than_are_followed_are_estimated() -> None:
    line = FleetLine(limit=256)
    for n in range(4000):
        line.failed(hash((n, "x")) & (2**64 - 1), 1, 7, f"s{n}")
    assert len(line.sessions) <= 256
    assert 3000 < line.failing_since(1) < 5000
    assert len(line.names()) <= 32


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=300))
def test_a_minority_of_failures_is_never_a_storm(calls: list[tuple[int, bool]]) -> None:
    steps: list[Step] = []
    for n, (session, fails) in enumerate(calls):
        steps += [
            step(2 * n, session, n, None),
            step(2 * n + 1, session, n, BUSY if fails and n % 2 else None),
        ]
    assert said(steps) == []


@pytest.mark.parametrize("setting", [{"sessions": 1}, {"share": 0.0}, {"window_s": 5.0}, {"lift": 0.5}])
def test_settings_out_of_range_are_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=rf"fleet_retry_storm\.{next(iter(setting))} must be"):
        FleetStorm(Tuned(FleetStormConfig(**setting)))
