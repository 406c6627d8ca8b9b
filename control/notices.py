"""What is said about an alert to those outside: the data that every destination writes in its own format."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from control.alerts.record import SYSTEM, Alert, labels_of
from control.alerts.states import AlertState
from control.alerts.system import (
    BREAKER_CAPPED,
    BREAKER_FLAPPING,
    DELIVERY_LAG,
    DESTINATION_DISABLED,
    FLAPPING,
    INGEST_LAG,
    NO_DATA,
    STILL_RUNNING,
)
from control.breakers.store import halts_session
from control.burn import burn_of
from control.notifiers.protocol import ACKNOWLEDGED, FIRING, RESOLVED, Notice

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from collector.step import Json
    from control.breakers.record import Breaker
    from control.db import Transaction
    from detectors.notes import Notes
    from detectors.protocol import Finding

_log = logging.getLogger(__name__)

_NS: Final = 1_000_000_000
_TRIED: Final = 8  # calls named
_STEPS: Final = {
    "backoff_retry": "Wait, then let it try again, with growing pauses.",
    "rewrite_arguments": "Let it write the arguments anew, from the error and the tool's schema.",
    "refresh_then_retry": "Let it read again what it relies on, then try once more.",
    "switch_channel": "Let it use another tool or way for the same end.",
    "replan": "Let it make another plan: this way leads nowhere.",
    "escalate": "Decide yourself: the agent cannot mend this.",
}
_OF_SYSTEM: Final = {
    FLAPPING: "Look why it comes back; its episodes are listed, and not announced one by one.",
    BREAKER_FLAPPING: "Mend what opens it again and again, then reset it: it stays open until then.",
    BREAKER_CAPPED: "Look at what was stopped, and whether a rule of the policy trips too easily.",
    STILL_RUNNING: "End its process: Recloser cannot stop an agent that does not ask, or does not obey.",
    NO_DATA: "Look whether the service runs, and whether its exporter still reaches Recloser.",
    INGEST_LAG: "Look at the log, the load and the disk of the machine that Recloser runs on.",
    DELIVERY_LAG: "Look at GET /v1/destinations: it says what is late there, and why.",
    DESTINATION_DISABLED: "Mend its address, then enable it: POST /v1/destinations/{name}/enable.",
}
_BY_KIND: Final = {
    "doom_loop": "replan",
    "flail": "rewrite_arguments",
    "retry_storm": "backoff_retry",
    "known_dead_call": "switch_channel",
    "cascade": "replan",
    "no_progress": "replan",
}


def rfc3339(ns: int) -> str:
    """Write a moment (unix ns) as RFC 3339 in UTC with microseconds.

    >>> rfc3339(1_700_000_000_123_456_789)
    '2023-11-14T22:13:20.123456Z'
    """
    moment = datetime.fromtimestamp(ns // _NS, tz=UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ns // 1_000 % 1_000_000:06d}Z"


def message_id(alert: Alert, kind: str | None = None) -> str:
    """Name the message about an alert's state: equal at every attempt and after every restart.

    It holds no dot, because a dot separates the parts of what is signed.
    """
    what = alert.state.value if kind is None else kind.rpartition(".")[2]
    return f"msg_{alert.finding.id}_{alert.episode}_{what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Where a person can go on from a message; `stop_of` makes the signed link that opens the stop page."""

    public_url: str = ""
    dashboard_url: str = ""
    stop_of: Callable[[str], str] | None = None

    def of(self, finding: Finding) -> dict[str, Json]:
        """The links about a finding; null where there is nothing to link to."""
        base, session = self.public_url.rstrip("/"), finding.session_id
        links: dict[str, Json] = {"run": None, "handoff": None, "stop": None}
        links["dashboard"] = self.dashboard_url or None
        if not session or not base:
            return links
        named = quote(session, safe="")
        links["run"] = f"{base}/v1/runs/{named}"
        links["handoff"] = f"{base}/v1/runs/{named}/handoff"
        links["stop"] = None if self.stop_of is None else self.stop_of(session)
        return links


class Notices:
    """Writes notices with all that is known of the session when it happens.

    `brief_of` gives the short form of the hand-off report of a finding's session, None when there is none.
    """

    def __init__(
        self,
        links: Links,
        breakers_of: Callable[[Transaction, str, str], Sequence[Breaker]],
        notes_of: Callable[[str], Notes | None],
        brief_of: Callable[[Finding, Notes], Mapping[str, Json]] | None = None,
    ) -> None:
        self._links = links
        self._breakers_of = breakers_of
        self._notes_of = notes_of
        self._brief_of = brief_of

    def __call__(self, tx: Transaction, alert: Alert, kind: str) -> Notice:
        """Write the notice of an alert that fires, was seen, or is over."""
        finding = alert.finding
        notes = self._notes_of(finding.session_id) if finding.session_id else None
        handoff = None
        if notes is not None and self._brief_of is not None:
            handoff = self._short(self._brief_of, finding, notes)
        breakers = self._breakers_of(tx, finding.session_id, finding.id) if finding.session_id else ()
        links = self._links.of(finding)
        if links["stop"] is not None and halts_session(tx, finding.session_id):
            links["stop"] = None
        return notice(alert, breakers, kind=kind, notes=notes, handoff=handoff, links=links)

    def _short(
        self, brief_of: Callable[[Finding, Notes], Mapping[str, Json]], finding: Finding, notes: Notes
    ) -> Mapping[str, Json] | None:
        """The short report, None when it cannot be written: the alert is told without it."""
        try:
            return brief_of(finding, notes)
        except Exception:  # noqa: BLE001 - whoever is on call must hear of it, with or without a report
            _log.exception("the report about session %s cannot be written", finding.session_id)
            return None


