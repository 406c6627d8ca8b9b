"""GET /v1/clients, POST /v1/acks: who follows the breakers, and how long a change takes to reach them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, Field

from api.auth import Caller, Verb
from api.routes.access import MAX_POSITION, concerns_of, refusals, require
from collector.naming import name_kept
from control.notices import rfc3339

if TYPE_CHECKING:
    from api.followers import Follower
    from api.services import Services

ACKS: Final = "/v1/acks"
_MAX_REFUSED: Final = 256


class Refused(BaseModel):
    """Calls that a client has refused by itself, of what it knows of the breakers."""

    model_config = ConfigDict(extra="forbid")

    breaker_id: str = Field(max_length=64)
    session_id: Annotated[str | None, Field(None, max_length=1024)]
    count: int = Field(ge=1, le=1_000_000)


class Ack(BaseModel):
    """What a client knows and has done since its last acknowledgement."""

    model_config = ConfigDict(
        extra="ignore",
        json_schema_extra={
            "examples": [
                {
                    "client": "buyer-1",
                    "revision": 0,
                    "held_ms": 40,
                    "refused": [
                        {"breaker_id": "br_0ebae43d8b505f54", "session_id": "chat-17", "count": 2},
                    ],
                }
            ]
        },
    )

    client: str = Field(min_length=1, max_length=200, description="The client's name, one a process.")
    revision: int = Field(ge=0, le=MAX_POSITION, description="The newest change that it works with.")
    held_ms: float = Field(
        0.0,
        ge=0,
        le=3_600_000,
        description="For how long it has worked with it: lets clients acknowledge late and together, "
        "without the delay counting.",
    )
    refused: list[Refused] = Field(
        default_factory=list,
        max_length=_MAX_REFUSED,
        description="Calls refused by the client itself: they count towards escalation as checks do.",
    )


class AckAnswer(BaseModel):
    """How far the client is behind."""

    revision: int = Field(description="The newest change of any breaker.")


class ClientOut(BaseModel):
    """One client. Delays run from the commit of a change to its acknowledgement."""

    client: str
    token: str = Field(description="Name of the token that it uses; `local` without tokens.")
    connected: bool = Field(description="It has an event stream open.")
    since: str
    seen_at: str
    revision: int = Field(description="The newest change that it has acknowledged.")
    behind: int = Field(description="How many changes it has not.")
    stale: bool = Field(description="It has not acknowledged the newest change for half a minute.")
    measured: int = Field(description="Of how many changes the delays are: the last 256 at most.")
    p50_ms: float | None
    p99_ms: float | None


class ClientList(BaseModel):
    """All clients, those furthest behind first."""

    revision: int = Field(description="The newest change of any breaker.")
    stale: int = Field(description="How many are stale.")
    clients: list[ClientOut]


def router(services: Services) -> APIRouter:
    """Make the routes."""
    routes = APIRouter(tags=["clients"], responses=refusals(401, 403))
    index, followers = services.control.breakers.index, services.following.followers
    caller = Depends(require(services, Verb.CHECK, restricted=True))

    @routes.post(ACKS, responses=refusals(413, 415, 422), summary="Acknowledge changes")
    async def acknowledge(ack: Ack, caller: Caller = caller) -> AckAnswer:
        """Say which change a client works with, and what it has refused by itself since.

        `GET /v1/clients` shows how long changes took. Late and jittered is fine: say so with `held_ms`.
        """
        return AckAnswer(revision=take(services, ack, caller))

    @routes.get("/v1/clients", dependencies=[Depends(require(services, Verb.READ))], summary="List clients")
    def list_all() -> ClientList:
        """List the clients that follow the breakers, and the delay measured for each.

        In memory: after a restart clients connect again. One that nothing was heard of for an hour is
        forgotten.
        """
        found = [_client_out(follower) for follower in followers.all(index.revision)]
        return ClientList(revision=index.revision, stale=sum(client.stale for client in found), clients=found)

    return routes


def take(services: Services, ack: Ack, caller: Caller) -> int:
    """Note what a client knows and has refused; return the newest revision."""
    index = services.control.breakers.index
    newest = index.revision
    services.following.followers.acknowledged(
        caller.name, ack.client, min(ack.revision, newest), ack.held_ms / 1e3
    )
    concerns = concerns_of(caller)
    for refused in ack.refused:
        breaker = index.by_id(refused.breaker_id)
        if breaker is None or (concerns is not None and not concerns(breaker.scope)):
            continue
        session = None if refused.session_id is None else name_kept(refused.session_id)
        if caller.only.of_session(session):  # nobody has the sessions of others halted
            index.count_refused(breaker.id, session, refused.count)
    return newest


def _client_out(follower: Follower) -> ClientOut:
    return ClientOut(
        client=follower.name,
        token=follower.caller,
        connected=follower.connected,
        since=rfc3339(follower.since_ns),
        seen_at=rfc3339(follower.seen_ns),
        revision=follower.revision,
        behind=follower.behind,
        stale=follower.stale,
        measured=follower.measured,
        p50_ms=_ms(follower.p50_s),
        p99_ms=_ms(follower.p99_s),
    )


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e3, 3)
