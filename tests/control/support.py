"""What tests of the control plane share: a clock that is set, findings, a spool, a receiver."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import sqlite3
import threading
import time
import uuid
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import orjson
from prometheus_client import CollectorRegistry

from control.alerts.desk import AlertParts
from control.breakers.book import Breakers
from control.breakers.index import BreakerIndex
from control.db import ControlDb
from control.delivery import Delivery
from control.findings import SpoolFindings
from control.metrics import ControlMetrics
from control.outbox import Outbox
from control.policy import Policy
from control.retry import RetryPolicy
from control.service import Control
from detectors.protocol import Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from control.notifiers.protocol import Notifier
    from detectors.notes import Notes

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
START_NS = 1_700_000_000_000_000_000

STUCK = Finding(
    id="00112233445566ff",
    kind="doom_loop",
    severity=Severity.CRITICAL,
    session_id="session-1",
    session_ids=("session-1",),
    run_id="run-1",
    service="shop",
    agent="buyer",
    tool="fetch_page",
    trace_id="a" * 32,
    span_id="b" * 16,
    first_span_id="c" * 16,
    started_at=START_NS - 10_000_000_000,
    detected_at=START_NS - 1_000_000_000,
    occurrences=6,
    summary="fetch_page was called 6 times with the same arguments and failed the same way",
    evidence={"threshold": 6, "span_ids": ["b" * 16]},
)


@dataclass
class ManualClock:
    """A clock that moves when it is told to."""

    now: int = START_NS

    def __call__(self) -> int:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += int(seconds * 1e9)


def another(number: int, **changes: Any) -> Finding:  # noqa: ANN401 - any fields
    """A finding with an id of its own."""
    return replace(STUCK, id=f"{number:016x}", **changes)


class Spool:
    """Writes findings as the ingest process does."""

    def __init__(self, path: Path, clock: Callable[[], int] = time.time_ns) -> None:
        self.path = path
        self._clock = clock
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(
                "CREATE TABLE findings (seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT, revision INTEGER, "
                "payload TEXT, created_ns INTEGER, UNIQUE (id, revision))"
            )
            connection.execute("CREATE TABLE state (key TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID")
            with connection:
                connection.execute("INSERT INTO state VALUES ('name', ?)", (uuid.uuid4().hex.encode(),))

    def add(self, *findings: Finding) -> None:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            for finding in findings:
                self._insert(connection, finding.id, finding.revision, orjson.dumps(asdict(finding)).decode())

    def add_raw(self, payload: str) -> None:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            self._insert(connection, "raw", 0, payload)

    def _insert(self, connection: sqlite3.Connection, key: str, revision: int, payload: str) -> None:
        connection.execute(
            "INSERT INTO findings (id, revision, payload, created_ns) VALUES (?, ?, ?, ?)",
            (key, revision, payload, self._clock()),
        )

    @classmethod
    def of(cls, path: Path, clock: Callable[[], int]) -> Spool:
        """The spool that is there already."""
        spool = cls.__new__(cls)
        spool.path, spool._clock = path, clock
        return spool


class Parts:
    """A control plane without threads: tests make every turn themselves."""

    def __init__(
        self,
        folder: Path,
        *,
        policy: Policy | None = None,
        notifiers: Mapping[str, Notifier] | None = None,
        places: Mapping[str, Notifier] | None = None,
        retry: RetryPolicy | None = None,
        clock: ManualClock | None = None,
        random: Callable[[], float] = lambda: 1.0,
        alerts: AlertParts | None = None,
    ) -> None:
        policy = policy or Policy()
        self.notes: dict[str, Notes] = {}
        self.clock = clock or ManualClock()
        self.registry = CollectorRegistry()
        self.metrics = ControlMetrics(self.registry)
        self.db = ControlDb(folder / "control.db")
        self.source = SpoolFindings(folder / "spool.db")
        self.outbox = Outbox(self.db, retry or RetryPolicy(), now_ns=self.clock, random=random)
        self.notifiers = dict(notifiers or {})
        delivered_to = self.notifiers if places is None else dict(places)
        self.delivery = Delivery(self.outbox, delivered_to, self.metrics, now_ns=self.clock)
        self.index = BreakerIndex(policy.escalate_after)
        self.breakers = Breakers(self.db, self.index, self.clock)
        for name, notifier in delivered_to.items():
            self.outbox.register(name, notifier.address)
        self.control = Control(
            db=self.db,
            source=self.source,
            policy=policy,
            breakers=self.breakers,
            outbox=self.outbox,
            notifiers=self.notifiers,
            delivery=self.delivery,
            metrics=self.metrics,
            now_ns=self.clock,
            alerts=alerts or AlertParts(notes_of=self.notes.get),
        )

    def look_after(self) -> None:
        """Let alerting do by the clock what is due: one round over all alerts, if they are not very many."""
        for duty in self.control.desk.duties:
            duty.turn()

    def decide_all(self) -> None:
        while self.control.step():
            pass

    def close(self) -> None:
        self.source.close()
        self.db.close()


@dataclass
class Received:
    """One request that reached the receiver."""

    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def json(self) -> Any:  # noqa: ANN401 - JSON
        return json.loads(self.body)

    def signed_with(self, secret: str) -> bool:
        """Verify as a receiver does, independently of the code under test."""
        key = base64.b64decode(secret.removeprefix("whsec_"))
        signed = b".".join((self.id.encode(), self.headers["webhook-timestamp"].encode(), self.body))
        wanted = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
        return wanted in self.headers["webhook-signature"].split(" ")


@dataclass
class Reply:
    """What the receiver answers."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    body: bytes = b""


class Receiver:
    """A real HTTP server on loopback that keeps what it got and answers by a script, then 200."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.script: list[Reply] = []
        self.page = b""
        self._changed = threading.Condition()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["content-length"])
                body = self.rfile.read(length)
                if len(body) < length:  # the sender was killed in the middle: nothing was received
                    self.close_connection = True
                    return
                reply = receiver._take(Received({k.lower(): v for k, v in self.headers.items()}, body))
                if reply.delay_s:
                    receiver._stopping.wait(reply.delay_s)
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body)

            def do_GET(self) -> None:
                receiver._take(Received({"followed": "redirect"}, b""))
                self.send_response(200)
                self.end_headers()
                self.wfile.write(receiver.page)

            def log_message(self, *_args: object) -> None:
                """Say nothing."""

        self._stopping = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.handle_error = lambda *_args: None  # type: ignore[method-assign]  # clients go away on purpose
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/hook"

    def wait_for(self, count: int, timeout_s: float = 10.0) -> list[Received]:
        """Wait until at least `count` requests came in."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.received) >= count, timeout_s), self.received
            return list(self.received)

    def close(self) -> None:
        self._stopping.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _take(self, request: Received) -> Reply:
        with self._changed:
            self.received.append(request)
            self._changed.notify_all()
            return self.script.pop(0) if self.script else Reply()


def receiving() -> Iterator[Receiver]:
    """Run a receiver for the length of a test."""
    receiver = Receiver()
    yield receiver
    receiver.close()


def eventually(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    """Wait until something is true."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it never became true"
        time.sleep(0.01)
