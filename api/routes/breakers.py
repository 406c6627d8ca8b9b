"""GET /v1/breakers, GET /v1/breakers/{id}: the breakers as they are, or as soon as they change."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from api.auth import Caller, Verb
from api.breakerview import BreakerOut, breaker_out
from api.problems import JSON, ApiError, not_found
from api.revisions import CACHE, etag, matches
from api.routes.access import MAX_PAGE, MAX_POSITION, concerns_of, refusals, require
from api.scopetext import asked_from, scope_from
from api.watching import Concerns, TooManyListenersError
from control.breakers.record import Breaker, UnknownBreaker, breaker_id
from control.breakers.states import State
from control.breakers.store import get_breaker, list_breakers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from api.services import Services
    from control.scope import Scope

MAX_WAIT_S: Final = 60
NOT_MODIFIED: Final = 304
_FRESH_NS: Final = 1_000_000_000
_UNCHANGED: dict[int | str, dict[str, Any]] = {NOT_MODIFIED: {"description": "Nothing has changed."}}


class Match(StrEnum):
    """How `scope` is meant."""

    EXACT = "exact"
    COVERS = "covers"


class BreakerList(BaseModel):
    """Breakers, the last changed first."""

    revision: int = Field(description="The newest change of any breaker.")
    breakers: list[BreakerOut]
    next_before: int | None = Field(description="Give it as `before` to read on; null at the end.")


class BreakerQuery(BaseModel):
    """Which breakers, and whether to wait for a change."""

    session_id: str | None = Field(None, description="Only of this session.")
    state: State | None = Field(None, description="Only in this state.")
    scope: str | None = Field(
        None,
        description="Only the breaker over exactly this scope, as `part:value,…` with the parts service, "
        "agent, session, run, tool, args, model; a comma in a value is written `%2C`.",
        examples=["session:chat-17,tool:fetch_page"],
    )
    match: Match = Field(
        Match.EXACT, description="`covers`: all that are not closed and cover a call of `scope`."
    )
    active: bool = Field(False, description="All that are not closed, in one answer.")  # noqa: FBT003 - a field
    before: int | None = Field(None, ge=0, le=MAX_POSITION, description="Only changed before this revision.")
    limit: int = Field(100, ge=1, le=MAX_PAGE)
    since: int | None = Field(
        None, ge=0, le=MAX_POSITION, description="304 unless something has changed after this revision."
    )
    wait: int = Field(0, ge=0, le=MAX_WAIT_S, description="Seconds to wait for a change (long poll).")

    @property
    def plain(self) -> bool:
        """Whether it is about all that are not closed."""
        return self.active and self.scope is None and self.session_id is None and self.state is None


def router(services: Services) -> APIRouter:
    """Make the routes."""
    routes = APIRouter(prefix="/v1/breakers", tags=["breakers"], responses=refusals(401, 403, 422, 503))
    caller = Depends(require(services, Verb.READ, restricted=True, brake=True))
    listing = _Listing(services)

    @routes.get("", response_model=BreakerList, responses=_UNCHANGED, summary="List breakers")
    async def list_all(
        request: Request,
        query: Annotated[BreakerQuery, Query()],
        if_none_match: Annotated[
            str | None, Header(description='304 unless the ETag has changed, e.g. `"rev-41"`.')
        ] = None,
        caller: Caller = caller,
    ) -> Response:
        """List breakers, the last changed first.

        The answer has an `ETag`, the newest revision of all breakers. With `since` or `If-None-Match` it is
        304 while nothing has changed, and with `wait` it comes as soon as something does.
        """
        known = query.since
        if query.wait and known is None and matches(if_none_match, listing.revision):
            known = listing.revision
        if query.wait and known == listing.revision:
            await _changed(request, services, known, query.wait)
            services.authority.insist(caller)
        revision = listing.revision
        headers = {"etag": etag(revision), "cache-control": CACHE}
        if matches(if_none_match, revision) or query.since == revision:
            return Response(status_code=NOT_MODIFIED, headers=headers)
        body = await listing.written(query, revision, concerns_of(caller))
        return Response(body, headers=headers, media_type=JSON)

    @routes.get("/{breaker_id}", responses=refusals(404), summary="One breaker")
    def get(breaker_id: str, response: Response, caller: Caller = caller) -> BreakerOut:
        """Return one breaker, with its revision as `ETag`, to give as `If-Match` when changing it."""
        with services.control.db.reading() as connection:
            try:
                breaker = get_breaker(connection, breaker_id)
            except UnknownBreaker:
                raise not_found("breaker", breaker_id) from None
        concerns = concerns_of(caller)
        if concerns is not None and not concerns(breaker.scope):
            raise not_found("breaker", breaker_id)
        response.headers["etag"] = etag(breaker.revision)
        return listing.shown(breaker)

    return routes


class _Listing:
    """Finds and writes breakers: those that are not closed from memory, others in a thread that may wait."""

    def __init__(self, services: Services) -> None:
        self._index = services.control.breakers.index
        self._db = services.control.db
        self._now_ns = services.now_ns
        self._last: tuple[int, int, asyncio.Future[bytes]] | None = None

    @property
    def revision(self) -> int:
        return self._index.revision

    def shown(self, breaker: Breaker) -> BreakerOut:
        return breaker_out(breaker, self._index.denied(breaker.id, breaker.denied))

    async def written(self, query: BreakerQuery, revision: int, concerns: Concerns | None) -> bytes:
        """Write what a query is about. All that are not closed are written once a second for all who ask."""
        if not query.plain or concerns is not None:
            return await run_in_threadpool(self._written, query, revision, concerns)
        now, last = self._now_ns(), self._last
        if last is None or last[0] != revision or now - last[1] > _FRESH_NS or last[2].cancelled():
            writing = asyncio.ensure_future(run_in_threadpool(self._written, query, revision, None))
            self._last = last = (revision, now, writing)
        return await asyncio.shield(last[2])

    def _written(self, query: BreakerQuery, revision: int, concerns: Concerns | None) -> bytes:
        found, more = self._find(query)
        kept = [self.shown(breaker) for breaker in _filtered(found, query, concerns)]
        told = BreakerList(revision=revision, breakers=kept, next_before=more)
        return told.model_dump_json().encode()

    def _find(self, query: BreakerQuery) -> tuple[list[Breaker], int | None]:
        """Return what a query is about, and where to read on."""
        if query.scope is not None and query.match is Match.COVERS:
            asked = asked_from(query.scope)
            return [breaker for breaker in self._active() if breaker.scope.covers(asked)], None
        if query.scope is not None:
            return self._exactly(scope_from(query.scope)), None
        if query.active:
            return self._active(), None
        found = self._page(query)
        return found, found[-1].revision if len(found) == query.limit else None

    def _active(self) -> list[Breaker]:
        return sorted(self._index.snapshot()[1], key=lambda breaker: -breaker.revision)

    def _exactly(self, scope: Scope) -> list[Breaker]:
        with self._db.reading() as connection:
            try:
                return [get_breaker(connection, breaker_id(scope))]
            except UnknownBreaker:
                return []

    def _page(self, query: BreakerQuery) -> list[Breaker]:
        with self._db.reading() as connection:
            return list_breakers(
                connection,
                session_id=query.session_id,
                state=query.state,
                before=query.before,
                limit=query.limit,
            )


def _filtered(found: Iterable[Breaker], query: BreakerQuery, concerns: Concerns | None) -> list[Breaker]:
    session, state = query.session_id, query.state
    return [
        breaker
        for breaker in found
        if (session is None or session in (breaker.scope.session, breaker.session_id))
        and (state is None or breaker.state is state)
        and (concerns is None or concerns(breaker.scope))
    ]


async def _changed(request: Request, services: Services, since: int, wait_s: float) -> None:
    """Wait for a change, for the time, or until the client goes away. Holds no thread."""
    try:
        services.following.hub.check_room()
    except TooManyListenersError:
        raise ApiError(503, "unavailable", "too many clients wait for changes, or it is ending") from None
    changed = asyncio.ensure_future(services.following.hub.changed_after(since, wait_s))
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({changed, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        changed.cancel()
        gone.cancel()
        await asyncio.gather(changed, gone, return_exceptions=True)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
