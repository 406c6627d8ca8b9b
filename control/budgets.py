"""Budgets that clients reserve from before they spend: checked and taken in one transaction.

Granted if what is spent, what is reserved and what is wanted is within the limit. Whoever got it commits what
it really used, or releases it; what nobody speaks of in time goes back by itself. Amounts are kept in
millionths, as whole numbers, so that nothing is lost by rounding.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import orjson

from control.policy import Per

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Mapping, Sequence

    from control.db import ControlDb, Transaction
    from control.policy import BudgetRule

_NS: Final = 1_000_000_000
_PARTS: Final = 1_000_000
_MAX_AMOUNT: Final = 1e12
_KEEP_S: Final = 86_400.0
_KEEP_SESSION_S: Final = 90 * 86_400.0
"""A session that reserved nothing for so long is over; what it spent is forgotten."""


_FORGET: Final = """
    DELETE FROM budgets WHERE key IN (
        SELECT key FROM budgets AS b WHERE name = ? AND updated_ns < ?
        AND NOT EXISTS (SELECT 1 FROM reservations AS r WHERE r.budget_key = b.key AND r.state = 'reserved')
        LIMIT ?
    )
"""


class UnknownBudget(Exception):  # noqa: N818 - the name says what is missing
    """The policy has no budget of this name."""


class UnknownReservation(Exception):  # noqa: N818 - the name says what is missing
    """No reservation has this id."""


class ReservationOver(Exception):  # noqa: N818 - the name says what it is
    """It was committed or released already."""

    def __init__(self, state: str) -> None:
        super().__init__(f"the reservation is {state} already")
        self.state = state


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """What was granted: `amount` until `expires_ns` (unix ns), and what is left of the budget after it."""

    id: str
    budget: str
    owner: str
    amount: float
    expires_ns: int
    remaining: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Not granted: so much is left, and the window ends at `resets_ns` (None: it has none)."""

    budget: str
    owner: str
    remaining: float
    resets_ns: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """How one owner's budget stands. `resets_ns`: when its window ends, None: it has none."""

    budget: str
    owner: str
    limit: float
    spent: float
    reserved: float
    resets_ns: int | None

    @property
    def remaining(self) -> float:
        """What may still be reserved; never less than 0."""
        return max(0.0, round(self.limit - self.spent - self.reserved, 6))


class Budgets:
    """All budgets of the policy in force. Safe to use from several threads.

    `rules` returns the policy's budgets, `new_id` makes ids that cannot be guessed.
    """

    def __init__(
        self,
        db: ControlDb,
        now_ns: Callable[[], int],
        rules: Callable[[], Sequence[BudgetRule]],
        new_id: Callable[[], str] = lambda: f"rs_{secrets.token_hex(12)}",
    ) -> None:
        self._db = db
        self._now_ns = now_ns
        self._rules = rules
        self._new_id = new_id

    def reserve(self, name: str, parts: Mapping[str, str | None], amount: float) -> Reservation | Refusal:
        """Take `amount` of a budget, or say that there is not so much left.

        `parts` says who asks: `tenant`, `service`, `agent`, `session`. Raises `UnknownBudget`, and
        `ValueError` naming what is missing or makes no sense.
        """
        rule = self._rule(name)
        owner = _owner(rule, parts)
        wanted = _parts(amount, "amount", least=1)
        now = self._now_ns()
        with self._db.transaction() as tx:
            key = _key(rule, parts, owner)
            spent, start = _spent(tx, rule, key, now)
            reserved = _reserved(tx, key, now)
            left = _parts(rule.limit, "limit") - spent - reserved
            resets = None if not rule.window_s else start + int(rule.window_s * _NS)
            if wanted > left:
                return Refusal(budget=name, owner=owner, remaining=max(0, left) / _PARTS, resets_ns=resets)
            _keep(tx, rule, key, owner=owner, start=start, spent=spent, now=now)
            reservation = Reservation(
                id=self._new_id(),
                budget=name,
                owner=owner,
                amount=wanted / _PARTS,
                expires_ns=now + int(rule.ttl_s * _NS),
                remaining=(left - wanted) / _PARTS,
            )
            tx.execute(
                "INSERT INTO reservations (id, budget_key, amount, created_ns, expires_ns, state) "
                "VALUES (?, ?, ?, ?, ?, 'reserved')",
                (reservation.id, key, wanted, now, reservation.expires_ns),
            )
            return reservation

    def commit(self, reservation_id: str, actual: float | None = None) -> None:
        """Say what was spent; None: all that was reserved. What was not spent goes back.

        It counts even when it is more than was reserved, or comes after the reservation has expired: it was
        spent. Raises `UnknownReservation`, `ReservationOver`, and `ValueError`.
        """
        used = None if actual is None else _parts(actual, "actual")
        now = self._now_ns()
        with self._db.transaction() as tx:
            key, amount = self._end(tx, reservation_id, "committed", ("reserved", "expired"), now)
            spent, start = self._window(tx, key, now)
            tx.execute(
                "UPDATE budgets SET spent = ?, window_start_ns = ?, updated_ns = ? WHERE key = ?",
                (spent + (amount if used is None else used), start, now, key),
            )

    def release(self, reservation_id: str) -> None:
        """Give all of it back. One that expired has gone back already.

        Raises `UnknownReservation`, `ReservationOver`.
        """
        with self._db.transaction() as tx:
            self._end(tx, reservation_id, "released", ("reserved", "expired"), self._now_ns())

    def balances(
        self, connection: sqlite3.Connection, *, name: str | None = None, limit: int = 100
    ) -> list[Balance]:
        """Return how budgets stand, those used last first; all of them, or those of one name."""
        now = self._now_ns()
        rules = {rule.name: rule for rule in self._rules()}
        rows = connection.execute(
            "SELECT key, name, owner, window_start_ns, spent FROM budgets WHERE (?1 IS NULL OR name = ?1) "
            "ORDER BY updated_ns DESC, key LIMIT ?2",
            (name, limit),
        ).fetchall()
        found: list[Balance] = []
        for row in rows:
            rule = rules.get(row["name"])
            if rule is None:
                continue
            start = _window_start(rule, now)
            same = start <= row["window_start_ns"]
            found.append(
                Balance(
                    budget=rule.name,
                    owner=row["owner"],
                    limit=rule.limit,
                    spent=(row["spent"] if same else 0) / _PARTS,
                    reserved=_reserved(connection, row["key"], now) / _PARTS,
                    resets_ns=None if not rule.window_s else start + int(rule.window_s * _NS),
                )
            )
        return found

    def tidy(self, limit: int = 1000) -> int:
        """Note which reservations expired, delete what was over for a day; return how many expired.

        So goes what was spent in windows that are over for two days, when nobody can commit to them any more,
        and by sessions that are long gone: there are ever new ones.
        """
        now = self._now_ns()
        with self._db.transaction() as tx:
            expired = tx.execute(
                "UPDATE reservations SET state = 'expired', finished_ns = expires_ns WHERE id IN "
                "(SELECT id FROM reservations WHERE state = 'reserved' AND expires_ns <= ? LIMIT ?)",
                (now, limit),
            ).rowcount
            before = now - int(_KEEP_S * _NS)
            tx.execute("DELETE FROM reservations WHERE state <> 'reserved' AND finished_ns < ?", (before,))
            for rule in self._rules():
                kept_s = 2 * _KEEP_S + rule.window_s + rule.ttl_s
                if not rule.window_s and rule.per is not Per.SESSION:
                    continue
                if not rule.window_s:
                    kept_s = _KEEP_SESSION_S + rule.ttl_s
                tx.execute(_FORGET, (rule.name, now - int(kept_s * _NS), limit))
            return expired

    def _rule(self, name: str) -> BudgetRule:
        for rule in self._rules():
            if rule.name == name:
                return rule
        raise UnknownBudget(name)

    def _window(self, tx: Transaction, key: str, now: int) -> tuple[int, int]:
        row = tx.one("SELECT name, window_start_ns, spent FROM budgets WHERE key = ?", (key,))
        if row is None:
            return 0, 0
        rule = next((rule for rule in self._rules() if rule.name == row["name"]), None)
        if rule is None:
            return int(row["spent"]), int(row["window_start_ns"])
        return _spent(tx, rule, key, now)

    def _end(
        self, tx: Transaction, reservation_id: str, state: str, legal: tuple[str, ...], now: int
    ) -> tuple[str, int]:
        row = tx.one("SELECT budget_key, amount, state FROM reservations WHERE id = ?", (reservation_id,))
        if row is None:
            raise UnknownReservation(reservation_id)
        if row["state"] not in legal:
            raise ReservationOver(row["state"])
        tx.execute(
            "UPDATE reservations SET state = ?, finished_ns = ? WHERE id = ?", (state, now, reservation_id)
        )
        return row["budget_key"], row["amount"]


