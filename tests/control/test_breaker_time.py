"""What breakers do by the clock: trying again, growing and decaying, latching, the blast radius, restarts."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import orjson
import pytest

from control.action import Action
from control.breakers.book import list_breakers
from control.breakers.changes import Change, Changes
from control.breakers.leases import LeaseOver, UnknownLease
from control.breakers.record import UnknownBreaker, breaker_id
from control.breakers.settings import BreakerSettings
from control.breakers.states import Event, State
from control.breakers.verdict import Decision, allowed_probe
from control.policy import Trip
from control.scope import Asked, Scope
from tests.control.breaker_world import CALL, SESSION, TOOL, WIDE, World
from tests.control.support import STUCK, another

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from control.breakers.record import Breaker
    from control.db import Transaction

NS = 1_000_000_000


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.db.close()


def reset_and_trip(world: World, scope: Scope = WIDE) -> None:
    world.act(Event.RESET, scope)
    world.clock.advance(1)
    world.tripped(scope)


def test_a_wide_breaker_tries_again_after_its_time_and_says_when(world: World) -> None:
    opened = world.tripped(WIDE)
    assert opened.until == world.clock() + 60 * NS
    world.clock.advance(20)
    assert world.check().retry_after_s == 40
    world.wait(39)
    assert world.stored(WIDE).state is State.OPEN
    world.wait(1)
    assert (world.stored(WIDE).state, world.stored(WIDE).until) == (State.HALF_OPEN, None)
    assert world.events() == ["trip", "cool_down"]


@pytest.mark.parametrize("scope", [SESSION, TOOL, Scope(run="r"), Scope(session="s", run="r", tool="t")])
def test_one_of_a_session_or_run_never_tries_again(world: World, scope: Scope) -> None:
    assert world.tripped(scope, open_s=1).until is None
    world.wait(30 * 86_400)
    assert world.stored(scope).state is State.OPEN


def test_a_rule_says_how_long(world: World) -> None:
    assert world.tripped(WIDE, open_s=7).until == world.clock() + 7 * NS


def test_a_failed_probe_opens_it_for_longer_and_longer_up_to_the_cap(world: World) -> None:
    world.half_open()
    for seconds in (120, 240, 480, 960, 1920, 3600, 3600):
        lease = world.breakers.grant_lease(breaker_id(WIDE), "agent-1")
        assert lease is not None
        reopened = world.breakers.finish_lease(lease.id, ok=False)
        assert (reopened.state, reopened.until) == (State.OPEN, world.clock() + seconds * NS)
        assert not reopened.latched
        world.wait(seconds)
        assert world.stored(WIDE).state is State.HALF_OPEN


def test_a_good_probe_closes_it(world: World) -> None:
    opened = world.half_open()
    verdict = world.check()
    assert (verdict.decision, verdict.probe, verdict.retry_after_s) == (Decision.DENY, opened.id, 30)
    lease = world.breakers.grant_lease(opened.id, "agent-1")
    assert lease is not None
    assert allowed_probe(verdict, lease.id).decision is Decision.ALLOW
    assert allowed_probe(verdict, lease.id).lease_id == lease.id
    closed = world.breakers.finish_lease(lease.id, ok=True)
    assert (closed.state, closed.healthy_since) == (State.CLOSED, world.clock())
    assert world.check().decision is Decision.ALLOW


def test_no_more_probes_than_leases(world: World) -> None:
    key = world.half_open().id
    first = world.breakers.grant_lease(key, "a")
    assert first is not None
    assert world.breakers.grant_lease(key, "b") is None
    assert world.check().probe is None
    world.breakers.finish_lease(first.id, ok=False)
    world.wait(120)
    assert world.breakers.grant_lease(key, "b") is not None


def test_leases_that_many_want_at_once_are_given_once(world: World) -> None:
    key = world.half_open().id
    with ThreadPoolExecutor(8) as pool:
        given = [
            lease
            for lease in pool.map(lambda n: world.breakers.grant_lease(key, f"c{n}"), range(24))
            if lease
        ]
    assert len(given) == 1


def test_several_probes_and_successes(tmp_path: Path) -> None:
    world = World(tmp_path, settings=BreakerSettings(probes=2, successes=2))
    key = world.half_open().id
    leases = [world.breakers.grant_lease(key, name) for name in "abc"]
    assert [lease is not None for lease in leases] == [True, True, False]
    first, second, _ = leases
    assert first is not None
    assert second is not None
    assert world.breakers.finish_lease(first.id, ok=True).state is State.HALF_OPEN
    third = world.breakers.grant_lease(key, "d")
    assert third is not None
    assert world.breakers.finish_lease(second.id, ok=True).state is State.CLOSED
    with pytest.raises(LeaseOver):  # what was still under way means nothing any more
        world.breakers.finish_lease(third.id, ok=False)
    assert world.stored(WIDE).state is State.CLOSED
    world.db.close()


def test_a_probe_that_tells_nothing_counts_as_failed(world: World) -> None:
    key = world.half_open().id
    lease = world.breakers.grant_lease(key, "agent-1")
    assert lease is not None
    world.wait(29)
    assert world.stored(WIDE).state is State.HALF_OPEN
    world.wait(1)
    reopened = world.stored(WIDE)
    assert (reopened.state, reopened.flap_level) == (State.OPEN, 1)
    assert "told nothing" in reopened.note
    with pytest.raises(LeaseOver):
        world.breakers.finish_lease(lease.id, ok=True)


def test_a_result_that_comes_too_late_is_refused_before_the_turn_too(world: World) -> None:
    lease = world.breakers.grant_lease(world.half_open().id, "agent-1")
    assert lease is not None
    world.clock.advance(30)
    with pytest.raises(LeaseOver):
        world.breakers.finish_lease(lease.id, ok=True)
    world.breakers.tick()
    assert world.stored(WIDE).state is State.OPEN


def test_a_lease_ends_once_and_must_be_known(world: World) -> None:
    key = world.half_open().id
    lease = world.breakers.grant_lease(key, "a")
    assert lease is not None
    world.breakers.finish_lease(lease.id, ok=True)
    with pytest.raises(LeaseOver):
        world.breakers.finish_lease(lease.id, ok=True)
    with pytest.raises(UnknownLease):
        world.breakers.finish_lease("ls_none", ok=True)
    with pytest.raises(UnknownBreaker):
        world.breakers.grant_lease("br_none", "a")
    assert world.breakers.grant_lease(key, "a") is None, "it is closed"


@pytest.mark.parametrize("leased", [WIDE, Scope(tool="fetch_page")])
@pytest.mark.parametrize("first", [WIDE, Scope(tool="fetch_page")])
def test_a_call_that_two_half_open_ones_cover_needs_a_lease_to_be_had_of_each(
    world: World, first: Scope, leased: Scope
) -> None:
    second = WIDE if first != WIDE else Scope(tool="fetch_page")
    world.tripped(first)
    world.half_open(second)
    assert world.stored(first).state is State.HALF_OPEN
    assert world.check().probe == breaker_id(WIDE), "of equal ones the narrower"
    assert world.breakers.grant_lease(breaker_id(leased), "a") is not None
    assert world.check().probe is None


def test_refusals_are_counted_from_zero_after_a_failed_probe(world: World) -> None:
    world.tripped(WIDE)
    assert world.ask() is Decision.DENY
    world.wait(60)
    lease = world.breakers.grant_lease(breaker_id(WIDE), "a")
    assert lease is not None
    world.breakers.finish_lease(lease.id, ok=False)
    assert world.breakers.index.denied(breaker_id(WIDE)) == 0


def test_time_doubles_when_it_opens_again_soon_and_decays_while_it_is_healthy(world: World) -> None:
    levels = []
    for healthy_s in (1, 1, 599, 601, 1201, 86_400):
        levels.append(world.tripped(WIDE).flap_level)
        world.act(Event.RESET, WIDE)
        world.clock.advance(healthy_s)
    levels.append(world.tripped(WIDE).flap_level)
    # 599 s are not one healthy interval, 601 s are one, 1201 s are two
    assert levels == [0, 1, 2, 3, 3, 2, 0]


def test_shadows_are_no_openings(world: World) -> None:
    for _ in range(3):
        world.tripped(WIDE, shadow=True)
        world.act(Event.RESET, WIDE)
        world.clock.advance(1)
    assert world.tripped(WIDE).flap_level == 0
    world.act(Event.RESET, WIDE)
    world.clock.advance(1500)
    world.tripped(WIDE, shadow=True)
    assert world.tripped(WIDE).flap_level == 0, "it was healthy while it was only noted"


def test_one_that_goes_to_and_fro_is_latched_and_told_once(world: World) -> None:
    world.tripped(WIDE)
    for _ in range(2):
        reset_and_trip(world)
    assert not world.stored(WIDE).latched
    assert world.said == []
    reset_and_trip(world)
    latched = world.stored(WIDE)
    assert (latched.state, latched.latched, latched.until) == (State.OPEN, True, None)
    assert world.said == [("flapping", latched.id)]
    world.wait(86_400)
    assert world.stored(WIDE).state is State.OPEN
    assert world.breakers.expire(world.clock() + 1, 9) == []
    world.restart()
    world.wait(1)
    assert world.ask() is Decision.DENY
    closed = world.act(Event.RESET, WIDE)
    assert (closed.latched, world.ask()) == (False, Decision.ALLOW)


def test_an_alert_that_cannot_be_made_keeps_nothing_open(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(tx: Transaction, breaker: Breaker) -> None:
        tx.execute("DELETE FROM breakers WHERE id = ?", (breaker.id,))
        raise RuntimeError("no alert")

    world.breakers.hooks.on_flapping = fails
    world.tripped(WIDE)
    for _ in range(3):
        reset_and_trip(world)
    assert world.stored(WIDE).latched
    assert "could not be told" in caplog.text


def test_trips_that_are_far_apart_do_not_latch(world: World) -> None:
    world.tripped(WIDE)
    for _ in range(9):
        world.act(Event.RESET, WIDE)
        world.clock.advance(1201)
        assert not world.tripped(WIDE).latched


def test_probes_that_fail_are_no_oscillation(world: World) -> None:
    world.half_open()
    for _ in range(6):
        lease = world.breakers.grant_lease(breaker_id(WIDE), "a")
        assert lease is not None
        until = world.breakers.finish_lease(lease.id, ok=False).until
        assert until is not None
        world.wait((until - world.clock()) / NS)
    assert world.said == []


def test_news_open_a_half_open_one_again_but_old_news_do_not(world: World) -> None:
    early = world.clock()
    world.half_open()
    assert world.trip(WIDE, found_ns=early) is None
    world.clock.advance(1)
    assert world.tripped(WIDE).flap_level == 1


def test_the_blast_radius_bounds_scopes_a_minute(world: World) -> None:
    for number in range(30):
        assert world.tripped(Scope(session=f"s{number}")).state is State.OPEN
    capped = world.tripped(Scope(session="one-more"))
    assert (capped.state, capped.reason) == (State.SHADOW, "blast_radius")
    assert "within a minute" in capped.message_for_human
    assert world.ask(session="one-more") is Decision.ALLOW
    assert world.said == [("capped", capped.id)]
    assert world.trip(Scope(session="one-more")) is None, "it is told once"
    world.clock.advance(61)
    assert world.tripped(Scope(session="one-more")).state is State.OPEN


def test_the_blast_radius_survives_a_restart_and_persons_are_not_bound_by_it(world: World) -> None:
    for number in range(30):
        world.tripped(Scope(session=f"s{number}"))
    world.restart()
    assert world.tripped(Scope(session="x")).state is State.SHADOW
    assert world.act(Event.TRIP, Scope(session="y")).state is State.OPEN


def test_what_persons_open_uses_nothing_up(world: World) -> None:
    world.active = 1
    for number in range(31):
        world.act(Event.TRIP, Scope(session=f"s{number}"))
    assert world.tripped(Scope(session="x")).state is State.OPEN


def test_the_blast_radius_bounds_the_share_of_active_sessions(world: World) -> None:
    world.active = 100
    for number in range(20):
        world.clock.advance(10)
        assert world.tripped(Scope(session=f"s{number}", tool="t")).state is State.OPEN
    world.clock.advance(10)
    assert world.tripped(Scope(session="s0")).state is State.OPEN, "a session that is stopped already"
    capped = world.tripped(Scope(session="x"))
    assert (capped.state, capped.reason) == (State.SHADOW, "blast_radius")
    assert world.tripped(WIDE).state is State.OPEN, "no session's"


@pytest.mark.parametrize(("active", "opened"), [(0, 5), (3, 5), (30, 6), (None, 20)])
def test_a_few_sessions_may_always_be_stopped(world: World, active: int | None, opened: int) -> None:
    world.active = active
    states = [world.tripped(Scope(session=f"s{number}")).state for number in range(20)]
    assert states.count(State.OPEN) == opened


def test_sessions_that_ask_are_active_for_ten_minutes(tmp_path: Path) -> None:
    world = World(tmp_path)
    breakers = world.breakers
    assert breakers._activity.count() is None
    for number in range(7):
        world.ask(session=f"s{number}")
    world.wait(1)
    assert breakers._activity.count() == 7
    world.clock.advance(599)
    world.ask(session="s3")
    world.wait(2)
    assert breakers._activity.count() == 1
    world.db.close()


@pytest.mark.parametrize(
    ("asking", "traced", "count"),
    [(0, None, None), (0, 7, 7), (3, None, 3), (3, 7, 7), (7, 3, 7), (3, 0, 3)],
)
def test_sessions_are_known_from_checks_and_from_traces(
    world: World, asking: int, traced: int | None, count: int | None
) -> None:
    world.active = traced
    for number in range(asking):
        world.ask(session=f"s{number}")
    world.wait(1)
    assert world.breakers._active_sessions() == count


def test_a_whole_tenant_or_an_empty_part_is_never_tripped_automatically(world: World) -> None:
    assert world.trip(Scope()) is None
    assert world.trip(Scope(service="")) is None
    assert [why for _, (_, why) in world.said] == [
        "a whole tenant is never stopped automatically",
        "scope.service: must not be empty; leave it out for any",
    ]
    assert world.events() == []


def _latched(world: World) -> None:
    world.tripped(WIDE)
    for _ in range(3):
        reset_and_trip(world)


STATES: dict[str, Callable[[World], object]] = {
    "closed": lambda w: (w.tripped(WIDE), w.act(Event.RESET, WIDE)),
    "open": lambda w: w.tripped(WIDE),
    "open session": lambda w: w.tripped(SESSION, Action.HALT),
    "latched": _latched,
    "half open": lambda w: w.half_open(),
    "forced open": lambda w: w.act(Event.FORCE_OPEN, WIDE),
    "forced open for a time": lambda w: w.act(Event.FORCE_OPEN, WIDE, ttl_s=600),
    "forced closed": lambda w: w.act(Event.FORCE_CLOSE, WIDE, ttl_s=600),
    "forced closed over open": lambda w: (w.tripped(WIDE), w.act(Event.FORCE_CLOSE, WIDE, ttl_s=600)),
    "shadow": lambda w: w.tripped(WIDE, shadow=True),
}


@pytest.mark.parametrize("made", STATES.values(), ids=STATES.keys())
def test_a_restart_releases_nothing_loses_nothing_and_trips_nothing(
    world: World, made: Callable[[World], object]
) -> None:
    made(world)
    before, verdict, events = world.breakers.index.snapshot(), world.breakers.index.peek(CALL), world.events()
    world.restart()
    assert world.breakers.index.snapshot() == before
    assert world.breakers.index.peek(CALL) == verdict
    world.breakers.tick()
    assert world.breakers.index.snapshot() == before
    assert world.events() == events
    with world.db.reading() as connection:
        stored = list_breakers(connection, session_id=None, state=None, before=None, limit=9)
    assert set(before[1]) == {b for b in stored if b.state is not State.CLOSED}


def test_times_go_on_from_where_they_were_after_a_restart(world: World) -> None:
    world.tripped(WIDE)
    world.tripped(Scope(tool="other"))
    world.act(Event.FORCE_CLOSE, TOOL, ttl_s=90)
    world.clock.advance(40)
    world.restart()
    world.wait(19)
    assert world.stored(WIDE).state is State.OPEN
    world.restart()
    world.wait(1)
    assert world.stored(WIDE).state is State.HALF_OPEN
    assert world.stored(TOOL).state is State.FORCED_CLOSED
    world.clock.advance(30)
    world.restart()
    world.breakers.tick()
    assert world.stored(TOOL).state is State.CLOSED


def test_a_probe_under_way_is_known_after_a_restart(world: World) -> None:
    key = world.half_open().id
    lease = world.breakers.grant_lease(key, "a")
    assert lease is not None
    world.restart()
    assert world.check().probe is None
    assert world.breakers.grant_lease(key, "b") is None
    assert world.breakers.finish_lease(lease.id, ok=True).state is State.CLOSED


def test_an_upgrade_keeps_records_of_the_first_version(world: World) -> None:
    opened = world.tripped(TOOL)
    first = orjson.dumps(
        {
            "id": opened.id,
            "scope": {"tenant": "default", "service": None, "session": "session-1", "tool": "fetch_page"},
            "state": "open",
            "action": "deny",
            "revision": opened.revision,
            "episode": 1,
            "reason": "doom_loop",
            "message_for_model": "m",
            "message_for_human": "h",
            "finding_id": "f",
            "finding_revision": 0,
            "rule": "r",
            "actor": {"type": "rule", "id": "r"},
            "opened_at": 1,
            "updated_at": 1,
            "closed_at": None,
            "denied": 2,
            "note": "",
        }
    ).decode()
    with world.db.transaction() as tx:
        tx.execute("UPDATE breakers SET payload = ?", (first,))
        tx.execute("UPDATE breaker_events SET payload = ?", (first,))
    world.restart()
    assert world.ask() is Decision.DENY
    assert world.breakers.index.denied(opened.id) == 3
    assert world.act(Event.RESET).state is State.CLOSED


def test_followers_are_told_in_order_and_may_catch_up(world: World) -> None:
    told: list[tuple[int, str, State | None]] = []
    end = world.breakers.index.subscribe(
        lambda change: told.append(
            (change.revision, change.breaker_id, change.breaker.state if change.breaker else None)
        )
    )
    world.half_open()
    world.act(Event.RESET, WIDE)
    key = breaker_id(WIDE)
    assert told == [(1, key, State.OPEN), (2, key, State.HALF_OPEN), (3, key, None)]
    end()
    world.clock.advance(1)
    world.tripped(WIDE)
    assert len(told) == 3
    changes = world.breakers.index.changes_since(2)
    assert changes is not None
    assert [(c.revision, c.breaker and c.breaker.state) for c in changes] == [(3, None), (4, State.OPEN)]
    assert world.breakers.index.changes_since(4) == []
    assert world.breakers.index.changes_since(5) is None, "that has not been yet"
    world.restart()
    again = world.breakers.index.changes_since(2)
    assert again == changes, "a restart keeps them"


def test_changes_that_are_not_kept_any_more_are_a_gap() -> None:
    changes = Changes(kept=3)
    changes.begin(10)
    assert changes.since(9) is None
    assert changes.since(10) == []
    for revision in range(11, 16):
        changes.add(Change(revision, "b", None))
    assert changes.since(11) is None
    assert [c.revision for c in changes.since(12) or []] == [13, 14, 15]


def test_a_follower_that_fails_does_not_keep_others_from_knowing(world: World) -> None:
    told: list[int] = []

    def fails(_: object) -> None:
        raise RuntimeError("no")

    world.breakers.index.subscribe(fails)
    world.breakers.index.subscribe(lambda change: told.append(change.revision))
    world.tripped(WIDE)
    assert told == [1]


def test_what_is_undone_is_neither_in_memory_nor_told(world: World) -> None:
    told: list[int] = []
    world.breakers.index.subscribe(lambda change: told.append(change.revision))
    with pytest.raises(RuntimeError, match="undo"):
        _trip_and_fail(world)
    assert (told, world.ask(), world.events()) == ([], Decision.ALLOW, [])


def _trip_and_fail(world: World) -> None:
    trip = Trip(rule="r", scope=WIDE, action=Action.DENY, shadow=False)
    with world.db.transaction() as tx:
        world.breakers.trip(tx, trip, STUCK, world.clock())
        raise RuntimeError("undo")


def test_the_session_of_the_finding_lists_a_wide_breaker(world: World) -> None:
    opened = world.tripped(WIDE, finding=another(7, session_id="session 9"))
    assert (opened.session_id, opened.evidence_url) == ("session 9", "/v1/runs/session%209")
    with world.db.reading() as connection:
        found = list_breakers(connection, session_id="session 9", state=None, before=None, limit=9)
    assert [b.id for b in found] == [opened.id]
    assert replace(opened) == world.stored(WIDE)
    assert world.check(Asked(session="other", service="shop", tool="fetch_page")).breaker_id == opened.id


@pytest.mark.parametrize("restarted", [False, True])
def test_what_a_clock_opened_that_was_ahead_is_tried_when_it_is_set_back(
    world: World, *, restarted: bool
) -> None:
    held = Scope(tool="held")
    world.wait(30 * 86_400)
    world.tripped(WIDE)
    world.tripped(SESSION)
    world.act(Event.TRIP, held, ttl_s=3600)
    world.clock.advance(-30 * 86_400)
    if restarted:
        world.restart()
    world.wait(0)
    assert [world.stored(each).state for each in (WIDE, SESSION, held)] == [
        State.HALF_OPEN,
        State.OPEN,
        State.OPEN,
    ]
    assert world.check(replace(CALL, session="another")).probe == breaker_id(WIDE)


def test_a_second_back_and_forth_moves_nothing(world: World) -> None:
    world.wait(0)
    world.tripped(WIDE)
    world.wait(-1)
    assert world.stored(WIDE).state is State.OPEN
    world.wait(62)
    assert world.stored(WIDE).state is State.HALF_OPEN
    lease = world.breakers.grant_lease(breaker_id(WIDE), "a")
    assert lease is not None
    world.wait(-1)
    assert world.breakers.finish_lease(lease.id, ok=True).state is State.CLOSED


def test_a_probe_of_a_clock_that_was_ahead_is_not_waited_for(world: World) -> None:
    world.wait(86_400)
    world.half_open()
    assert world.breakers.grant_lease(breaker_id(WIDE), "a") is not None
    world.wait(-86_400)
    assert world.stored(WIDE).state is State.OPEN
    world.wait(3600)
    assert world.stored(WIDE).state is State.HALF_OPEN


def test_what_a_clock_opened_that_was_ahead_uses_nothing_up(world: World) -> None:
    world.clock.advance(86_400)
    for number in range(30):
        world.tripped(Scope(tool=f"t{number}"))
    for _ in range(3):
        reset_and_trip(world, Scope(tool="t0"))
    world.clock.advance(-86_400)
    assert world.tripped(WIDE).state is State.OPEN
    assert not world.stored(WIDE).latched
