"""/v1/silences: for a time, alerts with certain labels announce nothing new."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Depends, Query
from pydantic import AwareDatetime, BaseModel, Field

from api.auth import Caller, Verb
from api.problems import ApiError, not_found
from api.routes.access import MAX_PAGE, MAX_POSITION, person, refusals, require
from control.notices import rfc3339
from control.silences import (
    MAX_MATCHERS,
    MAX_VALUE,
    Matcher,
    Op,
    Silence,
    SilenceOver,
    TooManySilences,
    UnknownSilence,
    get_silence,
    list_silences,
    new_id,
)

if TYPE_CHECKING:
    from api.services import Services

_NS = 1_000_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class SilenceState(StrEnum):
    """`pending`: it begins later; `active`; `over`."""

    PENDING = "pending"
    ACTIVE = "active"
    OVER = "over"


class MatcherModel(BaseModel):
    """One condition on a label; a label that an alert does not have is empty."""

    name: str = Field(
        max_length=40,
        description="`kind`, `severity`, `service`, `agent`, `tool`, `session_id`, `alert_id` or `rule`.",
        examples=["service"],
    )
    op: Op = Field(Op.EQUAL, description="`=`, `!=`, or `=~`, `!~` for a pattern of the whole value.")
    value: str = Field(max_length=MAX_VALUE, examples=["shop"])


class SilenceRequest(BaseModel):
    """What is silenced, how long and why. All matchers must hold."""

    matchers: list[MatcherModel] = Field(min_length=1, max_length=MAX_MATCHERS)
    starts_at: AwareDatetime | None = Field(None, description="When it begins; null: now.")
    ends_at: AwareDatetime = Field(
        description="When it ends, 30 days after it begins at most.", examples=["2030-01-01T00:00:00Z"]
    )
    comment: str = Field(min_length=1, max_length=2000, examples=["the shop moves to another host"])


class SilenceOut(BaseModel):
    """One silence."""

    id: str
    state: SilenceState
    matchers: list[MatcherModel]
    starts_at: str
    ends_at: str
    comment: str
    created_by: str
    created_at: str


class SilenceList(BaseModel):
    """Silences, the newest first."""

    silences: list[SilenceOut]
    next_before: int | None = Field(description="Give it as `before` to read on; null at the end.")


def router(services: Services) -> APIRouter:
    """Make the routes."""
    routes = APIRouter(prefix="/v1/silences", tags=["silences"], responses=refusals(401, 403, 422))
    _add_reading(routes, services)
    _add_changing(routes, services)
    return routes


def _add_reading(routes: APIRouter, services: Services) -> None:
    reader = Depends(require(services, Verb.READ))

    @routes.get("", dependencies=[reader], summary="List silences")
    def list_all(
        over: Annotated[bool, Query(description="Also those that are over.")] = False,  # noqa: FBT002 - a query
        before: Annotated[
            int | None, Query(ge=0, le=MAX_POSITION, description="Only older than this position.")
        ] = None,
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
    ) -> SilenceList:
        """List silences, the newest first."""
        now = services.now_ns()
        with services.control.db.reading() as connection:
            found = list_silences(connection, ends_after=None if over else now, before=before, limit=limit)
        return SilenceList(
            silences=[_out(silence, now) for _, silence in found],
            next_before=found[-1][0] if len(found) == limit else None,
        )

    @routes.get("/{silence_id}", dependencies=[reader], responses=refusals(404), summary="One silence")
    def get(silence_id: str) -> SilenceOut:
        """Return one silence."""
        return _out(_known(services, silence_id), services.now_ns())


def _add_changing(routes: APIRouter, services: Services) -> None:
    operator = Depends(require(services, Verb.OVERRIDE))

    @routes.post("", status_code=201, responses=refusals(409, 413, 415), summary="Silence alerts")
    def create(body: SilenceRequest, caller: Caller = operator) -> SilenceOut:
        """Silence alerts for a time. 409 when there are too many silences."""
        return _put(services, body, new_id(), caller, services.now_ns())

    @routes.put("/{silence_id}", responses=refusals(404, 409, 413, 415), summary="Change a silence")
    def change(silence_id: str, body: SilenceRequest, caller: Caller = operator) -> SilenceOut:
        """Put another silence in its place; 409 when it is over."""
        before = _known(services, silence_id)
        if before.ends_at <= services.now_ns():
            raise ApiError(409, "conflict", "it is over: make another one")
        return _put(services, body, silence_id, caller, before.starts_at)

    @routes.delete("/{silence_id}", responses=refusals(404, 409), summary="End a silence")
    def end(silence_id: str, caller: Caller = operator) -> SilenceOut:
        """End a silence now. What still fires is announced; 409 when it is over already."""
        try:
            silence = services.control.desk.unsilence(silence_id, person(caller))
        except UnknownSilence:
            raise not_found("silence", silence_id) from None
        except SilenceOver:
            raise ApiError(409, "conflict", "it is over already") from None
        return _out(silence, services.now_ns())


def _known(services: Services, silence_id: str) -> Silence:
    with services.control.db.reading() as connection:
        try:
            return get_silence(connection, silence_id)
        except UnknownSilence:
            raise not_found("silence", silence_id) from None


def _put(
    services: Services, body: SilenceRequest, silence_id: str, caller: Caller, starts_ns: int
) -> SilenceOut:
    now = services.now_ns()
    silence = _made(body, silence_id, caller, starts_ns, now)
    try:
        services.control.desk.silence(silence, person(caller))
    except TooManySilences as error:
        raise ApiError(409, "conflict", str(error)) from None
    return _out(silence, now)


def _made(body: SilenceRequest, silence_id: str, caller: Caller, starts_ns: int, now: int) -> Silence:
    """Read a request. Raises `ApiError` that names what makes no sense."""
    fields: dict[str, Any] = {
        "id": silence_id,
        "starts_at": starts_ns if body.starts_at is None else _ns(body.starts_at),
        "ends_at": _ns(body.ends_at),
        "comment": body.comment,
        "created_by": person(caller),
        "created_at": now,
    }
    try:
        matchers = tuple(Matcher(name=one.name, op=one.op, value=one.value) for one in body.matchers)
        silence = Silence(matchers=matchers, **fields)
    except ValueError as error:
        raise ApiError(422, "invalid", str(error)) from None
    if silence.ends_at <= now:
        raise ApiError(422, "invalid", "ends_at: lies in the past")
    return silence


def _out(silence: Silence, now: int) -> SilenceOut:
    state = SilenceState.ACTIVE if silence.active(now) else SilenceState.PENDING
    return SilenceOut(
        id=silence.id,
        state=SilenceState.OVER if silence.ends_at <= now else state,
        matchers=[MatcherModel(name=one.name, op=one.op, value=one.value) for one in silence.matchers],
        starts_at=rfc3339(silence.starts_at),
        ends_at=rfc3339(silence.ends_at),
        comment=silence.comment,
        created_by=silence.created_by.id,
        created_at=rfc3339(silence.created_at),
    )


def _ns(moment: datetime) -> int:
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * _NS + since.microseconds * 1_000
