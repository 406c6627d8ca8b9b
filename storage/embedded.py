"""The store process: the embedded engine behind `storage.endpoint`, from start to a clean end.

Start it with multiprocessing's `spawn`, never `fork` (the engine's threads do not survive one), one process
a data folder. It ends on SIGTERM, and by itself when the process that started it is gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

_DRAIN_S: Final = 10.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedOptions:
    """How to run the store. `secret` is what clients show as their password; `port` 0 picks a free one.

    `max_memory_bytes` bounds what the engine allocates (a query over it fails, inserts are told to come
    again), `mark_cache_bytes` each of its caches of marks and keys, `merge_threads` the threads that merge
    parts.
    """

    data_dir: Path
    secret: str = field(repr=False)
    port: int = 0
    max_memory_bytes: int = 1_000_000_000
    mark_cache_bytes: int = 128 * 1024 * 1024
    merge_threads: int = 2


class DataDirBusy(Exception):  # noqa: N818 - says what is the matter, as the operator reads it
    """The data folder cannot be used: another process has it, or it cannot be opened."""


def serve_embedded(options: EmbeddedOptions, ready: Callable[[int], object]) -> None:
    """Be the store process; returns after SIGTERM or the end of the parent process.

    Calls `ready` once with the port, when statements are served. Exits with status 1 and one line on
    stderr when the data folder cannot be opened.
    """
    # Days of partitions and times without a zone are UTC, wherever the machine stands.
    os.environ["TZ"] = "UTC"
    time.tzset()
    # Read when the engine is loaded: freed pages go back after half a second instead of five.
    os.environ.setdefault("JE_MALLOC_CONF", "dirty_decay_ms:500,muzzy_decay_ms:0")
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: stop.set())
    # A terminal's Ctrl-C goes to all processes; the store ends last, when the supervisor says so.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_stop_with_parent, args=(stop,), daemon=True, name="parent-watch").start()
    try:
        with exclusive(options.data_dir):
            _serve(options, ready, stop)
    except DataDirBusy as error:
        raise SystemExit(f"recloser store: {error}") from error


def _serve(options: EmbeddedOptions, ready: Callable[[int], object], stop: threading.Event) -> None:
    # Here, not above: whoever passes EmbeddedOptions around must not load the engine.
    from storage.endpoint import Endpoint
    from storage.engine import Engine, EngineError
    from storage.halfdone import settle

    settled = settle(options.data_dir, options.data_dir / "engine")
    if settled.detached or settled.forgotten:
        _log.warning(
            "after a crash: %d parts without a token detached, %d tokens without a part forgotten",
            len(settled.detached),
            len(settled.forgotten),
        )
    try:
        engine = Engine(engine_address(options))
    except EngineError as error:
        raise DataDirBusy(f"cannot open {options.data_dir}: {error}") from error
    endpoint = Endpoint(engine, options.secret, options.port)
    server = threading.Thread(target=endpoint.serve_forever, daemon=True, name="endpoint")
    server.start()
    ready(endpoint.server_address[1])
    stop.wait()
    endpoint.shutdown()
    endpoint.server_close()
    if endpoint.drain(_DRAIN_S):
        engine.close()
    # A statement that still runs may hold the engine for long; what was acknowledged is on disk.
    os._exit(0)


@contextlib.contextmanager
def exclusive(data_dir: Path) -> Iterator[None]:
    """Hold the data folder for this process. Raises `DataDirBusy` when another one has it."""
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (data_dir / "store.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise DataDirBusy(f"{data_dir} is in use by another process") from error
        yield


def engine_address(options: EmbeddedOptions) -> str:
    """Write the engine's configuration beside its data; return what chdb connects to."""
    config = options.data_dir / "engine.xml"
    config.write_text(engine_config(options))
    return f"{options.data_dir / 'engine'}?{urlencode({'config-file': str(config)})}"


def engine_config(options: EmbeddedOptions) -> str:
    """The engine's configuration: bounded memory, and on disk means on disk.

    Without fsync a batch that the spool has let go of could be lost with the power. Merges write it again
    and drop the old parts at once, so their results are synced too.
    """
    return f"""<clickhouse>
  <max_server_memory_usage>{options.max_memory_bytes}</max_server_memory_usage>
  <mark_cache_size>{options.mark_cache_bytes}</mark_cache_size>
  <primary_index_cache_size>{options.mark_cache_bytes}</primary_index_cache_size>
  <index_mark_cache_size>{options.mark_cache_bytes}</index_mark_cache_size>
  <uncompressed_cache_size>0</uncompressed_cache_size>
  <background_pool_size>{options.merge_threads}</background_pool_size>
  <merge_tree>
    <fsync_after_insert>1</fsync_after_insert>
    <fsync_part_directory>1</fsync_part_directory>
    <min_compressed_bytes_to_fsync_after_merge>1</min_compressed_bytes_to_fsync_after_merge>
  </merge_tree>
</clickhouse>
"""


def _stop_with_parent(stop: threading.Event) -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        stop.set()
