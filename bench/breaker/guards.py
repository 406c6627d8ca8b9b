"""One process full of real guards, all in one loop of calls: `recloser_guard` as agents use it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bench.breaker.clients import READY, STOP, TOOL, Noted

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from recloser_guard import Guard

_LOOK_S = 0.001
_CONNECT_S = 30.0


def serve_guards(port: int, count: int, call_s: float, parent: Connection) -> None:
    """Run `count` guards until the parent says stop, then send what they saw."""
    from recloser_guard import Guard

    url = f"http://127.0.0.1:{port}"
    guards = [Guard(url, cache=None, client=f"bench-{port}-{id(parent)}-{n}") for n in range(count)]
    for guard in guards:
        guard.start()
    if not all(guard.wait_ready(_CONNECT_S) for guard in guards):
        raise RuntimeError("the guards did not connect")
    parent.send(READY)
    parent.send(_watched(guards, call_s, parent))
    for guard in guards:
        guard.close(0.1)


def _watched(guards: list[Guard], call_s: float, parent: Connection) -> Noted:
    """Look at what every guard knows, again and again; the first one is asked before each call of a loop."""
    noted, session, next_call = Noted(), "", 0.0
    knew = [-1] * len(guards)
    while True:
        if parent.poll():
            word, session = parent.recv()
            if word == STOP:
                return noted
        now = time.monotonic_ns()
        for number, guard in enumerate(guards):
            revision = guard._feed.index.revision  # noqa: SLF001 - looking must cost next to nothing
            if revision != knew[number]:
                knew[number] = revision
                noted.knew.setdefault(number, []).append((revision, now))
        if session and time.monotonic() >= next_call:
            next_call = time.monotonic() + call_s
            began = time.perf_counter_ns()
            decision = guards[0].check(TOOL, {"url": "x"}, session=session)
            noted.check_ns.append(time.perf_counter_ns() - began)
            noted.calls.append((session, time.monotonic_ns(), decision.breaker_id is None))
        time.sleep(_LOOK_S)
