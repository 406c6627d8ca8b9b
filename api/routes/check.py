"""POST /v1/check: may this call go ahead? Asked before every tool call, so it is kept thin.

`api/shortcut.py` answers `/v1/check` in front of the framework: the same model, the same answers, about a
third of the CPU (`bench/check.py`). The route here documents the call, and answers when the shortcut is not
installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import APIRouter, Depends, Response
from pydantic import BaseModel, ConfigDict, Field

from api.auth import Caller, Verb
from api.deciding import Decider
from api.problems import JSON
from api.routes.access import refusals, require
from control.action import Action
from control.breakers.verdict import Decision

if TYPE_CHECKING:
    from api.services import Services

PATH: Final = "/v1/check"
MAX_CALLS: Final = 256
_MAX_ID: Final = 1024

Name = Annotated[str | None, Field(None, max_length=_MAX_ID)]


class CheckRequest(BaseModel):
    """A call that an agent is about to make. Fields that are not known are ignored.

    A breaker over something that the call does not say (a `service`, a `model`) does not cover it.
    """

    model_config = ConfigDict(
        extra="ignore",
        strict=True,
        json_schema_extra={
            "examples": [
                {
                    "session_id": "chat-17",
                    "tool": "fetch_page",
                    "arguments": {"url": "https://shop.example.invalid/orders/7"},
                    "service": "shop",
                    "agent": "buyer",
                }
            ]
        },
    )

    session_id: str = Field(min_length=1, max_length=_MAX_ID, description="The conversation, as spans say.")
    tool: Name
    arguments: Any = Field(None, description="The call's arguments, as an object or as JSON text.")
    service: Name
    agent: Name
    agent_version: Name
    run_id: Name
    model: Name
    client: Annotated[
        str | None, Field(None, max_length=200, description="Who probes, should this call be a probe.")
    ]


class CheckAnswer(BaseModel):
    """What to do with the call."""

    decision: Decision = Field(
        description="`allow`: go ahead. `deny`: do not make this call, give `message` to the model. "
        "`halt`: end the run."
    )
    message: str = Field(description="For the model: what is stuck, how often, what to do instead.")
    breaker_id: str | None = Field(description="The breaker that decided, null when none did.")
    revision: int = Field(description="The newest change of any breaker that this answer knows of.")
    ttl_ms: int = Field(description="For how long the same answer may be used again without asking.")
    strength: Action | None = Field(description="`replan`, `deny` or `halt`; null when allowed.")
    reason: str | None = Field(
        description="Kind of finding behind the refusal, `forced`, `known_dead_call`, …"
    )
    retry_after_s: float | None = Field(description="When asking again makes sense; null: not by itself.")
    lease_id: str | None = Field(
        description="The call is a probe: tell its outcome with POST /v1/leases/{id}/result."
    )
    override: str | None = Field(
        description="The forced-closed breaker that lets this call through although another one is open."
    )
    quarantine: dict[str, Any] | None = Field(
        description="`tainted_steps` and `last_clean_step`: what a resumed run should drop."
    )


class CheckBatch(BaseModel):
    """Several calls at once, e.g. all of one model message."""

    model_config = ConfigDict(
        extra="ignore",
        strict=True,
        json_schema_extra={
            "examples": [
                {
                    "calls": [
                        {"session_id": "chat-17", "tool": "fetch_page"},
                        {"session_id": "chat-17", "tool": "search"},
                    ]
                }
            ]
        },
    )

    calls: list[CheckRequest] = Field(min_length=1, max_length=MAX_CALLS)


class CheckBatchAnswer(BaseModel):
    """One answer a call, in the same order."""

    decisions: list[CheckAnswer]


def router(services: Services) -> APIRouter:
    """Make the routes."""
    routes = APIRouter(tags=["check"], responses=refusals(401, 403, 413, 415, 422, 503))
    caller = Depends(require(services, Verb.CHECK, restricted=True))
    decider = Decider(services)

    @routes.post(PATH, response_model=CheckAnswer, summary="May this call go ahead?")
    async def check(call: CheckRequest, caller: Caller = caller) -> Response:
        """Answer for one call.

        Always 200, also when the call is refused: 429 and 503 would start retries. A session that was
        never seen is allowed. A half-open breaker lets single calls through as probes; such an answer
        carries a `lease_id`.
        """
        _confirm(caller, call)
        return Response(await decider.one(call, caller.name), media_type=JSON)

    @routes.post(f"{PATH}/batch", response_model=CheckBatchAnswer, summary="May these calls go ahead?")
    async def check_batch(batch: CheckBatch, caller: Caller = caller) -> Response:
        """Answer for several calls, in their order. Together they count as one refusal."""
        for call in batch.calls:
            _confirm(caller, call)
        answers = b",".join(await decider.all(batch.calls, caller.name))
        return Response(b'{"decisions":[%s]}' % answers, media_type=JSON)

    return routes


def _confirm(caller: Caller, call: CheckRequest) -> None:
    caller.confirm(service=call.service, agent=call.agent, session=call.session_id)
