"""Tasks that are to be cancelled when their run is halted."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Callable

from recloser_guard.index import Call

if TYPE_CHECKING:
    import asyncio


class Watched:
    """One task, and the call that it is. `halted`: it was cancelled because its run must end."""

    __slots__ = ("call", "halted", "loop", "task")

    def __init__(self, task: asyncio.Task[Any], call: Call) -> None:
        self.task = task
        self.loop = task.get_loop()
        self.call = call
        self.halted = False


class Inflight:
    """Cancels tasks from the watcher's thread. `halts` tells whether a call's run must end."""

    def __init__(self, halts: Callable[[Call], bool]) -> None:
        self._halts = halts
        self._lock = threading.Lock()
        self._watched: dict[int, Watched] = {}

    def add(self, task: asyncio.Task[Any], call: Call) -> Watched:
        """Watch over a task until it is done; cancels it at once when its run is halted already."""
        watched = Watched(task, call)
        with self._lock:
            self._watched[id(task)] = watched
        task.add_done_callback(self._done)
        self._look_at(watched)
        return watched

    def changed(self) -> None:
        """Look at all tasks again."""
        with self._lock:
            watched = list(self._watched.values())
        for one in watched:
            self._look_at(one)

    def _look_at(self, watched: Watched) -> None:
        if not self._halts(watched.call):
            return
        with self._lock:
            if watched.halted or id(watched.task) not in self._watched:
                return
            watched.halted = True
        try:
            watched.loop.call_soon_threadsafe(watched.task.cancel)
        except RuntimeError:  # its loop has ended, and the task with it
            self._done(watched.task)

    def _done(self, task: asyncio.Task[Any]) -> None:
        with self._lock:
            self._watched.pop(id(task), None)
