"""What was sent: GET /v1/deliveries, GET /v1/deliveries/{seq}/attempts, POST /v1/deliveries/{seq}/replay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query
from pydantic import BaseModel, Field

from api.auth import Caller, Verb
from api.problems import ApiError, not_found
from api.routes.access import MAX_PAGE, MAX_POSITION, person, refusals, require
from api.routes.destinations import Why, WhyRequest, moment
from control.ledger import (
    StillPending,
    UnknownDelivery,
    find_deliveries,
    get_delivery,
    list_attempts,
)
from control.notices import rfc3339

if TYPE_CHECKING:
    from api.services import Services
    from control.ledger import Attempt, Delivery

State = Literal["pending", "delivered", "dead", "superseded"]
Seq = Annotated[int, Path(ge=1, le=MAX_POSITION, description="Number of the delivery.", examples=[1])]


class LedgerEntry(BaseModel):
    """One message to one destination."""

    seq: int
    message_id: str = Field(description="The same at every attempt.")
    destination: str
    order_key: str = Field(description="The alert that it is about; its messages keep their order.")
    type: str
    state: State = Field(
        description="`superseded`: overtaken by what happened since; `dead`: refused, or given up."
    )
    attempts: int
    created_at: str
    finished_at: str | None
    last_error: str = Field(description="Why it was not delivered, or what is to be known about it.")
    fallback_of: str = Field(description="The destination that it stands in for, else empty.")
    unsure: bool = Field(description="Whether it may have been taken although nobody said so.")


class Ledger(BaseModel):
    """Messages, the newest first."""

    deliveries: list[LedgerEntry]
    next_before: int | None = Field(description="Give it as `before` to read on; null at the end.")


class AttemptOut(BaseModel):
    """One attempt."""

    at: str
    took_ms: float
    status: int | None = Field(description="Of the answer; null: there was none.")
    result: str = Field(description="`delivered`, `retry`, `dead` or `disabled`.")
    error: str
    body_sha256: str


class AttemptList(BaseModel):
    """All attempts of one message, in order."""

    attempts: list[AttemptOut]


class ReplayOut(BaseModel):
    """What is sent once more: with the beginning of an alert its end."""

    deliveries: list[LedgerEntry]


def router(services: Services) -> APIRouter:
    """Make the routes."""
    routes = APIRouter(prefix="/v1", tags=["deliveries"], responses=refusals(401, 403, 422))
    control = services.control
    reader = [Depends(require(services, Verb.READ))]
    overrider = Depends(require(services, Verb.OVERRIDE))

    @routes.get("/deliveries", dependencies=reader, summary="What was sent, and what waits")
    def deliveries(
        destination: Annotated[str | None, Query(max_length=200, description="Only to this one.")] = None,
        state: Annotated[State | None, Query(description="Only in this state.")] = None,
        order_key: Annotated[str | None, Query(max_length=200, description="Only of this alert.")] = None,
        before: Annotated[
            int | None, Query(ge=0, le=MAX_POSITION, description="Only before this number.")
        ] = None,
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
    ) -> Ledger:
        """List messages, the newest first."""
        with control.db.reading() as connection:
            found = find_deliveries(
                connection,
                destination=destination,
                state=state,
                order_key=order_key,
                before=before,
                limit=limit,
            )
        return Ledger(
            deliveries=[_entry(one) for one in found],
            next_before=found[-1].seq if len(found) == limit else None,
        )

    @routes.get(
        "/deliveries/{seq}/attempts",
        dependencies=reader,
        responses=refusals(404),
        summary="Every attempt of a message",
    )
    def attempts(seq: Seq) -> AttemptList:
        """List when it was tried, and what was answered."""
        with control.db.reading() as connection:
            try:
                return AttemptList(attempts=[_attempt(one) for one in list_attempts(connection, seq)])
            except UnknownDelivery:
                raise not_found("delivery", str(seq)) from None

    @routes.post(
        "/deliveries/{seq}/replay", responses=refusals(404, 409, 413, 415), summary="Send a message once more"
    )
    def replay(seq: Seq, body: Why = WhyRequest(), caller: Caller = overrider) -> ReplayOut:  # noqa: B008 - immutable in use
        """Send a finished message again under its id; with the beginning of an alert its end, if it has one.

        409 while it is on its way.
        """
        try:
            again = control.post.replay(seq, person(caller), body.reason)
        except UnknownDelivery:
            raise not_found("delivery", str(seq)) from None
        except StillPending:
            raise ApiError(409, "conflict", f"the delivery {seq} is on its way") from None
        with control.db.reading() as connection:
            return ReplayOut(deliveries=[_entry(get_delivery(connection, one)) for one in again])

    return routes


def _entry(delivery: Delivery) -> LedgerEntry:
    return LedgerEntry.model_validate(
        {
            "seq": delivery.seq,
            "message_id": delivery.message_id,
            "destination": delivery.destination,
            "order_key": delivery.order_key,
            "type": delivery.type,
            "state": delivery.state,
            "attempts": delivery.attempts,
            "created_at": rfc3339(delivery.created_ns),
            "finished_at": moment(delivery.finished_ns),
            "last_error": delivery.last_error,
            "fallback_of": delivery.fallback_of,
            "unsure": delivery.unsure,
        }
    )


def _attempt(attempt: Attempt) -> AttemptOut:
    return AttemptOut(
        at=rfc3339(attempt.at_ns),
        took_ms=attempt.took_ns / 1e6,
        status=attempt.status,
        result=attempt.result,
        error=attempt.error,
        body_sha256=attempt.body_sha256,
    )
