"""Alerts about Recloser itself, its brakes and its destinations, shaped like findings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from control.actor import Actor
from control.alerts.record import SYSTEM
from detectors.protocol import Finding, Severity, finding_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    from control.alerts.record import Alert

FLAPPING: Final = "flapping"
BREAKER_FLAPPING: Final = "breaker_flapping"
BREAKER_CAPPED: Final = "breaker_capped"
STILL_RUNNING: Final = "still_running"
NO_DATA: Final = "no_data"
INGEST_LAG: Final = "ingest_lag"
DELIVERY_LAG: Final = "delivery_lag"
DESTINATION_DISABLED: Final = "destination_disabled"
KINDS: Final = frozenset(
    {
        FLAPPING,
        BREAKER_FLAPPING,
        BREAKER_CAPPED,
        STILL_RUNNING,
        NO_DATA,
        INGEST_LAG,
        DELIVERY_LAG,
        DESTINATION_DISABLED,
    }
)
CLEARED: Final = Actor(type="system", id="cleared")
_SCOPE: Final = ("session_id", "run_id", "service", "agent", "tool")


def system_finding(
    kind: str, key: str, summary: str, *, severity: Severity, labels: Mapping[str, str], now_ns: int
) -> Finding:
    """Make the record of an alert about Recloser: one a kind and key.

    `labels` named like parts of a finding (`session_id`, `run_id`, `service`, `agent`, `tool`) go there, all
    of them into the evidence.

    >>> labels = {"service": "shop"}
    >>> system_finding("no_data", "shop", "", severity=Severity.WARNING, labels=labels, now_ns=5).service
    'shop'
    """
    scope = {name: labels.get(name, "") for name in _SCOPE}
    return Finding(
        id=system_id(kind, key),
        kind=kind,
        severity=severity,
        session_id=scope["session_id"],
        session_ids=(scope["session_id"],) if scope["session_id"] else (),
        run_id=scope["run_id"],
        service=scope["service"],
        agent=scope["agent"] or None,
        tool=scope["tool"] or None,
        started_at=now_ns,
        detected_at=now_ns,
        occurrences=1,
        summary=summary,
        detector=SYSTEM,
        evidence={"key": key, "labels": dict(labels)},
    )


def system_id(kind: str, key: str) -> str:
    """The id of the finding-shaped record of a kind and key, equal at every time.

    >>> system_id("no_data", "shop") == system_id("no_data", "shop")
    True
    """
    return finding_id(f"{SYSTEM}/{kind}", key)


def flapping_finding(alert: Alert, episodes: int, window_s: float, now_ns: int) -> Finding:
    """Say that alerts of one key fire again and again."""
    found = alert.finding
    what = f"{found.kind} of {found.tool or found.agent or found.service or 'an agent'}"
    minutes = f"{window_s / 60:.0f} minutes"
    labels = {
        "session_id": found.session_id,
        "run_id": found.run_id,
        "service": found.service,
        "agent": found.agent or "",
        "tool": found.tool or "",
        "alert_id": alert.id,
    }
    summary = f"{what} fired {episodes} times within {minutes}; further episodes are not announced one by one"
    return system_finding(FLAPPING, alert.key, summary, severity=found.severity, labels=labels, now_ns=now_ns)
