"""What control does by the clock, beside deciding about findings: one duty a class, run by the loop."""

from __future__ import annotations

import logging
import sqlite3
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

_log = logging.getLogger(__name__)


class Duty(Protocol):
    """Something that the control loop does again and again, in its own thread, between two decisions."""

    @property
    def name(self) -> str:
        """What it is called in the log."""
        ...

    @property
    def every_s(self) -> float:
        """Seconds between two turns."""
        ...

    def turn(self) -> None:
        """Do it once. Ends within a fraction of a second; may raise, and is then done again at its time."""
        ...


class Duties:
    """All duties: one that fails keeps no other from being done, and is logged once until it works again."""

    def __init__(self, duties: Sequence[Duty]) -> None:
        self._duties = tuple(duties)
        self._due = [0.0] * len(self._duties)
        self._trouble: dict[str, str] = {}

    def do_due(self, now: float) -> None:
        """Do what is due at `now` (seconds, monotonic)."""
        for position, duty in enumerate(self._duties):
            if now < self._due[position]:
                continue
            self._due[position] = now + duty.every_s
            try:
                duty.turn()
                self._trouble.pop(duty.name, None)
            except sqlite3.Error as error:  # a file in trouble is no defect: its line is enough
                if self._is_new(duty, error):
                    _log.warning("%s waits: %s", duty.name, error)
            except Exception as error:  # noqa: BLE001 - alerts and breakers go on whatever one duty ran into
                if self._is_new(duty, error):
                    _log.exception("%s failed; it is tried again", duty.name)

    def _is_new(self, duty: Duty, error: Exception) -> bool:
        known, self._trouble[duty.name] = self._trouble.get(duty.name), repr(error)
        return known != repr(error)
