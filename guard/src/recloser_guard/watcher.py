"""Hears of breakers: a stream of events, or asking again and again where no stream gets through."""

from __future__ import annotations

import http.client
import logging
import threading
import time
from typing import Callable, NamedTuple
from urllib.parse import quote

from recloser_guard.backoff import Backoff
from recloser_guard.cache import Cache
from recloser_guard.errors import GuardError
from recloser_guard.feed import Feed
from recloser_guard.health import Health
from recloser_guard.stream import Event, EventReader
from recloser_guard.transport import Forbidden, Stream, Transport, Unreachable

_LOG = logging.getLogger("recloser_guard")
_SAVE_EVERY_S = 1.0
_TICK_S = 1.0
_MAX_RETRY_AFTER_S = 60.0


class Pace(NamedTuple):
    """Times in seconds.

    `first_event`: a stream that says nothing for so long after it was opened is held back by a proxy;
    `silence`: a stream that says nothing for so long is dead (heartbeats come every 5 s); `poll_wait`: how
    long the sidecar may hold a poll; `poll_pause`: between polls that come back at once; `stream_again`:
    when a stream is tried again after polling; `refused`: pause after the token was refused; `connect`:
    for any single answer.
    """

    first_event: float = 5.0
    silence: float = 15.0
    poll_wait: float = 25.0
    poll_pause: float = 1.0
    stream_again: float = 300.0
    refused: float = 300.0
    connect: float = 5.0


