"""What rules and silences make of a streak whose finding has changed its kind."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.step import StepSeen
from control.action import Action
from control.actor import Actor
from control.breakers.record import Breaker, breaker_id
from control.breakers.states import Event, State
from control.breakers.store import get_breaker
from control.policy import Policy, Reach, Rule, Ruling
from control.scope import Scope
from control.silences import Matcher, Op, Silence, Silences
from control.spoken import Spoken, also_of
from detectors.catalog import build
from detectors.engine import Engine
from detectors.protocol import Finding, Severity
from tests.control.support import START_NS, STUCK, Parts, Spool
from tests.detectors.stream import Stream

if TYPE_CHECKING:
    from pathlib import Path

PERSON = Actor(type="person", id="on-call")
KINDS = ("doom_loop", "retry_storm", "no_progress", "flail")
LEVELS = [severity.value for severity in Severity]


def upgraded(severity: Severity = Severity.CRITICAL, **also: str) -> Finding:
    """A retry storm of whose streak other kinds (with their severities) spoke before."""
    told: list[Any] = [{"kind": kind, "severity": level, "summary": "..."} for kind, level in also.items()]
    return replace(STUCK, kind="retry_storm", severity=severity, evidence={"also": told})


LOOPED = upgraded(doom_loop="critical")


def on(finding: Finding, *rules: Rule) -> Ruling:
    return Policy(rules=rules).rule_on(finding, START_NS)


def rule(*kinds: str, name: str = "r", **more: Any) -> Rule:  # noqa: ANN401 - any fields
    return Rule(name=name, kinds=frozenset(kinds), **more)


@pytest.mark.parametrize(
    ("also", "read"),
    [
        ([{"kind": "doom_loop", "severity": "critical"}], (Spoken("doom_loop", Severity.CRITICAL),)),
        ([{"kind": "retry_storm", "severity": "critical"}], ()),
        ([{"kind": "doom_loop", "severity": "worst"}], ()),
        ([{"kind": "doom_loop"}, {"severity": "info"}, {"kind": 3, "severity": "info"}], ()),
        ([{"kind": "doom_loop", "severity": ["info"]}, "doom_loop", None], ()),
        ("doom_loop", ()),
        ({"kind": "doom_loop"}, ()),
        (None, ()),
    ],
)
def test_what_cannot_be_read_was_not_said(also: Any, read: tuple[Spoken, ...]) -> None:  # noqa: ANN401 - JSON
    assert also_of(replace(LOOPED, evidence={"also": also})) == read


@pytest.mark.parametrize(
    ("finding", "meant"),
    [
        (LOOPED, True),
        (upgraded(doom_loop="warning"), False),
        (upgraded(no_progress="critical"), False),
        (upgraded(), False),
        (upgraded(Severity.WARNING, doom_loop="critical"), True),
    ],
)
def test_a_trip_goes_by_every_kind_of_the_streak_at_its_own_severity(
    finding: Finding, *, meant: bool
) -> None:
    ruling = on(finding, rule("doom_loop"))
    assert (bool(ruling.trips), ruling.rules) == (meant, ("r",) if meant else ())


@pytest.mark.parametrize("level", LEVELS)
def test_severities_are_those_of_the_kind_that_is_named(level: str) -> None:
    finding = upgraded(doom_loop=level)
    exactly = rule("doom_loop", severities=frozenset({Severity.WARNING}))
    assert bool(on(finding, exactly).trips) == (level == "warning")


def test_a_rule_without_kinds_goes_by_the_finding_as_it_is() -> None:
    warnings = Rule(name="r", severities=frozenset({Severity.WARNING}), alert=("chat",))
    assert on(upgraded(doom_loop="warning"), warnings).rules == ()
    assert on(upgraded(Severity.WARNING, doom_loop="critical"), warnings).rules == ("r",)


def test_the_other_parts_of_a_rule_narrow_it_all_the_same() -> None:
    assert on(LOOPED, rule("doom_loop", tools=("other",))).rules == ()
    assert on(LOOPED, rule("doom_loop", tools=("fetch_*",))).rules == ("r",)


@pytest.mark.parametrize(
    ("rules", "alert", "destinations"),
    [
        ((rule("doom_loop", alert=("pager",)),), True, ("pager",)),
        ((rule("doom_loop", alert=()),), True, None),
        ((rule("retry_storm", alert=()),), False, ()),
        (
            (rule("retry_storm", name="none", alert=()), rule("doom_loop", alert=("pager",))),
            True,
            ("pager",),
        ),
        ((rule("doom_loop", alert=("pager",), shadow=True),), True, None),
        (
            (rule("doom_loop", alert=("chat",)), rule("retry_storm", name="s", alert=("pager",))),
            True,
            ("chat", "pager"),
        ),
    ],
)
def test_destinations_add_up_over_the_kinds_and_nobody_is_said_of_the_present_one(
    rules: tuple[Rule, ...], *, alert: bool, destinations: tuple[str, ...] | None
) -> None:
    ruling = on(LOOPED, *rules)
    assert (ruling.alert, ruling.destinations) == (alert, destinations)


def test_the_end_of_the_rules_is_said_of_the_present_kind_only() -> None:
    last = rule("retry_storm", name="last", reach=Reach.SESSION, action=Action.HALT)
    assert on(LOOPED, rule("doom_loop", stop=True), last).rules == ("r", "last")
    assert on(LOOPED, rule("retry_storm", stop=True), last).rules == ("r",)


@given(
    present=st.sampled_from(KINDS),
    severity=st.sampled_from(list(Severity)),
    also=st.dictionaries(st.sampled_from(KINDS), st.sampled_from(LEVELS), max_size=4),
    named=st.frozensets(st.sampled_from(KINDS)),
    least=st.sampled_from(list(Severity)),
)
def test_a_streak_trips_as_each_of_its_kinds_would_alone(
    present: str, severity: Severity, also: dict[str, str], named: frozenset[str], least: Severity
) -> None:
    also.pop(present, None)
    finding = replace(upgraded(severity, **also), kind=present)
    one = Rule(name="r", kinds=named, min_severity=least, alert=("pager",))
    own = replace(finding, evidence={})
    alone = [replace(own, kind=kind, severity=Severity(level)) for kind, level in also.items()]
    expected = any(on(each, one).trips for each in ([own, *alone] if named else [own]))
    assert bool(on(finding, one).trips) == expected
    assert (on(finding, one).destinations == ("pager",)) == expected


@pytest.mark.parametrize(
    ("op", "value", "holds"),
    [
        ("=", "doom_loop", True),
        ("=", "retry_storm", True),
        ("=", "flail", False),
        ("!=", "doom_loop", False),
        ("!=", "retry_storm", False),
        ("!=", "flail", True),
        ("=~", "doom_.*", True),
        ("=~", "retry_.*|flail", True),
        ("=~", "fla.*", False),
        ("!~", "doom_.*", False),
        ("!~", "fla.*", True),
    ],
)
def test_a_silence_of_a_kind_goes_by_every_kind_of_the_streak(op: str, value: str, *, holds: bool) -> None:
    matcher = Matcher(name="kind", op=Op(op), value=value)
    assert matcher.matches({"kind": "retry_storm"}, ("doom_loop",)) is holds


def test_other_labels_of_a_silence_are_compared_as_they_are() -> None:
    matcher = Matcher(name="agent", op=Op.EQUAL, value="doom_loop")
    assert not matcher.matches({"agent": "buyer"}, ("doom_loop",))


def test_a_silence_holds_back_an_alert_whose_streak_had_its_kind(tmp_path: Path) -> None:
    matchers = (
        Matcher(name="kind", op=Op.EQUAL, value="doom_loop"),
        Matcher(name="service", op=Op.EQUAL, value="shop"),
    )
    quiet = Silence(
        id="si_1",
        matchers=matchers,
        starts_at=START_NS,
        ends_at=START_NS + 600 * 10**9,
        comment="known",
        created_by=PERSON,
        created_at=START_NS,
    )
    Spool(tmp_path / "spool.db").add(LOOPED)
    with closing(Parts(tmp_path)) as parts:
        parts.control.desk.silence(quiet, PERSON)
        parts.decide_all()
        with parts.db.reading() as connection:
            (stored,) = connection.execute("SELECT payload FROM alerts").fetchall()
        assert Silences(parts.db, parts.clock).of({"kind": "retry_storm", "service": "shop"}) == ()
    assert '"silenced_by":["si_1"]' in stored["payload"]


def test_a_doom_loop_that_became_a_retry_storm_opens_its_breaker_again_after_a_reset(tmp_path: Path) -> None:
    judge = Engine(build({}))
    looping = Stream(session="session-1", agent="buyer")
    looping.times(16, "fetch_page", {"url": "a"}, error="Request timed out after 30 s")
    found = [finding for step in looping.steps for finding in judge.apply(StepSeen(step))]
    assert found[-1].kind == "retry_storm"
    policy = Policy(rules=(rule("doom_loop", reach=Reach.SESSION, action=Action.HALT),))
    with closing(Parts(tmp_path, policy=policy)) as parts:
        spool = Spool(tmp_path / "spool.db", parts.clock)

        def decided(*more: Finding) -> Breaker:
            spool.add(*more)
            parts.decide_all()
            with parts.db.reading() as connection:
                return get_breaker(connection, breaker_id(Scope(session="session-1")))

        opened = decided(*found[:-1])
        assert (opened.state, opened.action) == (State.OPEN, Action.HALT)
        parts.clock.advance(1)
        assert parts.breakers.act(opened.id, Event.RESET, PERSON, "it may go on").state is State.CLOSED
        parts.clock.advance(1)
        assert decided(found[-1]).state is State.OPEN
