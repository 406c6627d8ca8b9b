"""A test message: shows whether a destination takes what it would be sent at three in the morning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from control.notifiers.http import rfc3339
from control.notifiers.protocol import FIRING, RESOLVED, TEST, Delivered, Message, Notice
from control.posting import message_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from collector.step import Json
    from control.notifiers.protocol import Notifier, Result

DELIVERED: Final = "delivered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """How a test went: `state` as in the ledger, `problem` why it failed, or what is wrong all the same.

    `messages` and `results` are what was sent; `took_ns` is how long all of it took.
    """

    destination: str
    delivered: bool
    status: int | None
    problem: str
    template_problem: str
    took_ns: int
    messages: tuple[Message, ...]
    results: tuple[Result, ...]


def trial_messages(name: str, notifier: Notifier, at_ns: int) -> list[Message]:
    """Write the messages of a test: one; where incidents stay open, its begin and its end."""
    closes = notifier.capabilities.closes
    messages: list[Message] = []
    for kind in (FIRING, RESOLVED) if closes else (TEST,):
        notice = Notice(type=kind, at_ns=at_ns, data=_data(name, kind, at_ns))
        message = message_of(notifier, f"msg_test_{at_ns}_{kind.rpartition('.')[2]}", notice)
        opening = messages[0].body if messages else None
        messages.append(Message(id=message.id, type=kind, body=message.body, opening=opening))
    return messages


def try_out(
    name: str, notifier: Notifier, send: Callable[[Message], Result], now_ns: Callable[[], int]
) -> Trial:
    """Send a test. The first message that is not taken ends it."""
    at_ns = now_ns()
    messages = trial_messages(name, notifier, at_ns)
    results: list[Result] = []
    for message in messages:
        results.append(send(message))
        if not isinstance(results[-1], Delivered):
            break
    last = results[-1]
    wording = getattr(notifier, "wording", None)
    return Trial(
        destination=name,
        delivered=isinstance(last, Delivered),
        status=last.status,
        problem=last.note if isinstance(last, Delivered) else last.reason,
        template_problem="" if wording is None else wording.problem,
        took_ns=max(0, now_ns() - at_ns),
        messages=tuple(messages[: len(results)]),
        results=tuple(results),
    )


def _data(name: str, kind: str, at_ns: int) -> dict[str, Json]:
    return {
        "alert_id": f"al_test_{at_ns}",
        "state": {FIRING: "firing", RESOLVED: "resolved"}.get(kind, "test"),
        "episode": 1,
        "kind": "test",
        "severity": "info",
        "summary": f"a test of the destination {name}: nothing is stuck",
        "service": "recloser",
        "since": rfc3339(at_ns),
        "next_step": "Nothing is to be done.",
        "resolved_by": "test" if kind == RESOLVED else None,
        "test": True,
    }
