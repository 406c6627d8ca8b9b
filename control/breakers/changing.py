"""What a breaker looks like after an event. Pure: nothing is read or written here. Times are unix ns."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from control.action import Action
from control.actor import Actor
from control.breakers.record import Breaker, breaker_id
from control.breakers.states import Event, State, transition
from control.breakers.timing import next_level, open_for_ns
from control.guidance import by_hand_for_human, by_hand_for_model, stronger

if TYPE_CHECKING:
    from control.breakers.cause import Cause
    from control.breakers.settings import BreakerSettings
    from control.policy import Trip
    from control.scope import Scope

ESCALATION: Final = Actor(type="escalation", id="ignored_refusals")
BLAST_RADIUS: Final = "blast_radius"


def blank(scope: Scope, now_ns: int) -> Breaker:
    """Return the closed breaker of a scope that has none yet: it never opened."""
    return Breaker(
        id=breaker_id(scope),
        scope=scope,
        state=State.CLOSED,
        action=Action.DENY,
        revision=0,
        episode=0,
        reason="",
        message_for_model="",
        message_for_human="",
        finding_id="",
        finding_revision=0,
        rule="",
        actor=Actor(type="system", id=""),
        opened_at=now_ns,
        updated_at=now_ns,
    )


def opened(
    before: Breaker,
    event: Event,
    *,
    trip: Trip,
    cause: Cause,
    now_ns: int,
    settings: BreakerSettings,
) -> Breaker:
    """Open a breaker (or note in shadow that it would open) as a policy's rule asks for."""
    level = next_level(before, now_ns, settings)
    open_s = settings.base_open_s if trip.open_s is None else trip.open_s
    state = transition(before.state, event)
    tries_again = state is State.OPEN and not trip.scope.of_one_run
    session = trip.scope.session or cause.session_id
    return replace(
        before,
        state=state,
        action=trip.action,
        episode=before.episode + 1,
        reason=cause.reason,
        message_for_model=cause.message_for_model,
        message_for_human=cause.message_for_human,
        finding_id=cause.finding_id,
        finding_revision=cause.finding_revision,
        rule=trip.rule,
        actor=Actor(type="rule", id=trip.rule),
        opened_at=now_ns,
        updated_at=now_ns,
        denied=0,
        denied_before=0,
        note="",
        until=now_ns + open_for_ns(open_s, level, settings) if tries_again else None,
        open_s=open_s,
        flap_level=level if state is State.OPEN else before.flap_level,
        latched=False,
        healthy_since=None if state is State.OPEN else before.healthy_since,
        openings=before.openings + (state is State.OPEN),
        quarantine=cause.quarantine,
        evidence_url=_url(session),
        forced_until=None,
        resumes=None,
        resumes_action=None,
        resumes_until=None,
        by_hand=False,
        session_id=cause.session_id,
    )


def escalated(
    before: Breaker, action: Action, actor: Actor, *, denied: int, denied_before: int, now_ns: int
) -> Breaker:
    """Make a breaker stronger; `denied_before` refusals were those of weaker strengths."""
    return replace(
        before,
        state=transition(before.state, Event.ESCALATE),
        action=action,
        message_for_model=stronger(before.message_for_model, before.action, action),
        actor=actor,
        updated_at=now_ns,
        denied=denied,
        denied_before=denied_before,
        note="",
    )


def reopened(before: Breaker, actor: Actor, note: str, now_ns: int, settings: BreakerSettings) -> Breaker:
    """Open a half-open breaker again, for longer: a probe failed."""
    level = next_level(before, now_ns, settings)
    return replace(
        before,
        state=transition(before.state, Event.PROBE_FAILED),
        episode=before.episode + 1,
        actor=actor,
        opened_at=now_ns,
        updated_at=now_ns,
        denied=0,
        denied_before=0,
        flap_level=level,
        openings=before.openings + 1,
        until=now_ns + open_for_ns(before.open_s, level, settings),
        note=note,
    )


def cooled(before: Breaker, actor: Actor, now_ns: int) -> Breaker:
    """Let an open breaker try again."""
    after = transition(before.state, Event.COOL_DOWN)
    return replace(before, state=after, actor=actor, updated_at=now_ns, until=None, note="")


def latched(before: Breaker, actor: Actor, now_ns: int) -> Breaker:
    """Keep a breaker open until a person resets it."""
    return replace(
        before,
        state=transition(before.state, Event.LATCH),
        latched=True,
        until=None,
        actor=actor,
        updated_at=now_ns,
        note="it opened again and again",
    )


