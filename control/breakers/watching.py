"""After a halt: does the run end? One that goes on although it was stopped is told to people.

A row in `watches` for each run that is halted. What the run does is read from its notes: a step that began
later than the halt and the grace time, and that no brake refused, means that it goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import orjson

from control import audit
from control.action import Action
from control.actor import Actor
from control.breakers import store
from control.breakers.hooks import tell
from control.breakers.timing import NS

if TYPE_CHECKING:
    from collections.abc import Callable

    from control.breakers.hooks import Hooks
    from control.breakers.record import Breaker
    from control.breakers.settings import BreakerSettings
    from control.db import ControlDb, Transaction
    from detectors.notes import Notes

WATCHING: Final = "watching"
ENDED: Final = "ended"
STILL_RUNNING: Final = "still_running"
WATCH: Final = Actor(type="system", id="watch")
IDLE_S: Final = 60.0
"""A halted run that is silent for so long counts as ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """One halted run: since when, and what is known of it (`watching`, `ended`, `still_running`)."""

    breaker_id: str
    session_id: str
    halted_ns: int
    state: str


class Watches:
    """Watches halted runs. `notes` gives what is known of a session, None when nothing is."""

    def __init__(
        self,
        db: ControlDb,
        hooks: Hooks,
        notes: Callable[[str], Notes | None],
        now_ns: Callable[[], int],
        settings: Callable[[], BreakerSettings],
    ) -> None:
        self._db = db
        self._hooks = hooks
        self._notes = notes
        self._now_ns = now_ns
        self._settings = settings

    def take(self, tx: Transaction, breaker: Breaker) -> None:
        """Begin to watch when a breaker halts its run, end when it does not any more."""
        if halts_a_run(breaker):
            if not _of_parts(breaker):
                self.begin(tx, breaker)
            return
        row = tx.one("SELECT state FROM watches WHERE breaker_id = ?", (breaker.id,))
        if row is None:
            return
        tx.execute("DELETE FROM watches WHERE breaker_id = ?", (breaker.id,))
        if row["state"] == STILL_RUNNING:
            tell(tx, self._hooks.on_run_ended, breaker)

    def begin(self, tx: Transaction, breaker: Breaker) -> None:
        """Watch the run of a breaker from now on, if it is not watched yet or had ended."""
        tx.execute(
            "INSERT INTO watches (breaker_id, session_id, halted_ns, state, payload) "
            "VALUES (?, ?, ?, ?, '{}') ON CONFLICT (breaker_id) DO UPDATE SET state = excluded.state, "
            "halted_ns = excluded.halted_ns WHERE state = ?",
            (breaker.id, store.session_of(breaker), self._now_ns(), WATCHING, ENDED),
        )

    def told(self, tx: Transaction, breaker: Breaker) -> None:
        """Take note that an agent was told of the halt: one of a single tool is not known to it before."""
        if halts_a_run(breaker):
            self.begin(tx, breaker)

    def turn(self) -> None:
        """Look at every run that is watched."""
        with self._db.reading() as connection:
            rows = connection.execute(
                "SELECT breaker_id, session_id, halted_ns, state FROM watches WHERE state <> ?", (ENDED,)
            ).fetchall()
        for watch in (Watch(**dict(row)) for row in rows):
            notes = self._notes(watch.session_id)
            state = self._state(watch, notes)
            if state != watch.state:
                self._becomes(watch, state, notes)

    def _state(self, watch: Watch, notes: Notes | None) -> str:
        now = self._now_ns()
        heard = watch.halted_ns if notes is None else max(watch.halted_ns, notes.last_ns)
        if notes is not None:
            grace = int(self._settings().halt_grace_s * NS)
            if notes.ended_ns >= max(1, watch.halted_ns):
                return ENDED
            if notes.last_start_ns > watch.halted_ns + grace and watch.state == WATCHING:
                return STILL_RUNNING
        return ENDED if now - heard > IDLE_S * NS else watch.state

    def _becomes(self, watch: Watch, state: str, notes: Notes | None) -> None:
        with self._db.transaction() as tx:
            changed = tx.execute(
                "UPDATE watches SET state = ?, payload = ? WHERE breaker_id = ? AND state = ?",
                (state, _seen(notes, self._now_ns()), watch.breaker_id, watch.state),
            )
            breaker = store.fetch(tx, watch.breaker_id)
            if not changed.rowcount or breaker is None:
                return
            audit.record(
                tx,
                at_ns=self._now_ns(),
                actor=WATCH,
                verb=f"run.{state}",
                subject=watch.breaker_id,
                reason="a run that was halted " + ("goes on" if state == STILL_RUNNING else "has ended"),
                before={"state": watch.state},
                after={"state": state},
                extra={"session_id": watch.session_id, "halted_at": watch.halted_ns},
            )
            if state == STILL_RUNNING and notes is not None:
                tell(tx, self._hooks.on_still_running, breaker, notes)
            elif watch.state == STILL_RUNNING:
                tell(tx, self._hooks.on_run_ended, breaker)


def halts_a_run(breaker: Breaker) -> bool:
    """Whether it stops one run, and its session is known."""
    return (
        breaker.state.refuses
        and breaker.action is Action.HALT
        and breaker.scope.of_one_run
        and bool(store.session_of(breaker))
    )


def _of_parts(breaker: Breaker) -> bool:
    """Whether it only covers some calls of the run: the agent may never meet it."""
    scope = breaker.scope
    return (scope.service, scope.agent, scope.tool, scope.args, scope.model) != (None,) * 5


def _seen(notes: Notes | None, now_ns: int) -> str:
    told = (
        {"at": now_ns}
        if notes is None
        else {
            "at": now_ns,
            "last_ns": notes.last_ns,
            "last_start_ns": notes.last_start_ns,
            "ended_ns": notes.ended_ns,
        }
    )
    return orjson.dumps(told).decode()
