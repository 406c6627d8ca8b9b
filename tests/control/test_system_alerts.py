"""Alerts about Recloser itself: what breakers report, what is late or silent, and the heartbeat."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from control.action import Action
from control.actor import Actor
from control.alerts import AlertSettings, AlertState, get_alert, list_alerts
from control.alerts.desk import AlertParts
from control.breakers.states import Event
from control.conditions import SpoolLag
from control.notices import notice
from control.notifiers.protocol import Message
from control.notifiers.webhook import Webhook, WebhookConfig
from control.scope import Scope
from detectors.notes import Notes
from tests.control.support import SECRET, START_NS, STUCK, ManualClock, Parts, Spool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from control.alerts import Alert

SECOND_NS = 1_000_000_000
PERSON = Actor(type="person", id="on-call")


class World:
    """A control plane whose pulse and spool are what the test says."""

    def __init__(self, folder: Path, **settings: Any) -> None:  # noqa: ANN401 - any settings
        self.pulse: dict[str, int] = {}
        self.unread: dict[str, int] = {}
        self.unreadable = False
        watched: tuple[str, ...] = settings.pop("watched", ())
        clock: ManualClock | None = settings.pop("clock", None)
        hooks = {
            name: Webhook(WebhookConfig(name=name, url=f"http://127.0.0.1:9/{name}", secrets=(SECRET,)))
            for name in ("pager", "chat", *watched)
        }
        self.parts = Parts(
            folder,
            notifiers={name: hook for name, hook in hooks.items() if name not in watched},
            places=hooks,
            clock=clock,
            alerts=AlertParts(
                settings=AlertSettings(**settings),
                pulse=lambda: dict(self.pulse),
                oldest_unread=lambda: None if self.unreadable else dict(self.unread),
            ),
        )

    @property
    def now(self) -> int:
        return self.parts.clock.now

    def look(self, seconds: float = 0.0) -> None:
        self.parts.clock.advance(seconds)
        self.parts.look_after()

    def alerts(self, state: AlertState | None = AlertState.FIRING) -> dict[tuple[str, str], Alert]:
        with self.parts.db.reading() as connection:
            found = list_alerts(connection, state=state, session_id=None, before=None, limit=99)
        return {(a.finding.kind, str(a.finding.evidence.get("key"))): a for _, a in found if a.is_system}

    def told(self, destination: str) -> list[tuple[str, str]]:
        with self.parts.db.reading() as connection:
            rows = connection.execute(
                "SELECT order_key, type FROM outbox WHERE destination = ? ORDER BY seq", (destination,)
            ).fetchall()
            return [
                (get_alert(connection, row["order_key"]).finding.kind, row["type"].removeprefix("alert."))
                for row in rows
            ]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Callable[..., World]]:
    made: list[World] = []

    def build(**settings: Any) -> World:  # noqa: ANN401 - any settings
        made.append(World(tmp_path, **settings))
        return made[-1]

    yield build
    for one in made:
        one.parts.close()


def test_a_service_that_falls_silent_is_told_and_one_that_comes_back_too(world: Callable[..., World]) -> None:
    on = world(no_data_s=60.0)
    on.pulse = {"shop": on.now - 3600 * SECOND_NS, "bank": on.now}
    on.look(59)  # it is waited for anew after a start
    assert on.alerts() == {}
    on.pulse["bank"] = on.now
    on.look(2)
    assert list(on.alerts()) == [("no_data", "shop")]
    on.look(30)
    on.pulse["shop"] = on.now
    on.look(1)
    assert on.alerts() == {}
    assert on.told("pager") == [("no_data", "firing"), ("no_data", "resolved")]


def test_a_person_ends_no_data_until_the_service_sends_again(world: Callable[..., World]) -> None:
    on = world(no_data_s=60.0, delivery_lag_s=0.0)
    on.pulse = {"shop": on.now}
    on.look(61)
    (alert,) = on.alerts().values()
    on.parts.control.resolve_alert(alert.id, PERSON, "it was taken down")
    on.look(600)
    assert on.alerts() == {}
    on.pulse["shop"] = on.now
    on.look(1)
    on.look(61)
    assert list(on.alerts()) == [("no_data", "shop")]


def test_without_a_setting_silence_is_silent(world: Callable[..., World]) -> None:
    on = world()
    on.pulse = {"shop": on.now}
    on.look(10**6)
    assert on.alerts() == {}


def test_late_reading_is_told_for_each_reader(world: Callable[..., World]) -> None:
    on = world(ingest_lag_s=60.0)
    on.unread = {"detectors": on.now, "store": on.now}
    on.look(60)
    assert on.alerts() == {}
    on.look(1)
    assert set(on.alerts()) == {("ingest_lag", "detectors"), ("ingest_lag", "store")}
    assert on.alerts()["ingest_lag", "detectors"].finding.severity == "critical"
    on.unread = {"detectors": on.now - 31 * SECOND_NS}  # not well before it is at half of it
    on.look()
    assert set(on.alerts()) == {("ingest_lag", "detectors")}
    on.unread = {"detectors": on.now - 29 * SECOND_NS}
    on.look()
    assert on.alerts() == {}


def test_a_late_destination_is_told_elsewhere(world: Callable[..., World], tmp_path: Path) -> None:
    on = world(delivery_lag_s=300.0)
    Spool(tmp_path / "spool.db", on.parts.clock).add(STUCK)
    on.parts.decide_all()
    with on.parts.db.transaction() as tx:
        tx.execute("UPDATE outbox SET state = 'delivered', finished_ns = 1 WHERE destination = 'chat'")
    on.look(301)
    assert list(on.alerts()) == [("delivery_lag", "pager")]
    assert on.told("chat")[1:] == [("delivery_lag", "firing")]
    assert on.told("pager") == [("doom_loop", "firing")]
    with on.parts.db.transaction() as tx:
        tx.execute("UPDATE outbox SET state = 'delivered', finished_ns = 1 WHERE destination = 'pager'")
    on.look(1)
    assert on.alerts() == {}
    assert on.told("chat")[2:] == [("delivery_lag", "resolved")]


def test_a_destination_that_is_gone_is_told_elsewhere(world: Callable[..., World]) -> None:
    on = world()
    with on.parts.db.transaction() as tx:
        tx.execute(
            "UPDATE destinations SET disabled_ns = ?, reason = '410 Gone' WHERE name = 'pager'", (on.now,)
        )
    on.look()
    (alert,) = on.alerts().values()
    assert (alert.finding.kind, alert.told) == ("destination_disabled", ("chat",))
    assert "410 Gone" in alert.finding.summary
    on.parts.outbox.register("pager", "another address")
    on.look()
    assert on.alerts() == {}


def test_what_holds_is_told_once(world: Callable[..., World]) -> None:
    on = world(ingest_lag_s=60.0, delivery_lag_s=0.0)
    on.unread = {"store": on.now}
    for _ in range(9):
        on.look(61)
    assert on.told("pager") == [("ingest_lag", "firing")]
    with on.parts.db.reading() as connection:
        assert connection.execute("SELECT count(*) FROM alert_events").fetchone()[0] == 1


def test_brakes_report_and_are_reported_well_again(world: Callable[..., World]) -> None:
    on = world(delivery_lag_s=0.0)
    breaker = on.parts.breakers.act(
        Scope(session="session-1"), Event.TRIP, PERSON, "test", action=Action.HALT
    )
    latched = replace(breaker, latched=True)
    system = on.parts.control.desk.system
    with on.parts.db.transaction() as tx:
        tx.execute("UPDATE breakers SET payload = json_set(payload, '$.latched', json('true'))")
        for _ in range(2):
            system.on_flapping(tx, latched)
            system.on_capped(tx, latched)
            system.on_still_running(tx, latched, Notes(session_id="session-1", service="shop", agent="buyer"))
    assert {kind for kind, _ in on.alerts()} == {"breaker_flapping", "breaker_capped", "still_running"}
    runs_on = on.alerts()["still_running", breaker.id]
    assert (runs_on.finding.session_id, runs_on.finding.service, runs_on.finding.agent) == (
        "session-1",
        "shop",
        "buyer",
    )
    assert "End its process" in str(notice(runs_on, ()).data["next_step"])
    on.look(1)
    assert len(on.alerts()) == 3
    with on.parts.db.transaction() as tx:
        system.on_run_ended(tx, latched)
    on.parts.breakers.reset(breaker.id, PERSON, "mended")
    on.look(601)
    assert on.alerts() == {}
    assert len(on.told("pager")) == 6


def test_the_hooks_are_those_of_the_breakers(world: Callable[..., World]) -> None:
    on = world()
    system = on.parts.control.desk.system
    hooks = on.parts.breakers.hooks
    assert (hooks.on_flapping, hooks.on_capped) == (system.on_flapping, system.on_capped)
    assert (hooks.on_still_running, hooks.on_run_ended) == (system.on_still_running, system.on_run_ended)


def test_the_spool_says_how_late_its_readers_are(tmp_path: Path) -> None:
    path = tmp_path / "spool.db"
    lag = SpoolLag(path)
    assert lag.oldest() == {}
    with closing(sqlite3.connect(path)) as spool:
        assert lag.oldest() is None
        with spool:
            spool.execute("CREATE TABLE batches (seq INTEGER PRIMARY KEY, received_ns INTEGER)")
            spool.execute("CREATE TABLE cursors (name TEXT PRIMARY KEY, seq INTEGER)")
            spool.executemany("INSERT INTO batches VALUES (?, ?)", [(n, n * 10) for n in range(1, 5)])
            spool.executemany("INSERT INTO cursors VALUES (?, ?)", [("detectors", 4), ("store", 2)])
    assert lag.oldest() == {"store": 30}


@pytest.mark.parametrize(
    ("steps", "beats"), [((0, 1, 1), 1), ((0, 30, 30, 30), 2), ((0, 600), 2)], ids=["soon", "two", "late"]
)
def test_the_heart_beats_and_does_not_pile_up(
    world: Callable[..., World], steps: tuple[int, ...], beats: int
) -> None:
    on = world(heartbeat_s=60.0, heartbeat_to="chat", delivery_lag_s=0.0)
    on.parts.clock.now = START_NS - START_NS % (60 * SECOND_NS)
    for seconds in steps:
        on.look(seconds)
        on.look()
        with on.parts.db.transaction() as tx:
            tx.execute("UPDATE outbox SET state = 'delivered', finished_ns = 1")
    assert _beats(on) == {"chat": beats}
    on.look(60)
    on.look(60)
    on.look(60)  # the first of these still waits
    assert _beats(on) == {"chat": beats + 1}


def test_a_heart_without_a_destination_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"alerts\.heartbeat_to: no destination is named 'nobody'"):
        World(tmp_path, heartbeat_s=60.0, heartbeat_to="nobody")


def _beats(on: World) -> Mapping[str, int]:
    with on.parts.db.reading() as connection:
        rows = connection.execute(
            "SELECT destination, count(*) FROM outbox WHERE type = 'heartbeat' GROUP BY destination"
        ).fetchall()
    return {row[0]: row[1] for row in rows}


def test_a_restart_neither_ends_nor_repeats_that_a_service_is_silent(world: Callable[..., World]) -> None:
    on = world(no_data_s=60.0, delivery_lag_s=0.0)
    on.pulse = {"shop": on.now}
    on.look(61)
    assert list(on.alerts()) == [("no_data", "shop")]
    on.parts.close()
    again = world(no_data_s=60.0, delivery_lag_s=0.0, clock=on.parts.clock)
    again.pulse = on.pulse
    again.look(1)
    again.look(61)
    assert again.told("pager") == [("no_data", "firing")]


def test_nothing_is_well_again_because_nobody_can_tell(world: Callable[..., World]) -> None:
    on = world(no_data_s=60.0, ingest_lag_s=60.0, delivery_lag_s=0.0)
    on.pulse, on.unread = {"shop": on.now}, {"store": on.now}
    on.look(61)
    assert set(on.alerts()) == {("no_data", "shop"), ("ingest_lag", "store")}
    on.pulse, on.unreadable = {}, True
    on.look(1)
    assert set(on.alerts()) == {("no_data", "shop"), ("ingest_lag", "store")}
    on.pulse, on.unreadable, on.unread = {"shop": on.now}, False, {}
    on.look(1)
    assert on.alerts() == {}


def test_a_control_api_that_is_gone_or_late_is_told_elsewhere(world: Callable[..., World]) -> None:
    on = world(delivery_lag_s=60.0, watched=("action:gateway",))
    with on.parts.db.transaction() as tx:
        message = Message(id="m", type="breaker.opened", body=b"{}")
        on.parts.outbox.enqueue(tx, "action:gateway", "br_1", message)
    on.look(61)
    assert ("delivery_lag", "action:gateway") in on.alerts()
    with on.parts.db.transaction() as tx:
        tx.execute("UPDATE destinations SET disabled_ns = 1 WHERE name = 'action:gateway'")
    on.look(1)
    assert ("destination_disabled", "action:gateway") in on.alerts()
    assert ("destination_disabled", "firing") in on.told("pager")