def notice(
    alert: Alert,
    breakers: Sequence[Breaker],
    *,
    kind: str | None = None,
    notes: Notes | None = None,
    handoff: Mapping[str, Json] | None = None,
    links: Mapping[str, Json] | None = None,
) -> Notice:
    """Tell what happened to an alert, which breakers its finding holds open, what it cost and what helps."""
    finding = alert.finding
    cause = _cause(finding, handoff or {})
    kind = kind or (RESOLVED if alert.state is AlertState.RESOLVED else FIRING)
    data: dict[str, Json] = {
        "alert_id": alert.id,
        "state": "acknowledged" if kind == ACKNOWLEDGED else alert.state.value,
        "episode": alert.episode,
        "dedup_key": alert.key,
        "kind": finding.kind,
        "severity": finding.severity.value,
        "system": alert.is_system,
        "summary": finding.summary,
        "session_id": finding.session_id,
        "run_id": finding.run_id,
        "service": finding.service,
        "agent": finding.agent,
        "tool": finding.tool,
        "occurrences": finding.occurrences,
        "started_at": rfc3339(finding.started_at),
        "since": rfc3339(finding.started_at),
        "detected_at": rfc3339(finding.detected_at),
        "trace_id": finding.trace_id,
        "span_id": finding.span_id,
        "first_span_id": finding.first_span_id,
        "finding_id": finding.id,
        "finding_revision": finding.revision,
        "labels": {name: value for name, value in labels_of(alert).items() if value},
        "breakers": [
            {"id": b.id, "state": b.state.value, "action": b.action.value, "tool": b.scope.tool}
            for b in breakers
        ],
        "cause": cause,
        "next_step": _next_step(finding, handoff or {}, cause),
        **_spent(notes, finding.detected_at),
        "tried": _tried(notes, finding),
        "handoff": None if handoff is None else dict(handoff),
        "links": dict(links or {}),
        "evidence": finding.evidence,
    }
    at_ns = alert.fired_at
    if kind == ACKNOWLEDGED:
        at_ns = alert.acked_at
        data |= {"acknowledged_by": alert.acked_by.id if alert.acked_by else None, "note": alert.ack_note}
    elif alert.state is AlertState.RESOLVED and alert.resolved_at is not None:
        at_ns = alert.resolved_at
        data |= {"resolved_by": alert.resolved_by.id if alert.resolved_by else None, "note": alert.note}
    return Notice(type=kind, at_ns=at_ns, data=data)


def _spent(notes: Notes | None, found_ns: int) -> dict[str, Json]:
    """Calls, tokens and money of the session so far, and how fast: null where it was not recorded.

    The burn is as of the session's last step or when it was found, as in the report that goes with it.
    """
    if notes is None:
        return {"calls": None, "tokens": None, "cost_usd": None, "burn": None, "goal": None}
    burn = burn_of(notes, max(notes.last_ns, found_ns))
    return {
        "calls": notes.calls,
        "tokens": notes.tokens,
        "cost_usd": notes.cost_usd,
        "burn": {
            "tokens_per_minute": None if burn.tokens is None else round(burn.tokens, 1),
            "usd_per_hour": None if burn.usd is None else round(burn.usd * 60, 4),
        },
        "goal": notes.goal,
    }


def _tried(notes: Notes | None, finding: Finding) -> list[Json]:
    """What the agent called since the trouble began, each way once, the latest last."""
    if notes is None:
        return []
    ways: dict[tuple[str, str], int] = {}
    for call in notes.recent:
        if call.end_ns >= finding.started_at:
            way = (call.tool, call.error_class or call.outcome)
            ways[way] = ways.pop(way, 0) + 1
    return [f"{tool}: {how}, {count}x" for (tool, how), count in list(ways.items())[-_TRIED:]]


def _cause(finding: Finding, handoff: Mapping[str, Json]) -> str | None:
    """Why it is stuck: as the hand-off report says, else the finding; null when neither does.

    What the summary says is no cause of it.
    """
    causes = handoff.get("causes")
    for sort in ("confirmed", "suspected"):
        named = causes.get(sort) if isinstance(causes, dict) else None
        for one in named if isinstance(named, list) else ():
            text = one.get("text") if isinstance(one, dict) else None
            if isinstance(text, str) and text != finding.summary:
                return text if sort == "confirmed" else f"{text} (suspected)"
    for name in ("error_class", "class", "root_excerpt", "cause"):
        value = finding.evidence.get(name)
        if isinstance(value, str) and value:
            return value
    return None


def _next_step(finding: Finding, handoff: Mapping[str, Json], cause: str | None) -> str | None:
    """What would help: as the hand-off report says, else by the finding's prescription, else by its kind."""
    if finding.detector == SYSTEM and finding.kind != FLAPPING:
        return _OF_SYSTEM.get(finding.kind)
    step = handoff.get("next_step")
    if isinstance(step, dict) and isinstance(step.get("text"), str):
        return _without_error(str(step["text"]), cause or finding.summary, handoff.get("failing_paths"))
    if finding.detector == SYSTEM:
        return _OF_SYSTEM.get(finding.kind)
    named = finding.evidence.get("prescription")
    prescription = named if isinstance(named, str) else _BY_KIND.get(finding.kind)
    return None if prescription is None else _STEPS.get(prescription)


def _without_error(text: str, said: str, paths: Json) -> str:
    """A next step without the error that was quoted before it; the report has it in both places."""
    for path in paths if isinstance(paths, list) else ():
        error = path.get("error") if isinstance(path, dict) else None
        if isinstance(error, str) and error and error in said:
            text = text.replace(f" The error: {error}", "")
    return text
