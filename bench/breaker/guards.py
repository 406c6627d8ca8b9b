"""One process full of real guards, all in one loop of calls: `recloser_guard` as agents use it."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from bench.breaker.clients import READY, STOP, TOOL, Noted

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

    from recloser_guard import Guard

_IDLE_S = 0.05
_CONNECT_S = 30.0


def serve_guards(port: int, count: int, call_s: float, niceness: int, parent: Connection) -> None:
    """Run `count` guards until the parent says stop, then send what they saw."""
    from recloser_guard import Guard

    os.nice(niceness)
    url, noted = f"http://127.0.0.1:{port}", Noted()
    guards = [Guard(url, cache=None, client=f"bench-{port}-{os.getpid()}-{n}") for n in range(count)]
    for number, guard in enumerate(guards):
        guard._changed = _noting(guard, number, noted)  # type: ignore[method-assign]  # noqa: SLF001 - as it learns
        guard.start()
    if not all(guard.wait_ready(_CONNECT_S) for guard in guards):
        raise RuntimeError("the guards did not connect")
    parent.send(READY)
    _call(guards[0], call_s, parent, noted)
    parent.send(noted)
    for guard in guards:
        guard.close(0.1)


def _noting(guard: Guard, number: int, noted: Noted) -> Callable[[], None]:
    """Note what a guard knows in the thread in which it learns it: looking from outside would cost CPU."""
    changed, known = guard._changed, noted.knew.setdefault(number, [])  # noqa: SLF001 - see above

    def note() -> None:
        known.append((guard._feed.index.revision, time.monotonic_ns()))  # noqa: SLF001 - see above
        changed()

    return note


def _call(guard: Guard, call_s: float, parent: Connection, noted: Noted) -> None:
    """Call a tool again and again, each call as long as `call_s`, and ask a guard before each."""
    session, next_call = "", 0.0
    while True:
        wait = next_call - time.monotonic() if session else _IDLE_S
        if parent.poll(max(0.0, wait)):
            word, session = parent.recv()
            if word == STOP:
                return
        if session and time.monotonic() >= next_call:
            at, began = time.monotonic_ns(), time.perf_counter_ns()
            decision = guard.check(TOOL, {"url": "x"}, session=session)
            noted.check_ns.append(time.perf_counter_ns() - began)
            noted.calls.append((session, at, decision.breaker_id is None))
            next_call = at / 1e9 + call_s
