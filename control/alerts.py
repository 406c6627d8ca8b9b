"""Alerts: what critical findings become for a person. Firing, then resolved.

An alert belongs to one finding, and its id is made from the finding's. Later revisions of the finding
update it and send nothing; a critical revision after somebody resolved it is a new episode.

When a target fails for a whole fleet, one alert says so, and those of the sessions that suffer from it are
covered by that one: they are kept and listed, page nobody, and end with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import orjson

from control.actor import EXPIRY, Actor
from control.findings import finding_from_json
from control.policy import is_shadow
from detectors.protocol import Finding, Severity

_COVERED: Final = frozenset({"doom_loop", "retry_storm", "flail", "no_progress"})
_COVER_NS: Final = 600_000_000_000

if TYPE_CHECKING:
    import sqlite3

    from control.db import Transaction


class AlertState(StrEnum):
    """The life of an alert."""

    FIRING = "firing"
    RESOLVED = "resolved"


class AlertEvent(StrEnum):
    """What can happen to an alert."""

    FIRE = "fire"
    UPDATE = "update"
    RESOLVE = "resolve"
    EXPIRE = "expire"
    COVER = "cover"


ALERT_TRANSITIONS: Final[Mapping[tuple[AlertState | None, AlertEvent], AlertState]] = MappingProxyType(
    {
        (None, AlertEvent.FIRE): AlertState.FIRING,
        (None, AlertEvent.COVER): AlertState.FIRING,
        (AlertState.FIRING, AlertEvent.UPDATE): AlertState.FIRING,
        (AlertState.FIRING, AlertEvent.RESOLVE): AlertState.RESOLVED,
        (AlertState.FIRING, AlertEvent.EXPIRE): AlertState.RESOLVED,
        (AlertState.RESOLVED, AlertEvent.FIRE): AlertState.FIRING,
        (AlertState.RESOLVED, AlertEvent.COVER): AlertState.FIRING,
        (AlertState.RESOLVED, AlertEvent.UPDATE): AlertState.RESOLVED,
    }
)
"""Every legal transition; None is "no alert yet". What is not here is refused."""


class IllegalAlertTransition(Exception):  # noqa: N818 - the name says what was tried
    """The event means nothing in the alert's state."""


class UnknownAlert(Exception):  # noqa: N818 - the name says what is missing
    """No alert has this id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert as it stands. `finding` is the newest revision; times are unix ns.

    `episode` counts how often it fired; `resolved_by` and `note` say who ended it and why; `breaker_ids` are
    the breakers that its finding opened. `covered_by` is the fleet-wide alert that speaks for this one.
    """

    id: str
    state: AlertState
    episode: int
    finding: Finding
    fired_at: int
    updated_at: int
    resolved_at: int | None = None
    resolved_by: Actor | None = None
    note: str = ""
    breaker_ids: tuple[str, ...] = ()
    covered_by: str = ""


def alert_id(finding_id: str) -> str:
    """Name the one alert of a finding.

    >>> alert_id("00ff")
    'al_00ff'
    """
    return f"al_{finding_id}"


def to_json(alert: Alert) -> str:
    """Write an alert as it is kept in `alerts` and `alert_events`: its fields by name."""
    return orjson.dumps(alert).decode()


def from_json(payload: str) -> Alert:
    """Read back what `to_json` wrote."""
    fields: dict[str, Any] = orjson.loads(payload)
    fields["state"] = AlertState(fields["state"])
    fields["finding"] = finding_from_json(orjson.dumps(fields["finding"]))
    fields["breaker_ids"] = tuple(fields["breaker_ids"])
    if fields["resolved_by"] is not None:
        fields["resolved_by"] = Actor(**fields["resolved_by"])
    return Alert(**fields)


def take_finding(
    tx: Transaction, finding: Finding, breaker_ids: tuple[str, ...], now_ns: int
) -> tuple[Alert, AlertEvent] | None:
    """Fire, cover or update the alert of a finding; None when it has none and needs none."""
    before = _fetch(tx, alert_id(finding.id))
    critical = finding.severity is Severity.CRITICAL
    if before is None:
        if not critical or is_shadow(finding):
            return None
        cover = _cover_of(tx, finding)
        event = AlertEvent.COVER if cover else AlertEvent.FIRE
        after = Alert(
            id=alert_id(finding.id),
            state=_after(None, event),
            episode=1,
            finding=finding,
            fired_at=now_ns,
            updated_at=now_ns,
            breaker_ids=breaker_ids,
            covered_by=cover,
        )
    else:
        fires = critical and before.state is AlertState.RESOLVED
        cover = _cover_of(tx, finding) if fires else before.covered_by
        event = AlertEvent.UPDATE
        if fires:
            event = AlertEvent.COVER if cover else AlertEvent.FIRE
        after = replace(
            before,
            state=_after(before.state, event),
            episode=before.episode + fires,
            finding=finding,
            fired_at=now_ns if fires else before.fired_at,
            updated_at=now_ns,
            resolved_at=None if fires else before.resolved_at,
            resolved_by=None if fires else before.resolved_by,
            note="" if fires else before.note,
            breaker_ids=tuple(dict.fromkeys((*before.breaker_ids, *breaker_ids))),
            covered_by=cover,
        )
    _store(tx, after, event)
    return after, event


