"""GET /v1/audit: who did what to what, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, Field

from api.auth import Verb
from api.breakerview import ActorOut
from api.routes.access import MAX_PAGE, MAX_POSITION, refusals, require
from control import audit
from control.notices import rfc3339

if TYPE_CHECKING:
    from collections.abc import Callable

    from api.services import Services
    from control.audit import Entry


class EntryOut(BaseModel):
    """One entry of the audit."""

    seq: int
    at: str
    actor: ActorOut
    verb: str = Field(description="What was done, e.g. `breaker.trip`, `token.revoke`, `policy.reload`.")
    subject: str = Field(description="What it was done to: an id or a name.")
    reason: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    extra: dict[str, Any]
    acknowledged_by: int | None = Field(
        description="How many of the clients known now work with this change of a breaker or a later one; "
        "null for what is no change of a breaker."
    )
    previous: str = Field(description="Hash of the entry before.")
    hash: str = Field(description="SHA-256 of the hash before, a line end, and the entry as it is kept.")


class AuditList(BaseModel):
    """Entries, the oldest first."""

    entries: list[EntryOut]
    head: str | None = Field(
        description="The newest entry as `seq:hash`. Noted elsewhere, it shows by "
        "`recloser audit verify --noted` when entries were cut off."
    )
    next_since: int | None = Field(description="Give it as `since` to read on; null at the end.")


def router(services: Services) -> APIRouter:
    """Make the route."""
    routes = APIRouter(prefix="/v1/audit", tags=["audit"], responses=refusals(401, 403, 422, 503))

    def shown(entry: Entry, have: Callable[[int], int]) -> EntryOut:
        revision = (entry.after or {}).get("revision") if entry.verb.startswith("breaker.") else None
        return EntryOut(
            seq=entry.seq,
            at=rfc3339(entry.at),
            actor=ActorOut(type=entry.actor.type, id=entry.actor.id),
            verb=entry.verb,
            subject=entry.subject,
            reason=entry.reason,
            before=None if entry.before is None else dict(entry.before),
            after=None if entry.after is None else dict(entry.after),
            extra=dict(entry.extra),
            acknowledged_by=have(revision) if isinstance(revision, int) else None,
            previous=entry.previous,
            hash=entry.hash,
        )

    @routes.get("", dependencies=[Depends(require(services, Verb.READ))], summary="Read the audit")
    def read(
        since: Annotated[
            int, Query(ge=0, le=MAX_POSITION, description="Only entries after this position.")
        ] = 0,
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
    ) -> AuditList:
        """List what was changed, by whom and why, the oldest first.

        Each entry has the hash of the one before, so that none can be changed or taken out unseen.
        """
        with services.control.db.reading() as connection:
            found = audit.entries(connection, since=since, limit=limit)
            newest = audit.head(connection)
        have = services.following.followers.have()
        return AuditList(
            entries=[shown(entry, have) for entry in found],
            head=None if newest is None else f"{newest.seq}:{newest.hash}",
            next_since=found[-1].seq if len(found) == limit else None,
        )

    return routes
