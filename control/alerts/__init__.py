"""Alerts: what findings become for a person. Pending, firing, resolved; see `docs/alerts.md`."""

from __future__ import annotations

from control.alerts.book import get_alert, list_alerts, take_finding
from control.alerts.inhibition import covers
from control.alerts.record import (
    Alert,
    UnknownAlert,
    alert_id,
    dedup_key,
    from_json,
    kinds_beside,
    labels_of,
    to_json,
)
from control.alerts.settings import AlertSettings
from control.alerts.states import ALERT_TRANSITIONS, AlertEvent, AlertState, IllegalAlertTransition

__all__ = [
    "ALERT_TRANSITIONS",
    "Alert",
    "AlertEvent",
    "AlertSettings",
    "AlertState",
    "IllegalAlertTransition",
    "UnknownAlert",
    "alert_id",
    "covers",
    "dedup_key",
    "from_json",
    "get_alert",
    "kinds_beside",
    "labels_of",
    "list_alerts",
    "take_finding",
    "to_json",
]
