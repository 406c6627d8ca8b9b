"""Half-open breakers: leases out, outcomes in, closed again or open for longer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from control.actor import Actor
from control.breakers import changing, leases, store
from control.breakers.record import UnknownBreaker
from control.breakers.states import Event, State
from control.scope import Asked

if TYPE_CHECKING:
    from collections.abc import Callable

    from control.breakers.leases import Lease
    from control.breakers.record import Breaker
    from control.breakers.writer import Writer
    from control.db import ControlDb, Transaction
    from control.facts import Fact

PROBE: Final = Actor(type="system", id="probe")
_BY_TELEMETRY: Final = "telemetry"


class Probes:
    """Grants leases and draws the conclusions. Every method is one transaction, or within one."""

    def __init__(
        self, db: ControlDb, writer: Writer, new_id: Callable[[], str] = leases.new_lease_id
    ) -> None:
        self._db = db
        self._writer = writer
        self._new_id = new_id

    def grant(self, breaker_id: str, client: str) -> Lease | None:
        """Give a lease; None when the breaker is not half open or has none to give.

        Raises `UnknownBreaker`.
        """
        with self._db.transaction() as tx:
            breaker = store.fetch(tx, breaker_id)
            if breaker is None:
                raise UnknownBreaker(breaker_id)
            if breaker.state is not State.HALF_OPEN:
                return None
            lease = leases.grant(
                tx,
                breaker,
                client,
                now_ns=self._writer.now_ns(),
                settings=self._writer.index.settings,
                new_id=self._new_id,
            )
            self._show(tx, breaker)
            return lease

    def finish(self, lease_id: str, *, ok: bool) -> Breaker:
        """Take the outcome of a probe; return the breaker as it is then.

        Raises `UnknownLease`, or `LeaseOver` when its result is known already or it expired.
        """
        now = self._writer.now_ns()
        with self._db.transaction() as tx:
            lease = leases.fetch(tx, lease_id)
            if not lease.result and lease.expires_ns <= now:
                raise leases.LeaseOver(lease_id)
            leases.finish(tx, lease_id, leases.OK if ok else leases.FAILED, now)
            breaker = store.fetch(tx, lease.breaker_id)
            if breaker is None:
                raise UnknownBreaker(lease.breaker_id)
            return self._conclude(tx, breaker, lease, ok=ok, note=f"probe of {lease.client}")

    def expire(self) -> None:
        """Count probes that told nothing in their time as failed."""
        now = self._writer.now_ns()
        with self._db.transaction() as tx:
            for lease in leases.overdue(tx, now):
                current = leases.fetch(tx, lease.id)
                if current.result:
                    continue
                leases.finish(tx, lease.id, leases.EXPIRED, now)
                breaker = store.fetch(tx, lease.breaker_id)
                if breaker is not None:
                    note = f"probe of {lease.client} told nothing in its time"
                    self._conclude(tx, breaker, lease, ok=False, note=note)

    def take(self, tx: Transaction, fact: Fact) -> None:
        """Learn from what was seen of calls: those made while a breaker is half open are probes."""
        if fact.kind not in ("worked", "failed"):
            return
        ok = fact.kind == "worked"
        for known in self._writer.index.half_open_covering(_asked(fact)):
            breaker = store.fetch(tx, known.id)
            began = fact.payload.get("start_ns") or fact.payload.get("end_ns") or 0
            if breaker is None or breaker.state is not State.HALF_OPEN or began < breaker.updated_at:
                continue
            lease = leases.oldest(tx, breaker, began) or self._seen(tx, breaker)
            leases.finish(tx, lease.id, leases.OK if ok else leases.FAILED, self._writer.now_ns())
            self._conclude(tx, breaker, lease, ok=ok, note=f"a call was seen that {fact.kind}")

    def _seen(self, tx: Transaction, breaker: Breaker) -> Lease:
        now = self._writer.now_ns()
        lease = leases.Lease(
            id=self._new_id(),
            breaker_id=breaker.id,
            episode=breaker.episode,
            client=_BY_TELEMETRY,
            granted_ns=now,
            expires_ns=now,
        )
        leases.insert(tx, lease)
        return lease

    def _conclude(self, tx: Transaction, breaker: Breaker, lease: Lease, *, ok: bool, note: str) -> Breaker:
        if breaker.state is not State.HALF_OPEN or breaker.episode != lease.episode:
            return breaker
        now, index = self._writer.now_ns(), self._writer.index
        after = breaker
        if not ok:
            reopened = changing.reopened(breaker, PROBE, note, now, index.settings)
            after = self._writer.write(tx, Event.PROBE_FAILED, breaker, reopened)
        elif leases.succeeded(tx, breaker) >= index.settings.successes:
            closed = changing.closed(breaker, Event.PROBE_OK, PROBE, note, denied=breaker.denied, now_ns=now)
            after = self._writer.write(tx, Event.PROBE_OK, breaker, closed)
        if after.state is not State.HALF_OPEN:
            leases.void(tx, breaker.id, now)
        self._show(tx, after)
        return after

    def _show(self, tx: Transaction, breaker: Breaker) -> None:
        given = leases.under_way(tx, breaker)
        tx.after_commit(lambda: self._writer.index.leases(breaker.id, given))


def _asked(fact: Fact) -> Asked:
    said: dict[str, Any] = {
        part: fact.payload.get(part) or None
        for part in ("service", "agent", "agent_version", "tool", "model")
    }
    signature = fact.payload.get("signature")
    return Asked(
        session=fact.session_id or None,
        run=fact.payload.get("run_id") or None,
        args=signature if isinstance(signature, str) else None,
        **said,
    )
