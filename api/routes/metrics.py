"""GET /metrics: Prometheus text of this process, with that of the others behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, Depends
from fastapi.responses import PlainTextResponse
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from api.auth import Verb
from api.routes.access import refusals_of_text, require
from control.ledger import list_destinations

if TYPE_CHECKING:
    from api.services import Services


def router(services: Services) -> APIRouter:
    """Make the route."""
    routes = APIRouter(tags=["health"], responses=refusals_of_text(401, 403))
    metrics = services.control.metrics

    def look_at_destinations() -> None:
        now = services.now_ns()
        with services.control.db.reading() as connection:
            for place in list_destinations(connection):
                metrics.pending.labels(place.name).set(place.pending)
                metrics.disabled.labels(place.name).set(place.disabled_ns is not None)
                waits_since = place.oldest_pending_ns or now
                metrics.oldest_pending.labels(place.name).set(max(0.0, (now - waits_since) / 1e9))

    @routes.get(
        "/metrics",
        dependencies=[Depends(require(services, Verb.READ))],
        response_class=PlainTextResponse,
        summary="Prometheus metrics",
    )
    def read() -> PlainTextResponse:
        """Collect the metrics."""
        look_at_destinations()
        parts = [generate_latest(services.registry), *(source() for source in services.metrics_sources)]
        return PlainTextResponse(b"".join(parts), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    return routes
