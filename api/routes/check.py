"""POST /v1/check: may this call go ahead? Asked before every tool call, so it is kept thin.

`CheckShortcut` answers `/v1/check` in front of the framework: the same model, the same answers, about a
third of the CPU (`bench/check.py`). The route below it documents the call, and answers when the shortcut is
not installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson
from fastapi import APIRouter, Depends, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from api.auth import Denied, Verb
from api.bodies import MAX_BODY_BYTES, TOO_LARGE
from api.problems import JSON, SEND_JSON, Problem, dump, invalid
from api.routes.access import refusals, require
from collector.naming import name_kept
from control.breakers.index import Decision

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.types import ASGIApp, Receive, Scope, Send

    from api.services import Services
    from control.breakers.index import Verdict

PATH: Final = "/v1/check"
MAX_CALLS: Final = 256
_MAX_ID: Final = 1024
_DISCONNECT: Final = "http.disconnect"


class CheckRequest(BaseModel):
    """A call that an agent is about to make. Fields that are not known are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True)

    session_id: str = Field(min_length=1, max_length=_MAX_ID, examples=["conversation-42"])
    tool: str | None = Field(None, max_length=_MAX_ID, examples=["fetch_page"])
    arguments: Any = Field(None, description="The call's arguments. Taken, not yet judged.")
    agent: str | None = Field(None, max_length=_MAX_ID)
    run_id: str | None = Field(None, max_length=_MAX_ID)


class CheckAnswer(BaseModel):
    """What to do with the call."""

    decision: Decision = Field(
        description="`allow`: go ahead. `deny`: do not make this call, give `message` to the model. "
        "`halt`: end the run."
    )
    message: str = Field(description="For the model: what is stuck, how often, what to do instead.")
    breaker_id: str | None = Field(description="The breaker that refuses, null when allowed.")
    revision: int = Field(description="The newest change of any breaker that this answer knows of.")
    ttl_ms: int = Field(description="For how long the same answer may be used again without asking.")


class CheckBatch(BaseModel):
    """Several calls at once, e.g. all of one model message."""

    model_config = ConfigDict(extra="ignore", strict=True)

    calls: list[CheckRequest] = Field(min_length=1, max_length=MAX_CALLS)


class CheckBatchAnswer(BaseModel):
    """One answer a call, in the same order."""

    decisions: list[CheckAnswer]


def router(services: Services) -> APIRouter:
    """Make the routes."""
    routes = APIRouter(tags=["check"], responses=refusals(401, 403, 415, 422))
    caller = Depends(require(services, Verb.CHECK))

    @routes.post(
        PATH,
        response_model=CheckAnswer,
        dependencies=[caller],
        responses=refusals(413),
        summary="May this call go ahead?",
    )
    async def check(call: CheckRequest) -> Response:
        """Answer for one call.

        Always 200, also when the call is refused: 429 and 503 would start retries. A session that was
        never seen is allowed.
        """
        return Response(decide(services, call), media_type=JSON)

    @routes.post(
        f"{PATH}/batch",
        response_model=CheckBatchAnswer,
        dependencies=[caller],
        summary="The same, for several",
    )
    async def check_batch(batch: CheckBatch) -> Response:
        """Answer for several calls, in their order. Together they count as one refusal."""
        calls = [(name_kept(call.session_id), _tool_of(call)) for call in batch.calls]
        verdicts = services.control.breakers.index.check_all(calls)
        answers = b",".join(_counted(services, verdict) for verdict in verdicts)
        return Response(b'{"decisions":[%s]}' % answers, media_type=JSON)

    return routes


def decide(services: Services, call: CheckRequest) -> bytes:
    """Answer one call as JSON. Memory only: no disk, no waiting."""
    index = services.control.breakers.index
    return _counted(services, index.check(name_kept(call.session_id), _tool_of(call)))


def _counted(services: Services, verdict: Verdict) -> bytes:
    services.control.metrics.checks.labels(verdict.decision.value).inc()
    return orjson.dumps(verdict)


class CheckShortcut:
    """ASGI in front of the app: answers `POST /v1/check`, hands everything else on."""

    def __init__(self, app: ASGIApp, services: Services) -> None:
        self._app = app
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["path"] != PATH or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        try:
            authorization = _header(scope["headers"], b"authorization").decode("latin-1")
            self._services.authority.admit(authorization or None, Verb.CHECK)
        except Denied as refusal:
            await _send(send, refusal.status, dump(Problem(code="denied", detail=refusal.detail)))
            return
        if b"json" not in _header(scope["headers"], b"content-type").lower():
            await _send(send, 415, dump(Problem(code="unsupported_media_type", detail=SEND_JSON)))
            return
        body = await _body(receive)
        if body is None:
            return
        if len(body) > MAX_BODY_BYTES:
            await _send(send, 413, dump(Problem(code="too_large", detail=TOO_LARGE)))
            return
        try:
            call = CheckRequest.model_validate_json(body)
        except ValidationError as error:
            await _send(send, 422, dump(invalid(error.errors(include_url=False, include_context=False))))
            return
        await _send(send, 200, decide(self._services, call))


def _header(headers: Iterable[tuple[bytes, bytes]], wanted: bytes) -> bytes:
    return next((value for name, value in headers if name == wanted), b"")


async def _body(receive: Receive) -> bytes | None:
    """Read the body, up to a little over the limit; None when the client went away."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == _DISCONNECT:
            return None
        part = message.get("body", b"")
        parts.append(part)
        size += len(part)
        if size > MAX_BODY_BYTES or not message.get("more_body", False):
            return b"".join(parts)


async def _send(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if status == 401:  # noqa: PLR2004 - the one status that owes this header
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _tool_of(call: CheckRequest) -> str | None:
    """The tool as findings name it."""
    return None if call.tool is None else name_kept(call.tool)
