"""The store for a command that only reads: that of the running sidecar, a server, or the embedded one alone.

The running sidecar has left its store's address (`api.storeaddress`). Where no store answers there, the
command starts a store process of its own, under the same lock, so that a sidecar that starts meanwhile waits
for the command to end.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from api.config import Settings, to_json
from api.process import Child
from api.storeaddress import left
from storage.client import StoreClient, StoreTarget, connect
from storage.migrate import SchemaError, migrate

READ_TIMEOUT_S: Final = 300
START_PATIENCE_S: Final = 30.0  # the child waits for its lock for half of this
_DRAIN_S: Final = 30.0


class StoreAccessError(Exception):
    """There is no store to read; the message says what is in the way."""


@contextmanager
def opened(settings: Settings) -> Iterator[StoreClient]:
    """A client of the store that the settings name. Raises `StoreAccessError` when there is none."""
    logging.getLogger("clickhouse_connect").setLevel(
        logging.CRITICAL
    )  # an address nobody answers at is no news
    server = settings.clickhouse
    if server.url is not None:
        target = StoreTarget(url=server.url, user=server.user, password=server.password.get_secret_value())
        with _client(target) as client:
            if not client.ping():
                raise StoreAccessError(f"the store at {server.url} does not answer")
            yield client
        return
    running = _running(settings.data_dir)
    if running is not None:
        with _client(running) as client:
            yield client
        return
    with _own(settings) as target, _client(target) as client:
        try:
            migrate(client)
        except SchemaError as error:
            raise StoreAccessError(str(error)) from error
        yield client


@contextmanager
def _client(target: StoreTarget) -> Iterator[StoreClient]:
    client = connect(target, read_timeout_s=READ_TIMEOUT_S)
    try:
        yield client
    finally:
        client.close()


def _running(data_dir: Path) -> StoreTarget | None:
    """Where the store of the running sidecar is; None when none answers."""
    address = left(data_dir)
    if address is None:
        return None
    target = StoreTarget(url=address.url, password=address.secret)
    with _client(target) as client:
        return target if client.ping() else None


@contextmanager
def _own(settings: Settings) -> Iterator[StoreTarget]:
    if not (settings.data_dir / "store").is_dir():
        raise StoreAccessError(f"nothing is stored in {settings.data_dir} (data_dir) yet")
    secret = secrets.token_urlsafe(32)
    child = Child(
        "store", "api.storeprocess", {"settings": to_json(settings), "store_port": 0, "store_secret": secret}
    )
    try:
        if not _ready(child):
            raise StoreAccessError(f"the store in {settings.data_dir} could not be opened")
        yield StoreTarget(url=f"http://127.0.0.1:{child.facts['port']}", password=secret)
    finally:
        child.stop(_DRAIN_S)


def _ready(child: Child) -> bool:
    for _ in range(int(START_PATIENCE_S / 0.05)):
        if child.ready.wait(0.05):
            return True
        if not child.alive:
            return False
    return False
