"""The alerts of control.db: how a finding begins, updates and ends them, and how they are read.

An alert belongs to one finding, and its id is made from the finding's. Later revisions of the finding
update it and send nothing; a critical revision after its end is a new episode. Nothing is announced here:
see `control/alerts/alerting.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from control.actor import EXPIRY, Actor
from control.alerts.inhibition import cover_of
from control.alerts.record import Alert, UnknownAlert, alert_id, dedup_key, from_json, to_json
from control.alerts.states import AlertEvent, AlertState, follow
from control.policy import is_shadow
from detectors.protocol import Severity

if TYPE_CHECKING:
    import sqlite3

    from control.db import Transaction
    from detectors.protocol import Finding


def take_finding(
    tx: Transaction, finding: Finding, breaker_ids: tuple[str, ...], now_ns: int
) -> tuple[Alert, AlertEvent] | None:
    """Fire, cover or update the alert of a finding; None when it has none and needs none."""
    wanted = finding.severity is Severity.CRITICAL and not is_shadow(finding)
    before = fetch(tx, alert_id(finding.id))
    if before is not None and not (wanted and before.state is AlertState.RESOLVED):
        after = updated(before, finding, breaker_ids, now_ns)
        store(tx, after, AlertEvent.UPDATE)
        return after, AlertEvent.UPDATE
    if not wanted:
        return None
    begun = episode(before, finding, breaker_ids, now_ns)
    cover = cover_of(tx, begun)
    event = AlertEvent.COVER if cover else AlertEvent.FIRE
    after = moved(begun, event, now_ns, state=None if before is None else before.state, covered_by=cover)
    store(tx, after, event)
    return after, event


def episode(before: Alert | None, finding: Finding, breaker_ids: tuple[str, ...], now_ns: int) -> Alert:
    """Return an alert at the beginning of an episode, which `moved` makes pend or fire."""
    return Alert(
        id=alert_id(finding.id),
        state=AlertState.PENDING,
        episode=1 if before is None else before.episode + 1,
        finding=finding,
        fired_at=now_ns,
        updated_at=now_ns,
        key=dedup_key(finding) if before is None else before.key,
        heard_at=now_ns,
        breaker_ids=_joined(() if before is None else before.breaker_ids, breaker_ids),
        told_episode=0 if before is None else before.told_episode,
    )


def updated(before: Alert, finding: Finding, breaker_ids: tuple[str, ...], now_ns: int) -> Alert:
    """Return an alert with the newest revision of its finding."""
    return replace(
        before,
        state=follow(before.state, AlertEvent.UPDATE),
        finding=finding,
        updated_at=now_ns,
        heard_at=now_ns,
        breaker_ids=_joined(before.breaker_ids, breaker_ids),
        run_ended_at=0,  # what reports once more has not ended
    )


def moved(
    alert: Alert, event: AlertEvent, now_ns: int, *, state: AlertState | None, covered_by: str = ""
) -> Alert:
    """Return an alert whose episode begins with `event`, seen from the state that it was in."""
    after = follow(state, event)
    return replace(alert, state=after, fired_at=now_ns, updated_at=now_ns, covered_by=covered_by)


def ended(before: Alert, event: AlertEvent, actor: Actor, note: str, now_ns: int) -> Alert:
    """Return an alert that is over. Raises `IllegalAlertTransition` when it was already."""
    return replace(
        before,
        state=follow(before.state, event),
        updated_at=now_ns,
        resolved_at=now_ns,
        resolved_by=actor,
        note=note,
    )


def covered_by(tx: Transaction, cover_id: str) -> list[Alert]:
    """Return the firing alerts that an alert speaks for, the oldest first."""
    rows = tx.execute(
        "SELECT payload FROM alerts WHERE covered_by = ? AND state = 'firing' ORDER BY seq", (cover_id,)
    ).fetchall()
    return [from_json(row["payload"]) for row in rows]


def unchanged_since(tx: Transaction, moment_ns: int, limit: int) -> list[Alert]:
    """Return up to `limit` alerts that are not over and that nothing happened to since a moment (unix ns)."""
    rows = tx.execute(
        "SELECT payload FROM alerts WHERE state <> 'resolved' AND updated_ns < ? ORDER BY seq LIMIT ?",
        (moment_ns, limit),
    ).fetchall()
    return [from_json(row["payload"]) for row in rows]


def live_after(connection: sqlite3.Connection, after: int, limit: int) -> list[tuple[int, Alert]]:
    """Return (position, alert) of alerts that are not over, in order, behind a position."""
    rows = connection.execute(
        "SELECT seq, payload FROM alerts WHERE state <> 'resolved' AND seq > ? ORDER BY seq LIMIT ?",
        (after, limit),
    )
    return [(row["seq"], from_json(row["payload"])) for row in rows]


def firing_of_kind(connection: sqlite3.Connection | Transaction, kind: str) -> list[Alert]:
    """Return the firing alerts of a kind that is about the system or a fleet (without a session)."""
    rows = connection.execute(
        "SELECT payload FROM alerts WHERE state = 'firing' AND kind = ? ORDER BY seq", (kind,)
    )
    return [from_json(row["payload"]) for row in rows.fetchall()]


def list_alerts(
    connection: sqlite3.Connection,
    *,
    state: AlertState | None,
    session_id: str | None,
    before: int | None,
    limit: int,
    kind: str | None = None,
    severity: str | None = None,
) -> list[tuple[int, Alert]]:
    """Return (position, alert), the newest first; `before` is a position to go on from (exclusive)."""
    rows = connection.execute(
        _LIST, (None if state is None else state.value, session_id, before, limit, kind, severity)
    )
    return [(row["seq"], from_json(row["payload"])) for row in rows]


def get_alert(connection: sqlite3.Connection, alert_id: str) -> Alert:
    """Return one alert; raises `UnknownAlert`."""
    row = connection.execute("SELECT payload FROM alerts WHERE id = ?", (alert_id,)).fetchone()
    if row is None:
        raise UnknownAlert(alert_id)
    return from_json(row["payload"])


def fetch(tx: Transaction, alert_id: str) -> Alert | None:
    """Return one alert inside a transaction, None when there is none."""
    row = tx.one("SELECT payload FROM alerts WHERE id = ?", (alert_id,))
    return None if row is None else from_json(row["payload"])


def store(tx: Transaction, alert: Alert, event: AlertEvent) -> None:
    """Keep an alert after an event, and the event."""
    payload, finding = to_json(alert), alert.finding
    tx.execute(
        _STORE,
        (
            alert.id,
            alert.state.value,
            finding.session_id,
            finding.kind,
            finding.severity.value,
            alert.key,
            alert.covered_by,
            payload,
            alert.updated_at,
        ),
    )
    tx.execute(
        "INSERT INTO alert_events (alert_id, event, payload, created_ns) VALUES (?, ?, ?, ?)",
        (alert.id, event.value, payload, alert.updated_at),
    )


def _joined(before: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*before, *more)))


EXPIRED_NOTE: Final = "nothing new for long"
EXPIRER: Final = EXPIRY
_LIST: Final = """
    SELECT seq, payload FROM alerts
    WHERE (?1 IS NULL OR state = ?1) AND (?2 IS NULL OR session_id = ?2) AND (?3 IS NULL OR seq < ?3)
    AND (?5 IS NULL OR kind = ?5) AND (?6 IS NULL OR severity = ?6) ORDER BY seq DESC LIMIT ?4
"""
_STORE: Final = """
    INSERT INTO alerts (id, state, session_id, kind, severity, key, covered_by, payload, updated_ns)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET state = excluded.state, session_id = excluded.session_id,
    kind = excluded.kind, severity = excluded.severity, key = excluded.key, covered_by = excluded.covered_by,
    payload = excluded.payload, updated_ns = excluded.updated_ns
"""
