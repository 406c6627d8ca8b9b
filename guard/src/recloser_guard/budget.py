"""Reservations: a share of a budget is taken before the work and settled after it."""

from __future__ import annotations

import asyncio
import http.client
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from recloser_guard.decision import ALLOW, DENY, Decision
from recloser_guard.errors import BudgetExceeded, GuardError
from recloser_guard.transport import Forbidden, Unreachable

if TYPE_CHECKING:
    from recloser_guard.guard import Guard

_SETTLE_S = 60.0


class Reservation:
    """`with guard.reserve("tokens", 5000) as reserved: ...; reserved.commit(4211)`, or `async with`.

    Raises `BudgetExceeded` when not that much is left. Without `commit` the whole amount counts as spent,
    and none of it when the work raises.
    """

    def __init__(self, guard: Guard, name: str, amount: float, call: Mapping[str, Any]) -> None:
        if not amount > 0:
            raise GuardError(f"amount: must be above 0: {amount}")
        self._guard = guard
        self._name = name
        self._amount = float(amount)  # a Decimal or a number of numpy is none of JSON's
        self._call = call
        self._actual: float | None = None
        self.id: str | None = None
        self.decision: Decision | None = None

    def commit(self, actual: float) -> None:
        """Say how much it was in the end. Raises `GuardError` for what can be no amount."""
        if not actual >= 0:
            raise GuardError(f"actual: must be 0 or more: {actual}")
        self._actual = float(actual)

    def __enter__(self) -> Reservation:
        path = f"/v1/budgets/{quote(self._name, safe='')}/reservations"
        body = {"amount": self._amount, **self._call}
        try:
            answer = self._guard.ask("POST", path, body)
        except (Unreachable, Forbidden):
            return self._unheard()
        if answer.status == http.client.CREATED:
            self.id = answer.text("id")
            if self.id is None:
                return self._unheard()
            self.decision = Decision(ALLOW, "reserved")
            return self
        if answer.status == http.client.CONFLICT:
            self.decision = Decision(DENY, "budget", _out_of(self._name), strength=DENY)
            raise BudgetExceeded(self.decision)
        raise GuardError(f"budget {self._name}: {answer.status} {str(answer.body)[:300]}")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.id is None:
            return
        if kind is not None and self._actual is None:
            self._guard.post(f"/v1/reservations/{self.id}/release", {}, _SETTLE_S)
            return
        spent = self._amount if self._actual is None else self._actual
        self._guard.post(f"/v1/reservations/{self.id}/commit", {"actual": spent}, _SETTLE_S)

    async def __aenter__(self) -> Reservation:
        return await asyncio.get_running_loop().run_in_executor(None, self.__enter__)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, trace)

    def _unheard(self) -> Reservation:
        """Go on, or not, by the fail mode: there is no answer, or none that makes sense."""
        self.decision = self._guard.unreachable(None, critical=None)
        if not self.decision:
            raise BudgetExceeded(self.decision) from None
        return self


def _out_of(name: str) -> str:
    return (
        f"Stopped by Recloser: the budget `{name}` has not that much left. Do not try it again; end with "
        "what you have and say what is missing."
    )
