from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.client import StoreClient, StoreTarget, connect
from storage.migrate import migrate
from storage.queries import Queries
from storage.writer import Writer
from tests.storage.store_process import StoreProcess

SERVER = os.environ.get("RECLOSER_TEST_CLICKHOUSE", "")


@pytest.fixture(scope="session")
def store_target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreTarget]:
    """Where the store under test is: a server when one is named, else a store process of our own."""
    if SERVER:
        yield StoreTarget(
            url=SERVER,
            user=os.environ.get("RECLOSER_TEST_CLICKHOUSE_USER", "default"),
            password=os.environ.get("RECLOSER_TEST_CLICKHOUSE_PASSWORD", ""),
            database=f"recloser_test_{uuid.uuid4().hex}",
        )
        return
    process = StoreProcess(tmp_path_factory.mktemp("store"))
    process.start()
    yield process.target
    process.stop()


@pytest.fixture(scope="session")
def store(store_target: StoreTarget) -> Iterator[StoreClient]:
    client = connect(store_target)
    migrate(client)
    yield client
    if SERVER:
        client.command(f"DROP DATABASE {store_target.database}", database="")
    client.close()


@pytest.fixture
def writer(store: StoreClient) -> Writer:
    return Writer(store)


@pytest.fixture
def queries(store: StoreClient) -> Queries:
    return Queries(store)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[StoreProcess]:
    """A store process that a test may kill."""
    running = StoreProcess(tmp_path / "store")
    running.start()
    yield running
    if running.process is not None:
        running.kill()
