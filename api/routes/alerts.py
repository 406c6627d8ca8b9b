"""GET /v1/alerts, GET /v1/alerts/{id}, POST /v1/alerts/{id}/resolve, POST /v1/alerts/{id}/ack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, Field

from api.auth import Caller, Verb
from api.problems import ApiError, not_found
from api.routes.access import MAX_PAGE, MAX_POSITION, person, refusals, require
from api.routes.findings import FindingOut, finding_out
from control import alerts
from control.alerts import AlertState, IllegalAlertTransition, UnknownAlert, kinds_beside, labels_of
from control.ledger import list_deliveries, list_destinations
from control.notices import rfc3339
from detectors.protocol import Severity

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    from api.services import Services
    from control.actor import Actor
    from control.alerts import Alert
    from control.ledger import Delivery, Destination


class DeliveryOut(BaseModel):
    """One message to one destination."""

    destination: str
    message_id: str = Field(description="The webhook-id: the same at every attempt.")
    type: str
    state: str = Field(
        description="`pending`, `delivered`, `dead` (given up) or `superseded` (no news any more)."
    )
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
    key: str = Field(description="What receivers merge by: sha256 over tenant, detector and scope, in hex.")
    labels: dict[str, str] = Field(description="What silences match; labels without a value are left out.")
    fired_at: str = Field(description="When this episode began; while pending: when it was seen.")
    updated_at: str
    resolved_at: str | None
    resolved_by: str | None
    note: str
    acknowledged_at: str | None
    acknowledged_by: str | None
    acknowledgement: str = Field(description="What the person who has seen it said.")
    announced: bool = Field(description="Whether this episode was announced, so that its end will be, too.")
    silenced_by: list[str] = Field(description="The silences that match it now.")
    covered_by: str = Field(
        description="The alert that speaks for this one, else empty: of a storm, of a cascade, of the same "
        "key, or the one that says that it flaps."
    )
    breaker_ids: list[str]
    rules: list[str] = Field(description="The rules of policy that mean it.")
    destinations: list[str] | None = Field(description="Those that policy names; null: all.")
    finding: FindingOut
    deliveries: list[DeliveryOut]


class AlertQuery(BaseModel):
    """Which alerts are listed: those for which all that is given holds."""

    state: AlertState | None = Field(None, description="Only in this state.")
    session_id: str | None = Field(None, description="Only of this session.")
    kind: str | None = Field(None, description="Only of this kind.")
    severity: Severity | None = Field(None, description="Only of this severity.")
    silenced: bool | None = Field(
        None, description="Only those that a silence matches now, or that none does."
    )
    before: int | None = Field(None, ge=0, le=MAX_POSITION, description="Only older than this position.")
    limit: int = Field(100, ge=1, le=MAX_PAGE)


class AlertList(BaseModel):
    """Alerts, the newest first, and all destinations."""

    alerts: list[AlertOut]
    destinations: list[DestinationOut]
    next_before: int | None = Field(description="Give it as `before` to read on; null at the end.")


class ResolveRequest(BaseModel):
    """Why an alert is over."""

    reason: str = Field(min_length=1, max_length=2000, examples=["restarted the agent"])


class AckRequest(BaseModel):
    """What the person who has seen an alert says."""

    reason: str = Field(min_length=1, max_length=2000, examples=["looking at it"])


def router(services: Services) -> APIRouter:
    """Make the routes."""
    routes = APIRouter(prefix="/v1/alerts", tags=["alerts"], responses=refusals(401, 403, 422))
    control = services.control

    @routes.get("", dependencies=[Depends(require(services, Verb.READ))], summary="List alerts")
    def list_all(wanted: Annotated[AlertQuery, Query()]) -> AlertList:
        """List alerts, the newest first. With `silenced` a page can have fewer than `limit`."""
        with control.db.reading() as connection:
            found = alerts.list_alerts(
                connection,
                state=wanted.state,
                session_id=wanted.session_id,
                before=wanted.before,
                limit=wanted.limit,
                kind=wanted.kind,
                severity=None if wanted.severity is None else wanted.severity.value,
            )
            return AlertList(
                alerts=[
                    alert_out(connection, alert, silences)
                    for alert, silences in ((alert, silenced_by(alert)) for _, alert in found)
                    if wanted.silenced in (None, bool(silences))
                ],
                destinations=[
                    _destination_out(place, services.now_ns()) for place in list_destinations(connection)
                ],
                next_before=found[-1][0] if len(found) == wanted.limit else None,
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
                alert = alerts.get_alert(connection, alert_id)
            except UnknownAlert:
                raise not_found("alert", alert_id) from None
            return alert_out(connection, alert, silenced_by(alert))

    operator = Depends(require(services, Verb.OVERRIDE))

    @routes.post("/{alert_id}/resolve", responses=refusals(404, 409, 415), summary="End an alert")
    def resolve(alert_id: str, body: ResolveRequest, caller: Caller = operator) -> AlertOut:
        """End an alert and tell its destinations; 409 when it is resolved already.

        It fires again, as a new episode, only when its finding goes on.
        """
        return changed(control.desk.resolve, alert_id, person(caller), body.reason)

    @routes.post("/{alert_id}/ack", responses=refusals(404, 409, 415), summary="Say that you have seen it")
    def acknowledge(alert_id: str, body: AckRequest, caller: Caller = operator) -> AlertOut:
        """Show everybody that a person looks after a firing alert; it goes on to fire.

        Destinations that know the state are told. 409 when it does not fire.
        """
        return changed(control.desk.acknowledge, alert_id, person(caller), body.reason)

    def changed(
        change: Callable[[str, Actor, str], Alert], alert_id: str, actor: Actor, reason: str
    ) -> AlertOut:
        try:
            alert = change(alert_id, actor, reason)
        except UnknownAlert:
            raise not_found("alert", alert_id) from None
        except IllegalAlertTransition as error:
            raise ApiError(409, "conflict", str(error)) from None
        with control.db.reading() as connection:
            return alert_out(connection, alert, silenced_by(alert))

    def silenced_by(alert: Alert) -> tuple[str, ...]:
        return control.desk.silences.of(labels_of(alert), kinds_beside(alert))

    return routes


def alert_out(connection: sqlite3.Connection, alert: Alert, silenced_by: tuple[str, ...]) -> AlertOut:
    """Show an alert, and what was delivered of it."""
    return AlertOut(
        id=alert.id,
        state=alert.state,
        episode=alert.episode,
        key=alert.key,
        labels={name: value for name, value in labels_of(alert).items() if value},
        fired_at=rfc3339(alert.fired_at),
        updated_at=rfc3339(alert.updated_at),
        resolved_at=_moment(alert.resolved_at),
        resolved_by=alert.resolved_by.id if alert.resolved_by else None,
        note=alert.note,
        acknowledged_at=_moment(alert.acked_at or None),
        acknowledged_by=alert.acked_by.id if alert.acked_by else None,
        acknowledgement=alert.ack_note,
        announced=alert.was_told,
        silenced_by=list(silenced_by),
        covered_by=alert.covered_by,
        breaker_ids=list(alert.breaker_ids),
        rules=list(alert.rules),
        destinations=None if alert.destinations is None else list(alert.destinations),
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
