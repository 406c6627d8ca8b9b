"""One process full of plain readers of the event stream, and one of them in a loop of calls.

Times are `time.monotonic_ns`, one clock for all processes of a machine.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

TOOL = "fetch_page"
READY, ROUND, STOP = "ready", "round", "stop"


@dataclass
class Noted:
    """What the clients of one process saw.

    `knew`: by client, the revisions that it came to know, and when. `calls`: (session, begin of the call, let
    through). `check_ns`: what decisions of a guard took.
    """

    knew: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    calls: list[tuple[str, int, bool]] = field(default_factory=list)
    check_ns: list[int] = field(default_factory=list)
    resets: int = 0


def serve(port: int, count: int, call_s: float, niceness: int, parent: Connection) -> None:
    """Run `count` plain clients until the parent says stop, then send what they saw."""
    os.nice(niceness)
    parent.send(asyncio.run(_Process(port, count, call_s, parent).run()))


class _Process:
    def __init__(self, port: int, count: int, call_s: float, parent: Connection) -> None:
        self._port, self._count, self._call_s, self._parent = port, count, call_s, parent
        self._noted = Noted()
        self._session = ""
        self._stopped = asyncio.Event()
        self._refused: set[str] = set()
        self._begun = 0

    async def run(self) -> Noted:
        asyncio.get_running_loop().add_reader(self._parent.fileno(), self._told)
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(self._follow(number)) for number in range(self._count)]
            running.append(tasks.create_task(self._call()))
            await self._stopped.wait()
            for task in running:
                task.cancel()
        return self._noted

    def _told(self) -> None:
        word, session = self._parent.recv()
        if word == STOP:
            self._stopped.set()
        else:
            self._session = session

    async def _follow(self, number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 24)
        path = f"/v1/breakers/watch?client=bench-{self._port}-{id(self)}-{number}"
        writer.write(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(head.decode())
        event = ""
        while line := await reader.readline():
            if line.startswith(b"event: "):
                event = line[7:].strip().decode()
            elif line.startswith(b"data: "):
                self._take(event, line[6:], number)

    def _take(self, event: str, data: bytes, number: int) -> None:
        now = time.monotonic_ns()
        if event == "snapshot":
            self._begun += 1
            if self._begun == self._count:
                self._parent.send(READY)
        elif event == "upsert":
            breaker: dict[str, Any] = json.loads(data)
            self._knows(number, breaker["revision"], now)
            if number == 0:
                self._refused.add(breaker["scope"]["session"])
        elif event == "remove":
            self._knows(number, json.loads(data)["revision"], now)
            if number == 0:
                self._refused.discard(self._session)
        elif event == "reset":
            self._noted.resets += 1

    def _knows(self, number: int, revision: int, now: int) -> None:
        self._noted.knew.setdefault(number, []).append((revision, now))

    async def _call(self) -> None:
        """Call a tool again and again, looking at what the first client of this process knows."""
        while True:
            session = self._session
            if session:
                allowed = session not in self._refused
                self._noted.calls.append((session, time.monotonic_ns(), allowed))
            await asyncio.sleep(self._call_s)
