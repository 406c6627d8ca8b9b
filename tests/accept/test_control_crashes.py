"""kill -9 while alerts fire and resolve, breakers trip and are released, and the receiver is flaky.

What was accepted is followed by its end, in order and under one key; what a person was told is so stays so.
"""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
import sys
import threading
import time
import uuid
from collections import defaultdict
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest
from harness import PATIENCE, Client, Served

if TYPE_CHECKING:
    from collections.abc import Iterator

PROCESSES: Final = ("ingest", "store", "control", "supervisor")
CLIENTS: Final = 2
SWITCHES: Final = 6
LONG_S: Final = 3600
SWITCH: Final = "switch-"


@dataclass(slots=True)
class FlakyOnCall:
    """A receiver that refuses, breaks off and takes its time, until it is told to be well.

    `accepted` has (webhook id, body) in the order in which they were answered with 2xx; `seen` all bodies by
    id, those that were not accepted included.
    """

    server: ThreadingHTTPServer
    rng: random.Random
    well: threading.Event = field(default_factory=threading.Event)
    accepted: list[tuple[str, bytes]] = field(default_factory=list)
    seen: dict[str, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def start(cls, seed: int) -> FlakyOnCall:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["content-length"])
                body = self.rfile.read(length)
                if len(body) < length:
                    self.close_connection = True
                    return
                status = receiver.answer(self.headers["webhook-id"], body)
                if status is None:
                    self.close_connection = True
                    return
                self.send_response(status)
                if status == 429:
                    self.send_header("retry-after", "1")
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *args: object) -> None:
                del args

        receiver = cls(ThreadingHTTPServer(("127.0.0.1", 0), Handler), random.Random(seed))
        threading.Thread(target=receiver.server.serve_forever, daemon=True).start()
        return receiver

    def answer(self, webhook_id: str, body: bytes) -> int | None:
        """Take a delivery; None: break the connection off, after having taken it or not."""
        with self.lock:
            self.seen[webhook_id].add(body)
            luck = 1.0 if self.well.is_set() else self.rng.random()
            if luck < 0.15:
                return 500
            if luck < 0.2:
                return 429
            if luck < 0.25:
                return None
            self.accepted.append((webhook_id, body))
            return None if luck < 0.3 else 204

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/hook"

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()


class Sidecar(Served):
    """With quick retries and nothing that resolves alerts by itself."""

    def settings(self) -> str:
        """Quick retries; alerts end by persons only."""
        return (
            "[delivery]\nfirst_s = 0.2\ncap_s = 1.0\nheld_cap_s = 1.0\n"
            "[alerts]\nkeep_firing_s = 100000\nflap_threshold = 1000\n"
        )

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:  # noqa: ANN401 - JSON
        return httpx.request(
            method,
            f"http://127.0.0.1:{self.api_port}{path}",
            json=body,
            headers=headers,
            timeout=5,
            trust_env=False,
        )


class Person(threading.Thread):
    """Resolves alerts, resets breakers of sessions, and works switches of its own, whose states it knows.

    A request that is not answered is made again under its Idempotency-Key, as clients are told to.
    """

    def __init__(self, served: Sidecar, seed: int) -> None:
        super().__init__(daemon=True)
        self._served = served
        self._rng = random.Random(seed)
        self.stopping = threading.Event()
        self.states: dict[str, str] = {}
        self.reset: set[str] = set()
        self.done = 0

    def run(self) -> None:
        while not self.stopping.is_set():
            self._rng.choice((self._switch, self._switch, self._resolve_one, self._reset_one))()
            self.done += 1
            time.sleep(self._rng.uniform(0.02, 0.15))

    def _switch(self) -> None:
        name = f"{SWITCH}{self._rng.randrange(SWITCHES)}"
        known = self.states.get(name)
        if known is None:
            body = {"scope": {"session": name, "tool": "pay"}, "action": "deny", "reason": "test"}
            answer = self._until_told("/v1/breakers", body)
            assert answer.status_code in (200, 201), answer.text
            self.states[name] = answer.json()["state"]
            return
        act = self._rng.choice(
            {
                "open": ("force_open", "force_close", "reset"),
                "forced_open": ("force_close", "release"),
                "forced_closed": ("force_open", "release"),
                "closed": ("trip", "force_open", "force_close"),
            }[known]
        )
        hold = {"ttl_s": LONG_S} if act in ("force_open", "force_close") else {}
        answer = self._until_told(f"/v1/breakers/{self._id_of(name)}/{act}", {"reason": "test", **hold})
        assert answer.status_code == 200, answer.text
        self.states[name] = answer.json()["state"]

    def _id_of(self, name: str) -> str:
        return str(self._listed(f"/v1/breakers?session_id={name}")["breakers"][0]["id"])

    def _resolve_one(self) -> None:
        firing = self._listed("/v1/alerts?state=firing&limit=50")["alerts"]
        if firing:
            one = self._rng.choice(firing)
            self._until_told(f"/v1/alerts/{one['id']}/resolve", {"reason": "test"})

    def _reset_one(self) -> None:
        found = self._listed("/v1/breakers?state=open&limit=100")["breakers"]
        doomed = [each for each in found if not each["scope"]["session"].startswith(SWITCH)]
        if doomed:
            one = self._rng.choice(doomed)
            self.reset.add(one["scope"]["session"])
            self._until_told(f"/v1/breakers/{one['id']}/reset", {"reason": "test"})

    def _listed(self, path: str) -> Any:  # noqa: ANN401 - JSON
        deadline = time.monotonic() + 3 * PATIENCE
        while True:
            try:
                answer = self._served.call("GET", path)
                if answer.status_code == 200:
                    return answer.json()
            except httpx.HTTPError:
                pass
            assert time.monotonic() < deadline, path
            time.sleep(0.1)

    def _until_told(self, path: str, body: Any) -> httpx.Response:  # noqa: ANN401 - JSON
        key = uuid.UUID(bytes=self._rng.randbytes(16)).hex
        deadline = time.monotonic() + 3 * PATIENCE
        while True:
            try:
                answer = self._served.call("POST", path, body, **{"idempotency-key": key})
                if answer.status_code < 500:
                    return answer
            except httpx.HTTPError:
                pass
            assert time.monotonic() < deadline, path
            time.sleep(0.1)


