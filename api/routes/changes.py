"""POST /v1/breakers and POST /v1/breakers/{id}/…: what people, and programs for them, do to breakers."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Depends, Header, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from api.auth import Caller, Verb
from api.breakerview import BreakerOut, ScopeIn, breaker_out
from api.confirming import ConfirmedOut, WaitAcks, confirmed
from api.idempotency import Key, once
from api.problems import ApiError, not_found
from api.revisions import revision_of
from api.routes.access import person, refusals, require
from control.action import Action
from control.breakers.byhand import ForbiddenActor
from control.breakers.record import StaleRevision, UnknownBreaker, breaker_id
from control.breakers.states import Event, IllegalTransition, State
from control.breakers.store import fetch

if TYPE_CHECKING:
    from api.services import Services
    from control.db import Transaction
    from control.scope import Scope

MAX_TTL_S = 30 * 86_400
_REASON = "fetch_page is stuck"

Reason = Annotated[str, Field(min_length=1, max_length=2000, description="Why; kept in the audit.")]
Ttl = Annotated[
    float | None,
    Field(None, gt=0, le=MAX_TTL_S, description="Seconds after which it ends by itself; 30 days at most."),
]
Strength = Annotated[Action | None, Field(None, description="How strong; as it was when left out.")]
IfMatch = Annotated[
    str | None,
    Header(description='The breaker\'s ETag: 412 when it has changed since, e.g. `"rev-41"`.'),
]


class Do(StrEnum):
    """What to do with the breaker of a scope."""

    TRIP = "trip"
    SHADOW = "shadow"
    FORCE_OPEN = "force_open"
    FORCE_CLOSE = "force_close"


class NewTrip(BaseModel):
    """Which calls to stop, how strongly, and why."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"scope": {"session": "chat-17", "tool": "fetch_page"}, "action": "deny", "reason": _REASON}
            ]
        }
    )

    scope: ScopeIn
    do: Do = Field(Do.TRIP, description="`force_open`, `force_close`: hold it; needs the verb `override`.")
    action: Strength
    reason: Reason
    ttl_s: Ttl
    wait_acks_s: WaitAcks


class TripRequest(BaseModel):
    """Why calls are stopped."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"reason": _REASON, "action": "halt"}]})

    reason: Reason
    action: Strength
    ttl_s: Ttl
    wait_acks_s: WaitAcks


class HoldRequest(BaseModel):
    """Why a breaker is held, and for how long. Without end it is held until it is released."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"reason": "shop.example is down for an hour", "ttl_s": 3600}]}
    )

    reason: Reason
    action: Strength
    ttl_s: Ttl
    wait_acks_s: WaitAcks


class ExceptionRequest(BaseModel):
    """Why calls go through whatever else is found. Such an exception always has an end."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"reason": "a person watches this run", "ttl_s": 900}]}
    )

    reason: Reason
    ttl_s: float = Field(gt=0, le=MAX_TTL_S, description="Seconds after which it ends.")


class ShadowRequest(BaseModel):
    """Why a breaker only records."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"reason": "the rule is new", "ttl_s": 86400}]})

    reason: Reason
    ttl_s: Ttl


