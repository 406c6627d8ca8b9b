from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import pytest

from control.actor import Actor
from control.alerts import (
    ALERT_TRANSITIONS,
    Alert,
    AlertEvent,
    AlertState,
    IllegalAlertTransition,
    UnknownAlert,
    from_json,
    get_alert,
    list_alerts,
    resolve,
    take_finding,
    to_json,
)
from control.db import ControlDb
from control.notices import message_id
from detectors.protocol import Severity
from tests.control.support import START_NS, STUCK, another

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from detectors.protocol import Finding

PERSON = Actor(type="person", id="on-call")
AL = f"al_{STUCK.id}"


@pytest.fixture
def db(tmp_path: Path) -> Iterator[ControlDb]:
    with closing(ControlDb(tmp_path / "control.db")) as opened:
        yield opened


def take(db: ControlDb, finding: Finding, at: int = 0) -> tuple[Alert, AlertEvent] | None:
    with db.transaction() as tx:
        return take_finding(tx, finding, (), START_NS + at)


def end(db: ControlDb, alert_id: str = AL) -> Alert:
    with db.transaction() as tx:
        return resolve(tx, alert_id, PERSON, "done", START_NS + 50)


@pytest.mark.parametrize("severity", [Severity.INFO, Severity.WARNING])
def test_only_a_critical_finding_becomes_an_alert(db: ControlDb, severity: Severity) -> None:
    assert take(db, replace(STUCK, severity=severity)) is None


def test_a_detector_in_shadow_pages_nobody(db: ControlDb) -> None:
    assert take(db, replace(STUCK, evidence={**STUCK.evidence, "shadow": True})) is None


def test_a_finding_that_becomes_critical_fires_then(db: ControlDb) -> None:
    assert take(db, replace(STUCK, severity=Severity.WARNING)) is None
    taken = take(db, replace(STUCK, revision=1))
    assert taken is not None
    assert (taken[0].id, taken[0].state, taken[0].episode, taken[1]) == (
        AL,
        AlertState.FIRING,
        1,
        AlertEvent.FIRE,
    )


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
    ids = {message_id(alert) for alert in (taken[0], resolved, again[0])}
    assert ids == {f"msg_{STUCK.id}_1_firing", f"msg_{STUCK.id}_1_resolved", f"msg_{STUCK.id}_2_firing"}


def test_a_resolved_alert_cannot_be_resolved_and_an_unknown_one_is_not_there(db: ControlDb) -> None:
    take(db, STUCK)
    end(db)
    with pytest.raises(IllegalAlertTransition):
        end(db)
    with pytest.raises(UnknownAlert):
        end(db, "al_none")


def test_an_alert_survives_its_json_form_and_every_change_is_an_event(db: ControlDb) -> None:
    taken = take(db, STUCK)
    resolved = end(db)
    assert taken is not None
    assert from_json(to_json(resolved)) == resolved
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
    assert [[a.finding.session_id for _, a in found] for found in (firing, older, of_one)] == [
        ["s2"],
        ["s1", "s0"],
        ["s0"],
    ]


def test_the_table_of_transitions_knows_every_state_that_it_leads_to() -> None:
    assert set(ALERT_TRANSITIONS.values()) == set(AlertState)
    legal = set(ALERT_TRANSITIONS)
    assert {(s, e) for s, e in product([None, *AlertState], AlertEvent) if (s, e) not in legal} == {
        (None, AlertEvent.UPDATE),
        (None, AlertEvent.RESOLVE),
        (None, AlertEvent.EXPIRE),
        (AlertState.FIRING, AlertEvent.FIRE),
        (AlertState.FIRING, AlertEvent.COVER),
        (AlertState.RESOLVED, AlertEvent.RESOLVE),
        (AlertState.RESOLVED, AlertEvent.EXPIRE),
    }
