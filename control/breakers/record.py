"""One breaker as it is kept and shown."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from collector.step import Json
from control.action import Action
from control.actor import Actor
from control.breakers.states import State
from control.scope import Scope


class UnknownBreaker(Exception):  # noqa: N818 - the name says what is missing
    """No breaker has this id."""


class StaleRevision(Exception):  # noqa: N818 - the name says what is wrong with it
    """The breaker has changed since the revision that the caller knows."""

    def __init__(self, given: int, current: int) -> None:
        super().__init__(f"the breaker is at revision {current}, not {given}")
        self.given = given
        self.current = current


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """One switch as it stands after its change number `revision`. Times are unix ns.

    `action` is its strength, `reason` the kind of finding that opened it (or `structural_failures`,
    `blast_radius`, `manual`, `forced`). `episode` counts how often it opened, `denied` checks refused in
    this episode, and `denied_before` those among them that were refused before it had this strength.
    `until`: when it changes by itself, None when it never does. `open_s` and `flap_level` say how long it
    stays open: `open_s` doubled `flap_level` times. `latched`: it opened too often and stays open until a
    person resets it. `healthy_since`: since when it was closed without a trip; None while it is not.
    `quarantine`: the steps whose results a resumed run should drop, and the last clean one. `forced_until`
    is the end of a person's hold, None when it has none. `resumes`: what goes on when that hold ends, with
    `resumes_action` and `resumes_until`. `by_hand`: a person opened, forced or shadowed it. `openings`:
    how often it really opened by itself, unlike `episode` without shadows. `session_id`: the session of the
    finding, also when the scope names none. `note` is what the one who changed it last
    said.
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
    denied_before: int = 0
    note: str = ""
    until: int | None = None
    open_s: float = 60.0
    flap_level: int = 0
    latched: bool = False
    healthy_since: int | None = None
    quarantine: Mapping[str, Json] | None = None
    evidence_url: str = ""
    forced_until: int | None = None
    resumes: State | None = None
    resumes_action: Action | None = None
    resumes_until: int | None = None
    by_hand: bool = False
    openings: int = 0
    session_id: str = ""


def breaker_id(scope: Scope) -> str:
    """Name the one breaker of a scope: equal scopes, equal ids, on every machine.

    A scope that sets only what scopes had in the beginning keeps the id of that time.

    >>> breaker_id(Scope(session="s")) == breaker_id(Scope(session="s", tool=None))
    True
    >>> breaker_id(Scope(session="s")) == breaker_id(Scope(run="s"))
    False
    """
    parts = list(scope.key)
    if scope.session is not None and (scope.agent, scope.run, scope.args, scope.model) == (None,) * 4:
        parts = [scope.tenant, scope.service, scope.session, scope.tool]
    return f"br_{hashlib.sha256(orjson.dumps(parts)).hexdigest()[:16]}"


def to_json(breaker: Breaker) -> str:
    """Write a breaker as it is kept in `breakers` and `breaker_events`: its fields by name."""
    return orjson.dumps(breaker).decode()


def from_json(payload: str) -> Breaker:
    """Read back what `to_json` wrote, of earlier versions too."""
    fields: dict[str, Any] = orjson.loads(payload)
    fields["scope"] = Scope(**fields["scope"])
    fields["actor"] = Actor(**fields["actor"])
    fields["state"] = State(fields["state"])
    fields["action"] = Action(fields["action"])
    if fields.get("resumes") is not None:
        fields["resumes"] = State(fields["resumes"])
        fields["resumes_action"] = Action(fields["resumes_action"])
    return Breaker(**fields)