class ReasonRequest(BaseModel):
    """Why."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"reason": "the page is back"}]})

    reason: Reason


def router(services: Services) -> APIRouter:
    """Make the routes."""
    routes = APIRouter(
        prefix="/v1/breakers",
        tags=["breakers"],
        responses=refusals(401, 403, 409, 412, 413, 415, 422, 503),
    )
    tripping = Depends(require(services, Verb.TRIP, restricted=True))
    overriding = Depends(require(services, Verb.OVERRIDE, restricted=True))
    changing = _Changing(services)

    @routes.post("", response_model=ConfirmedOut, summary="Stop calls by hand")
    async def open_scope(
        body: NewTrip, key: Key = None, if_match: IfMatch = None, caller: Caller = tripping
    ) -> Response:
        """Open the breaker over a scope; it is made when there is none.

        A scope that names neither session nor run stops many at a time and needs the verb `override`.
        """
        scope = body.scope.scope()
        asked = ("POST /v1/breakers", body)
        return await changing.stop(Event(body.do.value), scope, asked, (caller, key, if_match))

    def path(verb: str, breaker_id: str) -> str:
        return f"POST /v1/breakers/{breaker_id}/{verb}"

    @routes.post(
        "/{breaker_id}/trip", response_model=ConfirmedOut, responses=refusals(404), summary="Open it"
    )
    async def trip(
        breaker_id: str,
        body: TripRequest,
        key: Key = None,
        if_match: IfMatch = None,
        caller: Caller = tripping,
    ) -> Response:
        """Open a breaker by hand; 409 when it is open already, or held by somebody."""
        asked = (path("trip", breaker_id), body)
        return await changing.stop(Event.TRIP, breaker_id, asked, (caller, key, if_match))

    @routes.post(
        "/{breaker_id}/shadow", response_model=BreakerOut, responses=refusals(404), summary="Only record"
    )
    def shadow(
        breaker_id: str,
        body: ShadowRequest,
        key: Key = None,
        if_match: IfMatch = None,
        caller: Caller = tripping,
    ) -> Response:
        """Let a breaker record what it would have stopped, and stop nothing."""
        asked = (path("shadow", breaker_id), body)
        return changing.do(Event.SHADOW, breaker_id, asked, (caller, key, if_match))

    @routes.post(
        "/{breaker_id}/reset", response_model=BreakerOut, responses=refusals(404), summary="Close it"
    )
    def reset(
        breaker_id: str,
        body: ReasonRequest,
        key: Key = None,
        if_match: IfMatch = None,
        caller: Caller = overriding,
    ) -> Response:
        """Close a breaker and let calls through; 409 when it is closed already, or held by somebody.

        It opens again only for what is found after the reset.
        """
        asked = (path("reset", breaker_id), body)
        return changing.do(Event.RESET, breaker_id, asked, (caller, key, if_match))

    @routes.post(
        "/{breaker_id}/force_open",
        response_model=ConfirmedOut,
        responses=refusals(404),
        summary="Hold it open",
    )
    async def force_open(
        breaker_id: str,
        body: HoldRequest,
        key: Key = None,
        if_match: IfMatch = None,
        caller: Caller = overriding,
    ) -> Response:
        """Refuse calls whatever else happens, until it is released or its time is over."""
        asked = (path("force_open", breaker_id), body)
        return await changing.stop(Event.FORCE_OPEN, breaker_id, asked, (caller, key, if_match))

    @routes.post(
        "/{breaker_id}/force_close",
        response_model=BreakerOut,
        responses=refusals(404),
        summary="Hold it closed",
    )
    def force_close(
        breaker_id: str,
        body: ExceptionRequest,
        key: Key = None,
        if_match: IfMatch = None,
        caller: Caller = overriding,
    ) -> Response:
        """Let calls through for a while, although automatic breakers of this or a wider scope are open.

        It overrules no breaker that somebody holds open. Answers to checks name it as `override`.
        """
        asked = (path("force_close", breaker_id), body)
        return changing.do(Event.FORCE_CLOSE, breaker_id, asked, (caller, key, if_match))

    @routes.post(
        "/{breaker_id}/release", response_model=BreakerOut, responses=refusals(404), summary="Let go of it"
    )
    def release(
        breaker_id: str,
        body: ReasonRequest,
        key: Key = None,
        if_match: IfMatch = None,
        caller: Caller = overriding,
    ) -> Response:
        """End a hold; 409 when nobody holds the breaker. What it was before goes on."""
        asked = (path("release", breaker_id), body)
        return changing.do(Event.RELEASE, breaker_id, asked, (caller, key, if_match))

    return routes


class _Changing:
    """Makes a change once, and says what the API says of it."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def stop(
        self,
        event: Event,
        target: str | Scope,
        asked: tuple[str, Any],
        terms: tuple[Caller, str | None, str | None],
    ) -> Response:
        """Do it, and wait for acknowledgements as the body wants it."""
        answer = await run_in_threadpool(self.do, event, target, asked, terms)
        return await confirmed(answer, asked[1].wait_acks_s, self._services.following)

    def do(
        self,
        event: Event,
        target: str | Scope,
        asked: tuple[str, Any],
        terms: tuple[Caller, str | None, str | None],
    ) -> Response:
        caller, key, if_match = terms
        expected = revision_of(if_match)
        body = asked[1]
        breakers = self._services.control.breakers

        def change(tx: Transaction) -> tuple[int, BaseModel]:
            self._confirm(tx, event, target, caller)
            after = breakers.act(
                target,
                event,
                person(caller),
                body.reason,
                ttl_s=getattr(body, "ttl_s", None),
                action=getattr(body, "action", None),
                if_match=expected,
            )
            return 200, breaker_out(after, breakers.index.denied(after.id, after.denied))

        try:
            return once(self._services, caller, key, asked, change)
        except UnknownBreaker:
            raise not_found("breaker", str(target)) from None
        except IllegalTransition as error:
            raise ApiError(409, "conflict", str(error)) from None
        except StaleRevision as error:
            raise ApiError(412, "stale", str(error)) from None
        except ForbiddenActor as error:
            raise ApiError(403, "denied", str(error)) from None
        except ValueError as error:
            raise ApiError(422, "invalid", str(error)) from None

    def _confirm(self, tx: Transaction, event: Event, target: str | Scope, caller: Caller) -> None:
        """Compare what is to be changed with what the token allows. Raises `api.auth.Denied`."""
        before = fetch(tx, target if isinstance(target, str) else breaker_id(target))
        if not isinstance(target, str):
            scope = target
        elif before is not None:
            scope = before.scope
        else:
            return
        caller.confirm(service=scope.service, agent=scope.agent, session=scope.session)
        if not scope.of_one_run:
            caller.need(Verb.OVERRIDE, "the breaker is over more than one session or run")
        if event is Event.SHADOW and before is not None and before.state not in (State.CLOSED, State.SHADOW):
            caller.need(Verb.OVERRIDE, "the breaker would let calls through again")
        if event not in (Event.TRIP, Event.SHADOW):
            caller.need(Verb.OVERRIDE)
