from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import orjson
import pytest

from control.actor import Actor
from control.alerts import (
    ALERT_TRANSITIONS,
    Alert,
    AlertEvent,
    AlertSettings,
    AlertState,
    IllegalAlertTransition,
    UnknownAlert,
    dedup_key,
    from_json,
    get_alert,
    list_alerts,
    take_finding,
    to_json,
)
from control.alerts import book as alert_book
from control.alerts.states import follow
from control.db import ControlDb
from control.migrate import scripts
from control.notices import message_id
from detectors.protocol import Severity
from tests.control.support import START_NS, STUCK, another

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from detectors.protocol import Finding

PERSON = Actor(type="person", id="on-call")
AL = f"al_{STUCK.id}"
ABSENT, PENDING, FIRING, RESOLVED = None, AlertState.PENDING, AlertState.FIRING, AlertState.RESOLVED
TABLE = {
    # event: absent, pending, firing, resolved
    AlertEvent.PEND: (PENDING, None, None, PENDING),
    AlertEvent.FIRE: (FIRING, FIRING, None, FIRING),
    AlertEvent.COVER: (FIRING, FIRING, None, FIRING),
    AlertEvent.FLAP: (FIRING, FIRING, None, FIRING),
    AlertEvent.UPDATE: (None, PENDING, FIRING, RESOLVED),
    AlertEvent.HOLD: (None, None, FIRING, None),
    AlertEvent.TELL: (None, None, FIRING, None),
    AlertEvent.ACK: (None, None, FIRING, None),
    AlertEvent.RESOLVE: (None, RESOLVED, RESOLVED, None),
    AlertEvent.EXPIRE: (None, RESOLVED, RESOLVED, None),
}


@pytest.fixture
def db(tmp_path: Path) -> Iterator[ControlDb]:
    with closing(ControlDb(tmp_path / "control.db")) as opened:
        yield opened


def take(db: ControlDb, finding: Finding, at: int = 0) -> tuple[Alert, AlertEvent] | None:
    with db.transaction() as tx:
        return take_finding(tx, finding, (), START_NS + at)


def end(db: ControlDb, alert_id: str = AL) -> Alert:
    with db.transaction() as tx:
        before = alert_book.fetch(tx, alert_id)
        assert before is not None
        after = alert_book.ended(before, AlertEvent.RESOLVE, PERSON, "done", START_NS + 50)
        alert_book.store(tx, after, AlertEvent.RESOLVE)
    return after


@pytest.mark.parametrize(("event", "place"), list(product(AlertEvent, range(4))))
def test_every_event_in_every_state(event: AlertEvent, place: int) -> None:
    state = (ABSENT, PENDING, FIRING, RESOLVED)[place]
    after = TABLE[event][place]
    assert ALERT_TRANSITIONS.get((state, event)) == after
    if after is None:
        with pytest.raises(IllegalAlertTransition, match=event.value):
            follow(state, event)
    else:
        assert follow(state, event) is after


@pytest.mark.parametrize("severity", [Severity.INFO, Severity.WARNING])
def test_only_a_critical_finding_becomes_an_alert(db: ControlDb, severity: Severity) -> None:
    assert take(db, replace(STUCK, severity=severity)) is None


def test_a_detector_in_shadow_pages_nobody(db: ControlDb) -> None:
    assert take(db, replace(STUCK, evidence={**STUCK.evidence, "shadow": True})) is None


def test_a_finding_that_becomes_critical_fires_then(db: ControlDb) -> None:
    assert take(db, replace(STUCK, severity=Severity.WARNING)) is None
    taken = take(db, replace(STUCK, revision=1))
    assert taken is not None
    assert (taken[0].id, taken[0].state, taken[0].episode) == (AL, AlertState.FIRING, 1)
    assert taken[1] is AlertEvent.FIRE


def test_later_revisions_update_it_and_do_not_fire(db: ControlDb) -> None:
    take(db, STUCK)
    taken = take(db, replace(STUCK, revision=1, occurrences=9, severity=Severity.WARNING), at=5)
    assert taken is not None
    alert, event = taken
    assert (event, alert.state, alert.finding.occurrences) == (AlertEvent.UPDATE, AlertState.FIRING, 9)
    assert (alert.fired_at, alert.updated_at) == (START_NS, START_NS + 5)


def test_a_streak_that_goes_on_after_the_resolve_is_a_new_episode(db: ControlDb) -> None:
    taken = take(db, STUCK)
    assert taken is not None
    resolved = end(db)
    assert (resolved.state, resolved.resolved_by, resolved.note) == (AlertState.RESOLVED, PERSON, "done")
    calmer = take(db, replace(STUCK, revision=1, severity=Severity.WARNING))
    assert calmer is not None
    assert calmer[0].state is AlertState.RESOLVED
    again = take(db, replace(STUCK, revision=2))
    assert again is not None
    assert (again[1], again[0].episode, again[0].resolved_at) == (AlertEvent.FIRE, 2, None)
    assert again[0].key == taken[0].key
    ids = {message_id(alert) for alert in (taken[0], resolved, again[0])}
    assert ids == {f"msg_{STUCK.id}_1_firing", f"msg_{STUCK.id}_1_resolved", f"msg_{STUCK.id}_2_firing"}


