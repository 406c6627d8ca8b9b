"""Put together who is told of breakers' changes, and what is known of how fast that was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from api.breakerview import breaker_out
from api.followers import Followers
from api.watching import WatchHub

if TYPE_CHECKING:
    from collections.abc import Callable

    from control.breakers.changes import Change
    from control.breakers.record import Breaker
    from control.service import Control


@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    """`hub` tells watchers of changes, `followers` knows which clients have which."""

    hub: WatchHub
    followers: Followers


def following(control: Control, now_ns: Callable[[], int]) -> Following:
    """Begin to follow the breakers."""
    index, metrics = control.breakers.index, control.metrics
    followers = Followers(now_ns, metrics.propagation.observe)

    kept: dict[str, tuple[int, int, bytes]] = {}  # what was written last of each: many may want it anew

    def written(breaker: Breaker) -> bytes:
        denied = index.denied(breaker.id, breaker.denied)
        known = kept.get(breaker.id)
        if known is not None and known[:2] == (breaker.revision, denied):
            return known[2]
        shown = breaker_out(breaker, denied).model_dump_json().encode()
        kept[breaker.id] = (breaker.revision, denied, shown)
        return shown

    hub = WatchHub(index, written, on_reset=metrics.watch_resets.inc)

    def changed(change: Change) -> None:
        if change.breaker is None:
            kept.pop(change.breaker_id, None)
        followers.committed(change.revision)
        hub.changed(change)

    index.subscribe(changed)
    metrics.watchers.set_function(lambda: hub.watchers)
    metrics.stale_clients.set_function(lambda: followers.stale(index.revision))
    return Following(hub=hub, followers=followers)
