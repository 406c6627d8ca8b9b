"""GET /v1/runs, GET /v1/runs/{id}, GET /v1/runs/{id}/handoff: sessions, and what who takes one over needs."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import APIRouter, Depends, Header, Path, Query, Response
from pydantic import BaseModel, Field

from api.auth import Verb
from api.problems import JSON, not_found
from api.routes.access import MAX_PAGE, MAX_POSITION, refusals, require
from api.routes.findings import FindingOut, finding_out
from control.handoff import to_markdown
from control.handoff.reports import Reports, breakers_over, findings_of
from control.handoff.runs import list_runs
from control.notices import rfc3339
from detectors.notes import as_dict

if TYPE_CHECKING:
    from api.services import Services

MARKDOWN: Final = "text/markdown"
MAX_SESSION: Final = 1024
_REFUSED: Final = (401, 403, 404, 422)


class HandoffFormat(StrEnum):
    """How a hand-off report is written."""

    JSON = "json"
    MARKDOWN = "markdown"


class RunSummary(BaseModel):
    """A session in which something was found."""

    session_id: str
    service: str
    agent: str | None
    severity: str = Field(description="The worst of its findings.")
    kinds: list[str] = Field(description="What was found.")
    findings: int
    firing: int = Field(description="Alerts that fire now.")
    breakers_open: int = Field(description="Breakers that refuse its calls now.")
    summary: str = Field(description="That of its newest finding.")
    updated_at: str = Field(description="When something was found last.")


class RunList(BaseModel):
    """Sessions with findings, the one with the newest finding first."""

    runs: list[RunSummary]
    next_before: int | None = Field(description="Give it as `before` to read on; null at the end.")


class RunOut(BaseModel):
    """A session: what is noted of it, what was found."""

    session_id: str
    notes: dict[str, Any] | None = Field(
        description="What ingest has noted: figures, latest calls, failing paths, side effects, marks of "
        "time (unix nanoseconds); null when the notes are gone."
    )
    findings: list[FindingOut]
    breakers: list[str] = Field(description="Breakers that are listed under the session.")


class HandoffOut(BaseModel):
    """A hand-off report. A field of which nothing was recorded is the text `unknown`; times are unix ns."""

    session_id: str
    run_id: str
    service: str
    agent: str | None
    made_ns: int
    state: str = Field(description="`running`, `stopped` by a breaker, or `ended`.")
    kind: str = Field(description="Kind of the gravest finding; empty when nothing was found.")
    severity: str
    headline: str
    filled: float = Field(description="Share of the fields below that evidence stands behind, 0 to 1.")
    unknown: list[str] = Field(description="The others by name; some of them say what little is known.")
    goal: Any
    timeline: Any
    failing_paths: Any = Field(description="What was tried and failed, grouped by operation and class.")
    causes: Any = Field(description="`confirmed` and `suspected`, each with its evidence.")
    onset: Any = Field(description="Since which call it is stuck.")
    side_effects: Any = Field(description="What was `done` to the world, and what is `unclear`.")
    not_tried: Any
    next_step: Any = Field(description="By the prescription of the error's class.")
    cost: Any
    links: Any = Field(description="Trace and span ids.")
    held_by: Any = Field(
        [], description="Breakers that refuse its calls now: id, state, action, scope and since when."
    )


SessionId = Annotated[str, Path(max_length=MAX_SESSION, description="The session's id, as agents send it.")]


def router(services: Services) -> APIRouter:
    """Make the routes. Session ids may have slashes, so the longer path comes first."""
    routes = APIRouter(prefix="/v1/runs", tags=["runs"])
    db = services.control.db
    reports = Reports(db, services.notes_of, services.now_ns)
    reads = [Depends(require(services, Verb.READ))]

    @routes.get("", dependencies=reads, responses=refusals(401, 403, 422), summary="List runs")
    def list_all(
        before: Annotated[
            int | None, Query(ge=0, le=MAX_POSITION, description="Only older than this position.")
        ] = None,
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
    ) -> RunList:
        """List sessions in which something was found, the one with the newest finding first."""
        with db.reading() as connection:
            runs = list_runs(connection, before=MAX_POSITION if before is None else before, limit=limit)
        return RunList(
            runs=[
                RunSummary(
                    session_id=run.session_id,
                    service=run.service,
                    agent=run.agent,
                    severity=run.severity,
                    kinds=list(run.kinds),
                    findings=run.findings,
                    firing=run.firing,
                    breakers_open=run.breakers_open,
                    summary=run.summary,
                    updated_at=rfc3339(run.updated_ns),
                )
                for run in runs
            ],
            next_before=runs[-1].position if len(runs) == limit else None,
        )

    @routes.get(
        "/{session_id:path}/handoff",
        dependencies=reads,
        summary="Show the hand-off report of a run",
        response_model=HandoffOut,
        responses={200: {"content": {MARKDOWN: {"schema": {"type": "string"}}}}, **refusals(*_REFUSED)},
    )
    def handoff(
        session_id: SessionId,
        form: Annotated[
            HandoffFormat | None, Query(alias="format", description="Goes before the Accept header.")
        ] = None,
        accept: Annotated[str, Header(description="`application/json` or `text/markdown`.")] = JSON,
    ) -> Response:
        """Show what a person needs who takes the run over, made of what is known now.

        When the session's notes are gone, the report is the one that was kept when its last alert fired or
        its last breaker tripped.
        """
        told = reports.of(session_id)
        if told is None:
            raise not_found("session", session_id)
        in_browser = "text/html" in accept
        wants_text = in_browser or MARKDOWN in accept if form is None else form is HandoffFormat.MARKDOWN
        if wants_text:  # browsers show plain text, and download Markdown
            return Response(to_markdown(told), media_type="text/plain" if in_browser else MARKDOWN)
        return Response(HandoffOut.model_validate(told).model_dump_json(), media_type=JSON)

    @routes.get(
        "/{session_id:path}",
        dependencies=reads,
        responses=refusals(*_REFUSED),
        summary="Show a run",
    )
    def show(session_id: SessionId) -> RunOut:
        """Show what is noted of a session, and its findings."""
        notes = services.notes_of(session_id)
        with db.reading() as connection:
            findings = list(findings_of(connection, session_id))
            breakers = breakers_over(connection, session_id)
        if notes is None and not findings and not breakers:
            raise not_found("session", session_id)
        return RunOut(
            session_id=session_id,
            notes=None if notes is None else as_dict(notes),
            findings=[finding_out(finding) for finding in findings],
            breakers=[breaker.id for breaker in breakers],
        )

    return routes
