"""What a notifier is: one kind of destination that alerts are delivered to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from collector.step import Json

FIRING: Final = "alert.firing"
ACKNOWLEDGED: Final = "alert.acknowledged"
RESOLVED: Final = "alert.resolved"
TEST: Final = "test"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """What happened, before a destination's format.

    `type` is `alert.firing`, `alert.acknowledged`, `alert.resolved` or `test`, `at_ns` when it happened (unix
    ns), `data` the alert. `brief` asks for one short line: it is over, and nobody there heard that it began.
    """

    type: str
    at_ns: int
    data: Mapping[str, Json]
    brief: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A rendered notice on its way. `id` and `body` are the same at every attempt.

    `brief` is the body to use instead when the firing before it was never taken; None: then send nothing.
    `group` names what the destination counts as one incident, when several alerts can share one. `opening` is
    the body of the firing that this message ends, where there was one.
    """

    id: str
    type: str
    body: bytes
    brief: bytes | None = None
    group: str = ""
    opening: bytes | None = None


@dataclass(frozen=True, slots=True)
class Delivered:
    """The destination took it. `note` says what is worth knowing about it all the same."""

    status: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Failed:
    """Not taken; to be tried again.

    `about_message`: the destination works but does not like this message, so others may go ahead. Else the
    destination itself is in trouble and is left alone for a while. `retry_after` is what it asked for, in
    seconds; `status` is None when there was no answer. `unsure`: it may have been taken nevertheless, as when
    the answer did not come.
    """

    reason: str
    status: int | None = None
    retry_after: float | None = None
    about_message: bool = False
    unsure: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """The destination works and says that it will never take this message."""

    reason: str
    status: int


@dataclass(frozen=True, slots=True)
class Gone:
    """The destination says that it no longer exists: nothing is to be sent to it again."""

    reason: str
    status: int


Result: TypeAlias = Delivered | Failed | Refused | Gone


class Audience(StrEnum):
    """Who is at the other end.

    `pager` wakes people or machines: it hears of no incident that was over before it heard of its begin.
    `chat` is read: it gets one short line then.
    """

    PAGER = "pager"
    CHAT = "chat"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a destination does, beyond taking messages.

    `acknowledges`: it understands `alert.acknowledged`. `closes`: it keeps incidents open until it is told
    that they are over. `beats`: heartbeats can be sent there and wake nobody. At most `rate_per_s` messages a
    second go there, after a burst of `burst`. `fallback` names the destination that stands in once this one
    has taken nothing for `fallback_after_s`; empty: none.
    """

    audience: Audience
    acknowledges: bool = False
    closes: bool = False
    beats: bool = True
    rate_per_s: float = 20.0
    burst: int = 20
    fallback: str = ""
    fallback_after_s: float = 300.0


class Notifier(Protocol):
    """Delivers to one destination.

    The rules that `tests/contracts/test_notifiers.py` checks: `render` is pure; `send` never raises for what
    the network or the destination does, does not follow redirects, ends within its time limit, and sends the
    same id and content at every attempt.
    """

    @property
    def address(self) -> str:
        """Where it delivers to; when it changes, the destination is a new one and no longer disabled."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What the destination does."""
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


@runtime_checkable
class Grouping(Protocol):
    """A notifier whose destination can count several alerts as one incident, which ends with the last."""

    def group(self, body: bytes) -> str:
        """Name the incident that a rendered firing belongs to."""
        ...


@runtime_checkable
class Refreshing(Protocol):
    """A notifier whose destination forgets: everything that is so is told again and again.

    `refresh_s` seconds lie between two refreshes; what was resolved is told for `resolved_for_s` more.
    """

    refresh_s: float
    resolved_for_s: float

    async def refresh(self, messages: Sequence[Message], at_s: int) -> Result:
        """Tell all of it again, in one attempt."""
        ...
