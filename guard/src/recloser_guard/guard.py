"""The guard: asked before each call, answers from memory."""

from __future__ import annotations

import asyncio
import functools
import os
import random
import socket
import ssl
import threading
import time
from collections.abc import Awaitable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Callable, TypeVar

from recloser_guard import lifetime
from recloser_guard.answering import Answering
from recloser_guard.backoff import Backoff
from recloser_guard.budget import Reservation
from recloser_guard.cache import Cache, default_folder
from recloser_guard.caller import Caller
from recloser_guard.context import CURRENT, Current, belonging_to
from recloser_guard.decision import ALLOW, HALT, Decision
from recloser_guard.decorating import F, decorated, run_until_halted
from recloser_guard.errors import CallDenied, GuardError, RunHalted
from recloser_guard.failing import FailModes
from recloser_guard.feed import Feed
from recloser_guard.health import Health, Status
from recloser_guard.ignored import Ignored
from recloser_guard.index import NOTHING, Call
from recloser_guard.inflight import Inflight, Watched
from recloser_guard.permit import Permit
from recloser_guard.reporter import Reporter
from recloser_guard.transport import Answer, Transport
from recloser_guard.version import __version__
from recloser_guard.watcher import Pace, Watcher

T = TypeVar("T")
DEFAULT_URL = "http://127.0.0.1:4319"
_RESULT_WITHIN_S = 30.0


