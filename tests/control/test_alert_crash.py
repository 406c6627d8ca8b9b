"""Killed at every single statement of an alert's life: nothing is decided twice, every firing has its end.

A transaction that does not end leaves on disk what a `kill -9` at that moment leaves: nothing of it.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from control.actor import Actor
from control.alerts import AlertSettings, AlertState, IllegalAlertTransition, list_alerts
from control.alerts.desk import AlertParts
from control.db import Transaction
from control.notifiers.webhook import Webhook, WebhookConfig
from control.policy import Policy, Rule
from detectors.notes import Notes
from tests.control.support import SECRET, STUCK, ManualClock, Parts, Spool, another

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from control.db import SqlValue

PERSON = Actor(type="person", id="on-call")
CASCADE = another(90, kind="cascade", detector="cascade", tool="login", started_at=STUCK.started_at - 1)
SETTINGS = AlertSettings(keep_firing_s=10.0, flap_threshold=2, flap_window_s=300.0, delivery_lag_s=0.0)


class Killed(BaseException):
    """The process is gone."""


class Fuse:
    """Kills at the statement with a number, once."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.count = 0
        self.lit = False

    def burn(self) -> None:
        self.count += self.lit
        if self.lit and self.count == self.at:
            raise Killed


@pytest.mark.parametrize(
    "stride", [17, pytest.param(1, marks=[pytest.mark.accept, pytest.mark.short])], ids=["some", "all"]
)
def test_killed_at_any_statement_it_ends_as_if_nothing_had_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stride: int
) -> None:
    fuse = Fuse(0)
    execute = Transaction.execute

    def burning(tx: Transaction, sql: str, parameters: Sequence[SqlValue] = ()) -> object:
        fuse.burn()
        return execute(tx, sql, parameters)

    monkeypatch.setattr(Transaction, "execute", burning)
    undisturbed = life(tmp_path / "0", fuse)
    assert len(undisturbed) == 10
    for at in range(1, fuse.count, stride):
        fuse = Fuse(at)
        assert life(tmp_path / str(at), fuse) == undisturbed, at
        assert fuse.count > at


def life(folder: Path, fuse: Fuse) -> list[str]:
    """Fire, cover, flap, resolve, release; return what was announced, in order."""
    folder.mkdir()
    clock = ManualClock()
    spool = Spool(folder / "spool.db", clock)
    notes: dict[str, Notes] = {}

    def start() -> Parts:
        fuse.lit = False
        hook = Webhook(WebhookConfig(name="hook", url="http://127.0.0.1:9/hook", secrets=(SECRET,)))
        made = Parts(
            folder,
            policy=Policy(rules=(Rule(name="deny"),)),
            notifiers={"hook": hook},
            clock=clock,
            alerts=AlertParts(settings=SETTINGS, notes_of=notes.get),
        )
        fuse.lit = True
        return made

    parts = start()

    def survive(change: Callable[[Parts], object]) -> None:
        """Do it; killed in the middle, start again and do it once more."""
        nonlocal parts
        try:
            change(parts)
        except Killed:
            parts.close()
            parts = start()
            try:
                change(parts)
            except IllegalAlertTransition:
                return  # it had been done

    def wait(seconds: float) -> None:
        clock.advance(seconds)
        for _ in range(2):
            survive(Parts.look_after)

    flail = another(3, kind="flail", detector="flail", session_id="session-2", run_id="run-2")
    spool.add(CASCADE, STUCK, flail)
    survive(Parts.decide_all)
    survive(lambda p: p.control.desk.resolve(f"al_{CASCADE.id}", PERSON, "mended"))
    wait(11)
    clock.advance(1)
    notes["session-1"] = Notes(session_id="session-1", run_id="run-1", ended_ns=clock.now, last_ns=clock.now)
    for _ in range(3):
        wait(11)
    survive(lambda p: p.control.desk.resolve(f"al_{flail.id}", PERSON, "mended"))
    spool.add(replace(flail, revision=1, detected_at=clock.now))
    survive(Parts.decide_all)
    wait(301)
    wait(301)
    survive(lambda p: p.control.desk.resolve(f"al_{flail.id}", PERSON, "mended"))
    with closing(parts), parts.db.reading() as connection:
        found = list_alerts(connection, state=None, session_id=None, before=None, limit=99)
        rows = connection.execute("SELECT message_id FROM outbox ORDER BY seq").fetchall()
    assert {alert.state for _, alert in found} == {AlertState.RESOLVED}
    told = [row["message_id"] for row in rows]
    assert len(set(told)) == len(told)
    assert {m.replace("_firing", "_resolved") for m in told} == {m for m in told if m.endswith("_resolved")}
    return told
