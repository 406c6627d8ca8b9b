"""How fast a trip reaches those who must obey: `python bench/breaker [--clients 200] [--rate 5000]`.

Starts the whole sidecar, connects real guards (with `--plain`: readers of the event stream) over loopback in
a few processes, trips a breaker by hand and resets it again, `--trips` times. Printed: from the request that
trips to the client that knows it, to the first refused call of a loop of calls, how many calls began after
the trip and were let through, the same for the release, and how long `/v1/check` takes meanwhile, at a fixed
rate and counted from when it was due. Then once more while spans come in.

No deployment has 200 agents on the sidecar's two CPUs, so that the guards run with the priority `--nice`;
`--nice 0` is the other way. `--wait-acks S`: trips wait for acknowledgements.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from api.config import Settings
from api.sidecar import Sidecar
from bench.breaker.clients import READY, ROUND, STOP, TOOL, Noted, serve
from bench.breaker.guards import serve_guards

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

HERE = Path(__file__).parent
SETTLE_S = 0.3
PATIENCE_S = 60.0
AFTER_NS = 250_000_000


@dataclass
class Trip:
    """One trip and its release, by `time.monotonic_ns`: asked and answered."""

    breaker: str
    session: str
    revision: int
    asked: int
    answered: int
    release_revision: int = 0
    release_asked: int = 0


@dataclass
class Measured:
    """What one part of the benchmark gave. `checks`: when each ended (`time.monotonic_ns`), how long (ms)."""

    trips: list[Trip] = field(default_factory=list)
    noted: list[Noted] = field(default_factory=list)
    checks: list[tuple[int, float]] = field(default_factory=list)


class Checks(threading.Thread):
    """Asks `/v1/check` at a fixed rate on one connection; what waits for the one before has waited too."""

    def __init__(self, port: int, rate: float) -> None:
        super().__init__(daemon=True)
        self._port = port
        self._every = 1 / rate
        self._stopping = threading.Event()
        self.took: list[tuple[int, float]] = []

    def run(self) -> None:
        """Ask until told to stop."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)
        body = json.dumps({"session_id": "session-1", "tool": TOOL, "arguments": {"limit": 20}})
        due = time.perf_counter()
        while not self._stopping.is_set():
            due += self._every
            early = due - time.perf_counter()
            if early > 0:
                time.sleep(early)
            began = time.perf_counter() if early > 0 else due
            connection.request("POST", "/v1/check", body, {"content-type": "application/json"})
            connection.getresponse().read()
            self.took.append((time.monotonic_ns(), (time.perf_counter() - began) * 1e3))
        connection.close()

    def end(self) -> list[tuple[int, float]]:
        """Stop, and return when each ended and how long it took (ms)."""
        self._stopping.set()
        self.join()
        return self.took


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--plain", action="store_true", help="readers of the stream instead of guards")
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--trips", type=int, default=40)
    parser.add_argument("--call-ms", type=float, default=20.0, help="how long a call of the loop takes")
    parser.add_argument(
        "--rate", type=float, default=5_000, help="spans a second in the second part; 0: none"
    )
    parser.add_argument("--nice", type=int, default=10, help="of the guards' processes")
    parser.add_argument("--checks", type=float, default=200, help="checks a second")
    parser.add_argument("--wait-acks", type=float, default=0, help="`wait_acks_s` of each trip")
    options = parser.parse_args()
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg())
    print(
        f"{os.cpu_count()} CPUs, load average before: {load}; {options.clients} clients, nice {options.nice}"
    )
    with _sidecar() as sidecar:
        _print("idle", _measure(sidecar.endpoints.api_port, options), options)
        if options.rate:
            seconds = options.trips * 3 * SETTLE_S + 20
            with _spans(sidecar.endpoints.otlp_http, options.rate, seconds):
                time.sleep(3)
                _print(f"{options.rate:.0f} spans/s", _measure(sidecar.endpoints.api_port, options), options)


