"""What is said about a call that is not simply allowed: refusals, probes, questions, fail modes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable

from recloser_guard.decision import ALLOW, DENY, HALT, UNREACHABLE, Decision
from recloser_guard.failing import FailModes, message_when_unreachable
from recloser_guard.feed import Feed
from recloser_guard.health import Health
from recloser_guard.ignored import Ignored
from recloser_guard.index import Call, Found
from recloser_guard.record import HALF_OPEN, Breaker
from recloser_guard.transport import Answer, Forbidden, Unreachable

_PROBE_S = 30.0
_NO_SESSION = "-"  # a question names one; this is none that a breaker could be over
_BEING_TRIED = (
    "Stopped by Recloser: this was failing and is being tried again with single calls, of which this is none."
    " Go on with something else, or try again later."
)
_IGNORED = (
    "Stopped by Recloser: this was refused again and again, and the run went on all the same. This run has "
    "been stopped. Do not call any more tools. Finish now: say what you were trying to do, what you tried, "
    "and what is blocking you, so that a person can take over."
)


class Answering:
    """Everything behind the fast path of `Guard.check`."""

    def __init__(
        self,
        feed: Feed,
        health: Health,
        modes: FailModes,
        ignored: Ignored,
        ask: Callable[[str, str, Mapping[str, Any] | None], Answer],
        *,
        halt_after: int,
        clock: Callable[[], float],
        wall: Callable[[], float],
        client: Callable[[], str],
        denied: Callable[[str, str | None], None],
    ) -> None:
        self._feed = feed
        self._health = health
        self._modes = modes
        self._ignored = ignored
        self._ask = ask
        self._halt_after = halt_after
        self._clock = clock
        self._wall = wall
        self._client = client
        self._denied = denied

    def needs_network(self, found: Found, args: Any, *, lease: bool) -> bool:
        """Tell whether `answer` would ask the sidecar for what the index says."""
        if found.breaker is not None:
            return lease and found.breaker.state == HALF_OPEN
        return found.ask and args is not None

    def answer(
        self,
        found: Found,
        call: Call,
        args: Any,
        *,
        asking: bool,
        critical: bool | None,
        lease: bool,
    ) -> Decision:
        """Decide about a call that some breaker, a question or the silence of the sidecar may forbid."""
        breaker, lost = found.breaker, self._health.lost()
        if breaker is not None and not (lost and self._over(breaker)):
            if lease and breaker.state == HALF_OPEN:
                return self._probe(breaker, call, critical=critical)
            return self._refused(breaker, call)
        if asking or (found.ask and args is not None):
            return self._asked(call, args, critical=critical)
        if lost:
            return self.unreachable(call.tool, critical=critical)
        override = None if found.override is None else found.override.id
        because = "closed" if override is None else "override"
        return Decision(ALLOW, because, override=override, revision=self._feed.index.revision)

    def halts(self, breaker: Breaker) -> bool:
        """Tell whether a breaker that decides ends the run."""
        over = self._health.lost() and self._over(breaker)
        return breaker.strength == HALT and breaker.state != HALF_OPEN and not over

    def unreachable(self, tool: str | None, *, critical: bool | None) -> Decision:
        """Decide by the fail mode, and count it."""
        revision = self._feed.index.revision
        if not self._modes.closed(tool, critical=critical):
            self._health.count("allowed_unreachable")
            return Decision(ALLOW, UNREACHABLE, revision=revision)
        self._health.count("refused_unreachable")
        message = message_when_unreachable(tool)
        return Decision(DENY, UNREACHABLE, message, strength=DENY, retry_after=30.0, revision=revision)

    def forked(self) -> None:
        """In a child process: locks that other threads of the parent held are held for ever."""
        self._ignored.forked()

    def _over(self, breaker: Breaker) -> bool:
        """Tell whether its own time is up: while the sidecar is not heard nobody else can close it."""
        if breaker.state == HALF_OPEN:
            return True
        return breaker.over_at is not None and breaker.over_at <= self._wall()

    def _refused(self, breaker: Breaker, call: Call) -> Decision:
        message, strength, because, count = breaker.message, breaker.strength, breaker.reason, 0
        if breaker.state == HALF_OPEN:  # who waits for a try ignores nothing
            message, strength, because = _BEING_TRIED, DENY, HALF_OPEN
        else:
            count, news = self._ignored.refused(breaker, call.session or call.run, self._clock())
            if news:
                self._denied(breaker.id, call.session)
        of_one_run = call.session is not None or call.run is not None
        if 0 < self._halt_after <= count and strength != HALT and of_one_run:
            message, strength, because = _IGNORED, HALT, "ignored"
        halt = strength == HALT
        self._health.count("halts" if halt else "refusals")
        return Decision(
            HALT if halt else DENY,
            because,
            message,
            breaker_id=breaker.id,
            strength=strength,
            retry_after=self._retry_after(breaker),
            quarantine=breaker.quarantine,
            revision=self._feed.index.revision,
        )

    def _retry_after(self, breaker: Breaker) -> float | None:
        if breaker.state == HALF_OPEN:
            return _PROBE_S
        if breaker.until is None or breaker.strength == HALT:
            return None
        return max(0.0, breaker.until - self._wall())

    def _probe(self, breaker: Breaker, call: Call, *, critical: bool | None) -> Decision:
        """Ask for one of the half-open breaker's tries."""
        try:
            answer = self._ask("POST", f"/v1/breakers/{breaker.id}/leases", {"client": self._client()})
        except (Unreachable, Forbidden) as error:
            self._health.last_error = str(error)
            return self.unreachable(call.tool, critical=critical)
        if answer.status != 201:  # noqa: PLR2004 - no try is left, or the breaker is not half open any more
            return self._refused(breaker._replace(state=HALF_OPEN), call)
        lease_id = answer.text("lease_id")
        if lease_id is None:
            return self._nonsense("a lease", answer, call, critical=critical)
        revision = self._feed.index.revision
        return Decision(ALLOW, "probe", breaker_id=breaker.id, lease_id=lease_id, revision=revision)

    def _asked(self, call: Call, args: Any, *, critical: bool | None) -> Decision:
        """Ask the sidecar: only it knows the signatures of arguments. It counts its refusals itself."""
        said = {
            "session_id": call.session or _NO_SESSION,
            "run_id": call.run,
            "tool": call.tool,
            "arguments": args,
            "service": call.service,
            "agent": call.agent,
            "model": call.model,
            "client": self._client(),
        }
        if call.agent_at_version is not None and call.agent is not None:
            said["agent_version"] = call.agent_at_version[len(call.agent) + 1 :]
        try:
            answer = self._ask("POST", "/v1/check", {k: v for k, v in said.items() if v is not None})
        except (
            Unreachable,
            Forbidden,
            TypeError,
            ValueError,
            RecursionError,
        ) as error:  # the last three: arguments that are no JSON
            self._health.last_error = str(error)
            return self.unreachable(call.tool, critical=critical)
        if answer.status != 200:  # noqa: PLR2004 - the sidecar does not understand the question
            self._health.last_error = f"POST /v1/check: {answer.status} {str(answer.body)[:300]}"
            return self.unreachable(call.tool, critical=critical)
        try:
            return self._told(answer.body)
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
            return self._nonsense("POST /v1/check", answer, call, critical=critical)

    def _nonsense(self, what: str, answer: Answer, call: Call, *, critical: bool | None) -> Decision:
        """Take an answer that makes no sense as none: it must not end in the agent's own code."""
        self._health.last_error = f"{what}: {answer.status} {str(answer.body)[:300]}"
        return self.unreachable(call.tool, critical=critical)

    def _told(self, verdict: Mapping[str, Any]) -> Decision:
        decision, revision = str(verdict["decision"]), int(verdict.get("revision", 0))
        if decision not in (ALLOW, DENY, HALT):
            raise ValueError(decision)
        strength, lease_id, override = (verdict.get(k) for k in ("strength", "lease_id", "override"))
        if decision == ALLOW:
            because = "probe" if lease_id else "override" if override else "closed"
        else:
            because = str(verdict.get("reason") or "refused")
            self._health.count("halts" if decision == HALT else "refusals")
        return Decision(
            decision,
            because,
            str(verdict.get("message", "")),
            breaker_id=verdict.get("breaker_id"),
            strength=strength or (None if decision == ALLOW else decision),
            retry_after=verdict.get("retry_after_s"),
            quarantine=verdict.get("quarantine"),
            revision=revision,
            override=override,
            lease_id=lease_id,
        )
