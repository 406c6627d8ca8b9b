"""Which clients follow the breakers, how far each has come, and how long changes took to reach them.

In memory: after a restart clients connect again and acknowledge what they know. A delay is measured from the
commit of a change to its acknowledgement, less the time for which the client says that it held it back, and
only for changes made while the client followed.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from control.scope import Scope

MAX_CLIENTS: Final = 10_000
"""Beyond it those that nothing was heard of for longest are forgotten, but none that is connected."""
STALE_S: Final = 30.0
"""A client that has not acknowledged the newest change for so long is shown as stale."""
FORGET_S: Final = 3600.0
"""A client that nothing was heard of for so long, and that is not connected, is forgotten."""
_DELAYS: Final = 256
_COMMITS: Final = 4096
_NS: Final = 1_000_000_000


@dataclass(slots=True, kw_only=True)
class _Client:
    caller: str
    name: str
    since_ns: int
    seen_ns: int
    revision: int
    streams: int = 0
    concerns: Callable[[Scope], bool] | None = None
    delays: deque[float] = field(default_factory=lambda: deque(maxlen=_DELAYS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Follower:
    """One client as it stands. Delays are seconds, None when none was measured; times are unix ns.

    `behind`: how many changes it has not acknowledged.
    """

    name: str
    caller: str
    connected: bool
    since_ns: int
    seen_ns: int
    revision: int
    behind: int
    stale: bool
    measured: int
    p50_s: float | None
    p99_s: float | None


class Followers:
    """All clients by caller and name. Safe to use from several threads.

    `on_delay` is told of each measured delay in seconds.
    """

    def __init__(
        self, now_ns: Callable[[], int], on_delay: Callable[[float], None] = lambda _s: None
    ) -> None:
        self._now_ns = now_ns
        self._on_delay = on_delay
        self._lock = threading.Lock()
        self._clients: OrderedDict[tuple[str, str], _Client] = OrderedDict()  # heard of last: at the end
        self._commits: deque[tuple[int, int]] = deque(maxlen=_COMMITS)

    def committed(self, revision: int) -> None:
        """Note that a change is on disk now."""
        with self._lock:
            self._commits.append((revision, self._now_ns()))

    def connected(
        self, caller: str, name: str, revision: int, concerns: Callable[[Scope], bool] | None = None
    ) -> None:
        """Note that a client follows from `revision` on; `concerns` tells what it is told of, None: all."""
        with self._lock:
            client = self._known(caller, name, revision)
            if not client.streams:
                client.since_ns = client.seen_ns
            client.streams += 1
            client.concerns = concerns

    def left(self, caller: str, name: str) -> None:
        """Note that one of a client's streams has ended."""
        with self._lock:
            client = self._clients.get((caller, name))
            if client is not None:
                client.streams = max(0, client.streams - 1)
                client.seen_ns = self._now_ns()
                self._clients.move_to_end((caller, name))

    def acknowledged(self, caller: str, name: str, revision: int, held_s: float = 0.0) -> None:
        """Note that a client works with `revision`, which it learned of `held_s` seconds ago."""
        with self._lock:
            client = self._known(caller, name, revision)
            came_ns = client.seen_ns - int(held_s * _NS)
            delays = self._delays(client, revision, came_ns)
            client.delays.extend(delays)
            client.revision = max(client.revision, revision)
        for delay in delays:
            self._on_delay(delay)

    def have(self) -> Callable[[int], int]:
        """Return what tells how many of the clients known now work with a change or a later one."""
        with self._lock:
            known = sorted(client.revision for client in self._clients.values())
        return lambda revision: len(known) - bisect_left(known, revision)

    def acknowledged_by(self, revision: int, scope: Scope) -> tuple[int, int]:
        """Return how many of the clients that are told of a change of this scope work with it, and all."""
        with self._lock:
            told = [
                client.revision >= revision
                for client in self._clients.values()
                if client.streams and (client.concerns is None or client.concerns(scope))
            ]
        return sum(told), len(told)

    def all(self, newest: int) -> Sequence[Follower]:
        """Return every client, the one that is furthest behind `newest` first."""
        now, late_ns, clients = self._now(newest)
        shown = [_shown(client, newest, _stale(client, newest, now, late_ns)) for client in clients]
        return sorted(shown, key=lambda follower: (-follower.behind, follower.caller, follower.name))

    def stale(self, newest: int) -> int:
        """Return how many clients have not acknowledged `newest` for long."""
        now, late_ns, clients = self._now(newest)
        return sum(_stale(client, newest, now, late_ns) for client in clients)

    def _now(self, newest: int) -> tuple[int, int, list[_Client]]:
        """Return the time, that of the commit of `newest` (0: long ago), and the clients."""
        with self._lock:
            now = self._now_ns()
            self._forget(now, MAX_CLIENTS)
            late_ns = next((at for number, at in reversed(self._commits) if number <= newest), 0)
            return now, late_ns, list(self._clients.values())

    def _known(self, caller: str, name: str, revision: int) -> _Client:
        now = self._now_ns()
        client = self._clients.get((caller, name))
        if client is None:
            self._forget(now, MAX_CLIENTS - 1)
            client = _Client(caller=caller, name=name, since_ns=now, seen_ns=now, revision=revision)
            self._clients[caller, name] = client
        client.seen_ns = now
        self._clients.move_to_end((caller, name))
        return client

    def _delays(self, client: _Client, revision: int, came_ns: int) -> list[float]:
        delays = []
        for number, at in reversed(self._commits):
            if number <= client.revision or at < client.since_ns:
                break
            if number <= revision:
                delays.append(max(0, came_ns - at) / _NS)
        return delays

    def _forget(self, now: int, most: int) -> None:
        """Forget from the front on until `most` are left; those who are connected go to the end instead."""
        before = now - int(FORGET_S * _NS)
        for _ in range(len(self._clients)):
            key, client = next(iter(self._clients.items()))
            if client.seen_ns >= before and len(self._clients) <= most:
                return
            if client.streams:
                self._clients.move_to_end(key)
            else:
                del self._clients[key]


def _stale(client: _Client, newest: int, now: int, newest_ns: int) -> bool:
    return client.revision < newest and now - newest_ns > STALE_S * _NS


def _shown(client: _Client, newest: int, stale: bool) -> Follower:  # noqa: FBT001 - a fact, no switch
    delays = sorted(client.delays)
    return Follower(
        name=client.name,
        caller=client.caller,
        connected=client.streams > 0,
        since_ns=client.since_ns,
        seen_ns=client.seen_ns,
        revision=client.revision,
        behind=max(0, newest - client.revision),
        stale=stale,
        measured=len(delays),
        p50_s=_quantile(delays, 0.5),
        p99_s=_quantile(delays, 0.99),
    )


def _quantile(ordered: Sequence[float], share: float) -> float | None:
    """Return the value below which `share` of them lie.

    >>> _quantile([1.0, 2.0, 3.0], 0.5), _quantile([], 0.5)
    (2.0, None)
    """
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None
