"""Those who follow the breakers: each change is written out once, and the same bytes go to everybody.

The writer of `control.db` calls `changed` from its thread after each commit; all else belongs to the event
loop. A change goes to a few watchers at a time, and requests are answered in between. A watcher that does not
keep up is not waited for: what it has not taken is thrown away when `MAX_BEHIND` events wait, and it is told
to begin anew (`reset`), which it is as soon as it reads on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

import orjson

from control.scope import Scope

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from control.breakers.changes import Change
    from control.breakers.record import Breaker

MAX_BEHIND: Final = 256
"""Events that wait for one watcher at most."""
MAX_LISTENERS: Final = 2048
"""Watchers and long polls at a time."""
HEARTBEAT_S: Final = 5.0
PART_BYTES: Final = 32 * 1024
"""Of a snapshot that is made for one watcher alone."""
AT_A_TIME: Final = 8
"""Watchers that are written to before the event loop turns to others: a check waits for them at most."""
_RETRY_MS: Final = 1000

Concerns: TypeAlias = Callable[[Scope], bool]
"""Tells whether a watcher is to know of breakers over a scope."""


class Source(Protocol):
    """What is watched: the breakers in memory."""

    @property
    def revision(self) -> int:
        """The newest change."""
        ...

    def snapshot(self) -> tuple[int, tuple[Breaker, ...]]:
        """All breakers that are not closed, and the revision at which they were so."""
        ...

    def changes_since(self, revision: int) -> Sequence[Change] | None:
        """Every later change, the oldest first; None when some of them are not remembered any more."""
        ...


class TooManyListenersError(Exception):
    """Nobody more can be told of changes now."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Watcher:
    """One who follows. `known`: the revision up to which it has been told everything by other means."""

    concerns: Concerns | None = None
    known: int = 0
    frames: list[bytes] = field(default_factory=list)
    lost: bool = False
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    def wants(self, scope: Scope | None) -> bool:
        return scope is None or self.concerns is None or self.concerns(scope)

    def offer(self, frame: bytes) -> None:
        if self.lost:
            return
        if len(self.frames) >= MAX_BEHIND:
            self.frames.clear()
            self.lost = True
        else:
            self.frames.append(frame)
        self.wake.set()


class _Told(NamedTuple):
    """What is handed out. `revision` None: whoever knows more is told too; `scope` None: everybody is."""

    revision: int | None
    scope: Scope | None
    frame: bytes


