"""All of alerting, put together: what the loop, the routes and the breakers ask of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from control import audit
from control.alerts import book
from control.alerts.alerting import Alerting
from control.alerts.announcing import Announcer
from control.alerts.rounds import AlertRounds
from control.alerts.settings import AlertSettings
from control.alerts.states import AlertEvent
from control.conditions import ConditionsDuty, Sources
from control.heartbeat import HeartbeatDuty
from control.notices import Links, Notices
from control.silences import Silence, Silences, to_plain
from control.system_alerts import SystemAlerts

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from collector.step import Json
    from control.actor import Actor
    from control.alerts.record import Alert
    from control.breakers.record import Breaker
    from control.db import ControlDb, Transaction
    from control.duties import Duty
    from control.facts import Fact
    from control.metrics import ControlMetrics
    from control.notifiers.protocol import Notifier
    from control.outbox import Outbox
    from detectors.notes import Notes
    from detectors.protocol import Finding

_EXPIRED_AT_ONCE: Final = 1_000


def _no_notes(_session_id: str) -> None:
    return None


def _nothing() -> Mapping[str, int]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertParts:
    """What alerting reads and links to. Without any of it alerts still fire, with less to say.

    `notes_of`: the notes of a session. `brief_of`: the short hand-off report. `oldest_unread`: when the
    oldest batch of the spool came in that a reader has not read; `pulse`: when each service was heard last
    (unix ns).
    """

    settings: AlertSettings = field(default_factory=AlertSettings)
    notes_of: Callable[[str], Notes | None] = _no_notes
    brief_of: Callable[[Finding, Notes], Mapping[str, Json]] | None = None
    links: Links = field(default_factory=Links)
    oldest_unread: Callable[[], Mapping[str, int] | None] = _nothing
    pulse: Callable[[], Mapping[str, int]] = _nothing


class AlertDesk:
    """See the module. Every method may be called from any thread, `duties` belong to the loop's.

    `watched` are all places that something is delivered to: who is late or gone is told at `notifiers`.
    Raises `ValueError` that names the key when heartbeats go to a destination that does not exist.
    """

    def __init__(
        self,
        parts: AlertParts,
        *,
        db: ControlDb,
        outbox: Outbox,
        notifiers: Mapping[str, Notifier],
        watched: Collection[str],
        wake: Callable[[], None],
        breakers_of: Callable[[Transaction, str, str], Sequence[Breaker]],
        metrics: ControlMetrics,
        now_ns: Callable[[], int],
    ) -> None:
        settings = parts.settings
        if settings.heartbeat_s and settings.heartbeat_to not in notifiers:
            raise ValueError(f"alerts.heartbeat_to: no destination is named {settings.heartbeat_to!r}")
        if settings.heartbeat_s and not notifiers[settings.heartbeat_to].capabilities.beats:
            raise ValueError(f"alerts.heartbeat_to: each beat would page at {settings.heartbeat_to!r}")
        self._db = db
        self._now_ns = now_ns
        self.silences = Silences(db, now_ns)
        notices = Notices(parts.links, breakers_of, parts.notes_of, parts.brief_of)
        announcer = Announcer(outbox, notifiers, notices, wake, metrics.given_up)
        self.alerting = Alerting(settings, self.silences, announcer, metrics, now_ns)
        self.system = SystemAlerts(self.alerting, now_ns)
        sources = Sources(
            oldest_unread=parts.oldest_unread,
            pulse=parts.pulse,
            watched=frozenset(watched),
            destinations=tuple(notifiers),
        )
        duties: list[Duty] = [
            AlertRounds(db, self.alerting, parts.notes_of, now_ns),
            ConditionsDuty(db, self.system, sources, settings, now_ns),
        ]
        if settings.heartbeat_s:
            duties.append(
                HeartbeatDuty(
                    db,
                    outbox,
                    settings.heartbeat_to,
                    notifiers[settings.heartbeat_to],
                    every_s=settings.heartbeat_s,
                    wake=wake,
                    now_ns=now_ns,
                )
            )
        self.duties: tuple[Duty, ...] = tuple(duties)

    def resolve(self, alert_id: str, actor: Actor, note: str) -> Alert:
        """End an alert because a person says so. Raises `UnknownAlert` or `IllegalAlertTransition`."""
        with self._db.transaction() as tx:
            alert = self.alerting.resolve(tx, alert_id, actor, note)
            self._note(tx, actor, "alert.resolve", alert, note)
        return alert

    def acknowledge(self, alert_id: str, actor: Actor, note: str) -> Alert:
        """A person has seen a firing alert. Raises `UnknownAlert` or `IllegalAlertTransition`."""
        with self._db.transaction() as tx:
            alert = self.alerting.acknowledge(tx, alert_id, actor, note)
            self._note(tx, actor, "alert.acknowledge", alert, note)
        return alert

    def silence(self, silence: Silence, actor: Actor) -> Silence:
        """Keep a silence, new or changed. Raises `TooManySilences`."""
        with self._db.transaction() as tx:
            self.silences.put(tx, silence)
            self._note(tx, actor, "silence.put", silence, silence.comment)
        return silence

    def unsilence(self, silence_id: str, actor: Actor) -> Silence:
        """End a silence now. Raises `UnknownSilence`, `SilenceOver` when it is over already."""
        with self._db.transaction() as tx:
            silence = self.silences.expire(tx, silence_id)
            self._note(tx, actor, "silence.end", silence, silence.comment)
        return silence

    def take_fact(self, tx: Transaction, fact: Fact) -> None:
        """Learn that a run has ended."""
        if fact.kind == "ended" and fact.session_id:
            at_ns = fact.payload.get("at_ns")
            ended_ns = at_ns if isinstance(at_ns, int) else self._now_ns()
            self.alerting.end_run(tx, fact.session_id, str(fact.payload.get("run_id") or ""), ended_ns)

    def expire(self, before_ns: int) -> int:
        """End alerts that nothing happened to since a moment (unix ns); return how many."""
        with self._db.transaction() as tx:
            old = book.unchanged_since(tx, before_ns, _EXPIRED_AT_ONCE)
            for alert in old:
                self.alerting.resolve(tx, alert.id, book.EXPIRER, book.EXPIRED_NOTE, AlertEvent.EXPIRE)
        self.silences.forget()
        return len(old)

    def _note(self, tx: Transaction, actor: Actor, verb: str, about: Alert | Silence, reason: str) -> None:
        """Write into the audit what a person did."""
        after = to_plain(about) if isinstance(about, Silence) else {"state": about.state.value}
        audit.record(
            tx, at_ns=self._now_ns(), actor=actor, verb=verb, subject=about.id, reason=reason, after=after
        )
