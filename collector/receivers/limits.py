"""How much a receiver takes: of one request, of all at once, and for how long it waits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from collector.consumer import Unavailable

MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of the receivers; bytes and seconds.

    `max_body_bytes` is the size of a request after decompression (64 MiB, as OTLP 1.11 recommends), on both
    transports; `max_compressed_bytes` its size on the wire, over HTTP. `max_in_flight_bytes` is what all
    requests together may hold while they are read, decompressed and written. `max_drain_bytes` of a refused
    body are read and dropped, so that the connection can be used again; beyond that it is closed.
    `read_timeout_s` is the time for a whole request body, `retry_after_s` what a sender is told to wait when
    the receivers themselves are full.
    """

    max_compressed_bytes: int = 64 * MIB
    max_body_bytes: int = 64 * MIB
    max_in_flight_bytes: int = 256 * MIB
    max_drain_bytes: int = 128 * MIB
    read_timeout_s: float = 30.0
    retry_after_s: float = 1.0


class InFlight:
    """Counts the bytes that requests hold, over all receivers that share it; one event loop, no lock."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._held = 0

    @property
    def held(self) -> int:
        """Return the bytes held now."""
        return self._held

    @contextmanager
    def request(self) -> Iterator[Holding]:
        """Open the account of one request; what it holds is given back at the end."""
        holding = Holding(self)
        try:
            yield holding
        finally:
            self._held -= holding.held

    def take(self, count: int) -> None:
        """Hold so many bytes more. Raises Unavailable when there is no room beside what others hold."""
        if self._held + count > self._limits.max_in_flight_bytes:
            raise Unavailable("too many bytes in flight", self._limits.retry_after_s)
        self._held += count


class Holding:
    """What one request holds of the bytes in flight."""

    def __init__(self, shared: InFlight) -> None:
        self._shared = shared
        self.held = 0

    def grow_to(self, total: int) -> None:
        """Hold at least `total` bytes. Raises Unavailable when there is no room."""
        if total > self.held:
            self._shared.take(total - self.held)
            self.held = total
