"""The one way to ClickHouse: HTTP through clickhouse-connect, to a server or to the embedded store.

Both differ by the URL alone. Nothing here retries: whoever holds the data knows when to try again.
"""

from __future__ import annotations

import ipaddress
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urlsplit

import clickhouse_connect
from clickhouse_connect.driver.exceptions import Error
from clickhouse_connect.driver.httputil import get_pool_manager

from collector.consumer import IngestError
from storage.errors import insert_error, query_error

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

Value: TypeAlias = "bool | int | float | str | Sequence[Value] | None"
Row: TypeAlias = tuple[Any, ...]

CONNECT_TIMEOUT_S: Final = 2
READ_TIMEOUT_S: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreTarget:
    """Where the store is: `url` is `http(s)://host:port`, `database` is made by the migrations."""

    url: str
    user: str = "default"
    password: str = field(default="", repr=False)
    database: str = "otel"


class StoreClient:
    """A lazily connected client, safe to use from several threads.

    Every method raises `Unavailable` when the store cannot answer now, and `Rejected` when the same
    statement or data would be refused again.
    """

    def __init__(self, target: StoreTarget, *, read_timeout_s: int = READ_TIMEOUT_S) -> None:
        self.target = target
        self._read_timeout_s = read_timeout_s
        self._lock = threading.Lock()
        self._connected: Client | None = None

    def ping(self) -> bool:
        """Tell whether the store answers and accepts the credentials."""
        try:
            self.rows("SELECT 1", database="")
        except IngestError:
            return False
        return True

    def command(
        self, sql: str, parameters: Mapping[str, Value] | None = None, *, database: str | None = None
    ) -> None:
        """Run one statement that returns nothing. `database` "" means none, for making the first one."""
        try:
            client = self._client()
            client.command(
                sql,
                parameters=dict(parameters or {}),
                settings=self._database(database),
                use_database=False,
            )
        except Error as error:
            raise query_error(error.code, _text(error)) from error

    def rows(
        self, sql: str, parameters: Mapping[str, Value] | None = None, *, database: str | None = None
    ) -> list[Row]:
        """Run one query; `parameters` fill `{name:Type}` placeholders on the server's side."""
        try:
            result = self._client().query(
                sql,
                parameters=dict(parameters or {}),
                settings={"max_execution_time": self._read_timeout_s, **self._database(database)},
            )
        except Error as error:
            raise query_error(error.code, _text(error)) from error
        return [tuple(row) for row in result.result_rows]

    def arrow(self, sql: str, parameters: Mapping[str, Value] | None = None) -> bytes:
        """Run one query; its rows come back as an Arrow IPC stream, empty bytes for none."""
        try:
            return self._client().raw_query(
                sql,
                parameters=dict(parameters or {}),
                settings={"max_execution_time": self._read_timeout_s, **self._database(None)},
                fmt="ArrowStream",
            )
        except Error as error:
            raise query_error(error.code, _text(error)) from error

    def insert(
        self, table: str, columns: Sequence[str], body: memoryview, settings: Mapping[str, Value]
    ) -> None:
        """Insert `body`, an Arrow IPC stream with these columns, as it is; returns once it is kept."""
        try:
            self._client().raw_insert(
                table,
                column_names=list(columns),
                # A view is sent behind the statement, bytes would be copied to be joined with it.
                insert_block=body,  # type: ignore[arg-type]  # its hint forgets memoryview
                settings={**settings, **self._database(None)},
                fmt="ArrowStream",
            )
        except Error as error:
            raise insert_error(error.code, _text(error)) from error

    def close(self) -> None:
        """Close the connections; a later call would open them again."""
        with self._lock:
            if self._connected is not None:
                self._connected.close()
                self._connected = None

    def _database(self, database: str | None) -> dict[str, str]:
        name = self.target.database if database is None else database
        return {"database": name} if name else {}

    def _client(self) -> Client:
        with self._lock:
            if self._connected is None:
                self._connected = self._connect()
            return self._connected

    def _connect(self) -> Client:
        host = urlsplit(self.target.url).hostname or ""
        # A pool of our own keeps proxies of the environment out of loopback traffic.
        pool = get_pool_manager(retries=0) if _is_loopback(host) else None
        return clickhouse_connect.get_client(
            dsn=self.target.url,
            username=self.target.user,
            password=self.target.password,
            pool_mgr=pool,
            compress=not _is_loopback(host),
            connect_timeout=CONNECT_TIMEOUT_S,
            send_receive_timeout=self._read_timeout_s,
            query_retries=0,
            autogenerate_session_id=False,
        )


def connect(target: StoreTarget, *, read_timeout_s: int = READ_TIMEOUT_S) -> StoreClient:
    """Make a client; nothing is sent before its first use, so the store may come up later."""
    return StoreClient(target, read_timeout_s=read_timeout_s)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _text(error: Error) -> str:
    return str(error).split("(for url ", maxsplit=1)[0].strip()