def test_a_resolved_alert_cannot_be_resolved_and_an_unknown_one_is_not_there(db: ControlDb) -> None:
    take(db, STUCK)
    end(db)
    with pytest.raises(IllegalAlertTransition):
        end(db)
    with db.reading() as connection, pytest.raises(UnknownAlert):
        get_alert(connection, "al_none")


def test_an_alert_survives_its_json_form_and_every_change_is_an_event(db: ControlDb) -> None:
    taken = take(db, STUCK)
    resolved = end(db)
    assert taken is not None
    full = replace(resolved, told=("a",), destinations=("a", "b"), acked_by=PERSON, silenced_by=("si_1",))
    assert from_json(to_json(full)) == full
    with db.reading() as connection:
        rows = connection.execute("SELECT event, payload FROM alert_events ORDER BY seq").fetchall()
        assert get_alert(connection, AL) == resolved
    assert [(row["event"], from_json(row["payload"])) for row in rows] == [
        ("fire", taken[0]),
        ("resolve", resolved),
    ]


def test_alerts_are_listed_by_state_session_and_page(db: ControlDb) -> None:
    for number in range(3):
        take(db, another(number, session_id=f"s{number}"))
    end(db, f"al_{another(1).id}")
    with db.reading() as connection:
        firing = list_alerts(connection, state=AlertState.FIRING, session_id=None, before=None, limit=1)
        older = list_alerts(connection, state=None, session_id=None, before=firing[-1][0], limit=9)
        of_one = list_alerts(connection, state=None, session_id="s0", before=None, limit=9)
        other = list_alerts(connection, state=None, session_id=None, before=None, limit=9, kind="flail")
    assert [[a.finding.session_id for _, a in found] for found in (firing, older, of_one, other)] == [
        ["s2"],
        ["s1", "s0"],
        ["s0"],
        [],
    ]


def test_the_key_is_of_detector_and_scope_not_of_the_finding() -> None:
    key = dedup_key(STUCK)
    assert len(key) == 64
    assert dedup_key(another(1, kind="flail", detector=STUCK.kind)) == key
    others = [
        another(1, **change)
        for change in (
            {"session_id": "s2"},
            {"tool": "x"},
            {"agent": "y"},
            {"service": "z"},
            {"detector": "w"},
        )
    ]
    fleet = [another(1, session_id="", evidence={"target": target}) for target in ("a", "b")]
    assert len({key, *map(dedup_key, others), *map(dedup_key, fleet)}) == 8


def test_alerts_of_the_versions_before_are_read_and_keep_their_keys(tmp_path: Path) -> None:
    path = tmp_path / "control.db"
    old = {
        name: value
        for name, value in orjson.loads(
            to_json(Alert(id=AL, state=FIRING, episode=2, finding=STUCK, fired_at=5, updated_at=6, key="k"))
        ).items()
        if name
        in {"id", "state", "episode", "finding", "fired_at", "updated_at", "resolved_at", "resolved_by"}
    } | {"note": "", "breaker_ids": [], "covered_by": ""}
    with closing(sqlite3.connect(path)) as connection:
        for script in scripts()[:3]:
            connection.executescript(script)
        connection.execute("PRAGMA user_version = 3")
        with connection:
            for payload in (old, {**old, "id": "al_2", "covered_by": AL}):
                connection.execute(
                    "INSERT INTO alerts (id, state, session_id, payload, updated_ns) "
                    "VALUES (?, 'firing', ?, ?, 6)",
                    (payload["id"], STUCK.session_id, orjson.dumps(payload).decode()),
                )
    with closing(ControlDb(path)) as db, db.reading() as connection:
        alert, covered = get_alert(connection, AL), get_alert(connection, "al_2")
        kinds = connection.execute(
            "SELECT kind, severity, key, covered_by FROM alerts ORDER BY seq"
        ).fetchall()
    assert (alert.key, alert.was_told, alert.told) == (AL, True, None)
    assert not covered.was_told
    assert [tuple(row) for row in kinds] == [
        ("doom_loop", "critical", AL, ""),
        ("doom_loop", "critical", "al_2", AL),
    ]


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"min_firing_s": -1.0}, "alerts.min_firing_s"),
        ({"keep_firing_s": float("nan")}, "alerts.keep_firing_s"),
        ({"quiet_calls": 0}, "alerts.quiet_calls"),
        ({"quiet_calls": 25}, "alerts.quiet_calls"),
        ({"flap_threshold": 1}, "alerts.flap_threshold"),
        ({"heartbeat_s": 60.0}, "alerts.heartbeat_to"),
        ({"public_url": "localhost:4319"}, "alerts.public_url"),
        ({"dashboard_url": "javascript:alert(1)"}, "alerts.dashboard_url"),
    ],
)
def test_settings_that_make_no_sense_are_named(change: dict[str, float | str], key: str) -> None:
    with pytest.raises(ValueError, match=key):
        AlertSettings(**change)  # type: ignore[arg-type]  # one field a case
