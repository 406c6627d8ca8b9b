"""Server-sent events, read line by line."""

from __future__ import annotations

from typing import NamedTuple

from recloser_guard.errors import GuardError

MAX_EVENT = 64 * 1024 * 1024  # bytes; a snapshot of a hundred thousand breakers is smaller


class Event(NamedTuple):
    """One event; `id` is the last id that the stream gave, None before the first."""

    name: str
    data: str
    id: str | None


class EventReader:
    r"""Takes lines, gives events. Comments give None, but they are a sign of life.

    >>> reader = EventReader()
    >>> lines = (b": heartbeat\n", b"id: 7\n", b"event: reset\n", b"data: {}\n", b"\n")
    >>> [reader.take(line) for line in lines][-1]
    Event(name='reset', data='{}', id='7')
    """

    def __init__(self) -> None:
        self._name = ""
        self._data: list[str] = []
        self._size = 0
        self.last_id: str | None = None

    def take(self, line: bytes) -> Event | None:
        """Take one line with its end; return the event that it completes."""
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        if not text:
            return self._dispatch()
        field, _, value = text.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            self._name = value
        elif field == "data":
            self._size += len(value)
            if self._size > MAX_EVENT:
                raise GuardError("an event of the stream is larger than any list of breakers")
            self._data.append(value)
        elif field == "id" and "\0" not in value:
            self.last_id = value
        return None

    def _dispatch(self) -> Event | None:
        name, data = self._name or "message", self._data
        self._name, self._data, self._size = "", [], 0
        return Event(name, "\n".join(data), self.last_id) if data else None
