"""GET /healthz: the process runs. GET /readyz: its parts are at work, and those of the other processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

if TYPE_CHECKING:
    from collections.abc import Mapping

    from api.services import Probe, Services


class Health(BaseModel):
    """`ok` while the process answers at all."""

    status: str


class Readiness(BaseModel):
    """Whether all parts are at work."""

    status: str = Field(description="`ready` or `waiting`.")
    waiting_for: dict[str, str] = Field(description="By part: what it waits for. Empty when ready.")
    degraded: dict[str, str] = Field(
        description="By part: what is not well and keeps nothing from being ready."
    )


def router(services: Services) -> APIRouter:
    """Make the routes. They need no token: they tell nothing about anybody's runs."""
    routes = APIRouter(tags=["health"])

    @routes.get("/healthz", summary="Is the process alive?")
    async def healthz() -> Health:
        """Answer, which is the message."""
        return Health(status="ok")

    @routes.get(
        "/readyz",
        summary="Are all parts at work?",
        responses={503: {"model": Readiness, "description": "Some part waits for something."}},
    )
    def readyz(response: Response) -> Readiness:
        """Ask every part what it waits for."""
        waiting, degraded = _said(services.probes), _said(services.asides)
        if waiting:
            response.status_code = 503
        return Readiness(status="waiting" if waiting else "ready", waiting_for=waiting, degraded=degraded)

    return routes


def _said(probes: Mapping[str, Probe]) -> dict[str, str]:
    return {name: reason for name, probe in probes.items() if (reason := probe()) is not None}