def closed(before: Breaker, event: Event, actor: Actor, note: str, *, denied: int, now_ns: int) -> Breaker:
    """Close a breaker, for whatever reason."""
    return replace(
        before,
        state=transition(before.state, event),
        actor=actor,
        note=note,
        closed_at=now_ns,
        updated_at=now_ns,
        denied=denied,
        until=None,
        latched=False,
        healthy_since=before.healthy_since or now_ns,
        forced_until=None,
        resumes=None,
        resumes_action=None,
        resumes_until=None,
        by_hand=False,
    )


def held(
    before: Breaker,
    event: Event,
    actor: Actor,
    *,
    reason: str,
    action: Action,
    ends: int | None,
    now_ns: int,
) -> Breaker:
    """Let a person hold a breaker open or closed until `ends`; what it was before goes on then."""
    was_open = before.state in (State.OPEN, State.HALF_OPEN)
    after = replace(
        before,
        state=transition(before.state, event),
        actor=actor,
        note=reason,
        action=action,
        message_for_model=stronger(before.message_for_model, before.action, action),
        updated_at=now_ns,
        until=ends,
        forced_until=ends,
        by_hand=True,
        latched=before.latched and (was_open or before.state.forced),
    )
    if was_open:
        after = replace(
            after,
            resumes=State.OPEN,
            resumes_action=before.action,
            resumes_until=now_ns if before.state is State.HALF_OPEN else before.until,
        )
    if event is Event.FORCE_OPEN and not was_open and before.state is not State.FORCED_OPEN:
        after = replace(
            after,
            episode=before.episode + 1,
            opened_at=now_ns,
            denied=0,
            denied_before=0,
            healthy_since=None,
            **({} if before.resumes is not None else _by_hand(before.scope, action, reason, "forced")),
        )
    return after


def tripped_by_hand(
    before: Breaker, actor: Actor, *, reason: str, action: Action, ends: int | None, now_ns: int
) -> Breaker:
    """Open a breaker because a person says so, until `ends` or until a person resets it."""
    return replace(
        before,
        state=transition(before.state, Event.TRIP),
        episode=before.episode + 1,
        actor=actor,
        opened_at=now_ns,
        updated_at=now_ns,
        denied=0,
        denied_before=0,
        note=reason,
        until=ends,
        latched=False,
        healthy_since=None,
        quarantine=None,
        by_hand=True,
        action=action,
        **_by_hand(before.scope, action, reason, "manual"),
    )


def made_stronger_by_hand(
    before: Breaker, actor: Actor, *, reason: str, action: Action, ends: int | None, now_ns: int
) -> Breaker:
    """Make an open breaker stronger because a person says so; it is the person's from then on."""
    denied = before.denied
    after = escalated(before, action, actor, denied=denied, denied_before=denied, now_ns=now_ns)
    return replace(after, note=reason, until=ends, by_hand=True)


def shadowed(before: Breaker, actor: Actor, reason: str, ends: int | None, now_ns: int) -> Breaker:
    """Let a breaker only note what it would refuse, until `ends` or until a person resets it."""
    return replace(
        before,
        state=transition(before.state, Event.SHADOW),
        actor=actor,
        note=reason,
        reason=before.reason or "manual",
        updated_at=now_ns,
        until=ends,
        latched=False,
        by_hand=True,
    )


def resumed(before: Breaker, actor: Actor, note: str, now_ns: int) -> Breaker:
    """Go on as before a person held it."""
    action = before.action if before.resumes_action is None else before.resumes_action
    return replace(
        before,
        state=transition(before.state, Event.RESUME),
        actor=actor,
        note=note,
        action=action,
        message_for_model=stronger(before.message_for_model, before.action, action),
        updated_at=now_ns,
        until=before.resumes_until,
        forced_until=None,
        resumes=None,
        resumes_action=None,
        resumes_until=None,
        by_hand=False,
    )


def _by_hand(scope: Scope, action: Action, reason: str, code: str) -> dict[str, Any]:
    return {
        "reason": code,
        "message_for_model": by_hand_for_model(scope, action),
        "message_for_human": by_hand_for_human(reason, action),
        "finding_id": "",
        "finding_revision": 0,
        "rule": "",
        "session_id": "",
        "evidence_url": _url(scope.session or ""),
    }


def _url(session: str) -> str:
    return f"/v1/runs/{quote(session, safe='')}" if session else ""
