"""Wait until those who follow the breakers have acknowledged a change that stops calls."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Annotated, Final

import orjson
from fastapi import Response
from pydantic import Field

from api.breakerview import BreakerOut
from api.problems import JSON
from control.scope import Scope

if TYPE_CHECKING:
    from api.following import Following

LONGEST_S: Final = 5.0
_LOOK_S: Final = 0.01
_HEADERS: Final = ("content-length", "content-type")

WaitAcks = Annotated[
    float,
    Field(
        0.0,
        ge=0,
        le=LONGEST_S,
        description="Seconds to wait with the answer until every client that follows the breakers has "
        "acknowledged the change; the answer then says how many did.",
    ),
]


class ConfirmedOut(BreakerOut):
    """A breaker, and with `wait_acks_s` how many of those who follow work with the change."""

    acknowledged_by: int | None = Field(
        None, description="With `wait_acks_s`: how many of `followers` work with the change."
    )
    followers: int | None = Field(
        None,
        description="With `wait_acks_s`: how many clients have an event stream open and are told of it.",
    )


async def confirmed(answer: Response, wait_s: float, following: Following) -> Response:
    """Add to a breaker's JSON who has acknowledged its revision, after `wait_s` seconds at most.

    Holds no thread. A `wait_s` of 0 changes nothing.
    """
    if not wait_s:
        return answer
    shown = orjson.loads(answer.body)
    scope = Scope(**shown["scope"])
    until = time.monotonic() + wait_s
    followers = following.followers
    have, all_of_them = followers.acknowledged_by(shown["revision"], scope)
    if have < all_of_them:
        following.hub.ask_to_acknowledge(shown["revision"], scope)
    while have < all_of_them and time.monotonic() < until:
        await asyncio.sleep(_LOOK_S)
        have, all_of_them = followers.acknowledged_by(shown["revision"], scope)
    told = orjson.dumps({**shown, "acknowledged_by": have, "followers": all_of_them})
    headers = {name: value for name, value in answer.headers.items() if name not in _HEADERS}
    return Response(told, answer.status_code, headers, JSON)
