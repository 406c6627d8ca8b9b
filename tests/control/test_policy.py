from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.action import Action
from control.policy import (
    BudgetRule,
    Hours,
    Mode,
    ModeRule,
    Per,
    Policy,
    Reach,
    Rule,
    Ruling,
    Target,
    Threshold,
    Trip,
    Unit,
    scope_of,
)
from control.scope import Scope
from detectors.protocol import Finding, Severity
from tests.control.support import START_NS, STUCK

SESSION = Scope(session="session-1")
TOOL = Scope(session="session-1", tool="fetch_page")
PARTS = ("service", "agent", "session", "run", "tool", "args")


def on(finding: Finding, *rules: Rule, at_ns: int = START_NS) -> Ruling:
    return Policy(rules=rules).rule_on(finding, at_ns)


def moment(zone: str, *when: int) -> int:
    return int(datetime(*when, tzinfo=ZoneInfo(zone)).timestamp()) * 10**9  # type: ignore[arg-type,misc]


def test_without_rules_everybody_is_told_and_nothing_trips() -> None:
    assert on(STUCK) == Ruling(alert=True, destinations=None, trips=(), shadow=False, rules=())


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (Rule(name="r"), [(TOOL, Action.DENY, False)]),
        (Rule(name="r", reach=Reach.SESSION, action=Action.HALT), [(SESSION, Action.HALT, False)]),
        (Rule(name="r", reach=Reach.SESSION, action=Action.REPLAN), [(SESSION, Action.REPLAN, False)]),
        (Rule(name="r", reach=None), []),
        (Rule(name="r", shadow=True), [(TOOL, Action.DENY, True)]),
        (Rule(name="r", kinds=frozenset({"doom_loop", "flail"})), [(TOOL, Action.DENY, False)]),
        (Rule(name="r", kinds=frozenset({"flail"})), []),
    ],
)
def test_a_rule_trips_what_it_says(rule: Rule, expected: list[tuple[Scope, Action, bool]]) -> None:
    assert [(t.scope, t.action, t.shadow) for t in on(STUCK, rule).trips] == expected


def test_a_trip_says_how_long_and_whether_the_state_is_tainted() -> None:
    (trip,) = on(STUCK, Rule(name="r", open_s=5.0, quarantine=True)).trips
    assert trip == Trip(rule="r", scope=TOOL, action=Action.DENY, shadow=False, open_s=5.0, quarantine=True)


@pytest.mark.parametrize("least", list(Severity))
@pytest.mark.parametrize("severity", list(Severity))
def test_a_rule_needs_its_severity(severity: Severity, least: Severity) -> None:
    found = on(replace(STUCK, severity=severity), Rule(name="r", min_severity=least)).trips
    assert bool(found) == (severity.rank >= least.rank)


@pytest.mark.parametrize("severity", list(Severity))
def test_severities_that_are_named_are_the_ones(severity: Severity) -> None:
    rule = Rule(name="r", severities=frozenset({Severity.INFO, Severity.WARNING}))
    assert bool(on(replace(STUCK, severity=severity), rule).rules) == (severity is not Severity.CRITICAL)


@pytest.mark.parametrize(
    ("patterns", "meant"),
    [
        ({"services": ("shop",)}, True),
        ({"services": ("sh*", "other")}, True),
        ({"services": ("SHOP",)}, False),
        ({"agents": ("buy?r",)}, True),
        ({"agents": ("seller",)}, False),
        ({"tools": ("fetch_*",)}, True),
        ({"tools": ("[!f]*",)}, False),
        ({"sessions": ("session-?",)}, True),
        ({"sessions": ("joined-*",)}, True),
        ({"sessions": ("x*",)}, False),
        ({"services": ("shop",), "agents": ("buyer",), "tools": ("nothing",)}, False),
    ],
)
def test_patterns_narrow_a_rule(patterns: dict[str, Any], meant: bool) -> None:  # noqa: FBT001 - a table's column
    finding = replace(STUCK, session_ids=("session-1", "joined-2"))
    assert on(finding, Rule(name="r", **patterns)).rules == (("r",) if meant else ())


def test_what_is_not_told_fits_only_the_pattern_of_anything() -> None:
    nameless = replace(STUCK, agent=None, tool=None)
    assert on(nameless, Rule(name="r", agents=("*",), tools=("*",))).rules == ("r",)
    assert on(nameless, Rule(name="r", agents=("?*",))).rules == ()


def test_missing_evidence_alerts_and_never_trips() -> None:
    rule = Rule(name="r", min_severity=Severity.INFO)
    assert on(replace(STUCK, evidence={"missing": ["arguments"]}), rule).trips == ()
    assert on(replace(STUCK, evidence={"missing": ["arguments"]}), rule).alert
    assert on(replace(STUCK, evidence={"missing": []}), rule).trips != ()


