"""GET /v1/breakers, GET /v1/breakers/{id}, POST /v1/breakers/{id}/reset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, Field

from api.auth import Caller, Verb
from api.problems import ApiError, not_found
from api.routes.access import MAX_PAGE, MAX_POSITION, person, refusals, require
from control.action import Action
from control.breakers.book import get_breaker, list_breakers
from control.breakers.record import Breaker, UnknownBreaker
from control.breakers.states import IllegalTransition, State
from control.notices import rfc3339

if TYPE_CHECKING:
    from api.services import Services


class ScopeOut(BaseModel):
    """What a breaker covers; null is "any"."""

    tenant: str
    service: str | None
    session: str
    tool: str | None


class ActorOut(BaseModel):
    """Who made the last change."""

    type: str = Field(description="`rule`, `escalation`, `person` or `system`.")
    id: str


class BreakerOut(BaseModel):
    """One breaker."""

    id: str
    scope: ScopeOut
    state: State
    action: Action
    revision: int = Field(description="Position of its last change among all changes of all breakers.")
    episode: int = Field(description="How often it has opened.")
    reason: str = Field(description="Kind of the finding that opened it.")
    message_for_model: str
    message_for_human: str
    finding_id: str
    finding_revision: int
    rule: str
    actor: ActorOut
    opened_at: str
    updated_at: str
    closed_at: str | None = Field(description="When it was last reset.")
    denied: int = Field(description="Checks refused in this episode.")
    note: str = Field(description="What was said at the last reset.")


class BreakerList(BaseModel):
    """Breakers, the last changed first."""

    revision: int = Field(description="The newest change of any breaker.")
    breakers: list[BreakerOut]
    next_before: int | None = Field(description="Give it as `before` to read on; null at the end.")


class ResetRequest(BaseModel):
    """Why a breaker is closed."""

    reason: str = Field(min_length=1, max_length=2000, examples=["the page is back"])


def breaker_out(breaker: Breaker, denied: int) -> BreakerOut:
    """Write a breaker as the API shows it."""
    return BreakerOut(
        id=breaker.id,
        scope=ScopeOut.model_validate(breaker.scope, from_attributes=True),
        state=breaker.state,
        action=breaker.action,
        revision=breaker.revision,
        episode=breaker.episode,
        reason=breaker.reason,
        message_for_model=breaker.message_for_model,
        message_for_human=breaker.message_for_human,
        finding_id=breaker.finding_id,
        finding_revision=breaker.finding_revision,
        rule=breaker.rule,
        actor=ActorOut.model_validate(breaker.actor, from_attributes=True),
        opened_at=rfc3339(breaker.opened_at),
        updated_at=rfc3339(breaker.updated_at),
        closed_at=None if breaker.closed_at is None else rfc3339(breaker.closed_at),
        denied=denied,
        note=breaker.note,
    )


def router(services: Services) -> APIRouter:
    """Make the routes."""
    routes = APIRouter(prefix="/v1/breakers", tags=["breakers"], responses=refusals(401, 403, 422))
    control = services.control
    index = control.breakers.index

    def shown(breaker: Breaker) -> BreakerOut:
        return breaker_out(breaker, index.denied(breaker.id, breaker.denied))

    @routes.get("", dependencies=[Depends(require(services, Verb.READ))], summary="List breakers")
    def list_all(
        session_id: Annotated[str | None, Query(description="Only of this session.")] = None,
        state: Annotated[State | None, Query(description="Only in this state.")] = None,
        before: Annotated[
            int | None, Query(ge=0, le=MAX_POSITION, description="Only changed before this revision.")
        ] = None,
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
    ) -> BreakerList:
        """List breakers, the last changed first."""
        with control.db.reading() as connection:
            found = list_breakers(connection, session_id=session_id, state=state, before=before, limit=limit)
        return BreakerList(
            revision=index.revision,
            breakers=[shown(breaker) for breaker in found],
            next_before=found[-1].revision if len(found) == limit else None,
        )

    @routes.get(
        "/{breaker_id}",
        dependencies=[Depends(require(services, Verb.READ))],
        responses=refusals(404),
        summary="One breaker",
    )
    def get(breaker_id: str) -> BreakerOut:
        """Return one breaker."""
        with control.db.reading() as connection:
            try:
                return shown(get_breaker(connection, breaker_id))
            except UnknownBreaker:
                raise not_found("breaker", breaker_id) from None

    operator = Depends(require(services, Verb.OVERRIDE))

    @routes.post("/{breaker_id}/reset", responses=refusals(404, 409, 415), summary="Close a breaker")
    def reset(breaker_id: str, body: ResetRequest, caller: Caller = operator) -> BreakerOut:
        """Close a breaker and let calls through; 409 when it is closed already.

        It opens again only for what is found after the reset.
        """
        try:
            return shown(control.reset_breaker(breaker_id, person(caller), body.reason))
        except UnknownBreaker:
            raise not_found("breaker", breaker_id) from None
        except IllegalTransition as error:
            raise ApiError(409, "conflict", str(error)) from None

    return routes
