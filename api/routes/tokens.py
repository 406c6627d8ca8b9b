"""GET /v1/whoami, POST /v1/tokens, GET /v1/tokens, DELETE /v1/tokens/{id}."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from api.auth import Caller, Verb
from api.problems import ApiError, not_found
from api.routes.access import person, refusals, require
from control.notices import rfc3339
from control.tokens import LONGEST_NAME, Token, TokenRefused, UnknownToken, Wanted
from control.verbs import Only

if TYPE_CHECKING:
    from api.services import Services

LONGEST_LIFE_S: Final = 10 * 365 * 86_400
Pattern = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Patterns = Annotated[list[Pattern], Field(max_length=50)]


class OnlyOut(BaseModel):
    """What a token is restricted to, by patterns; an empty list: any."""

    services: list[str]
    agents: list[str]
    sessions: list[str]


class TokenOut(BaseModel):
    """A token without its secret."""

    id: str
    name: str
    verbs: list[Verb]
    only: OnlyOut
    source: str = Field(description="`created` here, or `config`: from the configuration.")
    state: str = Field(description="`valid`, `expired` or `revoked`.")
    created_at: str | None
    created_by: str
    expires_at: str | None
    last_used_at: str | None = Field(description="At the API, to a minute; null: not yet, or not known.")
    revoked_at: str | None
    revoked_by: str


class TokenList(BaseModel):
    """All tokens, those of the configuration first, then the oldest first."""

    tokens: list[TokenOut]


class TokenRequest(BaseModel):
    """A token to be made."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(
        min_length=1,
        max_length=LONGEST_NAME,
        pattern=r"\S",
        description="Written into the audit; no two valid tokens have the same.",
        examples=["pager"],
    )
    verbs: list[Verb] = Field(min_length=1, max_length=len(Verb), examples=[["read", "override"]])
    expires_in_s: int | None = Field(
        None, gt=0, le=LONGEST_LIFE_S, description="Seconds until it ends; null: never by itself."
    )
    services: Patterns = Field([], description="Patterns of the services it is restricted to.")
    agents: Patterns = Field([], description="Patterns of the agents it is restricted to.")
    sessions: Patterns = Field([], description="Patterns of the sessions it is restricted to.")


class NewToken(BaseModel):
    """A token and its secret, which is told only this once."""

    token: TokenOut
    secret: str = Field(description="Goes into `Authorization: Bearer …`. It is kept nowhere.")


class WhoAmI(BaseModel):
    """Who the caller is taken for."""

    name: str = Field(description="The token's name; `local` when no tokens are needed.")
    verbs: list[Verb]
    only: OnlyOut
    expires_at: str | None
    tokens_needed: bool = Field(
        description="False: there are no tokens, everything is allowed, and only this machine is listened to."
    )


def router(services: Services) -> APIRouter:
    """Make the routes."""
    routes = APIRouter(prefix="/v1", tags=["tokens"], responses=refusals(401, 403))
    book = services.tokens
    admin = Depends(require(services, Verb.ADMIN))
    anyone = Depends(require(services, None, restricted=True))

    @routes.get("/whoami", summary="Who am I, and what may I do?")
    async def whoami(caller: Caller = anyone) -> WhoAmI:
        """Tell what the token allows."""
        token = caller.token
        return WhoAmI(
            name=caller.name,
            verbs=_in_order(caller.verbs),
            only=_only(caller.only),
            expires_at=_time(token.expires_ns if token is not None else None),
            tokens_needed=not services.authority.open,
        )

    @routes.get("/tokens", dependencies=[admin], summary="List tokens")
    def list_all() -> TokenList:
        """List tokens, revoked and expired ones, too. No secrets."""
        now = services.now_ns()
        return TokenList(tokens=[token_out(token, now) for token in book.all()])

    @routes.post("/tokens", status_code=201, responses=refusals(409, 413, 415, 422), summary="Make a token")
    def create(body: TokenRequest, caller: Caller = admin) -> NewToken:
        """Make a token; from then on tokens are needed everywhere.

        The first one of all must allow `admin`, else there could be no other one.
        """
        now = services.now_ns()
        try:
            token, secret = book.create(wanted_of(body, now), person(caller))
        except ValueError as error:
            raise ApiError(422, "invalid", str(error)) from None
        except TokenRefused as error:
            raise ApiError(409, "conflict", str(error)) from None
        return NewToken(token=token_out(token, now), secret=secret)

    @routes.delete("/tokens/{token_id}", responses=refusals(404, 409, 422), summary="Revoke a token")
    def revoke(token_id: str, caller: Caller = admin) -> TokenOut:
        """End a token at once, everywhere. One that has ended stays as it is.

        409 for one of the configuration, and for the last one that allows `admin`.
        """
        try:
            return token_out(book.revoke(token_id, person(caller)), services.now_ns())
        except UnknownToken:
            raise not_found("token", token_id) from None
        except TokenRefused as error:
            raise ApiError(409, "conflict", str(error)) from None

    return routes


def wanted_of(body: TokenRequest, now_ns: int) -> Wanted:
    """Say what is wanted to the book of tokens."""
    return Wanted(
        name=body.name,
        verbs=frozenset(body.verbs),
        expires_ns=None if body.expires_in_s is None else now_ns + body.expires_in_s * 1_000_000_000,
        only=Only(services=tuple(body.services), agents=tuple(body.agents), sessions=tuple(body.sessions)),
    )


def token_out(token: Token, now_ns: int) -> TokenOut:
    """Write a token as the API shows it."""
    ended = "revoked" if token.revoked_ns is not None else "expired"
    return TokenOut(
        id=token.id,
        name=token.name,
        verbs=_in_order(token.verbs),
        only=_only(token.only),
        source=token.source,
        state="valid" if token.valid(now_ns) else ended,
        created_at=_time(token.created_ns),
        created_by=token.created_by,
        expires_at=_time(token.expires_ns),
        last_used_at=_time(token.last_used_ns),
        revoked_at=_time(token.revoked_ns),
        revoked_by=token.revoked_by,
    )


def _in_order(verbs: frozenset[Verb]) -> list[Verb]:
    return [verb for verb in Verb if verb in verbs]


def _only(only: Only) -> OnlyOut:
    return OnlyOut(services=list(only.services), agents=list(only.agents), sessions=list(only.sessions))


def _time(at_ns: int | None) -> str | None:
    return None if at_ns is None else rfc3339(at_ns)