class Watcher:
    """The thread that keeps the index fresh. `on_change` is called in it after each change."""

    def __init__(
        self,
        transport: Transport,
        feed: Feed,
        health: Health,
        cache: Cache | None,
        *,
        client: str,
        backoff: Backoff,
        pace: Pace,
        on_change: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._transport = transport
        self._feed = feed
        self._health = health
        self._cache = cache
        self._client = client
        self._backoff = backoff
        self._pace = pace
        self._on_change = on_change
        self._clock = clock
        self._closing = threading.Event()
        self._stream: Stream | None = None
        self._stream_again_at = 0.0
        self._followed = False
        self._unsaved = False
        self._saved_at = float("-inf")
        self.ready = threading.Event()
        self.thread = threading.Thread(target=self._run, name="recloser-guard-watch", daemon=True)

    def close(self, timeout: float) -> None:
        """End the thread, waiting for it `timeout` seconds at most, and keep what is known."""
        self._closing.set()
        stream = self._stream
        if stream is not None:
            stream.interrupt()
        if self.thread.is_alive() and self.thread is not threading.current_thread():
            self.thread.join(timeout)
        self._save(now=True)

    def _run(self) -> None:
        while not self._closing.is_set():
            wait = 0.0
            try:
                if self._clock() >= self._stream_again_at:
                    self._follow()
                else:
                    self._poll()
            except Forbidden as error:
                self._health.trouble(str(error), refused=True)
                wait = self._pace.refused
            except Unreachable as error:
                self._health.trouble(str(error))
                wait = max(self._backoff.next(), min(error.retry_after or 0.0, _MAX_RETRY_AFTER_S))
            except Exception as error:  # noqa: BLE001 - a defect here must not end the watch for good
                self._defect(error)
                wait = self._backoff.next()
            if wait and not self._closing.is_set():
                self.ready.set()
                self._health.count("reconnects")
                self._rest(wait)

    def _follow(self) -> None:
        """Follow the stream until it ends; raises `Unreachable` at its end, returns where there is none."""
        resumed = self._followed and not self._feed.refetch
        headers = {"last-event-id": str(self._feed.index.revision)} if resumed else {}
        path = f"/v1/breakers/watch?client={quote(self._client, safe='')}"
        stream = self._transport.open(path, timeout=self._pace.connect, headers=headers)
        if stream is None:
            self._only_polls("the sidecar or a proxy before it has no stream of events")
            return
        self._stream = stream
        opened = self._clock()
        try:
            if self._closing.is_set():
                return
            if resumed and not self._verified():
                return
            self._read(stream)
        finally:
            self._stream = None
            stream.close()
            self._backoff.healthy(self._clock() - opened)

    def _verified(self) -> bool:
        """Get the list after a reconnect; without the right to do so the next stream begins with it."""
        try:
            self._fetch()
        except Forbidden:
            self._followed = False
            return False
        return True

    def _read(self, stream: Stream) -> None:
        reader = EventReader()
        heard = False
        while not self._closing.is_set():
            try:
                line = stream.line(self._pace.silence if heard else self._pace.first_event)
            except Unreachable:
                if not heard and not self._closing.is_set():
                    self._only_polls("the stream of events says nothing: a proxy holds it back")
                    return
                raise
            if not line:
                raise Unreachable("the stream of events ended")
            heard = True
            self._health.contact("live")
            event = reader.take(line)
            if event is not None:
                self._take(event)

    def _take(self, event: Event) -> None:
        before = self._feed.index.revision
        try:
            changed = self._feed.apply(event)
        except GuardError as error:
            self._defect(error)
            self._feed.refetch, changed = True, False
        self._followed = self._followed or self._feed.known
        if changed:
            self._changed()
        elif event.name == "heartbeat":
            self._alive()
            if self._feed.index.revision != before:
                self._on_change()
        elif self._feed.asked:
            self._on_change()
        if self._feed.refetch and event.name != "reset" and not self._verified():
            raise Unreachable("the stream of events must begin anew")

    def _only_polls(self, why: str) -> None:
        _LOG.warning("recloser is polled for %.0f s: %s", self._pace.stream_again, why)
        self._health.last_error = why
        self._stream_again_at = self._clock() + self._pace.stream_again

    def _poll(self) -> None:
        wait = int(self._pace.poll_wait)
        asked_at = self._clock()
        known = self._feed.known and not self._feed.refetch
        changed = self._fetch(f"&wait={wait}&since={self._feed.index.revision}" if known else "")
        self._health.contact("polling")
        self._alive()
        if not changed and self._clock() - asked_at < self._pace.poll_pause:
            self._rest(self._pace.poll_pause)

    def _fetch(self, wait: str = "") -> bool:
        """Get the whole list; tell whether it is another one than is known."""
        self._health.count("refetches")
        timeout = self._pace.connect + (self._pace.poll_wait if wait else 0.0)
        known = self._feed.known and not self._feed.refetch
        headers = {"if-none-match": f'"rev-{self._feed.index.revision}"'} if known else {}
        path = f"/v1/breakers?active=true{wait}"
        answer = self._transport.ask("GET", path, timeout=timeout, headers=headers)
        if answer.status == http.client.NOT_MODIFIED:
            self._feed.compare(answer.etag)
            return False
        if answer.status != http.client.OK:
            raise Unreachable(f"GET {path}: {answer.status} {str(answer.body)[:200]}")
        self._feed.replace(answer.body["breakers"], int(answer.body["revision"]))
        self._changed()
        return True

    def _changed(self) -> None:
        self._unsaved = True
        self._on_change()
        self.ready.set()
        self._save()

    def _alive(self) -> None:
        """Nothing changed, but the sidecar is there."""
        self.ready.set()
        self._health.tick()
        self._save()
        if self._cache is not None and not self._unsaved:
            self._cache.heard()

    def _save(self, *, now: bool = False) -> None:
        if self._cache is None or not (self._unsaved and self._feed.known):
            return
        if not now and self._clock() - self._saved_at < _SAVE_EVERY_S:
            return
        failure = self._cache.save(self._feed.index.revision, list(self._feed.shown.values()))
        self._unsaved, self._saved_at = False, self._clock()
        if failure is not None:
            _LOG.warning("recloser's last known state is not kept: %s", failure)
            self._cache = None

    def _defect(self, error: Exception) -> None:
        if not self._health.counts["defects"]:
            _LOG.error("recloser-guard: %r", error, exc_info=error)
        self._health.count("defects")
        self._health.trouble(repr(error))

    def _rest(self, seconds: float) -> None:
        """Wait, but notice a close at once and warn when nothing has been heard for too long."""
        until = self._clock() + seconds
        while not self._closing.is_set() and self._clock() < until:
            self._health.tick()
            self._closing.wait(min(_TICK_S, max(0.0, until - self._clock())))