class WatchHub:
    """Tells watchers and long polls of every change of a breaker.

    `write` writes a breaker as the API shows it, as JSON. `on_reset` is told of each watcher that fell
    behind.
    """

    def __init__(
        self,
        source: Source,
        write: Callable[[Breaker], bytes],
        *,
        heartbeat_s: float = HEARTBEAT_S,
        on_reset: Callable[[], None] = lambda: None,
    ) -> None:
        self._source = source
        self._write = write
        self.heartbeat_s = heartbeat_s
        self._on_reset = on_reset
        self._watchers: set[_Watcher] = set()
        self._polls: set[asyncio.Event] = set()
        self._fresh: deque[_Told] = deque()
        self._handing: Iterator[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._beat: asyncio.TimerHandle | None = None
        self._listeners = 0
        self._whole: tuple[int, bytes] | None = None  # the last snapshot: many may want it at once
        self.ended = False

    @property
    def watchers(self) -> int:
        """How many follow now."""
        return len(self._watchers)

    @property
    def polls(self) -> int:
        """How many wait for the next change now."""
        return len(self._polls)

    @property
    def waiting(self) -> int:
        """How many changes are not handed out yet."""
        return len(self._fresh)

    def changed(self, change: Change) -> None:
        """Take note of a change that is on disk; called from the writer's thread."""
        loop = self._loop
        if loop is None or not self._listeners:
            return  # whoever comes now finds it in the snapshot
        self._fresh.append(_Told(change.revision, _scope(change), self._frame(change)))
        with suppress(RuntimeError):  # the loop has ended, and everybody with it
            loop.call_soon_threadsafe(self._hand_out)

    def ask_to_acknowledge(self, revision: int, scope: Scope) -> None:
        """Ask those who are told of a change to acknowledge it at once; called in the event loop."""
        frame = _event(b"acknowledge", None, b'{"revision":%d}' % revision)
        self._fresh.append(_Told(None, scope, frame))
        self._hand_out()

    def end(self) -> None:
        """End every stream and every long poll; nobody new is let in."""
        self.ended = True
        if self._beat is not None:
            self._beat.cancel()
            self._beat = None
        for watcher in self._watchers:
            watcher.wake.set()
        for poll in self._polls:
            poll.set()

    def check_room(self) -> None:
        """Raise `TooManyListenersError` when no more listeners can be served."""
        if self.ended or self._listeners >= MAX_LISTENERS:
            raise TooManyListenersError

    async def follow(
        self, last_revision: int | None, concerns: Concerns | None = None
    ) -> AsyncGenerator[bytes]:
        """Yield server-sent events: all that is, or what was missed since `last_revision`; then changes."""
        watcher = _Watcher(concerns=concerns)
        self._enter()
        self._watchers.add(watcher)
        try:
            yield b"retry: %d\n\n" % _RETRY_MS
            for part in self._opening(watcher, last_revision):
                yield part
            while True:
                await watcher.wake.wait()
                if self.ended:
                    return
                watcher.wake.clear()
                if watcher.lost:
                    watcher.lost = False
                    self._on_reset()
                    for part in self._anew(watcher):
                        yield part
                else:
                    told = b"".join(watcher.frames)
                    watcher.frames.clear()
                    yield told
        finally:
            self._watchers.discard(watcher)
            self._leave()

    async def changed_after(self, revision: int, timeout_s: float) -> bool:
        """Wait until a change later than `revision` is on disk; False when none comes in time."""
        if self._source.revision > revision:
            return True
        poll = asyncio.Event()
        self._enter()
        self._polls.add(poll)
        try:
            async with asyncio.timeout(timeout_s):
                while self._source.revision <= revision and not self.ended:
                    poll.clear()
                    await poll.wait()
        except TimeoutError:
            pass
        finally:
            self._polls.discard(poll)
            self._leave()
        return self._source.revision > revision

    def _enter(self) -> None:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._listeners, self._beat, self._handing = loop, 0, None, None
        self._listeners += 1
        if self._beat is None:
            self._beat = loop.call_later(self.heartbeat_s, self._heartbeat)

    def _leave(self) -> None:
        self._listeners -= 1
        if not self._listeners:
            self._fresh.clear()
            if self._beat is not None:
                self._beat.cancel()
                self._beat = None

    def _hand_out(self) -> None:
        if self._handing is None:
            self._handing = self._handed_out()
            self._hand_on()

    def _hand_on(self) -> None:
        """Hand out to the next few; then what they have set going, and what else came, has its turn."""
        if self._handing is not None and next(self._handing, self) is not self:
            asyncio.get_running_loop().call_soon(self._hand_on)
        else:
            self._handing = None

    def _handed_out(self) -> Iterator[None]:
        """Hand every change to every watcher, in order; yields after `AT_A_TIME` watchers."""
        while self._fresh:
            news = self._fresh.popleft()
            told = 0
            for watcher in list(self._watchers):
                old = news.revision is not None and news.revision <= watcher.known
                if not old and watcher.wants(news.scope):
                    watcher.offer(news.frame)
                    told += 1
                    if told % AT_A_TIME == 0:
                        yield
        for poll in self._polls:
            poll.set()

    def _heartbeat(self) -> None:
        revision = self._source.revision
        beat = b": heartbeat\n\n" + _event(b"heartbeat", None, b'{"revision":%d}' % revision)
        for watcher in self._watchers:
            if not watcher.frames:
                watcher.offer(beat)
        self._beat = asyncio.get_running_loop().call_later(self.heartbeat_s, self._heartbeat)

    def _opening(self, watcher: _Watcher, last_revision: int | None) -> Iterable[bytes]:
        if last_revision is None:
            return self._snapshot(watcher)
        missed = self._source.changes_since(last_revision)
        if missed is None:
            return self._anew(watcher)
        watcher.known = max((change.revision for change in missed), default=last_revision)
        return (b"".join(self._frame(change) for change in missed if watcher.wants(_scope(change))),)

    def _anew(self, watcher: _Watcher) -> Iterable[bytes]:
        return chain((_event(b"reset", None, b"{}"),), self._snapshot(watcher))

    def _snapshot(self, watcher: _Watcher) -> Iterable[bytes]:
        """Write all that a watcher is to know. It may be long, and they may be many.

        Those who see everything share one. For others it is made part by part, as fast as they take it.
        """
        revision, breakers = self._source.snapshot()
        watcher.known = max(watcher.known, revision)
        if watcher.concerns is not None:
            return self._part_by_part(watcher, revision, breakers)
        if self._whole is None or self._whole[0] != revision:
            shown = b",".join(map(self._write, breakers))
            event = _event(b"snapshot", revision, b'{"revision":%d,"breakers":[%s]}' % (revision, shown))
            self._whole = (revision, event)
        return (self._whole[1],)

    def _part_by_part(self, watcher: _Watcher, revision: int, breakers: Sequence[Breaker]) -> Iterator[bytes]:
        part = bytearray(b'event: snapshot\nid: %d\ndata: {"revision":%d,"breakers":[' % (revision, revision))
        comma = b""
        for breaker in breakers:
            if watcher.wants(breaker.scope):
                part += comma + self._write(breaker)
                comma = b","
                if len(part) >= PART_BYTES:
                    yield bytes(part)
                    part.clear()
        yield bytes(part) + b"]}\n\n"

    def _frame(self, change: Change) -> bytes:
        if change.breaker is not None:
            return _event(b"upsert", change.revision, self._write(change.breaker))
        gone = {"id": change.breaker_id, "revision": change.revision}
        return _event(b"remove", change.revision, orjson.dumps(gone))


def _scope(change: Change) -> Scope | None:
    return None if change.breaker is None else change.breaker.scope


def _event(name: bytes, revision: int | None, data: bytes) -> bytes:
    r"""Write one event; `data` is JSON, which has no line ends.

    >>> _event(b"remove", 7, b"{}")
    b'event: remove\nid: 7\ndata: {}\n\n'
    """
    mark = b"" if revision is None else b"id: %d\n" % revision
    return b"event: %s\n%sdata: %s\n\n" % (name, mark, data)
