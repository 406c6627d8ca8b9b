"""The ingest process: OTLP in; spool, steps, findings; rows out to the store."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import uvicorn
import uvloop
from prometheus_client import CollectorRegistry, disable_created_metrics, start_http_server

from api.build import (
    build_auth,
    build_decode,
    build_engine,
    build_limits,
    build_pack,
    build_reader,
    build_recoveries,
    build_tokens,
)
from api.config import ConfigError, Settings
from api.detection import CURSOR as DETECTORS
from api.detection import DetectionLoop
from api.fitting import FitProcess
from api.garbage import look_for_garbage_rarely
from api.hosts import KnownHosts
from api.httpserver import HttpBounds, bounded, room_for_connections
from api.intake import Intake
from api.locks import LockedError, hold
from api.metrics import IngestMetrics, ReceiverCounters
from api.process import read_options, say_ready, set_up_logging
from api.shipping import CURSOR as STORE
from api.shipping import FlushPolicy, ShippingLoop, Store
from collector.consumer import Unavailable
from collector.receivers.grpc import bind, grpc_server
from collector.receivers.http import http_app
from collector.receivers.limits import InFlight
from collector.receivers.tls import Tls
from collector.spool import Spool, SpoolError, SpoolLimits
from storage.client import StoreTarget, connect
from storage.migrate import migrate
from storage.retention import Retention, apply_retention
from storage.writer import Writer

logger = logging.getLogger(__name__)

READERS: Final = (DETECTORS, STORE)
KEEP_ALIVE: Final = 75  # seconds
GRACE: Final = 5.0  # seconds for requests under way at the end
ROOM_FOR_SCHEMA: Final = 64 * 1024**2  # bytes
FULL_DISK_PAUSE: Final = 5.0  # seconds
RETRY_WRITE: Final = 10.0  # seconds; whoever heeds readiness sends nothing that would try


@dataclass(frozen=True, slots=True)
class Options:
    """What the supervisor says: the settings, the ports and the store."""

    settings: Settings
    http_port: int
    grpc_port: int
    metrics_port: int
    store: StoreTarget


def _options(raw: dict[str, object]) -> Options:
    return Options(
        settings=Settings.model_validate(raw["settings"]),
        http_port=int(str(raw["http_port"])),
        grpc_port=int(str(raw["grpc_port"])),
        metrics_port=int(str(raw["metrics_port"])),
        store=StoreTarget(
            url=str(raw["store_url"]), user=str(raw["store_user"]), password=str(raw["store_password"])
        ),
    )


def _connect_store(options: Options) -> Store:
    """A writer whose schema is up to date. Raises `Unavailable` while the store is away."""
    if options.settings.clickhouse.url is None:
        _check_disk(Path(options.settings.data_dir))
    client = connect(options.store)
    migrate(client)
    retention = options.settings.retention
    apply_retention(
        client,
        Retention(
            spans_days=retention.spans_days,
            steps_days=retention.steps_days,
            findings_days=retention.findings_days,
        ),
    )
    return Writer(client)


def _check_disk(data_dir: Path) -> None:
    """Leave the embedded store's schema alone on a disk that is all but full.

    The engine replaces a table's definition by writing it anew; without room it leaves an empty one behind.
    """
    free = shutil.disk_usage(data_dir).free
    if free < ROOM_FOR_SCHEMA:
        raise Unavailable(f"only {free >> 20} MiB are free in {data_dir}", FULL_DISK_PAUSE)


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class IngestProcess:
    """All parts of the process, wired."""

    def __init__(self, options: Options) -> None:
        settings = options.settings
        data_dir = Path(settings.data_dir)
        self._options = options
        self._lock = hold(data_dir / "ingest.lock")
        self._metrics = IngestMetrics(CollectorRegistry())
        self._spool = Spool(
            data_dir / "spool.db",
            SpoolLimits(
                max_bytes=settings.ingest.spool_max_bytes,
                horizon_ns=int(settings.ingest.dedup_horizon_s * 1e9),
            ),
            time.time_ns,
        )
        self._tokens = build_tokens(settings)
        self._intake = Intake(build_decode(settings, self._metrics), self._spool, self._metrics)
        self._fits = FitProcess()
        engine = build_engine(settings, self._fits)
        self._detection = DetectionLoop(
            self._spool,
            reader=build_reader(settings),
            engine=engine,
            recoveries=build_recoveries(settings, engine.lens),
            pack=build_pack(),
            metrics=self._metrics,
            readers=READERS,
            settle=settings.ingest.order_window_ms / 1e3,
        )
        self._shipping = ShippingLoop(
            self._spool,
            connect=lambda: _connect_store(options),
            control_db=data_dir / "control.db",
            metrics=self._metrics,
            policy=FlushPolicy(settings.ingest.flush_rows, settings.ingest.flush_interval_s),
            readers=READERS,
        )

    async def run(self) -> None:
        """Serve until SIGTERM, then drain: requests, detectors, store, in that order."""
        settings = self._options.settings
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopping.set)
        self._spool.start()
        self._detection.start()
        look_for_garbage_rarely()
        self._shipping.start()
        self._tokens.start()
        limits, auth = build_limits(settings), build_auth(self._tokens)
        counters, in_flight = ReceiverCounters(self._metrics), InFlight(limits)
        tls = Tls(settings.tls.cert, settings.tls.key) if settings.tls.cert and settings.tls.key else None
        app = http_app(self._intake, limits=limits, auth=auth, metrics=counters, in_flight=in_flight)
        server = _HttpServer(
            uvicorn.Config(
                KnownHosts(app, (settings.host, *settings.allowed_hosts), lambda: not self._tokens.required),
                host=settings.host,
                port=self._options.http_port,
                http=bounded(HttpBounds(max_connections=room_for_connections())),
                ws="none",
                log_config=None,
                log_level="error",
                access_log=False,
                lifespan="off",
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE,
                timeout_graceful_shutdown=int(GRACE),
                **(tls.uvicorn_options() if tls else {}),
            )
        )
        rpc = grpc_server(self._intake, limits=limits, auth=auth, metrics=counters, in_flight=in_flight)
        bind(rpc, _address(settings.host, self._options.grpc_port), tls)
        await rpc.start()
        page, _ = start_http_server(self._options.metrics_port, "127.0.0.1", self._metrics.registry)
        http = asyncio.create_task(server.serve())
        while not server.started and not http.done():  # noqa: ASYNC110 - uvicorn offers a flag, no event
            await asyncio.sleep(0.01)
        say_ready(http_port=self._options.http_port, grpc_port=self._options.grpc_port)
        await self._watch(stopping, http)
        await rpc.stop(GRACE)
        server.should_exit = True
        await http
        await loop.run_in_executor(None, self._drain)
        page.shutdown()

    async def _watch(self, stopping: asyncio.Event, http: asyncio.Task[None]) -> None:
        """Until asked to stop; a loop that failed ends the process, the supervisor starts a new one."""
        tried = 0.0
        while not stopping.is_set():
            if self._spool.failed or self._detection.failed or self._shipping.failed or http.done():
                logging.shutdown()
                os._exit(70)
            if self._spool.gone:
                logger.error("spool.db was deleted or replaced while it was in use; beginning a new one")
                logging.shutdown()
                os._exit(70)
            self._metrics.spool_bytes.set(self._spool.size)
            self._metrics.identities.set(self._spool.known_identities)
            for name, used_s in self._tokens.last_used().items():
                self._metrics.token_used.labels(name).set(used_s)
            self._metrics.spool_refuses.labels("full").set(self._spool.full)
            self._metrics.spool_refuses.labels("disk").set(self._spool.cannot_write)
            if self._spool.cannot_write and time.monotonic() - tried >= RETRY_WRITE:
                tried = time.monotonic()
                self._spool.try_to_write()
            try:
                await asyncio.wait_for(stopping.wait(), 0.25)
            except TimeoutError:
                continue

    def _drain(self) -> None:
        self._tokens.stop()
        self._intake.close()
        self._detection.stop()
        self._fits.close()
        shipped = self._shipping.stop()
        self._spool.close()
        if not shipped:
            logger.warning("the store does not answer; what it has not confirmed waits in the spool")
            logging.shutdown()
            os._exit(0)  # a thread that hangs in an insert would hold up the interpreter's end


class _HttpServer(uvicorn.Server):
    """Signals are the process's business, not the server's."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave them alone."""
        yield


def main() -> None:
    """Entry of the process."""
    options = _options(read_options())
    disable_created_metrics()  # type: ignore[no-untyped-call]  # it ships without types
    set_up_logging("ingest", options.settings.log_level)
    try:
        process = IngestProcess(options)
    except (ConfigError, SpoolError, LockedError) as error:
        sys.stderr.write(f"recloser: {error}\n")
        raise SystemExit(2) from error
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(process.run())
