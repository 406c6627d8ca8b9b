"""Budgets: never over the limit, whoever asks at once, and nothing leaks."""

from __future__ import annotations

import random
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from control.budgets import (
    Budgets,
    Refusal,
    Reservation,
    ReservationOver,
    UnknownBudget,
    UnknownReservation,
)
from control.db import ControlDb
from control.policy import BudgetRule, Per, Unit
from tests.control.support import START_NS, ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator

CALLS = BudgetRule(name="calls", per=Per.SESSION, unit=Unit.CALLS, limit=10)
MONEY = BudgetRule(name="money", per=Per.AGENT, unit=Unit.USD, limit=1.0, window_s=3600, ttl_s=60)
WHO = {"session": "s", "agent": "a"}


class World:
    def __init__(self, folder: Path, *rules: BudgetRule) -> None:
        self.clock = ManualClock(START_NS - START_NS % (3600 * 10**9))
        self.db = ControlDb(folder / "control.db")
        self.rules = rules or (CALLS, MONEY)
        self.budgets = Budgets(self.db, self.clock, lambda: self.rules)

    def take(self, amount: float, name: str = "calls", **who: str) -> Reservation:
        granted = self.budgets.reserve(name, WHO | who, amount)
        assert isinstance(granted, Reservation)
        return granted

    def refused(self, amount: float, name: str = "calls", **who: str) -> Refusal:
        refusal = self.budgets.reserve(name, WHO | who, amount)
        assert isinstance(refusal, Refusal)
        return refusal

    def balance(self, name: str = "calls") -> tuple[float, float, float]:
        with self.db.reading() as connection:
            (balance,) = self.budgets.balances(connection, name=name)
        return balance.spent, balance.reserved, balance.remaining


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.db.close()


def test_what_is_reserved_counts_until_it_is_spent_or_given_back(world: World) -> None:
    first = world.take(6)
    assert (first.amount, first.remaining, first.owner) == (6, 4, "s")
    assert world.refused(5).remaining == 4
    second = world.take(4)
    assert world.balance() == (0, 10, 0)
    world.budgets.commit(first.id, 2)
    world.budgets.release(second.id)
    assert world.balance() == (2, 0, 8)
    world.budgets.commit(world.take(8).id)
    assert world.balance() == (10, 0, 0)
    assert world.refused(0.000001).remaining == 0


def test_what_nobody_speaks_of_goes_back_by_itself(world: World) -> None:
    world.take(10)
    world.clock.advance(119)
    world.refused(1)
    world.clock.advance(1)
    assert world.take(10).remaining == 0
    assert world.budgets.tidy() == 1
    assert world.balance() == (0, 10, 0)


def test_what_was_spent_late_was_spent(world: World) -> None:
    late = world.take(10)
    world.clock.advance(121)
    world.budgets.tidy()
    world.budgets.commit(late.id, 7)
    assert world.balance() == (7, 0, 3)


def test_more_than_was_reserved_counts_and_closes_the_budget(world: World) -> None:
    world.budgets.commit(world.take(1).id, 25)
    assert world.balance() == (25, 0, 0)
    assert world.refused(1).remaining == 0


def test_a_reservation_ends_once(world: World) -> None:
    taken = world.take(5)
    world.budgets.commit(taken.id, 5)
    with pytest.raises(ReservationOver, match="committed already"):
        world.budgets.commit(taken.id, 5)
    with pytest.raises(ReservationOver):
        world.budgets.release(taken.id)
    given_back = world.take(5)
    world.budgets.release(given_back.id)
    with pytest.raises(ReservationOver, match="released already"):
        world.budgets.commit(given_back.id)
    with pytest.raises(UnknownReservation):
        world.budgets.release("rs_none")
    assert world.balance() == (5, 0, 5)


def test_owners_have_budgets_of_their_own(world: World) -> None:
    world.take(10)
    assert world.take(10, session="t").owner == "t"
    world.take(1, "money")
    world.refused(0.01, "money", session="t")
    world.take(1, "money", agent="b")


