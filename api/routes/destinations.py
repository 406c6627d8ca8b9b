"""Who is told of alerts: GET /v1/destinations, POST /v1/destinations/{name}/test, POST …/enable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from fastapi import APIRouter, Body, Depends, Path
from pydantic import BaseModel, ConfigDict, Field

from api.auth import Caller, Verb
from api.problems import not_found
from api.routes.access import person, refusals, require
from control.ledger import list_destinations
from control.notices import rfc3339
from control.postoffice import UnknownDestination

if TYPE_CHECKING:
    from api.services import Services
    from control.ledger import Destination

Name = Annotated[str, Path(max_length=200, description="Name of the destination.", examples=["hook"])]


class DestinationState(BaseModel):
    """How a destination stands."""

    name: str
    configured: bool = Field(description="Whether it is in the settings now.")
    state: Literal["ok", "held", "disabled"] = Field(
        description="`held`: left alone for a while after failures; `disabled`: it answered 410."
    )
    reason: str
    fallback: str = Field(description="Who stands in for it; empty: nobody.")
    pending: int
    given_up: int = Field(description="Messages that it never took and that are kept.")
    oldest_pending_at: str | None
    failing_since: str | None
    held_until: str | None
    disabled_at: str | None


class DestinationStates(BaseModel):
    """All destinations by name."""

    destinations: list[DestinationState]


class TrialOut(BaseModel):
    """How a test went."""

    destination: str
    delivered: bool
    status: int | None = Field(description="Of the answer; null: there was none.")
    problem: str = Field(description="Why it was not taken; empty: nothing.")
    template_problem: str = Field(
        description="What is wrong with your template, so that the default was used."
    )
    took_ms: float


class WhyRequest(BaseModel):
    """Why it is done."""

    model_config = ConfigDict(extra="forbid")

    reason: str = Field("", max_length=2000, description="Written into the audit.", examples=["it is back"])


Why = Annotated[WhyRequest, Body()]


def router(services: Services) -> APIRouter:
    """Make the routes."""
    routes = APIRouter(prefix="/v1", tags=["deliveries"], responses=refusals(401, 403, 422))
    control = services.control
    reader = [Depends(require(services, Verb.READ))]
    overrider = Depends(require(services, Verb.OVERRIDE))

    @routes.get("/destinations", dependencies=reader, summary="Who is told of alerts, and how that goes")
    def destinations() -> DestinationStates:
        """List all destinations, those that are in the settings no more included."""
        with control.db.reading() as connection:
            found = list_destinations(connection)
        return DestinationStates(destinations=[_destination(services, one) for one in found])

    @routes.post(
        "/destinations/{name}/test", responses=refusals(404, 413, 415), summary="Send a test message"
    )
    def test(name: Name, caller: Caller = overrider) -> TrialOut:
        """Send a message that says that it is a test, past everything that waits, and tell how it went.

        Where incidents stay open until they are resolved, the test opens one and resolves it.
        """
        try:
            trial = control.post.test(name, person(caller))
        except UnknownDestination:
            raise not_found("destination", name) from None
        return TrialOut(
            destination=trial.destination,
            delivered=trial.delivered,
            status=trial.status,
            problem=trial.problem,
            template_problem=trial.template_problem,
            took_ms=trial.took_ns / 1e6,
        )

    @routes.post(
        "/destinations/{name}/enable", responses=refusals(404, 413, 415), summary="Use a destination again"
    )
    def enable(name: Name, body: Why = WhyRequest(), caller: Caller = overrider) -> DestinationState:  # noqa: B008 - immutable in use
        """Use a destination at once that answered 410, or that is left alone after failures."""
        try:
            control.post.enable(name, person(caller), body.reason)
        except UnknownDestination:
            raise not_found("destination", name) from None
        with control.db.reading() as connection:
            found = {one.name: one for one in list_destinations(connection)}
        return _destination(services, found[name])

    return routes


def _destination(services: Services, place: Destination) -> DestinationState:
    held = place.held_until_ns > services.now_ns()
    notifier = services.control.post.notifiers.get(place.name)
    return DestinationState(
        name=place.name,
        configured=notifier is not None,
        state="disabled" if place.disabled_ns is not None else "held" if held else "ok",
        reason=place.reason,
        fallback="" if notifier is None else notifier.capabilities.fallback,
        pending=place.pending,
        given_up=place.given_up,
        oldest_pending_at=moment(place.oldest_pending_ns),
        failing_since=moment(place.failing_since_ns),
        held_until=moment(place.held_until_ns) if held else None,
        disabled_at=moment(place.disabled_ns),
    )


def moment(ns: int | None) -> str | None:
    """Write a moment that may not have come."""
    return None if ns is None else rfc3339(ns)
