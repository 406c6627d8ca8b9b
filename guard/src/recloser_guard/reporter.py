"""Tells the sidecar what it cannot see: revisions that are obeyed, refusals, outcomes of probes."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from typing import Any, Callable, NamedTuple

from recloser_guard.backoff import Backoff
from recloser_guard.transport import Forbidden, Transport, Unreachable

_LOG = logging.getLogger("recloser_guard")
_SPACING_S = 0.05
_SPREAD_S = 2.0  # many guards hear of a change at once; they need not all acknowledge it at once
_SPREAD_ASKED_S = 0.1  # when somebody waits for it
_TIMEOUT_S = 5.0
_REFUSED_S = 300.0
_MAX_WAITING = 1000
_MAX_KEPT = 10_000  # breakers and sessions whose refusals are untold
_MAX_REFUSED = 256  # breakers and sessions in one acknowledgement
_MAX_COUNT = 1_000_000
_MAX_HELD_S = 3600.0


class Post(NamedTuple):
    """A body that is to be posted, again and again until it is taken or its time (monotonic) is over."""

    path: str
    body: dict[str, Any]
    until: float


class Reporter:
    """A thread of its own, so that no call waits for the network. What cannot be told yet is kept.

    Refusals are counted by breaker and session and told as counts, the newest revision only once.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        client: str,
        backoff: Backoff,
        uniform: Callable[[float, float], float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._transport = transport
        self._client = client
        self._backoff = backoff
        self._uniform = uniform
        self._clock = clock
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._urgent = threading.Event()
        self._closing = threading.Event()
        self._denials: dict[tuple[str, str | None], int] = {}
        self._revision = -1
        self._learned_at = 0.0
        self._acked = -1
        self._spread = _SPREAD_S
        self._hurry = False
        self._posts: list[Post] = []
        self.thread = threading.Thread(target=self._run, name="recloser-guard-report", daemon=True)

    def knows(self, revision: int, *, asked: bool = False) -> None:
        """The index is at this revision now. `asked`: somebody waits until that is acknowledged."""
        with self._lock:
            if revision != self._revision:
                self._revision, self._learned_at = revision, self._clock()
            if asked:
                self._spread, self._hurry = _SPREAD_ASKED_S, True
                self._urgent.set()
        self._wake.set()

    def denied(self, breaker_id: str, session: str | None) -> None:
        """A call of a session was refused."""
        with self._lock:
            self._keep((breaker_id, session), 1)
        self._urgent.set()
        self._wake.set()

    def post(self, path: str, body: dict[str, Any], within: float) -> None:
        """Post this as soon as possible; of no use after `within` seconds."""
        with self._lock:
            self._posts = [*self._posts[-_MAX_WAITING:], Post(path, body, self._clock() + within)]
        self._urgent.set()
        self._wake.set()

    def unreported(self) -> int:
        """Return how many refusals and outcomes the sidecar was not told of yet."""
        with self._lock:
            return sum(self._denials.values()) + len(self._posts)

    def close(self, timeout: float) -> None:
        """Tell what is left if that takes no longer than `timeout` seconds, and end."""
        self._closing.set()
        self._urgent.set()
        self._wake.set()
        if self.thread.is_alive() and self.thread is not threading.current_thread():
            self.thread.join(timeout)

    def _keep(self, key: tuple[str, str | None], count: int) -> None:
        if key not in self._denials and len(self._denials) >= _MAX_KEPT:
            self._denials.pop(next(iter(self._denials)))
        self._denials[key] = self._denials.get(key, 0) + count

    def _run(self) -> None:
        while not self._closing.is_set():
            self._wake.wait()
            while self._urgent.wait(self._uniform(0.0, self._spread)) and self._hurry:
                self._hurry = False  # sooner than it was to be, but not all at once
                self._urgent.clear()
            self._spread = _SPREAD_S
            self._wake.clear()
            self._urgent.clear()
            self._try()
            self._closing.wait(_SPACING_S)  # what comes meanwhile goes together
        self._try(last=True)

    def _try(self, *, last: bool = False) -> None:
        try:
            self._tell()
        except Unreachable as error:
            self._again(self._backoff.next(), str(error), last=last)
        except Forbidden as error:
            self._again(_REFUSED_S, str(error), last=last)
        except Exception as error:  # noqa: BLE001 - a defect here must not end the reports for good
            _LOG.error("recloser-guard: %r", error, exc_info=error)
            self._again(self._backoff.next(), repr(error), last=last)

    def _again(self, wait: float, why: str, *, last: bool) -> None:
        if last:
            return
        _LOG.debug("recloser was not told: %s", why)
        self._closing.wait(wait)
        self._wake.set()

    def _tell(self) -> None:
        self._tell_posts()
        with self._lock:
            refused = dict(itertools.islice(self._denials.items(), _MAX_REFUSED))
            for key in refused:
                del self._denials[key]
            if self._denials:
                self._wake.set()
            revision, held = self._revision, self._clock() - self._learned_at
        if not refused and revision in (-1, self._acked):
            return
        try:
            body = _ack(self._client, revision, held, refused)
            answer = self._transport.ask("POST", "/v1/acks", body, timeout=_TIMEOUT_S)
        except (Unreachable, Forbidden):
            with self._lock:
                for key, count in refused.items():
                    self._keep(key, count)
            raise
        if answer.status >= 400:  # noqa: PLR2004 - the sidecar does not take it and never will
            _LOG.warning("recloser does not take acknowledgements: %s %s", answer.status, answer.body)
        self._acked = revision
        self._backoff.healthy(60.0)

    def _tell_posts(self) -> None:
        while True:
            with self._lock:
                if not self._posts:
                    return
                post = self._posts[0]
            if post.until > self._clock():
                try:
                    self._transport.ask("POST", post.path, post.body, timeout=_TIMEOUT_S)
                except (TypeError, ValueError, RecursionError) as error:  # no JSON: it never will be
                    _LOG.error("recloser cannot be told: %s: %r", post.path, error)
            with self._lock:
                self._posts = [one for one in self._posts if one is not post]


def _ack(
    client: str, revision: int, held: float, refused: dict[tuple[str, str | None], int]
) -> dict[str, Any]:
    """Write an acknowledgement; `held` is for how long the revision has been obeyed, in seconds."""
    body: dict[str, Any] = {"client": client, "revision": max(revision, 0)}
    body["held_ms"] = round(min(max(held, 0.0), _MAX_HELD_S) * 1e3, 3)
    if refused:
        body["refused"] = [
            {"breaker_id": breaker_id, "session_id": session, "count": min(count, _MAX_COUNT)}
            for (breaker_id, session), count in refused.items()
        ]
    return body
