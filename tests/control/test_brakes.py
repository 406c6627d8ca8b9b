"""The brakes as they are wired: facts from a spool, the policy in force, the duty."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from control import dead_calls
from control.action import Action
from control.brakes import Brakes, brakes_of
from control.breakers.settings import BreakerSettings
from control.breakers.states import State
from control.breakers.verdict import Decision
from control.budgets import Reservation
from control.db import ControlDb
from control.duties import Duty
from control.facts import FactsDuty, SpoolFacts, SpoolNotes
from control.policy import (
    BudgetRule,
    CheckSettings,
    Per,
    Policy,
    PolicyHolder,
    Source,
    Threshold,
    Trip,
    Unit,
)
from control.scope import Asked, Scope
from detectors.notes import Notes, to_json
from tests.control.support import STUCK, ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

POLICY = Policy(
    thresholds=(Threshold(name="broken", failures=3, sessions=1),),
    budgets=(BudgetRule(name="calls", per=Per.SESSION, unit=Unit.CALLS, limit=1, ttl_s=10),),
    check=CheckSettings(known_dead_calls=True),
)
SIGNATURE = "00000000000000aa"
CALL = Asked(service="shop", session="session-1", tool="fetch_page", args=SIGNATURE)


class Whole:
    """The brakes over a spool and a control.db, without threads."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.spool = folder / "spool.db"
        with closing(sqlite3.connect(self.spool)) as connection:
            connection.executescript(
                "CREATE TABLE facts (seq INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT, kind TEXT, "
                "session_id TEXT, payload TEXT, created_ns INTEGER);"
                "CREATE TABLE state (key TEXT PRIMARY KEY, value BLOB);"
                "INSERT INTO state VALUES ('name', X'61');"
            )
        self.folder = folder
        self.open()

    def open(self) -> None:
        self.db = ControlDb(self.folder / "control.db")
        self.policies = PolicyHolder(POLICY)
        self.brakes: Brakes = brakes_of(self.db, self.policies, SpoolNotes(self.spool).get, self.clock)
        self.facts = SpoolFacts(self.spool)
        self.following = FactsDuty(self.db, self.facts, self.brakes.takers, recall=self.brakes.recall)

    def seen(self, kind: str, **payload: Any) -> None:  # noqa: ANN401 - JSON
        self.clock.advance(1)
        told = {
            "service": "shop", "agent": "buyer", "tool": "fetch_page", "signature": SIGNATURE,
            "nature": "structural", "error_class": "schema", "error": "no", "start_ns": self.clock(),
            "end_ns": self.clock(),
        } | payload  # fmt: skip
        with closing(sqlite3.connect(self.spool)) as connection, connection:
            connection.execute(
                "INSERT INTO facts (key, kind, session_id, payload, created_ns) "
                "VALUES (?, ?, 'session-1', ?, ?)",
                (str(self.clock()), kind, orjson.dumps(told).decode(), self.clock()),
            )
        self.following.turn()

    def turn(self, times: int = 1) -> None:
        for _ in range(times):
            self.brakes.turn.turn()

    def check(self, asked: Asked = CALL) -> tuple[Decision, str | None]:
        verdict = self.brakes.breakers.index.check(asked)
        return verdict.decision, verdict.reason

    def restart(self) -> None:
        """Begin again over the same files, up to and with the first turns."""
        self.close()
        self.open()
        self.following.turn()
        self.turn()

    def close(self) -> None:
        self.facts.close()
        self.db.close()


@pytest.fixture
def whole(tmp_path: Path) -> Iterator[Whole]:
    made = Whole(tmp_path)
    yield made
    made.close()


def test_it_is_a_duty(whole: Whole) -> None:
    duty: Duty = whole.brakes.turn
    assert (duty.name, duty.every_s) == ("breakers", 0.25)


def test_failures_open_time_passes_and_a_call_that_works_closes(whole: Whole) -> None:
    whole.turn()
    for _ in range(3):
        assert whole.check(Asked(service="shop", session="s2", tool="fetch_page"))[0] is Decision.ALLOW
        whole.seen("failed")
    breakers = whole.brakes.breakers
    (opened,) = breakers.index.open_breakers()
    assert opened.scope == Scope(service="shop", tool="fetch_page")
    whole.clock.advance(60)
    whole.turn()
    assert breakers.index.any_half_open
    whole.seen("worked")
    assert breakers.index.snapshot()[1] == ()


def test_dead_calls_follow_the_policy_in_force(whole: Whole) -> None:
    whole.turn()
    whole.seen("failed")
    assert whole.check() == (Decision.DENY, "known_dead_call")
    whole.policies.swap(Policy(), Source())
    whole.turn()
    assert whole.check() == (Decision.ALLOW, None)
    whole.policies.swap(POLICY, Source())
    whole.turn()
    assert whole.check() == (Decision.DENY, "known_dead_call")
    whole.seen("changed")
    assert whole.check() == (Decision.ALLOW, None)