@pytest.fixture
def on_call() -> Iterator[FlakyOnCall]:
    receiver = FlakyOnCall.start(seed=5)
    yield receiver
    receiver.stop()


@pytest.fixture
def served(tmp_path: Path, on_call: FlakyOnCall) -> Iterator[Sidecar]:
    sidecar = Sidecar(tmp_path, on_call)
    sidecar.start()
    yield sidecar
    sidecar.end()


def crash_matrix(served: Sidecar, on_call: FlakyOnCall, process: str, kills: int, seed: int) -> None:
    rng = random.Random(seed)
    clients = [Client(served, 2 * number) for number in range(CLIENTS)]
    person = Person(served, seed)
    threads: list[Client | Person] = [*clients, person]
    for thread in threads:
        thread.start()
    done = 0
    try:
        while done < kills:
            if rng.random() < 0.7:  # else it may be killed while it starts
                served.await_ready()
            time.sleep(rng.uniform(0.1, 2.0))
            done += served.kill(process)
            assert person.is_alive()
    finally:
        for thread in threads:
            thread.stopping.set()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    on_call.well.set()
    served.await_ready()
    sessions = sorted(session for client in clients for session in client.loops)
    await_alerts(served, sessions)
    check_breakers(served, person, sessions)
    resolve_all(served)
    await_delivered(served)
    assert served.stop() == 0
    check_deliveries(on_call)
    verified = subprocess.run(
        [Path(sys.executable).parent / "recloser", "audit", "verify", "--data-dir", served.folder / "data"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert verified.returncode == 0, verified.stdout + verified.stderr


def listed(served: Sidecar, path: str, what: str) -> list[Any]:
    """All pages of a list."""
    found: list[Any] = []
    before = ""
    while True:
        page = served.call("GET", f"{path}limit=1000{before}").json()
        found += page[what]
        if page["next_before"] is None:
            return found
        before = f"&before={page['next_before']}"


def await_alerts(served: Sidecar, sessions: list[str]) -> None:
    """Each run that loops has one alert."""
    deadline = time.monotonic() + PATIENCE
    while True:
        alerts = listed(served, "/v1/alerts?", "alerts")
        of_sessions = sorted({alert["finding"]["session_id"] for alert in alerts} - {""})
        if of_sessions == sessions:
            return
        assert time.monotonic() < deadline, set(sessions) - set(of_sessions)
        time.sleep(0.3)


def check_breakers(served: Sidecar, person: Person, sessions: list[str]) -> None:
    """Nothing was lost, nothing released: switches stand as the person left them, doomed runs are stopped."""
    breakers = listed(served, "/v1/breakers?", "breakers")
    state = {each["scope"]["session"]: each["state"] for each in breakers}
    assert {name: it for name, it in state.items() if name.startswith(SWITCH)} == person.states
    for session in sessions:
        if session not in person.reset:
            assert state.get(session) == "open", session
            answer = served.call("POST", "/v1/check", {"session_id": session, "tool": "fetch_page"})
            assert answer.json()["decision"] == "halt"


def resolve_all(served: Sidecar) -> None:
    for alert in listed(served, "/v1/alerts?state=firing&", "alerts"):
        answer = served.call("POST", f"/v1/alerts/{alert['id']}/resolve", {"reason": "the end"})
        assert answer.status_code in (200, 409), answer.text


def await_delivered(served: Sidecar) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        places = served.call("GET", "/v1/alerts?limit=1").json()["destinations"]
        if not any(place["pending"] for place in places):
            return
        assert time.monotonic() < deadline, places
        time.sleep(0.2)


def check_deliveries(on_call: FlakyOnCall) -> None:
    """Every id had one body; every firing that was accepted was followed by its resolve."""
    changed = {key: bodies for key, bodies in on_call.seen.items() if len(bodies) > 1}
    assert not changed
    first: dict[str, int] = {}
    for position, (key, _) in enumerate(on_call.accepted):
        first.setdefault(key, position)
    bodies = {key: json.loads(body) for key, body in on_call.accepted}
    episodes: dict[tuple[str, int], dict[str, str]] = defaultdict(dict)
    for key, body in bodies.items():
        data = body["data"]
        if "alert_id" in data:
            episodes[data["alert_id"], data["episode"]][body["type"]] = key
    assert episodes
    for episode, messages in episodes.items():
        assert "alert.resolved" in messages, (episode, messages)
        firing = messages.get("alert.firing")
        if firing is not None:
            assert first[firing] < first[messages["alert.resolved"]], episode
        else:  # an attempt that broke off may have been taken, and then has its end, too
            assert messages["alert.resolved"].replace("resolved", "firing") in on_call.seen, episode
    assert len({hashlib.sha256(body).digest() for _, body in on_call.accepted}) == len(bodies)


@pytest.mark.accept
@pytest.mark.short
def test_control_is_killed_three_times(served: Sidecar, on_call: FlakyOnCall) -> None:
    crash_matrix(served, on_call, "control", kills=3, seed=3)


@pytest.mark.accept
@pytest.mark.parametrize("process", PROCESSES)
def test_thirty_kills(served: Sidecar, on_call: FlakyOnCall, process: str) -> None:
    crash_matrix(served, on_call, process, kills=30, seed=30)
