"""The policy file: read at the start, and again when it changes, on SIGHUP, and when somebody asks.

A file that is broken changes nothing: the policy before it stays in force, also over a restart (its text is
kept in `control.db`), and the trouble is counted, logged once, and shown until the file is mended.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from api.policyfile import PolicyError, PolicyFile, parse_policy, read_policy
from control.actor import Actor
from control.audit import record
from control.policy import Policy, PolicyHolder, Source
from control.policy.kept import Kept, keep, kept

if TYPE_CHECKING:
    from control.db import ControlDb
    from control.metrics import ControlMetrics

_log = logging.getLogger(__name__)
_NEW: Final = "this file was not in force before"
_STARTED: Final = Actor(type="system", id="start")
_CHANGED: Final = Actor(type="system", id="policy_file")
_SIGNALLED: Final = Actor(type="system", id="SIGHUP")


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyPlace:
    """Where the policy is, and what it may say: see `api.policyfile.parse_policy`."""

    path: Path
    destinations: tuple[str, ...] | None = None
    escalate_after: int = 3

    def read(self) -> PolicyFile:
        """Read it. Raises `PolicyError`."""
        return read_policy(self.path, self.destinations, self.escalate_after)


class NoPolicyFile(Exception):  # noqa: N818 - says what there is not
    """The policy stands in the settings: it is read at a start only."""


class PolicyKeeper:
    """Keeps the holder's policy what the file says. A `Duty`; `reload` may be called from any thread.

    Raises `PolicyError` when the file is broken and no policy of it was ever in force here.
    """

    name: Final = "policy"
    every_s: Final = 1.0

    def __init__(
        self,
        holder: PolicyHolder,
        place: PolicyPlace | None,
        db: ControlDb,
        metrics: ControlMetrics,
        now_ns: Callable[[], int],
    ) -> None:
        self.holder = holder
        self.place = place
        self.trouble: str | None = None
        self._db = db
        self._metrics = metrics
        self._now_ns = now_ns
        self._lock = threading.Lock()
        self._asked = False
        self._seen: tuple[int, ...] | None = None
        if place is not None:
            self._start(place)

    def ask(self) -> None:
        """Have the file read at the next turn. Safe in a signal handler."""
        self._asked = True

    def turn(self) -> None:
        """Read the file if it changed, or if that was asked for."""
        place = self.place
        if place is None:
            if self._asked:
                self._asked = False
                _log.warning("SIGHUP: the policy stands in the settings, which are read at a start only")
            return
        actor = _SIGNALLED if self._asked else _CHANGED
        if not self._asked and _stamp(place.path) == self._seen:
            return
        self._asked = False
        try:
            self._load(place, actor, "the file changed" if actor is _CHANGED else "it was signalled")
        except PolicyError:
            return  # told by _load

    def reload(self, actor: Actor, reason: str) -> Source:
        """Read the file now; return where the policy in force is from.

        Raises `NoPolicyFile`, `PolicyError` (all that is wrong with the file; the old policy stays).
        """
        if self.place is None:
            raise NoPolicyFile
        self._load(self.place, actor, reason)
        return self.holder.source

    def aside(self) -> str | None:
        """Say what `/readyz` shows as degraded; None while the file is fine."""
        if self.trouble is None:
            return None
        return f"the file is broken, the policy before it is in force: {self.trouble.splitlines()[0]}"

    def _start(self, place: PolicyPlace) -> None:
        self._seen = _stamp(place.path)
        with self._db.reading() as connection:
            before = kept(connection, str(place.path))
        try:
            read = place.read()
        except PolicyError as error:
            if before is None:
                raise
            self.holder.swap(_again(before, place, error), _source(before))
            self._complain(str(error))
            return
        if before is not None and before.sha256 == read.sha256:
            self.holder.swap(read.policy, _source(before))
        else:
            why = _NEW if before is None else "it was changed since it was in force last"
            self._put_in_force(read, _STARTED, why, before)

    def _load(self, place: PolicyPlace, actor: Actor, reason: str) -> None:
        with self._lock:
            self._seen = _stamp(place.path)
            try:
                read = place.read()
            except PolicyError as error:
                self._complain(str(error))
                if actor.type == "person":
                    self._audit_refusal(actor, reason, str(error))
                raise
            if read.sha256 != self.holder.source.sha256 or actor.type == "person":
                with self._db.reading() as connection:
                    before = kept(connection, str(place.path))
                try:
                    self._put_in_force(read, actor, reason, before)
                except sqlite3.Error:
                    self._seen = None  # read again at the next turn
                    raise
            if self.trouble is not None:
                _log.info("the policy file %s is well again", place.path)
            self.trouble = None
            self._metrics.policy_broken.set(0)

    def _put_in_force(self, read: PolicyFile, actor: Actor, reason: str, before: Kept | None) -> None:
        now = self._now_ns()
        new = Kept(path=str(read.path), text=read.text, sha256=read.sha256, loaded_at=now)
        with self._db.transaction() as tx:
            keep(tx, new)
            record(
                tx,
                at_ns=now,
                actor=actor,
                verb="policy",
                subject=new.path,
                reason=reason,
                before=None if before is None else {"sha256": before.sha256},
                after={"sha256": new.sha256},
                extra={
                    "rules": [rule.name for rule in read.policy.rules],
                    "thresholds": [each.name for each in read.policy.thresholds],
                    "budgets": [each.name for each in read.policy.budgets],
                    "modes": [each.name for each in read.policy.modes],
                },
            )
            tx.after_commit(lambda: self.holder.swap(read.policy, _source(new)))
        self._metrics.policy_reloads.labels("loaded").inc()
        _log.info("policy %s (%s) is in force: %s", new.path, new.sha256[:12], reason)

    def _audit_refusal(self, actor: Actor, reason: str, error: str) -> None:
        with self._db.transaction() as tx:
            record(
                tx,
                at_ns=self._now_ns(),
                actor=actor,
                verb="policy_refused",
                subject=str(self.place.path if self.place else ""),
                reason=reason,
                extra={"error": error[:2000]},
            )

    def _complain(self, trouble: str) -> None:
        if trouble != self.trouble:
            told = "; ".join(trouble.splitlines())  # a line of the log each
            _log.error("the policy before stays in force, the file is broken: %s", told)
            self._metrics.policy_reloads.labels("broken").inc()
        self.trouble = trouble
        self._metrics.policy_broken.set(1)


def _again(before: Kept, place: PolicyPlace, error: PolicyError) -> Policy:
    """Return the policy that was in force last; raise `error` when this version cannot read it."""
    try:
        return parse_policy(before.text, str(place.path), None, place.escalate_after)
    except PolicyError:
        raise error from None


def _source(kept_policy: Kept) -> Source:
    return Source(path=kept_policy.path, sha256=kept_policy.sha256, loaded_at=kept_policy.loaded_at)


def _stamp(path: Path) -> tuple[int, ...] | None:
    """What tells a changed file, also one that was replaced; None while there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size, status.st_ino)