def test_a_detector_in_shadow_neither_alerts_nor_trips() -> None:
    rule = Rule(name="r", min_severity=Severity.INFO, alert=("pager",))
    assert on(replace(STUCK, evidence={"shadow": True}), rule) == Ruling(alert=False, shadow=True)


def test_the_most_restrictive_rule_wins_in_a_scope() -> None:
    rules = (
        Rule(name="deny"),
        Rule(name="shadow halt", action=Action.HALT, shadow=True),
        Rule(name="halt", action=Action.HALT),
        Rule(name="deny again"),
        Rule(name="replan", action=Action.REPLAN),
    )
    assert [t.rule for t in on(STUCK, *rules).trips] == ["halt"]
    assert [t.rule for t in on(STUCK, *rules[:2]).trips] == ["deny"]
    assert [t.rule for t in on(STUCK, rules[4], rules[0]).trips] == ["deny"]


def test_rules_of_several_scopes_trip_each() -> None:
    by_tool, by_session = Rule(name="t"), Rule(name="s", reach=Reach.SESSION)
    assert [t.rule for t in on(STUCK, by_tool, by_session).trips] == ["t", "s"]
    assert [t.rule for t in on(replace(STUCK, tool=None), by_tool, by_session).trips] == ["s"]
    assert on(replace(STUCK, session_id=""), by_tool, by_session).trips == ()


@pytest.mark.parametrize(
    ("told", "alert", "destinations"),
    [
        ([None, None], True, None),
        ([("a",), None], True, ("a",)),
        ([("b", "a"), ("a", "c")], True, ("b", "a", "c")),
        ([(), None], False, ()),
        ([(), ("a",)], True, ("a",)),
    ],
)
def test_destinations_add_up(
    told: list[tuple[str, ...] | None],
    alert: bool,  # noqa: FBT001 - a table's column
    destinations: tuple[str, ...] | None,
) -> None:
    ruling = on(STUCK, *(Rule(name=str(n), alert=names) for n, names in enumerate(told)))
    assert (ruling.alert, ruling.destinations) == (alert, destinations)


def test_a_trip_in_shadow_leaves_the_routing_as_it_is() -> None:
    ruling = on(STUCK, Rule(name="r", alert=("a",), trip_in_shadow=True))
    assert (ruling.destinations, [trip.shadow for trip in ruling.trips]) == (("a",), [True])


def test_a_rule_in_shadow_routes_nothing() -> None:
    assert on(STUCK, Rule(name="r", alert=(), shadow=True)).alert
    assert on(STUCK, Rule(name="r", alert=("a",), shadow=True)).destinations is None


def test_stop_ends_the_search_only_where_the_rule_means_the_finding() -> None:
    last = Rule(name="last", alert=("a",))
    assert on(STUCK, Rule(name="first", stop=True), last).rules == ("first",)
    assert on(STUCK, Rule(name="first", stop=True, shadow=True), last).destinations == ("a",)
    elsewhere = Rule(name="first", kinds=frozenset({"flail"}), stop=True)
    assert on(STUCK, elsewhere, last).rules == ("last",)


@pytest.mark.parametrize(
    ("spelled", "zone", "when", "holds"),
    [
        ("Mon-Fri 08:00-18:00", "UTC", (2026, 11, 30, 8, 0), True),  # a Monday
        ("Mon-Fri 08:00-18:00", "UTC", (2026, 11, 30, 7, 59), False),
        ("Mon-Fri 08:00-18:00", "UTC", (2026, 11, 30, 18, 0), False),
        ("Mon-Fri 08:00-18:00", "UTC", (2026, 11, 29, 12, 0), False),
        ("mon - fri 8:00-18:00", "UTC", (2026, 11, 30, 8, 0), True),
        ("08:00-18:00", "UTC", (2026, 11, 29, 12, 0), True),
        ("Sat,Sun 00:00-24:00", "UTC", (2026, 11, 29, 23, 59), True),
        ("Sat,Sun 00:00-24:00", "UTC", (2026, 11, 30, 0, 0), False),
        ("Fri-Mon 10:00-11:00", "UTC", (2026, 11, 29, 10, 30), True),
        ("Fri-Mon 10:00-11:00", "UTC", (2026, 12, 1, 10, 30), False),
        ("Fri 22:00-06:00", "UTC", (2026, 11, 28, 5, 59), True),  # the night that began on Friday
        ("Fri 22:00-06:00", "UTC", (2026, 11, 27, 5, 59), False),
        ("Fri 22:00-06:00", "UTC", (2026, 11, 27, 22, 0), True),
        ("Sun 22:00-06:00", "UTC", (2026, 11, 30, 1, 0), True),
        ("08:00-09:00", "Europe/Berlin", (2026, 7, 1, 8, 30), True),  # summer: 06:30 UTC
        ("08:00-09:00", "Europe/Berlin", (2026, 12, 1, 8, 30), True),  # winter: 07:30 UTC
    ],
)
def test_hours(spelled: str, zone: str, when: tuple[int, ...], holds: bool) -> None:  # noqa: FBT001 - a table's column
    assert Hours.of([spelled], zone).hold(moment(zone, *when)) is holds


