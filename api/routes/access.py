"""Which token a route needs, and which refusals it documents."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from fastapi import Request

from api.problems import JSON, Problem
from control.actor import Actor

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from api.auth import Caller, Verb
    from api.services import Services
    from control.scope import Scope

MAX_PAGE: Final = 1000
MAX_POSITION: Final = 2**63 - 1
"""Largest position or revision that the database can hold."""

_REFUSALS: Final = {
    400: "The request cannot be read.",
    401: "No token, or one that nobody knows.",
    403: "The token does not allow this.",
    404: "There is no such thing.",
    409: "It makes no sense in the present state.",
    410: "It is over.",
    412: "The breaker was changed since the revision that If-Match names.",
    413: "The body is too large.",
    415: "The content-type is not application/json.",
    422: "A field is missing or wrong.",
    429: "Too many requests; `Retry-After` says when to come back.",
    503: "It cannot be done now; `Retry-After` says when to come back.",
}


def require(
    services: Services, verb: Verb | None, *, restricted: bool = False, brake: bool = False
) -> Callable[[Request], Awaitable[Caller]]:
    """Make a dependency that lets only callers with `verb` (None: any token) pass.

    `restricted`: the route lets tokens in that are restricted to services, agents or sessions, and compares
    what is asked with `Caller.confirm`. `brake`: limited as checks are. Raises `api.auth.Denied`.
    """

    async def caller(request: Request) -> Caller:
        authorization = request.headers.get("authorization")
        return services.authority.admit(
            authorization, verb, request.scope, restricted=restricted, brake=brake
        )

    return caller


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Document refusals in OpenAPI. Where a token is asked for, too many requests are refused, too.

    One of them brings the model, the others name it: a model for each is most of the work of making the app.
    """
    documented = refusals_of_text(*statuses)
    first = next(iter(documented))
    return documented | {first: {"model": Problem, "description": _REFUSALS[int(first)]}}


def refusals_of_text(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Document refusals of a route whose other answers are no JSON. Another route must use `refusals`."""
    content = {JSON: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {
        status: {"description": _REFUSALS[status], "content": content} for status in _with_limits(statuses)
    }


def _with_limits(statuses: tuple[int, ...]) -> tuple[int, ...]:
    return (*statuses, 429) if 401 in statuses and 429 not in statuses else statuses  # noqa: PLR2004 - HTTP's


def concerns_of(caller: Caller) -> Callable[[Scope], bool] | None:
    """Tell which breakers may concern a caller's calls: None for all, as of a token without restriction.

    What a scope names is compared with the restriction; what it leaves open concerns everybody.
    """
    only = caller.only
    if not only:
        return None

    def concerns(scope: Scope) -> bool:
        named = replace(
            only,
            services=() if scope.service is None else only.services,
            agents=() if scope.agent is None else only.agents,
            sessions=() if scope.session is None else only.sessions,
        )
        return named.allows(service=scope.service, agent=scope.agent, session=scope.session)

    return concerns


def person(caller: Caller) -> Actor:
    """Name the caller as the one who made a change."""
    return Actor(type="person", id=caller.name)
