"""What a notifier is: one kind of destination that alerts are delivered to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from collector.step import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """What happened, before a destination's format.

    `type` is `alert.firing` or `alert.resolved`, `at_ns` when it happened (unix ns), `data` the alert.
    """

    type: str
    at_ns: int
    data: Mapping[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A rendered notice on its way. `id` and `body` are the same at every attempt."""

    id: str
    type: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Delivered:
    """The destination took it."""

    status: int


@dataclass(frozen=True, slots=True)
class Failed:
    """Not taken; to be tried again.

    `about_message`: the destination works but does not like this message, so others may go ahead. Else the
    destination itself is in trouble and is left alone for a while. `retry_after` is what it asked for, in
    seconds; `status` is None when there was no answer.
    """

    reason: str
    status: int | None = None
    retry_after: float | None = None
    about_message: bool = False


@dataclass(frozen=True, slots=True)
class Gone:
    """The destination says that it no longer exists: nothing is to be sent to it again."""

    reason: str
    status: int


Result: TypeAlias = Delivered | Failed | Gone


class Notifier(Protocol):
    """Delivers to one destination.

    The rules that `tests/contracts/test_notifiers.py` checks: `render` is pure; `send` never raises for what
    the network or the destination does, does not follow redirects, ends within its time limit, and sends the
    same id and body at every attempt.
    """

    @property
    def address(self) -> str:
        """Where it delivers to; when it changes, the destination is a new one and no longer disabled."""
        ...

    def render(self, notice: Notice) -> bytes:
        """Write a notice in the destination's format. Called in the transaction that fires the alert."""
        ...

    async def send(self, message: Message, at_s: int) -> Result:
        """Make one attempt. `at_s` is its time in unix seconds."""
        ...

    async def close(self) -> None:
        """Let go of connections. Safe to call twice."""
        ...
