"""Carries the outbox to its destinations: one worker each, so that a slow one holds up nobody else."""

from __future__ import annotations

import asyncio
import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from control.bucket import Bucket
from control.fallback import Fallbacks
from control.ledger import current
from control.notifiers.protocol import Delivered, Failed, Refreshing
from control.outbox import NotYet, Settled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from control.metrics import ControlMetrics
    from control.notifiers.protocol import Message, Notifier, Result
    from control.outbox import Due, Outbox

_log = logging.getLogger(__name__)
_NS: Final = 1_000_000_000
_LONGEST_SLEEP_S: Final = 60.0
_TROUBLE_PAUSE_S: Final = 1.0


@dataclass(slots=True)
class _Route:
    """One destination with what its worker remembers; `refresh_ns` is when it is to be refreshed next."""

    name: str
    notifier: Notifier
    bucket: Bucket
    refresh_ns: int = 0


class Delivery:
    """Workers in a thread of their own, with an event loop of their own.

    `notifiers` are all places that something is delivered to: those of alerts, and control APIs. `start`,
    `wake` and `stop` may be called from any thread; `stop` is safe without `start` and twice. An attempt that
    is under way when `stop` is called is broken off and made again at the next start.
    """

    def __init__(
        self,
        outbox: Outbox,
        notifiers: Mapping[str, Notifier],
        metrics: ControlMetrics,
        *,
        now_ns: Callable[[], int],
    ) -> None:
        self._outbox = outbox
        self.notifiers = notifiers
        self._metrics = metrics
        self._now_ns = now_ns
        self.fallbacks = Fallbacks(outbox, notifiers, now_ns)
        self._routes = {
            name: _Route(name, one, Bucket(one.capabilities.rate_per_s, one.capabilities.burst))
            for name, one in notifiers.items()
        }
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wakes: dict[str, asyncio.Event] = {}
        self._main: asyncio.Task[None] | None = None
        self._started = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def alive(self) -> bool:
        """Whether the workers are at work."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Make the destinations known and begin to deliver."""
        for name, notifier in self.notifiers.items():
            self._outbox.register(name, notifier.address)
        self._thread = threading.Thread(target=self._run, name="delivery", daemon=True)
        self._thread.start()
        self._started.wait()

    def wake(self) -> None:
        """Look at the outbox now: something was enqueued."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._wake_all)

    def stop(self) -> None:
        """End the workers and wait for them."""
        thread, loop, main = self._thread, self._loop, self._main
        if thread is None or loop is None or main is None:
            return
        if thread.is_alive():
            loop.call_soon_threadsafe(main.cancel)
            thread.join()

    def send_now(self, name: str, message: Message, timeout_s: float = 30.0) -> Result:
        """Make one attempt past the outbox, from any thread but the workers'; wait for its result.

        Raises `KeyError` for a destination that nobody knows, `RuntimeError` when the workers do not run.
        """
        notifier = self.notifiers[name]
        loop = self._loop
        if loop is None or loop.is_closed():
            raise RuntimeError("the delivery workers do not run")
        attempt = asyncio.run_coroutine_threadsafe(self._send(notifier, message, self._now_ns()), loop)
        try:
            return attempt.result(timeout_s)
        except TimeoutError:
            attempt.cancel()
            return Failed(f"no answer within {timeout_s:g} s", unsure=True)

    async def attempt_next(self, name: str) -> float | None:
        """Make the attempt that is due at a destination, if one is.

        Return the seconds until there may be another one: 0 at once, None when nothing waits.
        """
        route = self._routes[name]
        diverted, more_s = self.fallbacks.divert(name)
        if diverted:
            self._metrics.diverted.labels(name).inc(diverted)
            self._wake_all()
        refresh_s = await self._refresh(route)
        turn = self._outbox.next(name, route.notifier.capabilities.audience)
        if isinstance(turn, NotYet):
            next_s = None if turn.until_ns is None else max(0.0, (turn.until_ns - self._now_ns()) / _NS)
            return _soonest(next_s, refresh_s, more_s)
        if wait_s := route.bucket.take(self._now_ns() / _NS):
            return _soonest(wait_s, more_s)
        self._outbox.begin(turn)
        at_ns = self._now_ns()
        result = await self._send(route.notifier, turn.message, at_ns)
        settled = self._outbox.settle(name, turn, result, at_ns, self.fallbacks.copy)
        self._report(name, turn, result, settled)
        return 0.0

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            try:
                runner.run(self._serve_all())
            except asyncio.CancelledError:
                _log.debug("delivery ends")
            finally:
                self._loop = None

    async def _serve_all(self) -> None:
        self._main = asyncio.current_task()
        self._wakes = {name: asyncio.Event() for name in self.notifiers}
        self._started.set()
        try:
            async with asyncio.TaskGroup() as group:
                for name in self.notifiers:
                    group.create_task(self._serve(name))
                group.create_task(asyncio.Event().wait())
        finally:
            for notifier in self.notifiers.values():
                await notifier.close()

    async def _serve(self, name: str) -> None:
        wake = self._wakes[name]
        troubles = 0
        while True:
            wake.clear()
            try:
                pause = await self.attempt_next(name)
                troubles = 0
            except Exception:  # noqa: BLE001 - a worker must outlive whatever one turn ran into
                # What was delivered may not have been written down: each try may page somebody once more.
                pause = min(_TROUBLE_PAUSE_S * 2**troubles, _LONGEST_SLEEP_S)
                troubles = min(troubles + 1, 16)
                _log.exception("the outbox cannot be used; %s waits for %g s", name, pause)
                await asyncio.sleep(pause)
                continue
            if pause == 0.0:
                continue
            longest = _LONGEST_SLEEP_S if pause is None else min(pause, _LONGEST_SLEEP_S)
            try:
                async with asyncio.timeout(longest):
                    await wake.wait()
            except TimeoutError:
                continue

    async def _refresh(self, route: _Route) -> float | None:
        """Tell a destination that forgets everything again when it is time; return the seconds until then."""
        notifier = route.notifier
        if not isinstance(notifier, Refreshing):
            return None
        now = self._now_ns()
        if now >= route.refresh_ns:
            route.refresh_ns = now + int(notifier.refresh_s * _NS)
            since_ns = now - int(notifier.resolved_for_s * _NS)
            messages = await asyncio.to_thread(self._current, route.name, since_ns)
            if messages:
                result = await self._tell_again(notifier, messages, now)
                self._outbox.refreshed(route.name, result)
                taken = isinstance(result, Delivered)
                self._metrics.refreshes.labels(route.name, "delivered" if taken else "failed").inc()
                said = result.note if isinstance(result, Delivered) else result.reason
                if said:
                    _log.warning("%s was refreshed with trouble: %s", route.name, said)
        return max(0.0, (route.refresh_ns - self._now_ns()) / _NS)

    def _current(self, name: str, since_ns: int) -> list[Message]:
        """Read what a destination must hear again, in a thread of its own: it can be much."""
        with self._outbox.db.reading() as connection:
            return current(connection, name, since_ns)

    async def _tell_again(self, notifier: Refreshing, messages: list[Message], now_ns: int) -> Result:
        try:
            return await notifier.refresh(messages, now_ns // _NS)
        except Exception as error:  # noqa: BLE001 - as `_send`
            _log.exception("a notifier failed unexpectedly at its refresh")
            return Failed(f"notifier defect: {type(error).__name__}")

    async def _send(self, notifier: Notifier, message: Message, at_ns: int) -> Result:
        try:
            return await notifier.send(message, at_ns // _NS)
        except Exception as error:  # noqa: BLE001 - a notifier's defect must not lose the message
            _log.exception("the notifier for %s failed unexpectedly", message.id)
            return Failed(f"notifier defect: {type(error).__name__}", about_message=True, unsure=True)

    def _report(self, name: str, due: Due, result: Result, settled: Settled) -> None:
        self._metrics.attempts.labels(name, settled.value).inc()
        if settled is Settled.DELIVERED:
            self._metrics.delivery_lag.labels(name).observe((self._now_ns() - due.waits_since_ns) / _NS)
            return
        reason = getattr(result, "reason", "")
        if settled is Settled.RETRY:
            _log.warning("%s did not take %s: %s; it will be tried again", name, due.message.id, reason)
        elif settled is Settled.DEAD:
            self._metrics.given_up.inc()
            _log.error("%s never took %s: %s; given up", name, due.message.id, reason)
        else:
            _log.error("%s is disabled: %s; nothing is sent until its address changes", name, reason)

    def _wake_all(self) -> None:
        for wake in self._wakes.values():
            wake.set()


def _soonest(*seconds: float | None) -> float | None:
    return min((one for one in seconds if one is not None), default=None)
