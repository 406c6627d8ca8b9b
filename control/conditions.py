"""What is wrong with the way from agents to on-call, looked at by the clock: data, detection, delivery."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from control.alerts.book import firing_of_kind
from control.alerts.system import DELIVERY_LAG, DESTINATION_DISABLED, INGEST_LAG, NO_DATA, system_id
from control.system_alerts import Condition
from detectors.protocol import Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from control.alerts.settings import AlertSettings
    from control.db import ControlDb
    from control.system_alerts import SystemAlerts

_log = logging.getLogger(__name__)

KINDS: Final = (NO_DATA, INGEST_LAG, DELIVERY_LAG, DESTINATION_DISABLED)
_NS: Final = 1_000_000_000
_READERS: Final = {
    "detectors": ("detection is late: nobody watches what agents do now", Severity.CRITICAL),
    "store": ("spans are stored late: they wait in the spool", Severity.WARNING),
}
_OLDEST_UNREAD: Final = """
    SELECT received_ns FROM batches
    WHERE seq > coalesce((SELECT seq FROM cursors WHERE name = ?), 0) ORDER BY seq LIMIT 1
"""


class SpoolLag:
    """How long the oldest batch has waited for each of its readers, out of `spool.db`, read only."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def oldest(self) -> Mapping[str, int] | None:
        """By reader (`detectors`, `store`), when its oldest unread batch came in (unix ns).

        A reader that has read everything is not named; None while the spool cannot be read.
        """
        if not self._path.exists():
            return {}
        uri = f"{self._path.resolve().as_uri()}?mode=ro"
        try:
            with closing(sqlite3.connect(uri, uri=True, timeout=1.0)) as spool:
                rows = {name: spool.execute(_OLDEST_UNREAD, (name,)).fetchone() for name in _READERS}
        except sqlite3.Error as error:
            _log.debug("the spool cannot be read: %s", error)
            return None
        return {name: int(row[0]) for name, row in rows.items() if row is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where conditions are read: `pulse` says when each service was heard last (unix ns).

    `oldest_unread` is None and `pulse` empty while nobody can tell: then nothing begins or ends. `watched`
    are all places that something is delivered to, `destinations` those of them that can be told of trouble.
    """

    oldest_unread: Callable[[], Mapping[str, int] | None]
    pulse: Callable[[], Mapping[str, int]]
    watched: frozenset[str]
    destinations: tuple[str, ...]


class ConditionsDuty:
    """Looks at the conditions and keeps their alerts true. A service is waited for anew after a start."""

    name: Final = "system alerts"

    def __init__(
        self,
        db: ControlDb,
        system: SystemAlerts,
        sources: Sources,
        settings: AlertSettings,
        now_ns: Callable[[], int],
        *,
        every_s: float = 5.0,
    ) -> None:
        self._db = db
        self._system = system
        self._sources = sources
        self._settings = settings
        self._now_ns = now_ns
        self._started_ns = now_ns()
        self.every_s = every_s

    def turn(self) -> None:
        """Look once; write only what changed."""
        with self._db.reading() as connection:
            firing = {alert.finding.id for kind in KINDS for alert in firing_of_kind(connection, kind)}
            silent, late = self._silent_services(firing), self._late_reading(firing)
            unknown = {kind for kind, found in ((NO_DATA, silent), (INGEST_LAG, late)) if found is None}
            conditions = [*(silent or ()), *(late or ()), *self._deliveries(connection, firing)]
            kinds = [kind for kind in KINDS if kind not in unknown]
            changed = self._system.changed(connection, kinds, conditions)
        if changed:
            with self._db.transaction() as tx:
                self._system.reconcile(tx, kinds, conditions)
        self._system.clear_breakers(self._db)

    def _silent_services(self, firing: AbstractSet[str]) -> list[Condition] | None:
        """The services that fell silent; None when nobody can tell."""
        after_s = self._settings.no_data_s
        if not after_s:
            return []
        pulse = self._sources.pulse()
        if not pulse:
            return None
        return [
            Condition(
                kind=NO_DATA,
                key=service,
                summary=f"{service or 'an unnamed service'} was sending spans and has sent none for "
                f"{_length(after_s)}",
                since_ns=last_ns,
                labels=(("service", service),),
            )
            for service, last_ns in pulse.items()
            if self._now_ns() - self._waited_since(service, last_ns, firing) > after_s * _NS
        ]

    def _waited_since(self, service: str, last_ns: int, firing: AbstractSet[str]) -> int:
        """Since when a service is waited for: anew after a start, unless it was silent before that."""
        fires = system_id(NO_DATA, service) in firing
        return last_ns if fires else max(last_ns, self._started_ns)

    def _late_reading(self, firing: AbstractSet[str]) -> list[Condition] | None:
        """The readers that are late; None when nobody can tell."""
        after_s = self._settings.ingest_lag_s
        if not after_s:
            return []
        unread = self._sources.oldest_unread()
        if unread is None:
            return None
        return [
            Condition(
                kind=INGEST_LAG,
                key=reader,
                summary=f"{_READERS[reader][0]} (longer than {_length(after_s)})",
                since_ns=since_ns,
                severity=_READERS[reader][1],
            )
            for reader, since_ns in unread.items()
            if self._now_ns() - since_ns > _bound_ns(after_s, system_id(INGEST_LAG, reader) in firing)
        ]

    def _deliveries(self, connection: sqlite3.Connection, firing: AbstractSet[str]) -> list[Condition]:
        gone = {
            row["name"]: row
            for row in connection.execute("SELECT * FROM destinations WHERE disabled_ns IS NOT NULL")
            if row["name"] in self._sources.watched
        }
        found = [
            Condition(
                kind=DESTINATION_DISABLED,
                key=name,
                summary=f"{name} says that it is gone; nothing is sent there any more: {row['reason']}",
                since_ns=row["disabled_ns"],
                severity=Severity.CRITICAL,
                labels=(("destination", name),),
                destinations=self._others(name),
            )
            for name, row in gone.items()
        ]
        after_s = self._settings.delivery_lag_s
        if not after_s:
            return found
        waiting = connection.execute(
            "SELECT name AS destination, (SELECT min(coalesce(replayed_ns, created_ns)) FROM outbox "
            "INDEXED BY outbox_waits_since WHERE destination = name AND state = 'pending') AS oldest "
            "FROM destinations"
        )
        return found + [
            Condition(
                kind=DELIVERY_LAG,
                key=row["destination"],
                summary=f"{row['destination']} is late: a message has waited for longer than "
                f"{_length(after_s)}",
                since_ns=row["oldest"],
                severity=Severity.CRITICAL,
                labels=(("destination", row["destination"]),),
                destinations=self._others(row["destination"]),
            )
            for row in waiting
            if row["destination"] in self._sources.watched
            and row["destination"] not in gone
            and row["oldest"] is not None
            and self._now_ns() - row["oldest"]
            > _bound_ns(after_s, system_id(DELIVERY_LAG, row["destination"]) in firing)
        ]

    def _others(self, name: str) -> tuple[str, ...]:
        return tuple(other for other in self._sources.destinations if other != name)


def _bound_ns(seconds: float, fires: bool) -> int:  # noqa: FBT001 - one of two bounds
    """Half of it for what fires, so that what is at the limit does not fire again and again."""
    return int(seconds * _NS) // (2 if fires else 1)


def _length(seconds: float) -> str:
    """A length of time in words.

    >>> _length(90), _length(600)
    ('90 s', '10 minutes')
    """
    return f"{seconds / 60:.0f} minutes" if seconds >= 120 and seconds % 60 == 0 else f"{seconds:.0f} s"  # noqa: PLR2004 - two minutes
