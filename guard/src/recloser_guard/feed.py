"""What the sidecar tells of breakers becomes the index that checks read. No thread, no clock, no network."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from recloser_guard.errors import GuardError
from recloser_guard.index import Index
from recloser_guard.record import breaker_from
from recloser_guard.stream import Event


class Feed:
    """Applies events in their order.

    `index` is replaced by a snapshot and changed by all else. `shown` keeps the breakers as they came, for
    the cache. `refetch` tells that something may be missed: the whole list is wanted. `asked`: what came
    last wants to be acknowledged at once.
    """

    def __init__(self) -> None:
        self.index = Index()
        self.shown: dict[str, Mapping[str, Any]] = {}
        self.known = False
        self.refetch = False
        self.asked = False
        self._base = 0
        self._promised = 0

    def apply(self, event: Event) -> bool:
        """Take one event; tell whether any breaker changed. Raises `GuardError` for what makes no sense."""
        self.asked = event.name == "acknowledge"
        try:
            data = json.loads(event.data)
            if event.name == "snapshot":
                self.replace(data["breakers"], int(data["revision"]))
                return True
            if event.name == "upsert":
                return self._upsert(data)
            if event.name == "remove":
                return self._remove(str(data["id"]), int(data["revision"]))
            if event.name == "heartbeat":
                self._heartbeat(int(data["revision"]))
            elif event.name == "reset":
                self._promised = -1
        except (KeyError, TypeError, ValueError) as error:
            raise GuardError(f"event {event.name}: {error!r}") from error
        return False

    def replace(self, shown: Sequence[Mapping[str, Any]], revision: int) -> None:
        """Take over the whole list as it was at `revision`."""
        breakers = [breaker_from(one) for one in shown]
        self.shown = {breaker.id: one for breaker, one in zip(breakers, shown)}
        self.index = Index(breakers, revision)
        self._base = self.index.revision
        self._promised = 0
        self.known = True
        self.refetch = False

    def compare(self, etag: str | None) -> None:
        """Compare the tag of an answer that says "nothing new"; a lower revision is that of another file."""
        found = re.search(r"rev-(\d+)", etag or "")
        if found is not None and int(found.group(1)) < self.index.revision:
            self.refetch = True

    def _upsert(self, data: Mapping[str, Any]) -> bool:
        self._expect_snapshot()
        breaker = breaker_from(data)
        if breaker.revision <= self._base:
            return False
        self.index.put(breaker)
        if self.index.get(breaker.id) is None:
            self.shown.pop(breaker.id, None)
        else:
            self.shown[breaker.id] = data
        return True

    def _remove(self, breaker_id: str, revision: int) -> bool:
        self._expect_snapshot()
        if revision <= self._base:
            return False
        self.index.remove(breaker_id, revision)
        if self.index.get(breaker_id) is None:
            self.shown.pop(breaker_id, None)
        return True

    def _heartbeat(self, revision: int) -> None:
        """Note how far everybody is: a change that a heartbeat names may be on its way, but not at the next.

        What did not come until then concerns others. A revision that is lower than one seen before is that
        of another file: everything is asked for.
        """
        self._expect_snapshot()
        if revision < self.index.revision:
            self.refetch = True
            return
        self.index.revision = max(self.index.revision, self._promised)
        self._promised = revision

    def _expect_snapshot(self) -> None:
        """After a reset only a snapshot helps; anything else means that none came."""
        if self._promised < 0:
            self.refetch = True
