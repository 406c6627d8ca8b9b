"""GET /v1/breakers/watch: every change of a breaker, as it happens, as server-sent events."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Annotated, Final

from fastapi import APIRouter, Depends, Header, Query, Response

from api.auth import Caller, Verb
from api.problems import ApiError
from api.routes.access import MAX_POSITION, concerns_of, refusals, require
from api.watching import TooManyListenersError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.types import Receive, Scope, Send

    from api.services import Services

EVENT_STREAM: Final = "text/event-stream"
_DISCONNECT: Final = "http.disconnect"
_EXAMPLE: Final = (
    'event: snapshot\nid: 41\ndata: {"revision":41,"breakers":[]}\n\n'
    'event: upsert\nid: 42\ndata: {"id":"br_0ebae43d8b505f54","state":"open"}\n\n'
    'event: remove\nid: 43\ndata: {"id":"br_0ebae43d8b505f54","revision":43}\n\n'
)


class EventStream(Response):
    """Sends events until the client goes away or they end."""

    media_type = EVENT_STREAM

    def __init__(self, events: AsyncGenerator[bytes]) -> None:
        self._events = events
        self.background = None
        self.status_code = 200
        self.init_headers({"cache-control": "no-store", "x-accel-buffering": "no"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send them; two tasks: one sends, the other notices that nobody listens any more."""
        del scope
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        leaving = asyncio.ensure_future(_gone(receive))
        sending = asyncio.ensure_future(self._send_all(send, leaving))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, leaving):
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    async def _send_all(self, send: Send, leaving: asyncio.Future[None]) -> None:
        async with aclosing(self._events) as events:
            async for chunk in events:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
                await asyncio.sleep(0)  # who was cut off in the middle is known to be gone after this
                if leaving.done():
                    return
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def router(services: Services) -> APIRouter:
    """Make the route."""
    routes = APIRouter(prefix="/v1/breakers", tags=["breakers"], responses=refusals(401, 403, 422, 503))
    caller = Depends(require(services, Verb.CHECK, restricted=True))
    hub, followers = services.following.hub, services.following.followers

    @routes.get(
        "/watch",
        response_class=Response,
        responses={200: {"content": {EVENT_STREAM: {"schema": {"type": "string"}, "example": _EXAMPLE}}}},
        summary="Follow the breakers",
    )
    async def watch(
        client: Annotated[
            str, Query(max_length=200, description="The client's name, as in its acknowledgements.")
        ] = "",
        last_event_id: Annotated[
            int | None,
            Header(ge=0, le=MAX_POSITION, description="Revision of the last event that the client has."),
        ] = None,
        caller: Caller = caller,
    ) -> EventStream:
        """Send a `snapshot` of all breakers that are not closed, then each change.

        `upsert`: a breaker as GET /v1/breakers shows it. `remove`: it is closed. The `id` of an event is its
        revision; with `Last-Event-ID` only what was missed is sent instead of the snapshot. `reset`, followed
        by a new `snapshot`: the client has missed too much, or was too slow. `heartbeat` every five seconds.
        `acknowledge`: somebody waits for the client's POST /v1/acks. A token that is restricted is told of
        breakers that may concern it.
        """
        try:
            hub.check_room()
        except TooManyListenersError:
            raise ApiError(
                503, "unavailable", "too many clients follow the breakers, or it is ending"
            ) from None
        concerns = concerns_of(caller)

        async def events() -> AsyncGenerator[bytes]:
            if client:
                followers.connected(caller.name, client, last_event_id or 0, concerns)
            try:
                async with aclosing(hub.follow(last_event_id, concerns)) as told:
                    async for chunk in told:
                        if not services.authority.stands(caller):
                            return
                        yield chunk
            finally:
                if client:
                    followers.left(caller.name, client)

        return EventStream(events())

    return routes


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != _DISCONNECT:
        pass
