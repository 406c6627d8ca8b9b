"""Budgets: how they stand, and reserving from one before something is spent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Depends, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from api.auth import Caller, Verb
from api.problems import ApiError, not_found
from api.routes.access import MAX_PAGE, refusals, require
from control.budgets import Refusal, ReservationOver, UnknownBudget, UnknownReservation
from control.notices import rfc3339

if TYPE_CHECKING:
    from collections.abc import Callable

    from api.services import Services

_NO_ANSWER = 204
Name = Annotated[str | None, Field(None, min_length=1, max_length=1024)]


class ReserveRequest(BaseModel):
    """How much is wanted, and for whom; the budget says by which of these it is counted."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"session_id": "chat-17", "agent": "buyer", "amount": 1}]}
    )

    amount: float = Field(gt=0, le=1e12, description="In the budget's unit: calls, tokens or US dollars.")
    service: Name
    agent: Name
    session_id: Name


class ReservationOut(BaseModel):
    """What was granted."""

    id: str
    budget: str
    owner: str = Field(description="Whose budget it is: a session, an agent, a service or the tenant.")
    amount: float
    remaining: float = Field(description="What is left after it.")
    expires_at: str = Field(description="Neither committed nor released until then it goes back.")


class CommitRequest(BaseModel):
    """What was spent."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"actual": 1}]})

    actual: float | None = Field(
        None,
        ge=0,
        le=1e12,
        description="All that was reserved when left out. It counts even when it is more.",
    )


class BalanceOut(BaseModel):
    """How one budget of one owner stands."""

    budget: str
    owner: str
    limit: float
    spent: float
    reserved: float
    remaining: float
    resets_at: str | None = Field(description="When its window ends; null: it has none.")


class BalanceList(BaseModel):
    """Budgets, those used last first."""

    budgets: list[BalanceOut]


def router(services: Services) -> APIRouter:
    """Make the routes."""
    routes = APIRouter(tags=["budgets"], responses=refusals(401, 403, 422, 503))
    asking = Depends(require(services, Verb.CHECK, restricted=True))
    spending = Depends(require(services, Verb.CHECK, restricted=True))
    budgets = services.budgets

    @routes.get("/v1/budgets", dependencies=[Depends(require(services, Verb.READ))], summary="List budgets")
    def list_all(
        name: Annotated[str | None, Query(description="Only of this name.")] = None,
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
    ) -> BalanceList:
        """List what is spent and reserved of each budget that was ever asked for, by owner."""
        with services.control.db.reading() as connection:
            found = budgets.balances(connection, name=name, limit=limit)
        return BalanceList(
            budgets=[
                BalanceOut(
                    budget=each.budget,
                    owner=each.owner,
                    limit=each.limit,
                    spent=each.spent,
                    reserved=each.reserved,
                    remaining=each.remaining,
                    resets_at=None if each.resets_ns is None else rfc3339(each.resets_ns),
                )
                for each in found
            ]
        )

    @routes.post(
        "/v1/budgets/{name}/reservations",
        status_code=201,
        responses=refusals(404, 409, 413, 415),
        summary="Reserve from a budget",
    )
    def reserve(name: str, body: ReserveRequest, caller: Caller = asking) -> ReservationOut:
        """Take an amount before it is spent; 409 when there is not so much left.

        Granted in one step if what is spent, reserved and wanted is within the limit together.
        """
        caller.confirm(service=body.service, agent=body.agent, session=body.session_id)
        parts = {"service": body.service, "agent": body.agent, "session": body.session_id}
        try:
            got = budgets.reserve(name, parts, body.amount)
        except UnknownBudget:
            raise not_found("budget", name) from None
        except ValueError as error:
            raise ApiError(422, "invalid", str(error)) from None
        if isinstance(got, Refusal):
            until = "" if got.resets_ns is None else f", until {rfc3339(got.resets_ns)}"
            detail = f"budget {name} of {got.owner}: {got.remaining:g} left{until}"
            raise ApiError(409, "spent", detail)
        return ReservationOut(
            id=got.id,
            budget=got.budget,
            owner=got.owner,
            amount=got.amount,
            remaining=got.remaining,
            expires_at=rfc3339(got.expires_ns),
        )

    over = {**refusals(404, 409, 413, 415), _NO_ANSWER: {"description": "Done."}}

    @routes.post(
        "/v1/reservations/{reservation_id}/commit",
        dependencies=[spending],
        status_code=_NO_ANSWER,
        response_class=Response,
        responses=over,
        summary="Say what was spent",
    )
    def commit(reservation_id: str, body: CommitRequest) -> None:
        """Count what was spent; what was reserved and not spent goes back. 409 when it is over already."""
        _end(reservation_id, lambda: budgets.commit(reservation_id, body.actual))

    @routes.post(
        "/v1/reservations/{reservation_id}/release",
        dependencies=[spending],
        status_code=_NO_ANSWER,
        response_class=Response,
        responses=over,
        summary="Give a reservation back",
    )
    def release(reservation_id: str) -> None:
        """Give all of it back. 409 when it was committed or released already."""
        _end(reservation_id, lambda: budgets.release(reservation_id))

    return routes


def _end(reservation_id: str, what: Callable[[], None]) -> None:
    try:
        what()
    except UnknownReservation:
        raise not_found("reservation", reservation_id) from None
    except ReservationOver as error:
        raise ApiError(409, "conflict", str(error)) from None
    except ValueError as error:
        raise ApiError(422, "invalid", str(error)) from None
