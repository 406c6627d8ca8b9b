"""Refusals of authorization on their way into the audit: counted in memory, written by a duty.

One entry a token, route, status and minute, with a count; so many at a time at most, the rest together.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from control.actor import Actor
from control.audit import record

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from api.auth import Denied
    from control.db import ControlDb, Transaction

MOST: Final = 500
"""Entries that wait at a time."""
_MINUTE: Final = 60_000_000_000
_OTHERS: Final = "others"
_LONGEST: Final = 100


@dataclass(frozen=True, slots=True)
class Refusal:
    """What one entry is about. `minute` is a count of minutes since 1970."""

    who: str
    route: str
    status: int
    minute: int


class Refusals:
    """Takes refusals from any thread, as `api.auth.Refused`; a duty: `turn` writes those of past minutes."""

    name = "the audit of refusals"
    every_s = 5.0

    def __init__(
        self,
        db: ControlDb,
        now_ns: Callable[[], int],
        count: Callable[[int], None] = lambda _status: None,
    ) -> None:
        self._db = db
        self._now_ns = now_ns
        self._count = count
        self._lock = threading.Lock()
        self._counts: dict[Refusal, tuple[int, str]] = {}

    def __call__(self, denied: Denied, request: Mapping[str, Any]) -> None:
        """Count one refusal."""
        self._count(denied.status)
        refusal = Refusal(denied.who, _route(request), denied.status, self._now_ns() // _MINUTE)
        with self._lock:
            if refusal not in self._counts and len(self._counts) >= MOST:
                refusal = Refusal(_OTHERS, _OTHERS, denied.status, refusal.minute)
            count, detail = self._counts.get(refusal, (0, denied.detail))
            self._counts[refusal] = (count + 1, detail)

    def turn(self) -> None:
        """Write what was refused in minutes that are over."""
        self.flush(before=self._now_ns() // _MINUTE)

    def flush(self, before: int | None = None) -> None:
        """Write what was refused before a minute (None: everything), in one transaction."""
        with self._lock:
            due = [r for r in self._counts if before is None or r.minute < before]
            counts = [(refusal, *self._counts.pop(refusal)) for refusal in due]
        if not counts:
            return
        with self._db.transaction() as tx:
            for refusal, count, detail in counts:
                _record(tx, refusal, count, detail)


def _record(tx: Transaction, refusal: Refusal, count: int, detail: str) -> None:
    record(
        tx,
        at_ns=refusal.minute * _MINUTE,
        actor=Actor(type="token", id=refusal.who or "unknown"),
        verb="authorization.refuse",
        subject=refusal.route,
        reason=detail,
        before=None,
        after=None,
        extra={"status": refusal.status, "count": count},
    )


def _route(request: Mapping[str, Any]) -> str:
    """Name the route: its template where one was found, so that ids make no entries of their own."""
    route = request.get("route")
    path = getattr(route, "path", None) or request.get("path", "")
    return f"{request.get('method', '')} {path}"[:_LONGEST].strip()
