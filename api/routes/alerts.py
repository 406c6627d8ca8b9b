"""GET /v1/alerts, GET /v1/alerts/{id}, POST /v1/alerts/{id}/resolve."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, Field

from api.auth import Caller, Verb
from api.problems import ApiError, not_found
from api.routes.access import MAX_PAGE, MAX_POSITION, person, refusals, require
from api.routes.findings import FindingOut, finding_out
from control import alerts
from control.alerts import AlertState, IllegalAlertTransition, UnknownAlert
from control.notices import rfc3339
from control.outbox import list_deliveries, list_destinations

if TYPE_CHECKING:
    import sqlite3

    from api.services import Services
    from control.alerts import Alert
    from control.outbox import Delivery, Destination


class DeliveryOut(BaseModel):
    """One message to one destination."""

    destination: str
    message_id: str = Field(description="The webhook-id: the same at every attempt.")
    type: str
    state: str = Field(description="`pending`, `delivered` or `dead` (given up).")
    attempts: int
    created_at: str
    finished_at: str | None
    last_error: str


class DestinationOut(BaseModel):
    """How a destination stands."""

    name: str
    state: str = Field(
        description="`ok`; `held`: left alone for a while after failures; `disabled`: it answered 410, "
        "and nothing is sent until its address changes."
    )
    reason: str
    pending: int
    oldest_pending_at: str | None
    held_until: str | None
    disabled_at: str | None


class AlertOut(BaseModel):
    """One alert, the newest revision of its finding, and what was delivered of it."""

    id: str
    state: AlertState
    episode: int = Field(description="How often it has fired.")
    fired_at: str
    updated_at: str
    resolved_at: str | None
    resolved_by: str | None
    note: str
    breaker_ids: list[str]
    covered_by: str = Field(description="The fleet-wide alert that speaks for this one, else empty.")
    finding: FindingOut
    deliveries: list[DeliveryOut]


class AlertList(BaseModel):
    """Alerts, the newest first, and all destinations."""

    alerts: list[AlertOut]
    destinations: list[DestinationOut]
    next_before: int | None = Field(description="Give it as `before` to read on; null at the end.")


class ResolveRequest(BaseModel):
    """Why an alert is over."""

    reason: str = Field(min_length=1, max_length=2000, examples=["restarted the agent"])


def router(services: Services) -> APIRouter:
    """Make the routes."""
    routes = APIRouter(prefix="/v1/alerts", tags=["alerts"], responses=refusals(401, 403, 422))
    control = services.control

    @routes.get("", dependencies=[Depends(require(services, Verb.READ))], summary="List alerts")
    def list_all(
        state: Annotated[AlertState | None, Query(description="Only in this state.")] = None,
        session_id: Annotated[str | None, Query(description="Only of this session.")] = None,
        before: Annotated[
            int | None, Query(ge=0, le=MAX_POSITION, description="Only older than this position.")
        ] = None,
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
    ) -> AlertList:
        """List alerts, the newest first."""
        with control.db.reading() as connection:
            found = alerts.list_alerts(
                connection, state=state, session_id=session_id, before=before, limit=limit
            )
            return AlertList(
                alerts=[_alert_out(connection, alert) for _, alert in found],
                destinations=[
                    _destination_out(place, services.now_ns()) for place in list_destinations(connection)
                ],
                next_before=found[-1][0] if len(found) == limit else None,
            )

    @routes.get(
        "/{alert_id}",
        dependencies=[Depends(require(services, Verb.READ))],
        responses=refusals(404),
        summary="One alert",
    )
    def get(alert_id: str) -> AlertOut:
        """Return one alert."""
        with control.db.reading() as connection:
            try:
                return _alert_out(connection, alerts.get_alert(connection, alert_id))
            except UnknownAlert:
                raise not_found("alert", alert_id) from None

    operator = Depends(require(services, Verb.OVERRIDE))

    @routes.post("/{alert_id}/resolve", responses=refusals(404, 409, 415), summary="End an alert")
    def resolve(alert_id: str, body: ResolveRequest, caller: Caller = operator) -> AlertOut:
        """End an alert and tell its destinations; 409 when it is resolved already.

        It fires again, as a new episode, only when its finding goes on.
        """
        try:
            alert = control.resolve_alert(alert_id, person(caller), body.reason)
        except UnknownAlert:
            raise not_found("alert", alert_id) from None
        except IllegalAlertTransition as error:
            raise ApiError(409, "conflict", str(error)) from None
        with control.db.reading() as connection:
            return _alert_out(connection, alert)

    return routes


def _alert_out(connection: sqlite3.Connection, alert: Alert) -> AlertOut:
    return AlertOut(
        id=alert.id,
        state=alert.state,
        episode=alert.episode,
        fired_at=rfc3339(alert.fired_at),
        updated_at=rfc3339(alert.updated_at),
        resolved_at=_moment(alert.resolved_at),
        resolved_by=alert.resolved_by.id if alert.resolved_by else None,
        note=alert.note,
        breaker_ids=list(alert.breaker_ids),
        covered_by=alert.covered_by,
        finding=finding_out(alert.finding),
        deliveries=[_delivery_out(delivery) for delivery in list_deliveries(connection, alert.id)],
    )


def _delivery_out(delivery: Delivery) -> DeliveryOut:
    return DeliveryOut(
        destination=delivery.destination,
        message_id=delivery.message_id,
        type=delivery.type,
        state=delivery.state,
        attempts=delivery.attempts,
        created_at=rfc3339(delivery.created_ns),
        finished_at=_moment(delivery.finished_ns),
        last_error=delivery.last_error,
    )


def _destination_out(place: Destination, now_ns: int) -> DestinationOut:
    held = place.held_until_ns > now_ns
    return DestinationOut(
        name=place.name,
        state="disabled" if place.disabled_ns is not None else "held" if held else "ok",
        reason=place.reason,
        pending=place.pending,
        oldest_pending_at=_moment(place.oldest_pending_ns),
        held_until=rfc3339(place.held_until_ns) if held else None,
        disabled_at=_moment(place.disabled_ns),
    )


def _moment(ns: int | None) -> str | None:
    return None if ns is None else rfc3339(ns)