@contextmanager
def _sidecar() -> Iterator[Sidecar]:
    with tempfile.TemporaryDirectory(prefix="recloser-bench-") as folder:
        sidecar = Sidecar(
            Settings(data_dir=Path(folder), otlp_http_port=0, otlp_grpc_port=0, api_port=0, log_level="error")
        )
        sidecar.start()
        try:
            yield sidecar
        finally:
            sidecar.stop()


@contextmanager
def _spans(url: str, rate: float, seconds: float) -> Iterator[None]:
    load = subprocess.Popen(
        [sys.executable, str(HERE.parent / "load.py"), url, "--rate", str(rate), "--seconds", str(seconds)],
        stdout=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        load.terminate()
        load.wait()


def _measure(port: int, options: argparse.Namespace) -> Measured:
    context = multiprocessing.get_context("spawn")
    serving = serve if options.plain else serve_guards
    pipes: list[Connection] = []
    children = []
    for number in range(options.processes):
        here, there = context.Pipe()
        share = options.clients // options.processes + (number < options.clients % options.processes)
        child = context.Process(
            target=serving, args=(port, share, options.call_ms / 1e3, options.nice, there), daemon=True
        )
        child.start()
        pipes.append(here)
        children.append(child)
    measured = Measured()
    try:
        for pipe in pipes:
            if not pipe.poll(PATIENCE_S) or pipe.recv() != READY:
                raise RuntimeError("the clients did not connect")
        checks = Checks(port, options.checks)
        checks.start()
        run = f"{time.time_ns():x}"
        for number in range(options.trips):
            session = f"bench-{run}-{number}"
            for pipe in pipes:
                pipe.send((ROUND, session))
            time.sleep(SETTLE_S)
            trip = _trip(port, session, options.wait_acks)
            time.sleep(SETTLE_S)
            _release(port, trip)
            time.sleep(SETTLE_S)
            measured.trips.append(trip)
        measured.checks = checks.end()
        for pipe in pipes:
            pipe.send((STOP, ""))
        measured.noted = [pipe.recv() for pipe in pipes if pipe.poll(PATIENCE_S)]
    finally:
        for child in children:
            child.join(5)
            child.kill()
    return measured


def _trip(port: int, session: str, wait_acks: float) -> Trip:
    asked = time.monotonic_ns()
    body: dict[str, Any] = {"scope": {"session": session}, "action": "deny", "reason": "bench"}
    if wait_acks:
        body["wait_acks_s"] = wait_acks
    shown = _post(port, "/v1/breakers", body)
    return Trip(
        breaker=shown["id"],
        session=session,
        revision=shown["revision"],
        asked=asked,
        answered=time.monotonic_ns(),
    )


def _release(port: int, trip: Trip) -> None:
    trip.release_asked = time.monotonic_ns()
    shown = _post(port, f"/v1/breakers/{trip.breaker}/reset", {"reason": "bench"})
    trip.release_revision = shown["revision"]


def _post(port: int, path: str, body: dict[str, Any]) -> dict[str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    answer = connection.getresponse()
    shown: dict[str, Any] = json.loads(answer.read())
    connection.close()
    if answer.status not in {200, 201}:
        raise RuntimeError(f"{path}: {answer.status} {shown}")
    return shown


def _print(name: str, measured: Measured, options: argparse.Namespace) -> None:
    seen = _knew(measured, [(trip.revision, trip.asked) for trip in measured.trips])
    gone = _knew(measured, [(trip.release_revision, trip.release_asked) for trip in measured.trips])
    expected = options.clients * options.trips
    print(f"\n{name}")
    _line("trip asked -> client knows", seen, expected)
    _line("trip asked -> first refused call", _first(measured, refused=True), None)
    _line("release asked -> client knows", gone, expected)
    _line("release asked -> first call let through", _first(measured, refused=False), None)
    for since in ("asked", "answered"):
        late = _late(measured, since)
        print(
            f"  begun after the trip was {since:8} and let through: {sum(late):3} in {len(late)} trips, "
            f"at most {max(late, default=0)} a trip"
        )
    running = _in_flight(measured, options.call_ms)
    print(f"  calls in flight at a trip: {running:.1f} on average")
    print(f"  let through by a guard that knew: {_disobeyed(measured)}")
    print(f"  watchers that fell behind: {sum(noted.resets for noted in measured.noted)}")
    _decisions([ns for noted in measured.noted for ns in noted.check_ns])
    changes = [at for trip in measured.trips for at in (trip.asked, trip.release_asked)]
    near = [any(0 <= ended - at < AFTER_NS for at in changes) for ended, _ in measured.checks]
    took = [took for _, took in measured.checks]
    _line("/v1/check", took, None)
    _line(
        "/v1/check, 250 ms after each change", [ms for ms, hot in zip(took, near, strict=True) if hot], None
    )
    _line("/v1/check, else", [ms for ms, hot in zip(took, near, strict=True) if not hot], None)


def _knew(measured: Measured, changes: list[tuple[int, int]]) -> list[float]:
    """From the request for a change to each client that knows it (ms)."""
    clients = [told for noted in measured.noted for told in noted.knew.values()]
    found = []
    for revision, asked in changes:
        first = (next((at for known, at in told if known >= revision), None) for told in clients)
        found += [(at - asked) / 1e6 for at in first if at is not None]
    return found


def _first(measured: Measured, *, refused: bool) -> list[float]:
    """From the request to the first call that is decided by it, by caller and trip (ms)."""
    found = []
    for noted in measured.noted:
        for trip in measured.trips:
            since = trip.asked if refused else trip.release_asked
            after = [
                at for s, at, ok in noted.calls if s == trip.session and at >= since and ok is not refused
            ]
            found += [(after[0] - since) / 1e6] if after else []
    return found


def _late(measured: Measured, since: str) -> list[int]:
    """How many calls began after the trip was asked or answered and were let through, by trip."""
    return [
        sum(
            ok and getattr(trip, since) <= at < trip.release_asked
            for noted in measured.noted
            for session, at, ok in noted.calls
            if session == trip.session
        )
        for trip in measured.trips
    ]


def _in_flight(measured: Measured, call_ms: float) -> float:
    """How many calls ran when a trip was asked, on average."""
    running = sum(
        ok and trip.asked - call_ms * 1e6 <= at < trip.asked
        for trip in measured.trips
        for noted in measured.noted
        for session, at, ok in noted.calls
        if session == trip.session
    )
    return running / max(1, len(measured.trips))


def _disobeyed(measured: Measured) -> int:
    """How many calls a guard let through although it knew of the trip."""
    return sum(
        ok
        and at < trip.release_asked
        and any(trip.revision <= r and known < at for r, known in noted.knew[0])
        for trip in measured.trips
        for noted in measured.noted
        for session, at, ok in noted.calls
        if session == trip.session
    )


def _decisions(took_ns: list[int]) -> None:
    ordered = sorted(took_ns)
    if ordered:
        p50, p99 = (ordered[int(len(ordered) * share)] / 1e3 for share in (0.5, 0.99))
        name = "decision of a guard, asked rarely"
        print(f"  {name:42} p50 {p50:6.1f} us  p99 {p99:6.1f} us  n {len(ordered)}")


def _line(name: str, values_ms: list[float], expected: int | None) -> None:
    ordered = sorted(values_ms)
    if not ordered:
        print(f"  {name:42} nothing measured")
        return
    count = len(ordered)
    missing = "" if expected in (None, count) else f"  of {expected}!"
    print(
        f"  {name:42} p50 {ordered[count // 2]:6.1f} ms  p99 {ordered[int(count * 0.99)]:6.1f} ms  "
        f"max {ordered[-1]:6.1f} ms  n {count}{missing}"
    )


if __name__ == "__main__":
    main()