def test_a_tenant_s_budget_is_one_for_all(tmp_path: Path) -> None:
    world = World(tmp_path, BudgetRule(name="calls", per=Per.TENANT, unit=Unit.CALLS, limit=3))
    world.take(2, session="x")
    assert world.refused(2, session="y").owner == "default"
    world.db.close()


def test_a_window_ends_and_what_is_under_way_still_counts(world: World) -> None:
    world.budgets.commit(world.take(0.6, "money").id)
    world.clock.advance(3590)
    under_way = world.take(0.4, "money")
    refusal = world.refused(0.1, "money")
    assert refusal.resets_ns == world.clock() + 10 * 10**9
    world.clock.advance(10)
    assert world.balance("money") == (0, 0.4, 0.6)
    world.refused(0.7, "money")
    world.budgets.commit(under_way.id)
    assert world.balance("money") == (0.4, 0, 0.6)


def test_cents_add_up(world: World) -> None:
    for _ in range(10):
        world.budgets.commit(world.take(0.1, "money").id, 0.1)
    assert world.balance("money") == (1.0, 0, 0)


@pytest.mark.parametrize("amount", [0, -1, float("nan"), float("inf"), 1e13, True])
def test_an_amount_that_makes_no_sense_is_refused_by_its_key(world: World, amount: float) -> None:
    with pytest.raises(ValueError, match=r"^amount: "):
        world.budgets.reserve("calls", WHO, amount)


@pytest.mark.parametrize("actual", [-1, float("nan"), float("inf")])
def test_so_is_what_was_spent(world: World, actual: float) -> None:
    taken = world.take(1)
    with pytest.raises(ValueError, match=r"^actual: "):
        world.budgets.commit(taken.id, actual)
    world.budgets.commit(taken.id, 0)
    assert world.balance() == (0, 0, 10)


def test_it_must_be_said_whose_it_is_and_which(world: World) -> None:
    with pytest.raises(ValueError, match=r"^session: "):
        world.budgets.reserve("calls", {"agent": "a"}, 1)
    with pytest.raises(UnknownBudget):
        world.budgets.reserve("none", WHO, 1)


def test_a_reload_changes_the_limit_and_keeps_what_was_spent(world: World) -> None:
    world.budgets.commit(world.take(6).id)
    under_way = world.take(1)
    world.rules = (BudgetRule(name="calls", per=Per.SESSION, unit=Unit.CALLS, limit=8),)
    assert world.refused(2).remaining == 1
    world.rules = ()
    world.budgets.commit(under_way.id)
    with world.db.reading() as connection:
        assert world.budgets.balances(connection) == []
    world.rules = (CALLS,)
    assert world.balance() == (7, 0, 3)


def test_a_restart_loses_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.budgets.commit(world.take(3).id)
    kept = world.take(4)
    world.db.close()
    again = World(tmp_path)
    assert again.balance() == (3, 4, 3)
    again.budgets.commit(kept.id)
    assert again.balance() == (7, 0, 3)
    again.db.close()


def test_old_reservations_are_deleted(world: World) -> None:
    world.budgets.release(world.take(1).id)
    world.take(1)
    world.clock.advance(86_400 + 121)
    world.budgets.tidy()
    world.budgets.tidy()
    with world.db.reading() as connection:
        assert connection.execute("SELECT count(*) FROM reservations").fetchone()[0] == 0


def owners(world: World) -> int:
    with world.db.reading() as connection:
        return int(connection.execute("SELECT count(*) FROM budgets").fetchone()[0])


def test_sessions_that_are_over_are_forgotten_and_what_agents_spent_in_old_windows(world: World) -> None:
    for number in range(5):
        world.budgets.commit(world.take(1, session=f"s{number}").id)
        world.budgets.commit(world.take(0.1, "money", agent=f"a{number}").id)
    assert owners(world) == 10
    world.clock.advance(86_400)
    world.budgets.tidy()
    assert owners(world) == 10, "somebody may still commit what was reserved in it"
    world.clock.advance(2 * 86_400)
    world.budgets.tidy()
    assert owners(world) == 5
    assert world.refused(10, session="s1").remaining == 9, "what a session spent for ever counts"
    world.take(1, session="s2")
    world.clock.advance(90 * 86_400)
    world.budgets.tidy()
    assert owners(world) == 1
    world.clock.advance(200)
    world.budgets.tidy()
    assert owners(world) == 0


