"""POST /ofrep/v1/evaluate/flags…: breakers and modes for clients that have an OpenFeature SDK.

Source: https://github.com/open-feature/protocol, `service/openapi.yaml` (OFREP 0.1).
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Annotated, Any, Final

import orjson
from fastapi import APIRouter, Depends, Header, Request, Response
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from api import flags
from api.auth import Caller, Verb
from api.flags import Flag, FlagError, Flags, asked_of
from api.problems import JSON, SEND_JSON, ApiError
from api.routes.access import refusals, require
from control.breakers.record import UnknownBreaker
from control.breakers.store import get_breaker

if TYPE_CHECKING:
    from collections.abc import Mapping

    from api.services import Services
    from control.breakers.record import Breaker
    from control.scope import Asked

_CONTEXT: Final = {"targetingKey": "chat-17", "service": "shop", "agent": "buyer", "tool": "fetch_page"}
_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            JSON: {
                "schema": {
                    "type": "object",
                    "properties": {
                        "context": {
                            "type": "object",
                            "description": "`targetingKey` is the session; `service`, `agent`, "
                            "`agent_version`, `run`, `tool`, `args` and `model` describe the call.",
                        }
                    },
                },
                "example": {"context": _CONTEXT},
            }
        },
    }
}


class FlagOut(BaseModel):
    """One evaluated flag."""

    key: str
    value: bool | str
    reason: str = Field(
        description="`TARGETING_MATCH`: a breaker, a rule or a person decided. `DEFAULT`: none."
    )
    variant: str = Field(description="`allow`, `deny`, `halt`; the breaker's state; or the mode.")
    metadata: dict[str, bool | str | float]


class FlagFailure(BaseModel):
    """Why a flag was not evaluated."""

    key: str
    errorCode: str = Field(  # noqa: N815 - OFREP's spelling
        description="`FLAG_NOT_FOUND`, `PARSE_ERROR`, `TARGETING_KEY_MISSING` or `INVALID_CONTEXT`."
    )
    errorDetails: str  # noqa: N815 - OFREP's spelling


class BulkFailure(BaseModel):
    """Why no flag was evaluated."""

    errorCode: str  # noqa: N815 - OFREP's spelling
    errorDetails: str  # noqa: N815 - OFREP's spelling


class FlagList(BaseModel):
    """Everything that the context is about."""

    flags: list[FlagOut]


def router(services: Services) -> APIRouter:
    """Make the routes."""
    routes = APIRouter(
        prefix="/ofrep/v1/evaluate/flags", tags=["flags"], responses=refusals(401, 403, 413, 415, 422, 503)
    )
    caller = Depends(require(services, Verb.CHECK, restricted=True))
    evaluated = Flags(services.control.breakers.index, services.modes.now)

    @routes.post(
        "/{key}",
        response_model=FlagOut,
        responses={
            400: {"model": FlagFailure, "description": "The body or the context cannot be read."},
            404: {"model": FlagFailure, "description": "There is no such flag."},
        },
        openapi_extra=_BODY,
        summary="Evaluate one flag",
    )
    async def one(key: str, request: Request, caller: Caller = caller) -> Response:
        """Evaluate `allow.<tool>`, `breaker.<id>` or `mode.<agent>` for a context.

        `allow.<tool>` asks as POST /v1/check does: a refusal counts towards escalation.
        """
        try:
            asked = await _asked(request, caller)
            return Response(
                orjson.dumps(_out(await _evaluate(services, evaluated, key, asked))), media_type=JSON
            )
        except FlagError as error:
            failure = {"key": key, "errorCode": error.code, "errorDetails": error.details}
            status = 404 if error.code == flags.NOT_FOUND else 400
            return Response(orjson.dumps(failure), status, media_type=JSON)

    @routes.post(
        "",
        response_model=FlagList,
        responses={
            304: {"description": "Nothing has changed."},
            400: {"model": BulkFailure, "description": "The body or the context cannot be read."},
        },
        openapi_extra=_BODY,
        summary="Evaluate all flags",
    )
    async def every(
        request: Request,
        if_none_match: Annotated[
            str | None, Header(description="304 when the answer would have this ETag.")
        ] = None,
        caller: Caller = caller,
    ) -> Response:
        """Evaluate what a context is about: the breakers that may cover it, their tools, the agent's mode.

        Counts no refusal. The answer has an `ETag`.
        """
        try:
            asked = await _asked(request, caller)
            body = orjson.dumps({"flags": [_out(flag) for flag in evaluated.all(asked)]})
        except FlagError as error:
            failure = {"errorCode": error.code, "errorDetails": error.details}
            return Response(orjson.dumps(failure), 400, media_type=JSON)
        tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
        known = [each.strip().removeprefix("W/") for each in (if_none_match or "").split(",")]
        if tag in known:
            return Response(status_code=304, headers={"etag": tag})
        return Response(body, headers={"etag": tag}, media_type=JSON)

    return routes


async def _evaluate(services: Services, evaluated: Flags, key: str, asked: Asked) -> Flag:
    kind, dot, name = key.partition(".")
    if dot and name and kind + dot == flags.ALLOW:
        return evaluated.allow(name, asked, count=True)
    if dot and name and kind + dot == flags.MODE:
        return evaluated.mode(name, asked)
    if dot and name and kind + dot == flags.BREAKER:
        breaker = services.control.breakers.index.by_id(name)
        if breaker is None:
            breaker = await run_in_threadpool(_kept, services, name)
        return evaluated.breaker(breaker, asked)
    raise FlagError(flags.NOT_FOUND, "flags are allow.<tool>, breaker.<id> and mode.<agent>")


async def _asked(request: Request, caller: Caller) -> Asked:
    """Read the call that a request's context describes. Raises `FlagError`, `ApiError`, `Denied`."""
    if "json" not in request.headers.get("content-type", ""):
        raise ApiError(415, "unsupported_media_type", SEND_JSON)
    try:
        body = orjson.loads(await request.body())
    except orjson.JSONDecodeError as error:
        raise FlagError(flags.PARSE, f"the body is no JSON: {error}") from None
    context = body.get("context", {}) if isinstance(body, dict) else None
    if not isinstance(context, dict):
        raise FlagError(flags.PARSE, "expected an object with an object `context`")
    asked = asked_of(context)
    caller.confirm(service=asked.service, agent=asked.agent, session=asked.session)
    return asked


def _kept(services: Services, identity: str) -> Breaker:
    with services.control.db.reading() as connection:
        try:
            return get_breaker(connection, identity)
        except UnknownBreaker:
            raise FlagError(flags.NOT_FOUND, f"no breaker has the id {identity!r}") from None


def _out(flag: Flag) -> Mapping[str, Any]:
    return {
        "key": flag.key,
        "value": flag.value,
        "reason": flag.reason,
        "variant": flag.variant,
        "metadata": dict(flag.metadata),
    }
