"""ASGI in front of the app for what clients ask most: `POST /v1/check` and `POST /v1/acks`.

The same models and the same answers as the routes behind, for about a third of the CPU (`bench/check.py`): a
check comes before every call of an agent, and after each change all who follow acknowledge it at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from api.auth import Denied, Verb
from api.bodies import MAX_BODY_BYTES, TOO_LARGE
from api.deciding import Decider
from api.problems import SEND_JSON, Problem, dump, invalid
from api.routes.check import PATH, CheckRequest
from api.routes.clients import ACKS, Ack, take

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from starlette.types import ASGIApp, Receive, Scope, Send

    from api.auth import Caller
    from api.services import Services

_DISCONNECT: Final = "http.disconnect"
_PATHS: Final = (PATH, ACKS)


class CheckShortcut:
    """Answers checks and acknowledgements as their routes do; hands everything else on."""

    def __init__(self, app: ASGIApp, services: Services) -> None:
        self._app = app
        self._services = services
        self._decider = Decider(services)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["path"] not in _PATHS or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        authority = self._services.authority
        try:
            authorization = _header(scope["headers"], b"authorization").decode("latin-1")
            caller = authority.admit(authorization or None, Verb.CHECK, scope, restricted=True)
            if b"json" not in _header(scope["headers"], b"content-type").lower():
                await _send(send, 415, dump(Problem(code="unsupported_media_type", detail=SEND_JSON)))
                return
            body = await _body(receive)
            if body is None:
                return
            if len(body) > MAX_BODY_BYTES:
                await _send(send, 413, dump(Problem(code="too_large", detail=TOO_LARGE)))
                return
            answer = await (self._checked if scope["path"] == PATH else self._acknowledged)(body, caller)
        except Denied as refusal:
            authority.note(refusal, scope)
            problem = Problem(code=refusal.code, detail=refusal.detail)
            await _send(send, refusal.status, dump(problem), refusal.headers)
            return
        except ValidationError as error:
            await _send(send, 422, dump(invalid(error.errors(include_url=False, include_context=False))))
            return
        await _send(send, 200, answer)

    async def _checked(self, body: bytes, caller: Caller) -> bytes:
        call = CheckRequest.model_validate_json(body)
        caller.confirm(service=call.service, agent=call.agent, session=call.session_id)
        return await self._decider.one(call, caller.name)

    async def _acknowledged(self, body: bytes, caller: Caller) -> bytes:
        return b'{"revision":%d}' % take(self._services, Ack.model_validate_json(body), caller)


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


async def _send(send: Send, status: int, body: bytes, more: Mapping[str, str] | None = None) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if more:
        headers += [(name.encode(), value.encode()) for name, value in more.items()]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
