"""One alert as it is kept and shown."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson

from control.actor import Actor
from control.alerts.states import AlertState
from control.findings import finding_from_json
from control.scope import DEFAULT_TENANT
from control.spoken import also_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from detectors.protocol import Finding

SYSTEM: Final = "recloser"
"""The `detector` of alerts about Recloser itself, its brakes and its destinations."""


class UnknownAlert(Exception):  # noqa: N818 - the name says what is missing
    """No alert has this id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert as it stands. `finding` is the newest revision; times are unix ns, 0 is never.

    `key` is equal for alerts of one detector over one scope: receivers merge by it, and one of them is
    announced at a time. `episode` counts how often it fired; `fired_at` is when this one began (while
    pending: when it was seen), `heard_at` when the finding had its newest revision. `resolved_by` and `note`
    say who ended it and why; `breaker_ids` are the breakers that its finding opened. `destinations` are those
    that policy names, None for all. `told_episode` is the last episode whose firing was announced, `told`
    where (None: everywhere). `covered_by` is the alert that speaks for this one, `released_at` when such a
    one ended; `silenced_by` are the silences that held back its firing. `run_ended_at` is when its run ended.
    """

    id: str
    state: AlertState
    episode: int
    finding: Finding
    fired_at: int
    updated_at: int
    key: str
    heard_at: int = 0
    resolved_at: int | None = None
    resolved_by: Actor | None = None
    note: str = ""
    breaker_ids: tuple[str, ...] = ()
    covered_by: str = ""
    released_at: int = 0
    silenced_by: tuple[str, ...] = ()
    destinations: tuple[str, ...] | None = None
    rules: tuple[str, ...] = ()
    told_episode: int = 0
    told: tuple[str, ...] | None = ()
    acked_at: int = 0
    acked_by: Actor | None = None
    ack_note: str = ""
    run_ended_at: int = 0

    @property
    def was_told(self) -> bool:
        """Whether the firing of this episode was announced, so that its end has to be."""
        return self.told_episode == self.episode

    @property
    def is_system(self) -> bool:
        """Whether it is about Recloser itself rather than an agent."""
        return self.finding.detector == SYSTEM


def alert_id(finding_id: str) -> str:
    """Name the one alert of a finding.

    >>> alert_id("00ff")
    'al_00ff'
    """
    return f"al_{finding_id}"


def dedup_key(finding: Finding) -> str:
    """Name what receivers merge by: sha256 over tenant, detector and scope, in hex.

    The scope of a finding about a session is service, agent, session and tool; of one about a target or an
    alert of the system, its target or key.
    """
    evidence = finding.evidence
    scope = [finding.service, finding.agent, finding.session_id, finding.tool]
    if not finding.session_id or finding.detector == SYSTEM:
        scope += [str(evidence.get(part, "")) for part in ("key", "target", "step")]
    detector = finding.kind if finding.detector in ("", SYSTEM) else finding.detector
    return hashlib.sha256(orjson.dumps([DEFAULT_TENANT, detector, scope])).hexdigest()


def labels_of(alert: Alert) -> Mapping[str, str]:
    """Return what silences match and destinations show; what is not known is empty."""
    finding = alert.finding
    return {
        "kind": finding.kind,
        "severity": finding.severity.value,
        "service": finding.service,
        "agent": finding.agent or "",
        "tool": finding.tool or "",
        "session_id": finding.session_id,
        "alert_id": alert.id,
        "rule": ",".join(alert.rules),
    }


def kinds_beside(alert: Alert) -> tuple[str, ...]:
    """Return the kinds that speak of an alert's streak besides its own: silences go by each of them."""
    return tuple(one.kind for one in also_of(alert.finding))


def to_json(alert: Alert) -> str:
    """Write an alert as it is kept in `alerts` and `alert_events`: its fields by name."""
    return orjson.dumps(alert).decode()


def from_json(payload: str) -> Alert:
    """Read back what `to_json` wrote; also what versions wrote that told every firing at once."""
    fields: dict[str, Any] = orjson.loads(payload)
    fields["state"] = AlertState(fields["state"])
    fields["finding"] = finding_from_json(orjson.dumps(fields["finding"]))
    if "key" not in fields:
        fields["key"] = fields["id"]
        fields["heard_at"] = fields["updated_at"]
        fields["told_episode"] = 0 if fields.get("covered_by") else fields["episode"]
        fields["told"] = None
    for name in ("breaker_ids", "silenced_by", "destinations", "rules", "told"):
        if isinstance(fields.get(name), list):
            fields[name] = tuple(fields[name])
    for name in ("resolved_by", "acked_by"):
        if fields.get(name) is not None:
            fields[name] = Actor(**fields[name])
    return Alert(**fields)
