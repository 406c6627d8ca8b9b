"""How an alert looks to those outside: in the API, and in what is delivered."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from control.alerts import Alert, AlertState
from control.notifiers.protocol import Notice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collector.step import Json
    from control.breakers.record import Breaker


def rfc3339(ns: int) -> str:
    """Write a moment (unix ns) as RFC 3339 in UTC with microseconds.

    >>> rfc3339(1_700_000_000_123_456_789)
    '2023-11-14T22:13:20.123456Z'
    """
    moment = datetime.fromtimestamp(ns // 1_000_000_000, tz=UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ns // 1_000 % 1_000_000:06d}Z"


def message_id(alert: Alert) -> str:
    """Name the message about an alert's state: equal at every attempt and after every restart.

    It holds no dot, because a dot separates the parts of what is signed.
    """
    return f"msg_{alert.finding.id}_{alert.episode}_{alert.state.value}"


def notice(alert: Alert, breakers: Sequence[Breaker]) -> Notice:
    """Tell what happened to an alert, and which breakers its finding holds open."""
    finding = alert.finding
    data: dict[str, Json] = {
        "alert_id": alert.id,
        "state": alert.state.value,
        "episode": alert.episode,
        "kind": finding.kind,
        "severity": finding.severity.value,
        "summary": finding.summary,
        "session_id": finding.session_id,
        "run_id": finding.run_id,
        "service": finding.service,
        "agent": finding.agent,
        "tool": finding.tool,
        "occurrences": finding.occurrences,
        "started_at": rfc3339(finding.started_at),
        "detected_at": rfc3339(finding.detected_at),
        "trace_id": finding.trace_id,
        "span_id": finding.span_id,
        "first_span_id": finding.first_span_id,
        "finding_id": finding.id,
        "finding_revision": finding.revision,
        "breakers": [
            {"id": b.id, "state": b.state.value, "action": b.action.value, "tool": b.scope.tool}
            for b in breakers
        ],
        "evidence": finding.evidence,
    }
    at_ns = alert.fired_at
    if alert.state is AlertState.RESOLVED and alert.resolved_at is not None:
        at_ns = alert.resolved_at
        data |= {"resolved_by": alert.resolved_by.id if alert.resolved_by else None, "note": alert.note}
    return Notice(type=f"alert.{alert.state.value}", at_ns=at_ns, data=data)
