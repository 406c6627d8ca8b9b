"""A breaker as the API shows it, in lists and on the event stream alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from collector.naming import name_kept
from control.action import Action
from control.breakers.states import State
from control.notices import rfc3339
from control.scope import DEFAULT_TENANT, Scope

if TYPE_CHECKING:
    from control.breakers.record import Breaker

MAX_NAME: Final = 1024
Part = Annotated[str | None, Field(None, min_length=1, max_length=MAX_NAME)]


class ScopeOut(BaseModel):
    """What a breaker covers; null is "any"."""

    tenant: str
    service: str | None
    agent: str | None = Field(description="A name, or `name@version` for that version only.")
    session: str | None
    run: str | None
    tool: str | None
    args: str | None = Field(description="Signature of tool and arguments, 16 hex digits.")
    model: str | None


class ScopeIn(BaseModel):
    """What a breaker is to cover; what is left out is "any".

    One that names no part but the tenant covers every agent there is: the tenant has to be spelled out then.
    """

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"session": "chat-17"}]})

    tenant: str = Field(DEFAULT_TENANT, min_length=1, max_length=MAX_NAME)
    service: Part
    agent: Part
    session: Part
    run: Part
    tool: Part
    args: Annotated[str | None, Field(None, pattern="^[0-9a-f]{16}$")]
    model: Part

    @model_validator(mode="after")
    def _mean_something(self) -> Self:
        """Refuse what names nothing: that stops everybody, and may be a program's empty variable."""
        parts = self.model_dump(exclude={"tenant"})
        if "tenant" not in self.model_fields_set and not any(parts.values()):
            raise PydanticCustomError(
                "whole_tenant",
                "it names no part, so it would cover every agent; if that is meant, spell out its tenant",
            )
        return self

    def scope(self) -> Scope:
        """Return it as control names it: by the names that findings use and checks are compared with."""
        parts = self.model_dump()
        named = {part: kept_in_scope(part, value) for part, value in parts.items() if value is not None}
        return Scope(**named)


class ActorOut(BaseModel):
    """Who made a change."""

    type: str = Field(description="`rule`, `escalation`, `person` or `system`.")
    id: str


def kept_in_scope(part: str, value: str) -> str:
    r"""Return a name as it is kept; an agent at a version has two of them.

    >>> kept_in_scope("session", "chat\x00-17"), kept_in_scope("agent", "buyer@2\x07")
    ('chat-17', 'buyer@2')
    """
    name, at, version = value.rpartition("@") if part == "agent" else (value, "", "")
    if not name:
        return name_kept(value)
    return f"{name_kept(name)}{at}{name_kept(version)}"


class BreakerOut(BaseModel):
    """One breaker."""

    id: str
    scope: ScopeOut
    state: State
    action: Action = Field(description="How strong it is: `replan`, `deny` or `halt`.")
    revision: int = Field(description="Position of its last change among all changes of all breakers.")
    episode: int = Field(description="How often it has opened.")
    reason: str = Field(description="Kind of the finding that opened it, or `forced`, `manual`, …")
    message_for_model: str
    message_for_human: str
    finding_id: str
    finding_revision: int
    rule: str
    actor: ActorOut
    opened_at: str
    updated_at: str
    closed_at: str | None = Field(description="When it was last closed.")
    until: str | None = Field(description="When it changes by itself; null: it does not.")
    forced_until: str | None = Field(description="End of a person's hold.")
    flap_level: int = Field(description="How often its open time is doubled; falls while it is healthy.")
    latched: bool = Field(description="It opened too often and stays open until a person resets it.")
    quarantine: dict[str, Any] | None = Field(
        description="`tainted_steps` and `last_clean_step`: what a resumed run should drop."
    )
    evidence_url: str = Field(description="Path of the page that shows the run.")
    denied: int = Field(description="Checks refused in this episode.")
    note: str = Field(description="What the one who changed it last said.")


def breaker_out(breaker: Breaker, denied: int) -> BreakerOut:
    """Write a breaker as the API shows it."""
    return BreakerOut(
        id=breaker.id,
        scope=ScopeOut.model_validate(breaker.scope, from_attributes=True),
        state=breaker.state,
        action=breaker.action,
        revision=breaker.revision,
        episode=breaker.episode,
        reason=breaker.reason,
        message_for_model=breaker.message_for_model,
        message_for_human=breaker.message_for_human,
        finding_id=breaker.finding_id,
        finding_revision=breaker.finding_revision,
        rule=breaker.rule,
        actor=ActorOut.model_validate(breaker.actor, from_attributes=True),
        opened_at=rfc3339(breaker.opened_at),
        updated_at=rfc3339(breaker.updated_at),
        closed_at=_moment(breaker.closed_at),
        until=_moment(breaker.until),
        forced_until=_moment(breaker.forced_until),
        flap_level=breaker.flap_level,
        latched=breaker.latched,
        quarantine=None if breaker.quarantine is None else dict(breaker.quarantine),
        evidence_url=breaker.evidence_url,
        denied=denied,
        note=breaker.note,
    )


def _moment(ns: int | None) -> str | None:
    return None if ns is None else rfc3339(ns)