class Guard:
    """Knows which calls the sidecar's breakers refuse, without asking it.

    `url` and `token` default to RECLOSER_URL and RECLOSER_TOKEN. `service`, `agent` and `agent_version` are
    those that the agent's telemetry names: breakers over them are found by these. `fail_mode` says what
    happens to calls when nothing has been heard for `apply_after` seconds (from `warn_after` on it is
    logged): `open` lets them through, marked; `closed` refuses them. Its keys are `default`, `critical` and
    patterns of tool names; `critical` are patterns of the tools that are critical. What was known to be
    refused stays refused.

    The first check waits up to `connect_wait` seconds for the first news. `ask_timeout` bounds each question
    that only the sidecar can answer. A call that one breaker has refused `halt_after` times in one session
    halts the run even if the sidecar cannot be told (0: never). `cache` is the folder of the last known
    state, None for no such file. `context` is the TLS context of an https address.

    Safe to use from several threads and tasks; survives a fork. Raises `GuardError` for what cannot be meant.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        service: str | None = None,
        agent: str | None = None,
        agent_version: str | None = None,
        tenant: str = "default",
        fail_mode: Mapping[str, str] | None = None,
        critical: Iterable[str] = (),
        warn_after: float = 30.0,
        apply_after: float = 120.0,
        connect_wait: float = 1.0,
        ask_timeout: float = 1.0,
        ask_server: bool = False,
        halt_after: int = 20,
        same_turn_s: float = 0.05,
        cache: str | Path | None = "default",
        client: str | None = None,
        context: ssl.SSLContext | None = None,
        pace: Pace | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        uniform: Callable[[float, float], float] = random.SystemRandom().uniform,  # differs after a fork
    ) -> None:
        url = url or os.environ.get("RECLOSER_URL") or DEFAULT_URL
        token = token or os.environ.get("RECLOSER_TOKEN")
        if not 0 < warn_after <= apply_after:
            raise GuardError("warn_after: must be above 0 and no more than apply_after")
        self._transport = Transport(url, token, context=context, version=__version__)
        self._caller = Caller(tenant, service, agent, agent_version)
        self._connect_wait = connect_wait
        self._ask_server = ask_server
        self._client_name = client
        self._pace = pace or Pace()
        self._clock = clock
        self._wall = wall
        self._uniform = uniform
        self._cache = _cache(cache, url, token)
        self._modes = FailModes(fail_mode or {}, critical)
        self._health = Health(clock, warn_after, apply_after)
        self._apply_after = apply_after
        self._feed = Feed()
        self._inflight = Inflight(self._must_halt)
        self._answering = Answering(
            self._feed, self._health, self._modes, Ignored(same_turn_s), self.ask,
            halt_after=halt_after, clock=clock, wall=wall, client=lambda: self.client, denied=self._denied,
        )  # fmt: skip
        self._ask_timeout = ask_timeout
        self._allowed = Decision(ALLOW, "closed")
        self._begun = False
        self._closed = False
        self._beginning = threading.Lock()
        self._watcher: Watcher | None = None
        self._reporter: Reporter | None = None
        self._load()
        lifetime.look_after(self)

    @property
    def agent(self) -> str | None:
        """The agent whose calls these are where nobody says otherwise."""
        return CURRENT.get().agent or self._caller.agent

    @property
    def client(self) -> str:
        """The name under which the sidecar knows this process."""
        return self._client_name or f"{self._caller.name}@{socket.gethostname()}:{os.getpid()}"

    def start(self) -> Guard:
        """Begin to listen now; otherwise the first check does."""
        with self._beginning:
            if self._watcher is None and not self._closed:
                backoff = functools.partial(Backoff, self._uniform)
                self._reporter = Reporter(
                    self._transport, client=self.client, backoff=backoff(), uniform=self._uniform,
                    clock=self._clock,
                )  # fmt: skip
                self._watcher = Watcher(
                    self._transport, self._feed, self._health, self._cache, client=self.client,
                    backoff=backoff(), pace=self._pace, on_change=self._changed, clock=self._clock,
                )  # fmt: skip
                try:
                    self._watcher.thread.start()
                    self._reporter.thread.start()
                except RuntimeError as error:  # at the end of the interpreter, or of what may run at once
                    self._watcher.close(0.0)
                    self._watcher = self._reporter = None
                    self._health.trouble(f"no thread can be had: {error}")
        return self

    def wait_ready(self, timeout: float) -> bool:
        """Wait until the breakers are known, at most `timeout` seconds; tell whether they are."""
        self.start()
        watcher = self._watcher
        if watcher is not None:
            watcher.ready.wait(timeout)
        return self._feed.known

    def check(
        self,
        tool: str | None = None,
        args: Any = None,
        *,
        session: str | None = None,
        run: str | None = None,
        agent: str | None = None,
        agent_version: str | None = None,
        model: str | None = None,
        critical: bool | None = None,
        ask_server: bool | None = None,
        lease: bool = False,
    ) -> Decision:
        """Tell whether a call may go ahead.

        From memory, in microseconds. Only these ask the sidecar: `ask_server=True` with arguments, a breaker
        over certain arguments that covers the rest of the call, and a half-open breaker with `lease=True`
        (then report the outcome, or use `permit`). Without a `tool` it tells whether the run may go on. What
        is not said is taken from the context (`session`) and from the guard.
        """
        if not self._begun:
            self._begin()
        call = self._caller.call(tool, session, run, agent, agent_version, model)
        found = self._feed.index.find(call)
        asking = args is not None and (self._ask_server if ask_server is None else ask_server)
        if found is NOTHING and not asking and self._clock() - self._health.contact_at <= self._apply_after:
            return self._allowed
        return self._answering.answer(found, call, args, asking=asking, critical=critical, lease=lease)

    async def acheck(self, tool: str | None = None, args: Any = None, **how: Any) -> Decision:
        """Do what `check` does; what must ask the sidecar does so outside the event loop."""
        if self._begun:
            call = self._caller.call(
                tool, how.get("session"), how.get("run"), how.get("agent"), how.get("agent_version"),
                how.get("model"),
            )  # fmt: skip
            wanted = how.get("ask_server")
            asks = args is not None and (self._ask_server if wanted is None else wanted)
            found = self._feed.index.find(call)
            if not asks and not self._answering.needs_network(found, args, lease=bool(how.get("lease"))):
                return self.check(tool, args, **how)
        how = {**how, **{k: v for k, v in CURRENT.get()._asdict().items() if how.get(k) is None}}
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, functools.partial(self.check, tool, args, **how))

    def raise_for(self, decision: Decision) -> None:
        """Raise `CallDenied` or `RunHalted` for a refusal; do nothing for an allow."""
        if decision.decision == ALLOW:
            return
        raise (RunHalted if decision.decision == HALT else CallDenied)(decision)

    def permit(self, tool: str | None = None, args: Any = None, **how: Any) -> Permit:
        """Return a context manager around one call: it is checked, and how it ended is reported."""
        return Permit(self, tool, args, how)

    def report(self, decision: Decision, *, ok: bool) -> None:
        """Tell how a call ended that was lent as a probe; nothing for any other."""
        if decision.lease_id is not None:
            self.post(f"/v1/leases/{decision.lease_id}/result", {"ok": ok}, _RESULT_WITHIN_S)

    def guarded(
        self,
        tool: str | None = None,
        *,
        tell_model: bool = False,
        cancel: bool = False,
        **how: Any,
    ) -> Callable[[F], F]:
        """Decorate a function, coroutine function or generator function so that each call is checked first.

        A generator is checked when it begins, and its call ends when it does. Class and static methods may be
        decorated on either side.

        `tool` is its name in telemetry, else the function's. With `tell_model` a denied call returns the
        text for the model instead of raising `CallDenied`; `RunHalted` is always raised. With `cancel` a
        coroutine is cancelled when its run is halted while it runs.
        """

        def decorate(function: F) -> F:
            return decorated(self, function, tool=tool, tell_model=tell_model, cancel=cancel, how=how)

        return decorate

    def session(
        self,
        session: str,
        *,
        run: str | None = None,
        agent: str | None = None,
        agent_version: str | None = None,
        model: str | None = None,
    ) -> AbstractContextManager[Current]:
        """Let every check within belong to this session (`gen_ai.conversation.id` in telemetry)."""
        return belonging_to(Current(session, run, agent, agent_version, model))

    def cancel_on_halt(
        self,
        task: asyncio.Task[Any],
        tool: str | None = None,
        *,
        session: str | None = None,
        run: str | None = None,
        agent: str | None = None,
    ) -> Watched:
        """Cancel a task as soon as its run is halted. The answer's `halted` tells whether that happened."""
        self.start()
        return self._inflight.add(task, self._caller.call(tool, session, run, agent, None, None))

    async def run(
        self,
        work: Awaitable[T],
        tool: str | None = None,
        *,
        session: str | None = None,
        run: str | None = None,
        agent: str | None = None,
    ) -> T:
        """Await `work`; when its run is halted, cancel it and raise `RunHalted`."""
        how = {"tool": tool, "session": session, "run": run, "agent": agent}
        done: T = await run_until_halted(self, work, how)
        return done

    def reserve(self, name: str, amount: float, *, session: str | None = None) -> Reservation:
        """Reserve an amount of a budget of the policy; see `Reservation`."""
        self.start()
        call = self._caller.call(None, session, None, None, None, None)
        key = {"session_id": call.session, "agent": call.agent, "service": call.service}
        return Reservation(self, name, amount, {k: v for k, v in key.items() if v is not None})

    def status(self) -> Status:
        """Return how well the sidecar is heard and what has been counted: for health checks and gauges."""
        reporter, index = self._reporter, self._feed.index
        return self._health.status(
            revision=index.revision,
            breakers=len(index),
            unreported=0 if reporter is None else reporter.unreported(),
        )

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Answer:
        """Make one request of the sidecar now; raises `Unreachable` and `Forbidden`."""
        return self._transport.ask(method, path, body, timeout=self._ask_timeout)

    def post(self, path: str, body: dict[str, Any], within: float) -> None:
        """Post a body in the background, again and again for `within` seconds."""
        self.start()
        if self._reporter is not None:
            self._reporter.post(path, body, within)

    def unreachable(self, tool: str | None, *, critical: bool | None) -> Decision:
        """Decide by the fail mode, counted."""
        return self._answering.unreachable(tool, critical=critical)

    def close(self, timeout: float = 2.0) -> None:
        """Stop listening, tell the sidecar what is untold if that takes no longer than `timeout` seconds."""
        self._closed = True
        until = time.monotonic() + timeout
        if self._reporter is not None:
            self._reporter.close(timeout)
        if self._watcher is not None:
            self._watcher.close(max(0.0, until - time.monotonic()))
        self._health.mode = "closed"

    def __enter__(self) -> Guard:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _begin(self) -> None:
        """Wait for the first news, once."""
        self.start()
        watcher = self._watcher
        if watcher is not None:
            watcher.ready.wait(self._connect_wait)
        self._begun = watcher is not None or self._closed

    def _must_halt(self, call: Call) -> bool:
        found = self._feed.index.find(call)
        return found.breaker is not None and self._answering.halts(found.breaker)

    def _changed(self) -> None:
        revision = self._feed.index.revision
        self._allowed = Decision(ALLOW, "closed", revision=revision)
        if self._reporter is not None:
            self._reporter.knows(revision, asked=self._feed.asked)
        self._inflight.changed()

    def _denied(self, breaker_id: str, session: str | None) -> None:
        if self._reporter is not None:
            self._reporter.denied(breaker_id, session)

    def _load(self) -> None:
        """Start from what was known when the last process ended, however old that is."""
        kept = None if self._cache is None else self._cache.load()
        if kept is None:
            return
        try:
            self._feed.replace(kept.breakers, kept.revision)
        except GuardError:
            return  # written by another version: the sidecar will tell
        self._feed.refetch = True
        self._health.contact_at = self._clock() - max(0.0, self._wall() - kept.heard_at)
        self._allowed = Decision(ALLOW, "closed", revision=kept.revision)

    def forked(self) -> None:
        """In a child: threads and connections are the parent's; begin anew at the next check."""
        self._beginning = threading.Lock()
        self._watcher = self._reporter = None
        self._begun = False
        self._health.forked()
        self._inflight = Inflight(self._must_halt)
        self._answering.forked()


def _cache(folder: str | Path | None, url: str, token: str | None) -> Cache | None:
    if folder is None:
        return None
    return Cache(default_folder() if folder == "default" else Path(folder), url, token)
