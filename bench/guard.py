"""What one decision of the guard costs: `python bench/guard.py` prints microseconds a call.

No network is involved in any of them. The breakers are those of an evil day: a thousand, over scopes of
several shapes, none of which means the calls that are allowed.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from recloser_guard import Guard
from recloser_guard.record import PARTS

CALLS = 20_000
ROUNDS = 7
SHAPES: tuple[tuple[str, ...], ...] = (
    ("session",),
    ("session", "tool"),
    ("service", "tool"),
    ("tool",),
    ("agent",),
    ("service", "agent", "tool"),
    ("run",),
    ("session", "tool", "args"),
)


def breakers(count: int) -> list[dict[str, Any]]:
    """Breakers of all shapes in turn."""
    made = []
    for number in range(count):
        scope: dict[str, str | None] = {**dict.fromkeys(PARTS), "tenant": "default"}
        for part in SHAPES[number % len(SHAPES)]:
            scope[part] = f"{number:016x}" if part == "args" else f"{part}-{number}"
        made.append(
            {
                "id": f"br_{number:016x}",
                "scope": scope,
                "state": "open",
                "action": "deny",
                "revision": number + 1,
                "message_for_model": "Stopped.",
            }
        )
    return made


class _NoSidecar(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(503)

    def do_POST(self) -> None:
        self.send_error(503)

    def log_message(self, *_args: object) -> None:
        """Nobody asks for a log."""


def microseconds(call: Callable[[], object]) -> tuple[float, float]:
    """Return the median over rounds of a call's mean, and the 99th percentile of single calls."""
    means = []
    for _ in range(ROUNDS):
        began = time.perf_counter_ns()
        for _ in range(CALLS):
            call()
        means.append((time.perf_counter_ns() - began) / CALLS / 1e3)
    single = []
    for _ in range(CALLS):
        began = time.perf_counter_ns()
        call()
        single.append((time.perf_counter_ns() - began) / 1e3)
    return statistics.median(means), statistics.quantiles(single, n=100)[98]


def _cases(guard: Guard, *, refused: bool) -> list[tuple[str, Callable[[], object]]]:
    args = {"url": "https://shop.example.invalid/7"}
    cases: list[tuple[str, Callable[[], object]]] = [
        ("allowed", lambda: guard.check("fetch", args, session="chat-18", run="r-1", model="m")),
        ("allowed, session of the context", lambda: guard.check("fetch", args)),
    ]
    if refused:
        cases.append(("refused", lambda: guard.check("fetch", args, session="session-0")))
    return cases


def main() -> None:
    """Measure and print."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _NoSidecar)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    print(f"{'breakers':>9} {'case':34} {'mean us':>8} {'p99 us':>8}")
    for count in (0, 1_000, 10_000):
        guard = Guard(
            url, cache=None, service="shop", agent="buyer", agent_version="2", connect_wait=0.0, halt_after=0
        )
        guard._feed.replace(breakers(count), count)  # noqa: SLF001 - as if the sidecar had told it
        guard._health.contact("live")  # noqa: SLF001 - as above
        for name, call in _cases(guard, refused=count > 0):
            with guard.session("chat-17"):
                mean, p99 = microseconds(call)
            print(f"{count:9} {name:34} {mean:8.2f} {p99:8.2f}")
        guard.close(0.0)
    server.shutdown()


if __name__ == "__main__":
    main()
