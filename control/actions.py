"""Control APIs of a team's own that are told when breakers open and close, so that they stop agents, too.

A message is enqueued in the transaction of the breaker's change and goes through the outbox like an alert:
signed (Standard Webhooks), tried again, in order per breaker. It says what was so at that change.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from control.action import Action
from control.breakers.states import Event
from control.notifiers.http import rfc3339
from control.notifiers.protocol import Message, Notice
from control.notifiers.webhook import Webhook, WebhookConfig
from control.policy.rules import fits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from collector.step import Json
    from control.breakers.record import Breaker
    from control.db import Transaction
    from control.notifiers.protocol import Notifier
    from control.outbox import Outbox
    from control.scope import Scope

PREFIX: Final = "action:"
"""Begins the name under which an action stands among the destinations."""
OPENED: Final = "breaker.opened"
CLOSED: Final = "breaker.closed"

TOLD: Final[Mapping[Event, str]] = MappingProxyType(
    {
        Event.TRIP: OPENED,
        Event.ESCALATE: OPENED,
        Event.FORCE_OPEN: OPENED,
        Event.RESUME: OPENED,
        Event.PROBE_FAILED: OPENED,
        Event.COOL_DOWN: CLOSED,
        Event.PROBE_OK: CLOSED,
        Event.RESET: CLOSED,
        Event.EXPIRE: CLOSED,
        Event.RELEASE: CLOSED,
        Event.FORCE_CLOSE: CLOSED,
        Event.SHADOW: CLOSED,
    }
)
"""The events that are told, and as what.

Half open is told as closed: an API that knows only open and closed has to let calls through, or nothing could
show that they work again.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionConfig:
    """One control API: where it is, and what it is told.

    `on`: events of breakers (keys of `TOLD`), empty: all of them. Patterns narrow the scopes; a part that a
    scope leaves open concerns everybody. `actions`: strengths, empty: all. Raises `ValueError` naming the
    key.
    """

    name: str
    url: str
    secrets: tuple[str, ...]
    timeout_s: float = 15.0
    allow_private: bool = False
    on: frozenset[Event] = frozenset()
    services: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    actions: frozenset[Action] = frozenset()

    def __post_init__(self) -> None:
        """Check every key that is not checked by what it becomes."""
        if not self.name:
            raise ValueError("actions.name: must not be empty")
        for event in sorted(self.on):
            if event not in TOLD:
                raise ValueError(f"actions.{self.name}.on: {event.value!r} opens and closes nothing")

    def wants(self, event: Event, breaker: Breaker) -> bool:
        """Tell whether this API is told of a change."""
        return (
            event in (self.on or TOLD)
            and (not self.actions or breaker.action in self.actions)
            and self._concerns(breaker.scope)
        )

    def _concerns(self, scope: Scope) -> bool:
        parts = (
            (self.services, scope.service),
            (self.agents, None if scope.agent is None else scope.agent.partition("@")[0]),
            (self.tools, scope.tool),
            (self.sessions, scope.session),
        )
        return all(value is None or fits(patterns, value) for patterns, value in parts)


def actions_of(settings: Mapping[str, Any]) -> tuple[ActionConfig, ...]:
    """Read the section `actions` of the settings (plain data). Raises `ValueError` naming the key."""
    return tuple(_config(given) for given in settings.get("actions", ()))


class Actions:
    """Tells every control API that wants to know. `notifiers` (of `notifiers_of`) write the messages."""

    def __init__(
        self,
        configs: Sequence[ActionConfig],
        notifiers: Mapping[str, Notifier],
        outbox: Outbox,
        wake: Callable[[], None],
    ) -> None:
        self._configs = tuple(configs)
        self._notifiers = notifiers
        self._outbox = outbox
        self._wake = wake

    def on_write(self, tx: Transaction, event: Event, breaker: Breaker) -> None:
        """Enqueue what a breaker's change means to each API: a hook of `control.breakers.hooks.Hooks`."""
        type_ = TOLD.get(event)
        wanted = [config for config in self._configs if type_ and config.wants(event, breaker)]
        if type_ is None or not wanted:
            return
        told = Notice(type=type_, at_ns=breaker.updated_at, data=message_of(event, breaker))
        for config in wanted:
            name = PREFIX + config.name
            body = self._notifiers[name].render(told)
            message = Message(id=f"msg_{breaker.id}_{breaker.revision}", type=type_, body=body)
            self._outbox.enqueue(tx, name, breaker.id, message)
        tx.after_commit(self._wake)


def notifiers_of(configs: Sequence[ActionConfig]) -> dict[str, Notifier]:
    """Make what delivers to the APIs, by the name of the destination. Raises `ValueError`."""
    notifiers: dict[str, Notifier] = {}
    for config in configs:
        name = PREFIX + config.name
        if name in notifiers:
            raise ValueError(f"actions.name: two actions are named {config.name!r}")
        try:
            hook = WebhookConfig(
                name=name,
                url=config.url,
                secrets=config.secrets,
                timeout_s=config.timeout_s,
                allow_private=config.allow_private,
            )
        except ValueError as error:
            where = f"{WebhookConfig.SECTION}.{name}"
            raise ValueError(str(error).replace(where, f"actions.{config.name}", 1)) from None
        notifiers[name] = Webhook(hook)
    return notifiers


def message_of(event: Event, breaker: Breaker) -> dict[str, Json]:
    """Say what a control API needs to carry out a breaker's change."""
    scope = breaker.scope
    return {
        "event": event.value,
        "breaker_id": breaker.id,
        "revision": breaker.revision,
        "state": breaker.state.value,
        "action": breaker.action.value,
        "session_id": scope.session or breaker.session_id or None,
        "scope": {
            "tenant": scope.tenant,
            "service": scope.service,
            "agent": scope.agent,
            "session": scope.session,
            "run": scope.run,
            "tool": scope.tool,
            "args": scope.args,
            "model": scope.model,
        },
        "reason": breaker.reason,
        "message_for_model": breaker.message_for_model,
        "message_for_human": breaker.message_for_human,
        "note": breaker.note,
        "actor": {"type": breaker.actor.type, "id": breaker.actor.id},
        "rule": breaker.rule,
        "finding_id": breaker.finding_id,
        "quarantine": None if breaker.quarantine is None else dict(breaker.quarantine),
        "opened_at": rfc3339(breaker.opened_at),
        "changed_at": rfc3339(breaker.updated_at),
        "until": None if breaker.until is None else rfc3339(breaker.until),
    }


def _config(given: Mapping[str, Any]) -> ActionConfig:
    name = given["name"]
    known = {event.value for event in TOLD}
    for event in given["on"]:
        if event not in known:
            raise ValueError(
                f"actions.{name}.on: there is no event {event!r}; there are {', '.join(sorted(known))}"
            )
    return ActionConfig(
        name=name,
        url=given["url"],
        secrets=tuple(given["secrets"]),
        timeout_s=given["timeout_s"],
        allow_private=given["allow_private"],
        on=frozenset(Event(event) for event in given["on"]),
        services=tuple(given["services"]),
        agents=tuple(given["agents"]),
        tools=tuple(given["tools"]),
        sessions=tuple(given["sessions"]),
        actions=frozenset(Action(action) for action in given["actions"]),
    )
