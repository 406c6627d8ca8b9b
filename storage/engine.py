"""The embedded engine: chdb handles, statements and inserts. The only code that imports chdb.

One engine a process and one process a data folder; any number of handles. Work on different handles
runs in parallel and lets go of the interpreter lock. A handle remembers settings, so it is told of every
difference before it is used again.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from chdb.state.sqlitelike import Connection

_SETTING_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_ERROR_CODE: Final = re.compile(r"Code: (\d+)\. ")
_IDLE_HANDLES: Final = 16


class EngineError(Exception):
    """The engine refused. `code` is ClickHouse's error code, 1002 (UNKNOWN_EXCEPTION) when it told none."""

    def __init__(self, message: str, code: int | None = None) -> None:
        found = _ERROR_CODE.search(message)
        self.code = code if code is not None else int(found[1]) if found else 1002
        told = message[found.start() :] if found else f"Code: {self.code}. DB::Exception: {message}"
        super().__init__(told)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a statement gave: its rows in the asked format, and how many rows and bytes it took."""

    body: bytes = b""
    read_rows: int = 0
    read_bytes: int = 0
    written_rows: int = 0
    written_bytes: int = 0


@dataclass(slots=True)
class _Handle:
    connection: Any
    settings: dict[str, str] = field(default_factory=dict)


class Engine:
    """An open data folder; all methods are safe to call from several threads.

    `address` is chdb's connection string. Raises `EngineError` when the folder cannot be opened.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._idle: dict[tuple[str, str], list[_Handle]] = {}
        self._busy_sessions: set[str] = set()
        self._keeper = self._open()

    def query(
        self,
        statement: str,
        *,
        default_format: str,
        parameters: Mapping[str, str],
        database: str,
        session: str,
        settings: Mapping[str, str],
    ) -> Answer:
        """Run a statement; `parameters` are in ClickHouse's escaped text form, as they come over HTTP."""
        with self._handle(database, session, settings) as connection, _engine_errors():
            result = connection.query(statement, default_format, params=dict(parameters))
            return Answer(
                body=result.bytes() or b"", read_rows=result.rows_read(), read_bytes=result.bytes_read()
            )

    def insert(
        self,
        statement: str,
        data_format: str,
        data: bytes,
        *,
        database: str,
        session: str,
        settings: Mapping[str, str],
    ) -> Answer:
        """Insert `data`; returns when the engine has written it, all of it or nothing."""
        with self._handle(database, session, settings) as connection, _engine_errors():
            with connection.send_insert(statement, data_format) as inserter:
                inserter.append(data)
                result = inserter.finish()
            return Answer(written_rows=result.rows_written, written_bytes=result.bytes_written)

    def close(self) -> None:
        """Close all handles that are not in use; the engine stops with the last one."""
        with self._lock:
            handles = [handle for idle in self._idle.values() for handle in idle]
            self._idle.clear()
        for handle in handles:
            handle.connection.close()
        self._keeper.close()

    def _open(self) -> Any:  # noqa: ANN401 - chdb ships no types
        try:
            return Connection(self._address)
        except RuntimeError as error:
            raise EngineError(str(error)) from error

    @contextmanager
    def _handle(self, database: str, session: str, settings: Mapping[str, str]) -> Iterator[Any]:
        key = (session, database)
        handle = self._take(key)
        try:
            _adapt(handle, settings)
            yield handle.connection
        except BaseException:
            # Nobody knows what a failed statement left on its handle.
            self._release(key, None)
            handle.connection.close()
            raise
        self._release(key, handle)

    def _take(self, key: tuple[str, str]) -> _Handle:
        session, database = key
        with self._lock:
            if session:
                if session in self._busy_sessions:
                    raise EngineError(f"Session {session} is locked. (SESSION_IS_LOCKED)", 373)
                self._busy_sessions.add(session)
            idle = self._idle.get(key)
            if idle:
                return idle.pop()
        try:
            handle = _Handle(self._open())
            if database:
                with _engine_errors():
                    handle.connection.query(f"USE {_quoted(database, '`')}")
        except BaseException:
            self._release(key, None)
            raise
        return handle

    def _release(self, key: tuple[str, str], handle: _Handle | None) -> None:
        with self._lock:
            self._busy_sessions.discard(key[0])
            if handle is None:
                return
            idle = self._idle.pop(key, [])
            idle.append(handle)
            self._idle[key] = idle
            surplus = self._surplus()
        for old in surplus:
            old.connection.close()

    def _surplus(self) -> list[_Handle]:
        """Take out what is over the limit, least recently used first. Called with the lock held."""
        surplus: list[_Handle] = []
        excess = sum(len(idle) for idle in self._idle.values()) - _IDLE_HANDLES
        for key in list(self._idle):
            while excess > 0 and self._idle[key]:
                surplus.append(self._idle[key].pop(0))
                excess -= 1
            if not self._idle[key]:
                del self._idle[key]
        return surplus


def _adapt(handle: _Handle, wanted: Mapping[str, str]) -> None:
    changes = [f"{name} = DEFAULT" for name in handle.settings if name not in wanted]
    for name, value in wanted.items():
        if not _SETTING_NAME.match(name):
            raise EngineError(f"Unknown setting {name!r}. (UNKNOWN_SETTING)", 115)
        if handle.settings.get(name) != value:
            changes.append(f"{name} = {_quoted(value, chr(39))}")
    if changes:
        with _engine_errors():
            handle.connection.query(f"SET {', '.join(changes)}")
        handle.settings = dict(wanted)


def _quoted(text: str, quote: str) -> str:
    escaped = text.replace("\\", "\\\\").replace(quote, f"\\{quote}")
    return f"{quote}{escaped}{quote}"


@contextmanager
def _engine_errors() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # chdb raises nothing narrower
        raise EngineError(str(error)) from error