def covers(fleet: Finding, finding: Finding) -> bool:
    """Tell whether a fleet-wide finding speaks for one of a session.

    It does when both ask the same target for the same thing (any, when the target itself is in trouble), for
    the same service, while the storm goes on. A storm is said again when it has doubled, so that one which
    was said last after an hour is not over an hour later.
    """
    storm, one = fleet.evidence, finding.evidence
    if not storm.get("fleet") or not finding.session_id or finding.kind not in _COVERED:
        return False
    if not one.get("target") or storm.get("target") != one["target"]:
        return False
    if storm.get("rule") != "transient" and storm.get("step") != one.get("step"):
        return False
    services = storm.get("services")
    if isinstance(services, list) and services and finding.service not in services:
        return False
    lasted = fleet.detected_at - fleet.started_at
    return -_COVER_NS <= finding.detected_at - fleet.detected_at <= max(_COVER_NS, lasted * 3 // 2)


def resolve(tx: Transaction, alert_id: str, actor: Actor, note: str, now_ns: int) -> Alert:
    """End an alert. Raises `UnknownAlert`, or `IllegalAlertTransition` when it is resolved already."""
    before = _fetch(tx, alert_id)
    if before is None:
        raise UnknownAlert(alert_id)
    return _end(tx, before, AlertEvent.RESOLVE, actor, note=note, now_ns=now_ns)


def expire(tx: Transaction, unchanged_since_ns: int, limit: int, now_ns: int) -> list[Alert]:
    """End up to `limit` firing alerts that nothing happened to since a moment (unix ns)."""
    rows = tx.execute(
        "SELECT payload FROM alerts WHERE state = ? AND updated_ns < ? ORDER BY seq LIMIT ?",
        (AlertState.FIRING.value, unchanged_since_ns, limit),
    ).fetchall()
    old = [from_json(row["payload"]) for row in rows]
    note = "nothing new for long"
    ended: dict[str, Alert] = {}
    for alert in old:
        if alert.covered_by not in ended:  # else it has ended with that one
            ended[alert.id] = _end(tx, alert, AlertEvent.EXPIRE, EXPIRY, note=note, now_ns=now_ns)
    return list(ended.values())


def list_alerts(
    connection: sqlite3.Connection,
    *,
    state: AlertState | None,
    session_id: str | None,
    before: int | None,
    limit: int,
) -> list[tuple[int, Alert]]:
    """Return (position, alert), the newest first; `before` is a position to go on from (exclusive)."""
    rows = connection.execute(
        "SELECT seq, payload FROM alerts "
        "WHERE (?1 IS NULL OR state = ?1) AND (?2 IS NULL OR session_id = ?2) "
        "AND (?3 IS NULL OR seq < ?3) ORDER BY seq DESC LIMIT ?4",
        (None if state is None else state.value, session_id, before, limit),
    )
    return [(row["seq"], from_json(row["payload"])) for row in rows]


def get_alert(connection: sqlite3.Connection, alert_id: str) -> Alert:
    """Return one alert; raises `UnknownAlert`."""
    row = connection.execute("SELECT payload FROM alerts WHERE id = ?", (alert_id,)).fetchone()
    if row is None:
        raise UnknownAlert(alert_id)
    return from_json(row["payload"])


def _after(state: AlertState | None, event: AlertEvent) -> AlertState:
    after = ALERT_TRANSITIONS.get((state, event))
    if after is None:
        known = "unknown" if state is None else state.value
        raise IllegalAlertTransition(f"an alert that is {known} cannot {event.value}")
    return after


def _end(tx: Transaction, before: Alert, event: AlertEvent, actor: Actor, *, note: str, now_ns: int) -> Alert:
    after = replace(
        before,
        state=_after(before.state, event),
        updated_at=now_ns,
        resolved_at=now_ns,
        resolved_by=actor,
        note=note,
    )
    _store(tx, after, event)
    if after.finding.evidence.get("fleet"):
        _end_covered(tx, after, event, actor, now_ns)
    return after


def _end_covered(tx: Transaction, cover: Alert, event: AlertEvent, actor: Actor, now_ns: int) -> None:
    """End the alerts that an alert spoke for."""
    rows = tx.execute(
        "SELECT payload FROM alerts WHERE state = ? AND json_extract(payload, '$.covered_by') = ?",
        (AlertState.FIRING.value, cover.id),
    ).fetchall()
    for row in rows:
        _end(tx, from_json(row["payload"]), event, actor, note=f"ended with {cover.id}", now_ns=now_ns)


def _cover_of(tx: Transaction, finding: Finding) -> str:
    """The firing fleet-wide alert that speaks for a finding; empty when there is none."""
    if not finding.session_id:
        return ""
    rows = tx.execute(
        "SELECT payload FROM alerts WHERE state = ? AND session_id = '' ORDER BY seq DESC",
        (AlertState.FIRING.value,),
    ).fetchall()
    return next(
        (alert.id for row in rows if covers((alert := from_json(row["payload"])).finding, finding)), ""
    )


def _fetch(tx: Transaction, alert_id: str) -> Alert | None:
    row = tx.one("SELECT payload FROM alerts WHERE id = ?", (alert_id,))
    return None if row is None else from_json(row["payload"])


def _store(tx: Transaction, alert: Alert, event: AlertEvent) -> None:
    payload = to_json(alert)
    tx.execute(
        "INSERT INTO alerts (id, state, session_id, payload, updated_ns) VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT (id) DO UPDATE SET state = excluded.state, session_id = excluded.session_id, "
        "payload = excluded.payload, updated_ns = excluded.updated_ns",
        (alert.id, alert.state.value, alert.finding.session_id, payload, alert.updated_at),
    )
    tx.execute(
        "INSERT INTO alert_events (alert_id, event, payload, created_ns) VALUES (?, ?, ?, ?)",
        (alert.id, event.value, payload, alert.updated_at),
    )
