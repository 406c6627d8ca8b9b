"""One breaker as it is kept and shown."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import orjson

from control.action import Action
from control.actor import Actor
from control.breakers.states import State
from control.scope import Scope


class UnknownBreaker(Exception):  # noqa: N818 - the name says what is missing
    """No breaker has this id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """One switch as it stands after its change number `revision`.

    `reason` is the kind of the finding that opened it; `episode` counts how often it opened; times are unix
    ns (`closed_at`: when it was closed last, None when it never was). `denied` counts checks refused in this
    episode, `note` is what the person who reset it said.
    """

    id: str
    scope: Scope
    state: State
    action: Action
    revision: int
    episode: int
    reason: str
    message_for_model: str
    message_for_human: str
    finding_id: str
    finding_revision: int
    rule: str
    actor: Actor
    opened_at: int
    updated_at: int
    closed_at: int | None = None
    denied: int = 0
    note: str = ""


def breaker_id(scope: Scope) -> str:
    """Name the one breaker of a scope: equal scopes, equal ids, on every machine.

    >>> breaker_id(Scope(session="s")) == breaker_id(Scope(session="s", tool=None))
    True
    """
    key = orjson.dumps([scope.tenant, scope.service, scope.session, scope.tool])
    return f"br_{hashlib.sha256(key).hexdigest()[:16]}"


def to_json(breaker: Breaker) -> str:
    """Write a breaker as it is kept in `breakers` and `breaker_events`: its fields by name."""
    return orjson.dumps(breaker).decode()


def from_json(payload: str) -> Breaker:
    """Read back what `to_json` wrote."""
    fields: dict[str, Any] = orjson.loads(payload)
    fields["scope"] = Scope(**fields["scope"])
    fields["actor"] = Actor(**fields["actor"])
    fields["state"] = State(fields["state"])
    fields["action"] = Action(fields["action"])
    return Breaker(**fields)
