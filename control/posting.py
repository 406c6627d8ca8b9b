"""From a notice to the outbox: one destination told in its format, and whoever stands in for it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import orjson

from control.notifiers.protocol import (
    ACKNOWLEDGED,
    FIRING,
    RESOLVED,
    Audience,
    Grouping,
    Message,
    Notice,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from control.db import Transaction
    from control.notifiers.protocol import Notifier
    from control.outbox import Outbox

_STOOD_IN: Final = """
    SELECT 1 FROM outbox AS o WHERE destination = ?1 AND order_key = ?2 AND fallback_of = ?3 AND type = ?4
    AND NOT EXISTS (
        SELECT 1 FROM outbox AS later WHERE later.destination = o.destination
        AND later.order_key = o.order_key AND later.type = ?5 AND later.seq > o.seq) LIMIT 1
"""


class Poster:
    """Puts notices into the outbox."""

    def __init__(self, outbox: Outbox, notifiers: Mapping[str, Notifier]) -> None:
        self._outbox = outbox
        self._notifiers = notifiers

    def tell(self, tx: Transaction, name: str, order_key: str, message_id: str, notice: Notice) -> None:
        """Tell a destination what happened to the alert `order_key`; raises `KeyError` for an unknown one.

        What follows a beginning is told to the fallback, too, when it was told of the beginning in its place.
        """
        notifier = self._notifiers[name]
        fallback = notifier.capabilities.fallback
        kept = notice_to_json(notice) if fallback and notice.type == FIRING else None
        self._outbox.enqueue(tx, name, order_key, message_of(notifier, message_id, notice), notice=kept)
        if not fallback or notice.type not in (RESOLVED, ACKNOWLEDGED):
            return
        other = self._notifiers[fallback]
        if notice.type == ACKNOWLEDGED and not other.capabilities.acknowledges:
            return
        if tx.one(_STOOD_IN, (fallback, order_key, name, FIRING, RESOLVED)) is not None:
            message = message_of(other, message_id, notice)
            self._outbox.enqueue(tx, fallback, order_key, message, fallback_of=name)


def message_of(notifier: Notifier, message_id: str, notice: Notice) -> Message:
    """Render a notice for one destination."""
    body = notifier.render(notice)
    brief = None
    if notice.type == RESOLVED and notifier.capabilities.audience is Audience.CHAT:
        brief = notifier.render(replace(notice, brief=True))
    group = notifier.group(body) if notice.type == FIRING and isinstance(notifier, Grouping) else ""
    return Message(id=message_id, type=notice.type, body=body, brief=brief, group=group)


def notice_to_json(notice: Notice) -> bytes:
    """Write a notice down, to be rendered for another destination later."""
    return orjson.dumps({"type": notice.type, "at_ns": notice.at_ns, "data": dict(notice.data)})


def notice_from_json(written: bytes) -> Notice:
    """Read back what `notice_to_json` wrote."""
    return Notice(**orjson.loads(written))