def test_dead_calls_are_known_after_a_restart_for_an_hour(whole: Whole) -> None:
    whole.turn()
    whole.seen("failed")
    whole.seen("failed")
    before = whole.brakes.dead_calls.get("session-1", SIGNATURE)
    assert before is not None
    for _ in range(2):
        whole.restart()
        assert whole.check() == (Decision.DENY, "known_dead_call")
        assert whole.brakes.dead_calls.get("session-1", SIGNATURE) == before, "each failure counts once"
    whole.clock.advance(3601)
    whole.restart()
    assert whole.check() == (Decision.ALLOW, None)


@pytest.mark.parametrize("kind", ["changed", "ended"])
def test_what_was_over_before_a_restart_is_over_after_it(whole: Whole, kind: str) -> None:
    whole.turn()
    whole.seen("failed")
    whole.seen(kind)
    whole.restart()
    assert whole.check() == (Decision.ALLOW, None)


def test_facts_that_nobody_took_before_a_restart_are_taken_once(whole: Whole) -> None:
    whole.turn()
    whole.seen("failed")
    with closing(sqlite3.connect(whole.spool)) as connection, connection:
        connection.execute(
            "INSERT INTO facts (key, kind, session_id, payload, created_ns) "
            "SELECT 'late', kind, session_id, payload, created_ns FROM facts"
        )
    whole.restart()
    dead = whole.brakes.dead_calls.get("session-1", SIGNATURE)
    assert dead is not None
    assert dead.failures == 2


def test_facts_of_a_spool_that_was_replaced_are_read_once(whole: Whole) -> None:
    whole.turn()
    whole.seen("failed")
    with closing(sqlite3.connect(whole.spool)) as connection, connection:
        connection.execute("UPDATE state SET value = X'62' WHERE key = 'name'")
    whole.restart()
    dead = whole.brakes.dead_calls.get("session-1", SIGNATURE)
    assert dead is not None
    assert dead.failures == 1


def test_what_is_recalled_is_bounded(whole: Whole, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_calls, "RECALLED", 3)
    whole.turn()
    for number in range(5):
        whole.seen("failed", signature=f"{number:016x}")
    whole.restart()
    known = [whole.brakes.dead_calls.get("session-1", f"{number:016x}") is not None for number in range(5)]
    assert known == [False, False, True, True, True]


def test_facts_that_cannot_be_recalled_keep_no_others_back(whole: Whole) -> None:
    whole.turn()
    whole.seen("failed")
    with closing(sqlite3.connect(whole.spool)) as connection, connection:
        connection.execute("UPDATE facts SET payload = '[]'")
    whole.restart()
    whole.seen("failed")
    assert whole.check() == (Decision.DENY, "known_dead_call")


def test_a_reload_changes_how_breakers_behave(whole: Whole) -> None:
    whole.policies.swap(Policy(breakers=BreakerSettings(base_open_s=7)), Source())
    whole.turn()
    scope = Scope(tool="t")
    trip = Trip(rule="r", scope=scope, action=Action.DENY, shadow=False)
    with whole.db.transaction() as tx:
        opened = whole.brakes.breakers.trip(tx, trip, STUCK, whole.clock())
    assert opened is not None
    assert opened.until == whole.clock() + 7 * 10**9


def test_a_halted_run_that_goes_on_is_found_in_its_notes(whole: Whole) -> None:
    told: list[Notes] = []
    whole.brakes.breakers.hooks.on_still_running = lambda _tx, _breaker, notes: told.append(notes)
    trip = Trip(rule="r", scope=Scope(session="session-1"), action=Action.HALT, shadow=False)
    with whole.db.transaction() as tx:
        whole.brakes.breakers.trip(tx, trip, STUCK, whole.clock())
    whole.clock.advance(20)
    notes = Notes(session_id="session-1", last_start_ns=whole.clock(), last_ns=whole.clock())
    with closing(sqlite3.connect(whole.spool)) as connection, connection:
        connection.execute("INSERT INTO state VALUES ('notes:session-1', ?)", (to_json(notes),))
    whole.turn(4)
    assert told == [notes]


def test_budgets_are_those_of_the_policy_and_are_tidied_up(whole: Whole) -> None:
    assert isinstance(whole.brakes.budgets.reserve("calls", {"session": "s"}, 1), Reservation)
    whole.clock.advance(11)
    whole.seen("failed")
    whole.turn(240)
    with whole.db.reading() as connection:
        states = [row["state"] for row in connection.execute("SELECT state FROM reservations")]
        rows = connection.execute("SELECT count(*) AS n FROM failure_rows").fetchone()["n"]
    assert (states, rows) == (["expired"], 1)


def test_a_fact_that_is_read_again_after_a_crash_is_decided_once(whole: Whole) -> None:
    for _ in range(2):
        whole.seen("failed")
    again = FactsDuty(whole.db, whole.facts, whole.brakes.takers)
    again.turn()
    assert whole.brakes.breakers.index.open_count == 0
    whole.seen("failed")
    again.turn()
    assert [b.state for b in whole.brakes.breakers.index.open_breakers()] == [State.OPEN]
