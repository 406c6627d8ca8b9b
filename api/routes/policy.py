"""GET /v1/policy: the policy in force. POST /v1/policy/reload: read its file again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Body, Depends
from pydantic import BaseModel, ConfigDict, Field

from api.auth import Caller, Verb
from api.policyfile import PolicyError
from api.policykeys import FileKeys
from api.policyview import keys_of
from api.problems import ApiError
from api.reload import NoPolicyFile
from api.routes.access import person, refusals, require
from control.notices import rfc3339

if TYPE_CHECKING:
    from api.services import Services


class PolicyOut(BaseModel):
    """The policy in force, and where it is from."""

    file: str | None = Field(description="The file it was read from; null: it stands in the settings.")
    sha256: str | None = Field(description="SHA-256 of that file as it was read, hex.")
    loaded_at: str | None = Field(description="When it was put in force.")
    trouble: list[str] = Field(
        description="What is wrong with the file now, so that an older policy is in force; empty: nothing."
    )
    policy: FileKeys = Field(description="What it says, as a policy file spells it, defaults included.")


class ReloadRequest(BaseModel):
    """Why the file is read again."""

    model_config = ConfigDict(extra="forbid")

    reason: str = Field("", max_length=1000, description="Written into the audit.")


def router(services: Services) -> APIRouter:
    """Make the routes."""
    routes = APIRouter(prefix="/v1/policy", tags=["policy"], responses=refusals(401, 403))
    keeper = services.policy

    def shown() -> PolicyOut:
        source = keeper.holder.source
        return PolicyOut(
            file=source.path or None,
            sha256=source.sha256 or None,
            loaded_at=rfc3339(source.loaded_at) if source.loaded_at else None,
            trouble=(keeper.trouble or "").splitlines(),
            policy=keys_of(keeper.holder.current),
        )

    @routes.get("", dependencies=[Depends(require(services, Verb.READ))], summary="Which policy is in force?")
    def get() -> PolicyOut:
        """Show the rules in force; no secrets are in them."""
        return shown()

    admin = Depends(require(services, Verb.ADMIN))

    @routes.post("/reload", responses=refusals(409, 413, 415, 422), summary="Read the policy file again")
    def reload(
        body: Annotated[ReloadRequest, Body()] = ReloadRequest(),  # noqa: B008 - immutable in use
        caller: Caller = admin,
    ) -> PolicyOut:
        """Put in force what the file says now.

        422 with everything that is wrong with it: then the policy before stays in force. 409 when the policy
        stands in the settings, which are read at a start only.
        """
        try:
            keeper.reload(person(caller), body.reason or "it was asked for")
        except NoPolicyFile:
            raise ApiError(
                409, "conflict", "policy_file is not set: the policy stands in the settings, read at a start"
            ) from None
        except PolicyError as error:
            raise ApiError(422, "invalid_policy", str(error)) from None
        return shown()

    return routes
