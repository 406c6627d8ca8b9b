"""Which alert speaks for another one: the root's for what came of it, the first for those like it.

Only a firing alert speaks for others. A storm or a cascade is never spoken for by another root, and only an
alert that nothing speaks for can be the first of a key: none is held back by itself, or in a circle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from control.alerts.record import Alert, from_json
from control.alerts.states import AlertState

if TYPE_CHECKING:
    from control.db import Transaction
    from detectors.protocol import Finding

CASCADE: Final = "cascade"
_OF_A_STORM: Final = frozenset({"doom_loop", "retry_storm", "flail", "no_progress"})
_OF_A_CASCADE: Final = _OF_A_STORM | {"known_dead_call", "soft_failure", "context_spiral"}
_COVER_NS: Final = 600_000_000_000
_FIRST_OF_KEY: Final = """
    SELECT id FROM alerts WHERE key = ? AND state = 'firing' AND covered_by = ''
    ORDER BY payload ->> 'told_episode' = payload ->> 'episode' DESC, seq LIMIT 1
"""


def covers(fleet: Finding, finding: Finding) -> bool:
    """Tell whether a fleet-wide finding speaks for one of a session.

    It does when both ask the same target for the same thing (any, when the target itself is in trouble), for
    the same service, while the storm goes on. A storm is said again when it has doubled, so that one which
    was said last after an hour is not over an hour later.
    """
    storm, one = fleet.evidence, finding.evidence
    if not storm.get("fleet") or not finding.session_id or finding.kind not in _OF_A_STORM:
        return False
    if not one.get("target") or storm.get("target") != one["target"]:
        return False
    if storm.get("rule") != "transient" and storm.get("step") != one.get("step"):
        return False
    services = storm.get("services")
    if isinstance(services, list) and services and finding.service not in services:
        return False
    return -_COVER_NS <= finding.detected_at - fleet.detected_at <= storm_goes_on_ns(fleet)


def storm_goes_on_ns(fleet: Finding) -> int:
    """How long after its last word a storm counts as going on, in ns."""
    return max(_COVER_NS, (fleet.detected_at - fleet.started_at) * 3 // 2)


def came_of(root: Finding, finding: Finding) -> bool:
    """Tell whether a finding is of the same run as a cascade, of a kind that cascades bring, and no older."""
    return (
        root.kind == CASCADE
        and finding.kind in _OF_A_CASCADE
        and bool(finding.session_id)
        and root.session_id == finding.session_id
        and (not root.run_id or not finding.run_id or root.run_id == finding.run_id)
        and finding.started_at >= root.started_at
    )


def cover_of(tx: Transaction, alert: Alert) -> str:
    """The id of the firing alert that speaks for this one; empty when there is none.

    In this order: a storm of the whole fleet, a cascade in the same run, another alert with the same key.
    """
    finding = alert.finding
    if not finding.session_id or alert.is_system:
        return ""
    fleets = _firing(tx, "session_id = ''", ())
    for fleet in fleets:
        if covers(fleet.finding, finding):
            return fleet.id
    for root in _firing(tx, "session_id = ? AND kind = ?", (finding.session_id, CASCADE)):
        if came_of(root.finding, finding):
            return root.id
    first = tx.one(_FIRST_OF_KEY, (alert.key,))
    return "" if first is None or first["id"] == alert.id else str(first["id"])


def _firing(tx: Transaction, where: str, values: tuple[str, ...]) -> list[Alert]:
    rows = tx.execute(
        f"SELECT payload FROM alerts WHERE state = ? AND {where} ORDER BY seq DESC",  # noqa: S608 - ours
        (AlertState.FIRING.value, *values),
    ).fetchall()
    return [from_json(row["payload"]) for row in rows]
