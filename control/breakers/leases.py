"""Leases of half-open breakers: who may try a call, until when, and what became of it."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from control.breakers.timing import CLOCK_SLACK_NS, NS

if TYPE_CHECKING:
    from collections.abc import Callable

    from control.breakers.record import Breaker
    from control.breakers.settings import BreakerSettings
    from control.db import Transaction

OK: Final = "ok"
FAILED: Final = "failed"
EXPIRED: Final = "expired"
VOID: Final = "void"
"""The breaker changed before the probe ended: its outcome means nothing any more."""


class UnknownLease(Exception):  # noqa: N818 - the name says what is missing
    """No lease has this id."""


class LeaseOver(Exception):  # noqa: N818 - the name says what it is
    """The lease has a result already, or it expired."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The leave to make one call through a half-open breaker. Times are unix ns; `result` '': under way."""

    id: str
    breaker_id: str
    episode: int
    client: str
    granted_ns: int
    expires_ns: int
    result: str = ""


def new_lease_id() -> str:
    """Make an id that cannot be guessed: who has it may say what became of the probe."""
    return f"ls_{secrets.token_hex(12)}"


def grant(
    tx: Transaction,
    breaker: Breaker,
    client: str,
    *,
    now_ns: int,
    settings: BreakerSettings,
    new_id: Callable[[], str],
) -> Lease | None:
    """Give a lease of a half-open breaker; None while all of them are given."""
    if under_way(tx, breaker) >= settings.probes:
        return None
    lease = Lease(
        id=new_id(),
        breaker_id=breaker.id,
        episode=breaker.episode,
        client=client,
        granted_ns=now_ns,
        expires_ns=now_ns + int(settings.probe_ttl_s * NS),
    )
    insert(tx, lease)
    return lease


def insert(tx: Transaction, lease: Lease) -> None:
    """Keep a lease."""
    tx.execute(
        "INSERT INTO leases (id, breaker_id, episode, client, granted_ns, expires_ns, result, finished_ns) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            lease.id, lease.breaker_id, lease.episode, lease.client, lease.granted_ns, lease.expires_ns,
            lease.result, lease.granted_ns if lease.result else None,
        ),
    )  # fmt: skip


def fetch(tx: Transaction, lease_id: str) -> Lease:
    """Return a lease. Raises `UnknownLease`."""
    row = tx.one(f"SELECT {_COLUMNS} FROM leases WHERE id = ?", (lease_id,))  # noqa: S608 - our own columns
    if row is None:
        raise UnknownLease(lease_id)
    return Lease(**dict(row))


def finish(tx: Transaction, lease_id: str, result: str, now_ns: int) -> None:
    """Note what became of a lease. Raises `LeaseOver` when that is known already."""
    done = tx.execute(
        "UPDATE leases SET result = ?, finished_ns = ? WHERE id = ? AND result = ''",
        (result, now_ns, lease_id),
    )
    if not done.rowcount:
        raise LeaseOver(lease_id)


def void(tx: Transaction, breaker_id: str, now_ns: int) -> None:
    """End what is under way for a breaker that is not half open any more."""
    tx.execute(
        "UPDATE leases SET result = ?, finished_ns = ? WHERE breaker_id = ? AND result = ''",
        (VOID, now_ns, breaker_id),
    )


def under_way(tx: Transaction, breaker: Breaker) -> int:
    """Return how many probes of this opening have no result yet."""
    return _count(tx, breaker, "")


def succeeded(tx: Transaction, breaker: Breaker) -> int:
    """Return how many probes of this opening went well."""
    return _count(tx, breaker, OK)


def oldest(tx: Transaction, breaker: Breaker, before_ns: int) -> Lease | None:
    """Return the first probe under way that was granted before a moment."""
    row = tx.one(
        f"SELECT {_COLUMNS} FROM leases "  # noqa: S608 - our own columns
        "WHERE breaker_id = ? AND episode = ? AND result = '' AND granted_ns <= ? "
        "ORDER BY granted_ns LIMIT 1",
        (breaker.id, breaker.episode, before_ns),
    )
    return None if row is None else Lease(**dict(row))


def overdue(tx: Transaction, now_ns: int, limit: int = 256) -> list[Lease]:
    """Return probes that had their time and told nothing, or were given before the clock was set back."""
    rows = tx.execute(
        f"SELECT {_COLUMNS} FROM leases "  # noqa: S608 - our own columns
        "WHERE result = '' AND (expires_ns <= ? OR granted_ns > ?) ORDER BY expires_ns LIMIT ?",
        (now_ns, now_ns + CLOCK_SLACK_NS, limit),
    )
    return [Lease(**dict(row)) for row in rows]


def forget(tx: Transaction, before_ns: int) -> None:
    """Delete what ended before a moment."""
    tx.execute("DELETE FROM leases WHERE result <> '' AND finished_ns < ?", (before_ns,))


def _count(tx: Transaction, breaker: Breaker, result: str) -> int:
    row = tx.one(
        "SELECT count(*) AS n FROM leases WHERE breaker_id = ? AND episode = ? AND result = ?",
        (breaker.id, breaker.episode, result),
    )
    return 0 if row is None else int(row["n"])


_COLUMNS: Final = "id, breaker_id, episode, client, granted_ns, expires_ns, result"
