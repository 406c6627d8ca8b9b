"""GET /v1/modes, GET /v1/modes/{agent}, POST /v1/modes/{agent}: how much each agent may do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query
from pydantic import BaseModel, ConfigDict, Field

from api.auth import Caller, Verb
from api.problems import ApiError
from api.routes.access import person, refusals, require
from control.modes import MAX_TTL_S, ModeNow
from control.notices import rfc3339
from control.policy import Mode

if TYPE_CHECKING:
    from api.services import Services

Agent = Annotated[str, Path(min_length=1, max_length=500, description="Name of an agent, without version.")]


class ModeOut(BaseModel):
    """An agent's mode now."""

    agent: str
    mode: Mode
    cause: str = Field(description="`default`, `rule:NAME` or `person:NAME`.")
    until: str | None = Field(description="When it ends at the latest, if that is known.")


class HoldingOut(BaseModel):
    """A rule that keeps agents from their full mode now."""

    rule: str
    mode: Mode
    agents: list[str] = Field(description="Patterns.")
    services: list[str]
    tools: list[str] = Field(description="The degraded ones.")
    since: str


class ByHandOut(BaseModel):
    """A mode that a person set."""

    agent: str
    mode: Mode
    reason: str
    set_by: str
    since: str
    until: str


class DegradedOut(BaseModel):
    """A tool that findings said is degraded lately."""

    service: str
    tool: str
    kind: str
    finding_id: str
    revised_at: str


class ModesOut(BaseModel):
    """What keeps agents from their full mode. An agent that none of it is about may do all."""

    rules: list[HoldingOut]
    by_hand: list[ByHandOut]
    degraded: list[DegradedOut]


class ModeRequest(BaseModel):
    """A mode to set by hand, or `auto`: back to the rules."""

    model_config = ConfigDict(extra="forbid")

    mode: Literal["full", "minimal", "deterministic", "auto"] = Field(examples=["minimal"])
    reason: str = Field(
        min_length=1, max_length=1000, description="Written into the audit.", examples=["search is down"]
    )
    ttl_s: float = Field(
        3600.0, gt=0, le=MAX_TTL_S, description="Seconds until the rules decide again; not used by `auto`."
    )


def router(services: Services) -> APIRouter:
    """Make the routes."""
    routes = APIRouter(prefix="/v1/modes", tags=["modes"], responses=refusals(401, 403))
    modes = services.modes
    read = Depends(require(services, Verb.READ))
    overriding = Depends(require(services, Verb.OVERRIDE))

    @routes.get("", dependencies=[read], summary="What keeps agents from their full mode?")
    def list_all() -> ModesOut:
        """List the rules that hold, what people set, and the degraded tools."""
        return ModesOut(
            rules=[
                HoldingOut(
                    rule=each.rule.name,
                    mode=each.rule.mode,
                    agents=list(each.rule.agents),
                    services=list(each.services),
                    tools=list(each.tools),
                    since=rfc3339(each.since),
                )
                for each in modes.holding()
            ],
            by_hand=[
                ByHandOut(
                    agent=each.agent,
                    mode=each.mode,
                    reason=each.reason,
                    set_by=each.actor,
                    since=rfc3339(each.since),
                    until=rfc3339(each.until),
                )
                for each in modes.by_hand()
            ],
            degraded=[
                DegradedOut(
                    service=each.service,
                    tool=each.tool,
                    kind=each.kind,
                    finding_id=each.finding_id,
                    revised_at=rfc3339(each.revised_at),
                )
                for each in modes.degraded()
            ],
        )

    @routes.get("/{agent}", dependencies=[read], responses=refusals(422), summary="An agent's mode")
    def get(
        agent: Agent,
        service: Annotated[
            str | None, Query(description="Only for this service; left out: the strictest over all.")
        ] = None,
    ) -> ModeOut:
        """Tell an agent's mode now, and why."""
        return _out(modes.now(agent, service))

    @routes.post("/{agent}", responses=refusals(413, 415, 422), summary="Set an agent's mode by hand")
    def set_by_hand(
        agent: Agent,
        body: ModeRequest,
        caller: Caller = overriding,
    ) -> ModeOut:
        """Set a mode for a time, whatever the rules say; `auto` ends that. Audited."""
        mode = None if body.mode == "auto" else Mode(body.mode)
        try:
            return _out(modes.set_by_hand(agent, mode, person(caller), body.reason, body.ttl_s))
        except ValueError as error:
            raise ApiError(422, "invalid", str(error)) from None

    return routes


def _out(now: ModeNow) -> ModeOut:
    return ModeOut(
        agent=now.agent,
        mode=now.mode,
        cause=now.cause,
        until=None if now.until is None else rfc3339(now.until),
    )
