"""The duty that looks after alerts that are not over.

What has waited fires, what was held back is told, what is over ends. Each turn looks at one slice of them, in
order, round and round, so that a turn costs little however many there are; while a round is under way the
turns come sooner. What it sees is only in memory: after a restart an alert that seemed over has to seem so
for `keep_firing_s` once more.
"""

from __future__ import annotations

import logging
import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from control import flapping
from control.actor import Actor
from control.alerts import book
from control.alerts.record import kinds_beside, labels_of
from control.alerts.states import AlertState
from control.alerts.system import CLEARED, FLAPPING
from control.resolving import Over, goes_on, over

if TYPE_CHECKING:
    from collections.abc import Callable

    from control.alerts.alerting import Alerting
    from control.alerts.record import Alert
    from control.db import ControlDb, Transaction
    from detectors.notes import Notes

_log = logging.getLogger(__name__)

_NS: Final = 1_000_000_000
SLICE: Final = 100
_SOON_S: Final = 0.25
_WHY: Final = {
    Over.RUN_ENDED: "the run has ended",
    Over.USER_SPOKE: "the user has spoken to the agent since",
    Over.STREAK_OVER: "the streak is over: the agent does other things",
    Over.IDLE: "nothing was heard of it for long",
}


class AlertRounds:
    """See the module. `notes_of` reads the notes of a session as ingest wrote them last."""

    name: Final = "alerts"

    def __init__(
        self,
        db: ControlDb,
        alerting: Alerting,
        notes_of: Callable[[str], Notes | None],
        now_ns: Callable[[], int],
        *,
        every_s: float = 1.0,
        slice_: int = SLICE,
    ) -> None:
        self._db = db
        self._alerting = alerting
        self._notes_of = notes_of
        self._now_ns = now_ns
        self.every_s = self._pause_s = every_s
        self._slice = slice_
        self._after = 0
        self._over_since: dict[str, int] = {}
        self._seen: set[str] = set()
        self._trouble = ""

    def turn(self) -> None:
        """Look at the next slice."""
        with self._db.reading() as connection:
            live = book.live_after(connection, self._after, self._slice)
            looked = [(alert, self._look(connection, alert)) for _, alert in live]
        steps = [(alert, step) for alert, step in looked if step is not None]
        if steps:
            with self._db.transaction() as tx:
                for alert, step in steps:
                    self._try(tx, alert, step)
        self._seen |= {alert.id for _, alert in live}
        if len(live) == self._slice:
            self._after = live[-1][0]
            self.every_s = min(self._pause_s, _SOON_S)
            return
        self.every_s = self._pause_s
        self._over_since = {key: since for key, since in self._over_since.items() if key in self._seen}
        self._after, self._seen = 0, set()

    def _look(self, connection: sqlite3.Connection, alert: Alert) -> _Step | None:
        """As `_step`; an alert that cannot be looked at waits for the next round and keeps no other back."""
        try:
            return self._step(connection, alert)
        except sqlite3.Error:
            raise
        except Exception as error:  # noqa: BLE001 - one alert must not keep all others from their end
            self._complain(alert, error)
            return None

    def _try(self, tx: Transaction, alert: Alert, step: _Step) -> None:
        """As `_carry_out`, undone when it fails."""
        try:
            with tx.savepoint():
                self._carry_out(tx, alert, step)
        except sqlite3.Error:
            raise
        except Exception as error:  # noqa: BLE001 - one alert must not keep all others from their end
            self._complain(alert, error)

    def _complain(self, alert: Alert, error: Exception) -> None:
        """Say once a kind of trouble that an alert cannot be looked after."""
        if repr(error) != self._trouble:
            self._trouble = repr(error)
            _log.error("the alert %s cannot be looked after", alert.id, exc_info=error)

    def _step(self, connection: sqlite3.Connection, alert: Alert) -> _Step | None:
        """What is to be done about an alert; None when nothing is."""
        now, settings = self._now_ns(), self._alerting.settings
        if alert.finding.kind == FLAPPING:
            key = str(alert.finding.evidence.get("key", ""))
            if flapping.is_calm(connection, key, now, settings):
                return _Step(ends=True, actor=CLEARED, note="it flaps no more")
        notes = self._notes_of(alert.finding.session_id) if alert.finding.session_id else None
        why = over(alert, notes, now, settings)
        since = self._since(alert, why, now)
        hold_ns = int(settings.keep_firing_s * _NS)
        if why is not None and (alert.state is AlertState.PENDING or now - since >= hold_ns):
            return _Step(ends=True, actor=Actor(type="system", id=why.value), note=_WHY[why])
        if why is not None:
            return None
        if alert.state is AlertState.PENDING:
            return _Step(ends=False) if now - alert.fired_at >= settings.min_firing_s * _NS else None
        if alert.was_told or alert.covered_by or self._is_silenced(alert):
            return None
        settled = not alert.released_at or now - alert.released_at >= hold_ns
        return _Step(ends=False) if settled and goes_on(alert, notes) else None

    def _carry_out(self, tx: Transaction, seen: Alert, step: _Step) -> None:
        """Do it, unless the alert has changed since it was looked at: then the next round sees to it."""
        alert = book.fetch(tx, seen.id)
        if alert != seen:
            return
        if step.ends:
            self._over_since.pop(alert.id, None)
            self._alerting.resolve(tx, alert.id, step.actor, step.note)
        elif alert.state is AlertState.PENDING:
            self._alerting.fire_pending(tx, alert)
        else:
            self._alerting.tell_late(tx, alert)

    def _is_silenced(self, alert: Alert) -> bool:
        """Whether a silence holds it back, and that is written down already."""
        silences = self._alerting.silences.of(labels_of(alert), kinds_beside(alert))
        return bool(silences) and silences == alert.silenced_by

    def _since(self, alert: Alert, why: Over | None, now: int) -> int:
        """Since when an alert is over for a reason, without a break."""
        if why is None:
            self._over_since.pop(alert.id, None)
            return now
        return self._over_since.setdefault(alert.id, now)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """An alert ends, by whom and why; or it goes on its way: fires, or is told."""

    ends: bool
    actor: Actor = CLEARED
    note: str = ""
