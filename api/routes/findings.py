"""GET /v1/findings: what the detectors said, at its newest revision."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, Field

from api.auth import Verb
from api.routes.access import MAX_PAGE, MAX_POSITION, refusals, require
from control.findings import finding_from_json, list_findings
from detectors.protocol import Finding, Severity

if TYPE_CHECKING:
    from api.services import Services


class FindingOut(BaseModel):
    """One finding. Its times are unix nanoseconds, as in `analyze --format findings-jsonl`."""

    id: str
    revision: int
    kind: str
    severity: Severity
    session_id: str
    session_ids: list[str]
    run_id: str
    service: str
    agent: str | None
    tool: str | None
    trace_id: str
    span_id: str
    first_span_id: str
    step_id: str
    detector: str
    started_at: int
    detected_at: int
    occurrences: int
    evidence: dict[str, Any]
    summary: str


class FindingList(BaseModel):
    """Findings, the newest first."""

    findings: list[FindingOut]
    next_before: int | None = Field(description="Give it as `before` to read on; null at the end.")


def finding_out(finding: Finding) -> FindingOut:
    """Write a finding as the API shows it."""
    return FindingOut.model_validate(asdict(finding))


def router(services: Services) -> APIRouter:
    """Make the route."""
    routes = APIRouter(prefix="/v1/findings", tags=["findings"], responses=refusals(401, 403, 422))

    @routes.get("", dependencies=[Depends(require(services, Verb.READ))], summary="List findings")
    def list_all(
        session_id: Annotated[str | None, Query(description="Only of this session.")] = None,
        kind: Annotated[str | None, Query(description="Only of this kind.")] = None,
        before: Annotated[
            int | None, Query(ge=0, le=MAX_POSITION, description="Only older than this position.")
        ] = None,
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
    ) -> FindingList:
        """List findings, the newest first, each at its newest revision."""
        with services.control.db.reading() as connection:
            found = list_findings(connection, session_id=session_id, kind=kind, before=before, limit=limit)
        return FindingList(
            findings=[finding_out(finding_from_json(payload)) for _, payload in found],
            next_before=found[-1][0] if len(found) == limit else None,
        )

    return routes