def test_what_an_agent_spent_of_a_budget_without_a_window_is_never_forgotten(tmp_path: Path) -> None:
    world = World(tmp_path, BudgetRule(name="life", per=Per.AGENT, unit=Unit.USD, limit=1.0))
    world.budgets.commit(world.take(1, "life").id)
    world.clock.advance(1000 * 86_400)
    world.budgets.tidy()
    assert world.refused(0.1, "life").remaining == 0


def test_many_at_once_never_get_more_than_the_limit(world: World) -> None:
    """Threads reserve, spend, give back and forget, all at once: what is promised is never over the limit."""
    lock = threading.Lock()
    held: dict[str, float] = {}
    spent = 0.0
    over: list[float] = []

    def work(seed: int) -> int:
        nonlocal spent
        chance, granted = random.Random(seed), 0
        for _ in range(12):
            with lock:  # what others still hold is at most this, whatever they do meanwhile
                before = spent + sum(held.values())
            got = world.budgets.reserve("calls", WHO, chance.choice([0.5, 1, 2]))
            if isinstance(got, Refusal):
                continue
            granted += 1
            with lock:
                held[got.id] = got.amount
                if spent + sum(held.values()) > CALLS.limit:
                    over.append(before)
            how = chance.random()
            if how < 0.2:
                actual = got.amount * chance.random()
                with lock:  # first in our books, then in theirs: ours are never higher
                    held[got.id] = actual
                world.budgets.commit(got.id, actual)
                with lock:
                    spent += held.pop(got.id)
            else:
                with lock:
                    del held[got.id]
                world.budgets.release(got.id)
        return granted

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(work, range(8))) > 8
    assert over == []
    in_books, reserved, _ = world.balance()
    assert in_books == pytest.approx(spent, abs=1e-4)
    assert reserved == 0


def test_one_left_is_got_by_one(world: World) -> None:
    world.budgets.commit(world.take(9).id)
    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda _: world.budgets.reserve("calls", WHO, 1), range(32)))
    assert sum(isinstance(each, Reservation) for each in got) == 1


class BudgetsLive(RuleBasedStateMachine):
    """Whatever happens in whatever order: spent and reserved are those of a model that adds up by hand."""

    @initialize()
    def start(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.world = World(Path(self.folder.name))
        self.open: dict[str, tuple[float, int]] = {}
        self.spent = 0.0

    def reserved(self) -> float:
        return sum(amount for amount, ends in self.open.values() if ends > self.world.clock())

    @rule(amount=st.integers(1, 12))
    def reserve(self, amount: int) -> None:
        got = self.world.budgets.reserve("calls", WHO, amount)
        fits = self.spent + self.reserved() + amount <= CALLS.limit
        assert isinstance(got, Reservation) is fits
        if isinstance(got, Reservation):
            self.open[got.id] = (amount, got.expires_ns)

    @rule(share=st.integers(0, 4), data=st.data())
    def commit(self, share: int, data: st.DataObject) -> None:
        if self.open:
            key = data.draw(st.sampled_from(sorted(self.open)))
            amount, _ = self.open.pop(key)
            self.world.budgets.commit(key, amount * share / 4)
            self.spent += amount * share / 4

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        if self.open:
            key = data.draw(st.sampled_from(sorted(self.open)))
            del self.open[key]
            self.world.budgets.release(key)

    @rule(seconds=st.sampled_from([1, 60, 130]))
    def wait(self, seconds: int) -> None:
        self.world.clock.advance(seconds)

    @rule()
    def tidy(self) -> None:
        self.world.budgets.tidy()

    @invariant()
    def it_adds_up(self) -> None:
        with self.world.db.reading() as connection:
            for balance in self.world.budgets.balances(connection):
                assert (balance.spent, balance.reserved) == (self.spent, self.reserved())

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.db.close()
            self.folder.cleanup()


TestBudgetsLive = BudgetsLive.TestCase
TestBudgetsLive.settings = settings(max_examples=15, stateful_step_count=20, deadline=None)