def _owner(rule: BudgetRule, parts: Mapping[str, str | None]) -> str:
    owner = parts.get(rule.per.value) or ("default" if rule.per is Per.TENANT else "")
    if not owner:
        raise ValueError(f"{rule.per.value}: budget {rule.name} is counted by it; say whose it is")
    return owner


def _key(rule: BudgetRule, parts: Mapping[str, str | None], owner: str) -> str:
    return orjson.dumps([rule.name, rule.per.value, parts.get("tenant") or "default", owner]).decode()


def _parts(amount: float, key: str, least: int = 0) -> int:
    """Write an amount in millionths; raises `ValueError` naming the key."""
    if isinstance(amount, bool) or not math.isfinite(amount) or amount > _MAX_AMOUNT:
        raise ValueError(f"{key}: must be a number, {_MAX_AMOUNT:g} at most")
    parts = round(amount * _PARTS)
    if parts < least:
        raise ValueError(f"{key}: must be {'more than 0' if least else '0 or more'}")
    return parts


def _window_start(rule: BudgetRule, now: int) -> int:
    if not rule.window_s:
        return 0
    length = int(rule.window_s * _NS)
    return now - now % length


def _spent(tx: Transaction, rule: BudgetRule, key: str, now: int) -> tuple[int, int]:
    """Return what was spent in the window that is now, and when it began."""
    start = _window_start(rule, now)
    row = tx.one("SELECT spent, window_start_ns FROM budgets WHERE key = ?", (key,))
    if row is None or row["window_start_ns"] < start:
        return 0, start
    return int(row["spent"]), start


def _reserved(connection: sqlite3.Connection | Transaction, key: str, now: int) -> int:
    row = connection.execute(
        "SELECT coalesce(sum(amount), 0) AS n FROM reservations "
        "WHERE budget_key = ? AND state = 'reserved' AND expires_ns > ?",
        (key, now),
    ).fetchone()
    return int(row["n"])


def _keep(
    tx: Transaction, rule: BudgetRule, key: str, *, owner: str, start: int, spent: int, now: int
) -> None:
    tx.execute(
        "INSERT INTO budgets (key, name, owner, window_start_ns, spent, updated_ns) "
        "VALUES (?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (key) DO UPDATE SET window_start_ns = excluded.window_start_ns, spent = excluded.spent, "
        "updated_ns = excluded.updated_ns",
        (key, rule.name, owner, start, spent, now),
    )
