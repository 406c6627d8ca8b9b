"""The whole sidecar on one page: its processes, what each is told, what happens when one dies.

::

    supervisor (this)
    ├─ store     chdb behind HTTP on loopback       only without a ClickHouse URL
    ├─ ingest    OTLP in, spool, steps, findings, rows out
    └─ control   alerts, webhooks, breakers, the HTTP API

A process that dies is started again, at once the first time and more slowly when it keeps dying; what it
had accepted lies in spool.db and control.db. SIGTERM ends them in the order in which data flows.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from api.config import Settings, to_json
from api.process import Child

logger = logging.getLogger(__name__)

READY_TIMEOUT: Final = 60.0  # seconds
CALM: Final = 30.0  # seconds of life after which a death counts as the first again
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 10.0
PORT_PATIENCE: Final = 7.0  # seconds: children of a killed supervisor may still be draining
DRAIN: Final = {"ingest": 20.0, "control": 8.0, "store": 8.0}  # seconds to finish, in this order
NICE: Final = {"ingest": 5, "store": 10}  # a check must not wait behind decoding and inserts
MODULES: Final = {"store": "api.storeprocess", "ingest": "api.ingest", "control": "api.controlprocess"}


class SidecarError(Exception):
    """The sidecar cannot start; the message says what is in the way."""


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where the running sidecar listens."""

    host: str
    otlp_http_port: int
    otlp_grpc_port: int
    api_port: int

    @property
    def api(self) -> str:
        """Base URL of the HTTP API."""
        return f"http://{self.host}:{self.api_port}"

    @property
    def otlp_http(self) -> str:
        """Base URL for OTLP/HTTP exporters."""
        return f"http://{self.host}:{self.otlp_http_port}"

    @property
    def otlp_grpc(self) -> str:
        """Target for OTLP/gRPC exporters."""
        return f"http://{self.host}:{self.otlp_grpc_port}"


class _Watched:
    """One child and the history of its deaths."""

    def __init__(self, name: str, options: Mapping[str, object]) -> None:
        self.name = name
        self.options = options
        self.deaths = 0
        self.started = 0.0
        self.not_before = 0.0
        self.child: Child | None = None

    def start(self) -> None:
        self.started = time.monotonic()
        self.child = Child(self.name, MODULES[self.name], self.options, NICE.get(self.name, 0))

    def look(self) -> None:
        """Start the process again when it has died, with a growing pause while it keeps dying."""
        if self.child is None or self.child.alive:
            return
        now = time.monotonic()
        if self.not_before == 0.0:
            self.deaths = 1 if now - self.started > CALM else self.deaths + 1
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (self.deaths - 1))
            self.not_before = now + pause
            logger.error(
                "%s ended with status %s; started again in %.1f s",
                self.name,
                self.child.process.returncode,
                pause,
            )
        if now >= self.not_before:
            self.not_before = 0.0
            self.child.stop(0)
            self.start()


class Sidecar:
    """Runs and watches the processes. `start` returns when all are ready; `stop` drains."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock_file: int | None = None
        self._watched: dict[str, _Watched] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="supervisor", daemon=True)
        self.endpoints = Endpoints(
            settings.host,
            *(
                port or free_port(settings.host)
                for port in (settings.otlp_http_port, settings.otlp_grpc_port, settings.api_port)
            ),
        )

    def start(self) -> None:
        """Start everything. Raises `SidecarError` when something is in the way."""
        directory = self._settings.data_dir
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise SidecarError(f"data_dir {directory}: {error.strerror}") from error
        self._lock(directory)
        for port in (self.endpoints.otlp_http_port, self.endpoints.otlp_grpc_port, self.endpoints.api_port):
            self._check_port(port)
        for name, options in self._plan().items():
            self._watched[name] = _Watched(name, options)
            self._watched[name].start()
        self._await_ready()
        self._thread.start()

    def _plan(self) -> dict[str, dict[str, object]]:
        settings = self._settings
        common: dict[str, object] = {
            "settings": to_json(settings),
            "http_port": self.endpoints.otlp_http_port,
            "grpc_port": self.endpoints.otlp_grpc_port,
            "api_port": self.endpoints.api_port,
            "metrics_port": free_port("127.0.0.1"),
        }
        plan: dict[str, dict[str, object]] = {}
        if settings.clickhouse.url is None:
            port, secret = free_port("127.0.0.1"), secrets.token_urlsafe(32)
            plan["store"] = {**common, "store_port": port, "store_secret": secret}
            common |= {
                "store_url": f"http://127.0.0.1:{port}",
                "store_user": "default",
                "store_password": secret,
            }
        else:
            clickhouse = settings.clickhouse
            common |= {
                "store_url": clickhouse.url,
                "store_user": clickhouse.user,
                "store_password": clickhouse.password.get_secret_value(),
            }
        plan["ingest"] = common
        plan["control"] = common
        return plan

    def _lock(self, directory: Path) -> None:
        path = directory / "recloser.lock"
        try:
            self._lock_file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise SidecarError(f"{path}: {error.strerror}") from error
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise SidecarError(f"data_dir {directory}: another recloser is using it") from error

    def _check_port(self, port: int) -> None:
        family = socket.AF_INET6 if ":" in self.endpoints.host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            deadline = time.monotonic() + PORT_PATIENCE
            while True:
                try:
                    return probe.bind((self.endpoints.host, port))
                except OSError as error:
                    if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                        raise SidecarError(
                            f"cannot listen on {self.endpoints.host}:{port}: {error.strerror}"
                        ) from error
                    time.sleep(0.1)

    def _await_ready(self) -> None:
        deadline = time.monotonic() + READY_TIMEOUT
        for watched in self._watched.values():
            child = watched.child
            while child is not None and not child.ready.wait(0.05):
                if not child.alive:
                    self.stop()
                    raise SidecarError(
                        f"{watched.name} ended with status {child.process.returncode} before it was ready"
                    )
                if time.monotonic() > deadline:
                    self.stop()
                    raise SidecarError(f"{watched.name} was not ready within {READY_TIMEOUT:.0f} s")

    def _watch(self) -> None:
        while not self._stopping.wait(0.05):
            for watched in self._watched.values():
                watched.look()

    def pids(self) -> dict[str, int]:
        """Process ids by name, of those that run."""
        return {
            name: watched.child.process.pid
            for name, watched in self._watched.items()
            if watched.child is not None and watched.child.alive
        }

    def reload(self) -> None:
        """Have the policy file read again; control reads it anyway whenever it starts."""
        watched = self._watched.get("control")
        child = None if watched is None else watched.child
        if child is not None and child.ready.is_set() and child.alive:
            child.process.send_signal(signal.SIGHUP)

    def stop(self) -> None:
        """Drain and end: ingest first, then control, then the store."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        for name, seconds in DRAIN.items():
            watched = self._watched.get(name)
            if watched is not None and watched.child is not None:
                watched.child.stop(seconds)
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None


def free_port(host: str) -> int:
    """A port that is free now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port
