"""POST /v1/breakers/{id}/leases, POST /v1/leases/{id}/result: probes of half-open breakers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, Field

from api.auth import Caller, Verb
from api.breakerview import BreakerOut, breaker_out
from api.problems import ApiError, not_found
from api.routes.access import concerns_of, refusals, require
from control.breakers.leases import LeaseOver, UnknownLease
from control.breakers.record import UnknownBreaker
from control.breakers.store import get_breaker
from control.notices import rfc3339

if TYPE_CHECKING:
    from api.services import Services


class LeaseRequest(BaseModel):
    """Who wants to try."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"client": "buyer-1"}]})

    client: Annotated[
        str | None,
        Field(None, min_length=1, max_length=200, description="The client's name; else its token's."),
    ]


class LeaseOut(BaseModel):
    """The leave to make one call."""

    lease_id: str
    breaker_id: str
    expires_at: str = Field(description="Without a result until then the probe counts as failed.")


class ResultRequest(BaseModel):
    """What became of the call."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"ok": True}]})

    ok: bool


def router(services: Services) -> APIRouter:
    """Make the routes."""
    routes = APIRouter(tags=["leases"], responses=refusals(401, 403, 404, 409, 413, 415, 422, 503))
    caller = Depends(require(services, Verb.CHECK, restricted=True))
    breakers = services.control.breakers

    @routes.post("/v1/breakers/{breaker_id}/leases", status_code=201, summary="Ask for a probe")
    def grant(breaker_id: str, body: LeaseRequest, caller: Caller = caller) -> LeaseOut:
        """Get leave for one call through a half-open breaker; 409 when it has none to give now.

        POST /v1/check does it by itself: its answer then has a `lease_id`.
        """
        try:
            _confirm(services, breaker_id, caller)
            lease = breakers.grant_lease(breaker_id, body.client or caller.name)
        except UnknownBreaker:
            raise not_found("breaker", breaker_id) from None
        if lease is None:
            raise ApiError(409, "conflict", "the breaker is not half open, or all its probes are under way")
        return LeaseOut(lease_id=lease.id, breaker_id=lease.breaker_id, expires_at=rfc3339(lease.expires_ns))

    @routes.post("/v1/leases/{lease_id}/result", dependencies=[caller], summary="Tell what became of a probe")
    def finish(lease_id: str, body: ResultRequest) -> BreakerOut:
        """Say whether the call worked; answers with the breaker, closed or open again by it.

        409 when that is known already or the lease has expired. Only who has the lease knows its id.
        """
        try:
            breaker = breakers.finish_lease(lease_id, ok=body.ok)
        except UnknownLease:
            raise not_found("lease", lease_id) from None
        except UnknownBreaker as error:
            raise not_found("breaker", str(error)) from None
        except LeaseOver:
            raise ApiError(409, "conflict", "the lease is over: it has a result, or it has expired") from None
        return breaker_out(breaker, breakers.index.denied(breaker.id, breaker.denied))

    return routes


def _confirm(services: Services, breaker_id: str, caller: Caller) -> None:
    """Hide breakers that cannot concern a restricted token. Raises `UnknownBreaker`."""
    concerns = concerns_of(caller)
    if concerns is None:
        return
    with services.control.db.reading() as connection:
        if not concerns(get_breaker(connection, breaker_id).scope):
            raise UnknownBreaker(breaker_id)
