"""Answers to checks as JSON: from memory, but for probes, whose lease must be on disk first."""

from __future__ import annotations

import logging
import sqlite3
from typing import TYPE_CHECKING, Final

import orjson
from starlette.concurrency import run_in_threadpool

from collector.naming import name_kept
from control.breakers.record import UnknownBreaker
from control.breakers.verdict import Decision, allowed_probe
from control.scope import Asked
from detectors.signature import call_of, names_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from api.routes.check import CheckRequest
    from api.services import Services
    from control.breakers.changes import Change
    from control.breakers.record import Breaker
from control.breakers.verdict import Verdict

_log = logging.getLogger(__name__)
_ALLOWED: Final = (
    b'{"decision":"allow","message":"","breaker_id":null,"revision":%d,"ttl_ms":%d,"strength":null,'
    b'"reason":null,"retry_after_s":null,"lease_id":null,"override":null,"quarantine":null}'
)


class Decider:
    """Decides about calls. Belongs to the event loop."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._index = services.control.breakers.index
        self._dead_calls = services.dead_calls
        checks = services.control.metrics.checks
        self._counts = {decision: checks.labels(decision.value) for decision in Decision}
        self._by_args: dict[str, None] = {}
        self._index.subscribe(self._note)
        for breaker in self._index.snapshot()[1]:
            self._note_breaker(breaker.id, breaker)

    async def one(self, call: CheckRequest, caller: str) -> bytes:
        """Answer for one call."""
        asked = self.asked(call)
        verdict = self._refused_if_dead(self._index.check(asked), asked)
        if verdict.probe is not None:
            verdict = await self._probed(verdict, call.client or caller)
        return self._written(verdict)

    async def all(self, calls: Sequence[CheckRequest], caller: str) -> list[bytes]:
        """Answer for calls that are made together."""
        asked = [self.asked(call) for call in calls]
        verdicts = self._index.check_all(asked)
        for number, (each, call) in enumerate(zip(asked, calls, strict=True)):
            verdict = verdicts[number] = self._refused_if_dead(verdicts[number], each)
            if verdict.probe is not None:
                verdicts[number] = await self._probed(verdict, call.client or caller)
        return [self._written(verdict) for verdict in verdicts]

    def asked(self, call: CheckRequest) -> Asked:
        """Say what is asked about, by the names and signatures that findings use."""
        tool, session = _kept(call.tool), name_kept(call.session_id)
        return Asked(
            service=_kept(call.service),
            agent=_kept(call.agent),
            agent_version=_kept(call.agent_version),
            session=session,
            run=_kept(call.run_id),
            tool=tool,
            args=self._signature(tool, call) if self._by_args or self._dead(session) else None,
            model=_kept(call.model),
        )

    def _note(self, change: Change) -> None:
        """Know which breakers are over arguments: signatures are worked out only while there are some."""
        self._note_breaker(change.breaker_id, change.breaker)

    def _note_breaker(self, breaker_id: str, breaker: Breaker | None) -> None:
        if breaker is not None and breaker.scope.args is not None:
            self._by_args[breaker_id] = None
        else:
            self._by_args.pop(breaker_id, None)

    @staticmethod
    def _signature(tool: str | None, call: CheckRequest) -> str | None:
        if tool is None or call.arguments is None:
            return None
        try:
            return f"{call_of(tool, call.arguments, names_for(tool)).signature:016x}"
        except RecursionError:  # a JSON text that nests without end: no call that was ever recorded
            return None

    def _dead(self, session: str) -> bool:
        policies = self._services.control.policies
        return self._dead_calls.has(session) and policies.current.check.known_dead_calls

    def _refused_if_dead(self, verdict: Verdict, asked: Asked) -> Verdict:
        """Refuse what would go ahead, be it as a probe, and is known to be dead."""
        if asked.args is None or (verdict.decision is not Decision.ALLOW and verdict.probe is None):
            return verdict
        if verdict.override is not None:  # a person lets it through
            return verdict
        dead = self._dead_calls.verdict(asked, verdict.revision) if self._dead(str(asked.session)) else None
        return verdict if dead is None else dead

    async def _probed(self, verdict: Verdict, client: str) -> Verdict:
        """Let the call through as a probe if its breaker has a lease to give."""
        breakers = self._services.control.breakers
        try:
            lease = await run_in_threadpool(breakers.grant_lease, str(verdict.probe), client)
        except (UnknownBreaker, sqlite3.Error) as error:
            _log.warning("no probe of %s: %r", verdict.probe, error)
            return verdict
        return verdict if lease is None else allowed_probe(verdict, lease.id)

    def _written(self, verdict: Verdict) -> bytes:
        self._counts[verdict.decision].inc()
        if verdict.decision is Decision.ALLOW and verdict.breaker_id is None and verdict.override is None:
            return _ALLOWED % (verdict.revision, verdict.ttl_ms)
        return orjson.dumps(
            {
                "decision": verdict.decision,
                "message": verdict.message,
                "breaker_id": verdict.breaker_id,
                "revision": verdict.revision,
                "ttl_ms": verdict.ttl_ms,
                "strength": verdict.strength,
                "reason": verdict.reason,
                "retry_after_s": verdict.retry_after_s,
                "lease_id": verdict.lease_id,
                "override": verdict.override,
                "quarantine": verdict.quarantine,
            }
        )


def _kept(name: str | None) -> str | None:
    return None if name is None else name_kept(name)