def test_a_rule_holds_at_its_hours_only() -> None:
    rule = Rule(name="r", hours=Hours.of(["Mon-Fri 08:00-18:00", "Sat 10:00-12:00"], "Asia/Tokyo"))
    assert on(STUCK, rule, at_ns=moment("Asia/Tokyo", 2026, 11, 28, 11, 0)).rules == ("r",)
    assert on(STUCK, rule, at_ns=moment("Asia/Tokyo", 2026, 11, 28, 13, 0)).rules == ()


@given(
    begin=st.integers(0, 1439),
    length=st.integers(1, 1439),
    day=st.integers(0, 6),
    offset=st.integers(-2000, 3000),
)
def test_hours_hold_from_begin_until_before_the_end(begin: int, length: int, day: int, offset: int) -> None:
    days = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
    end = (begin + length) % 1440
    spelled = f"{days[day]} {begin // 60:02d}:{begin % 60:02d}-{end // 60:02d}:{end % 60:02d}"
    if end == 0:
        spelled = spelled.removesuffix("00:00") + "24:00"
    midnight = datetime(2026, 11, 30, tzinfo=ZoneInfo("UTC")) + timedelta(days=day)
    at = midnight + timedelta(minutes=begin + offset)
    assert Hours.of([spelled], "UTC").hold(int(at.timestamp()) * 10**9) is (0 <= offset < length)


@pytest.mark.parametrize(
    "spelled",
    ["", "Mon", "Mon 08:00", "Mon 08:00-08:00", "Monday 08:00-09:00", "Mon 25:00-26:00", "Mon 08:61-09:00",
     "Mon-Tue-Wed 08:00-09:00", "Mon 24:00-01:00", "always"],
)  # fmt: skip
def test_hours_that_mean_nothing_are_refused(spelled: str) -> None:
    with pytest.raises(ValueError, match=r"write days and times|whole day"):
        Hours.of([spelled], "UTC")


@pytest.mark.parametrize("zone", ["Berlin", "", "../etc/passwd", "Europe/berlin/x"])
def test_time_zones_that_do_not_exist_are_refused(zone: str) -> None:
    with pytest.raises(ValueError, match="there is no time zone"):
        Hours.of(["08:00-09:00"], zone)


@pytest.mark.parametrize("reach", list(Reach))
def test_a_reach_names_its_parts_and_never_only_the_tenant(reach: Reach) -> None:
    whole = Target(**{part: part[0] for part in PARTS})
    scope = scope_of(reach, whole)
    assert scope is not None
    named = {part for part in PARTS if getattr(scope, part) is not None}
    assert named
    assert reach.wide == ("session" not in named)
    assert scope_of(reach, Target()) is None
    for part in named:
        assert scope_of(reach, replace(whole, **{part: None})) is None


def test_the_reach_of_arguments_needs_their_signature() -> None:
    rule = Rule(name="r", reach=Reach.SESSION_ARGS)
    assert on(STUCK, rule).trips == ()
    (trip,) = on(replace(STUCK, evidence={"signature": "00ff00ff00ff00ff"}), rule).trips
    assert trip.scope == Scope(session="session-1", tool="fetch_page", args="00ff00ff00ff00ff")


def test_a_fleet_wide_finding_trips_the_tool() -> None:
    (trip,) = on(replace(STUCK, session_id=""), Rule(name="r", reach=Reach.SERVICE_TOOL)).trips
    assert trip.scope == Scope(service="shop", tool="fetch_page")


def test_thresholds_count_the_natures_and_targets_they_name() -> None:
    threshold = Threshold(name="t", tools=("fetch_*",))
    target = Target(service="shop", agent="buyer", session="s", tool="fetch_page")
    assert threshold.scope(target, "structural") == Scope(service="shop", tool="fetch_page")
    assert threshold.scope(target, "transient") is None
    assert threshold.scope(replace(target, tool="other"), "structural") is None
    assert threshold.scope(replace(target, service=None), "structural") is None


def test_names_are_unique_among_their_kind() -> None:
    budget = BudgetRule(name="b", per=Per.SESSION, unit=Unit.CALLS, limit=1)
    for what, twice in {
        "rules": {"rules": (Rule(name="r"), Rule(name="r"))},
        "thresholds": {"thresholds": (Threshold(name="r"), Threshold(name="r"))},
        "budgets": {"budgets": (budget, budget)},
        "modes": {"modes": (ModeRule(name="r"), ModeRule(name="r", mode=Mode.DETERMINISTIC))},
    }.items():
        with pytest.raises(ValueError, match=rf"policy\.{what}: two {what} are named"):
            Policy(**twice)  # type: ignore[arg-type]  # a table
