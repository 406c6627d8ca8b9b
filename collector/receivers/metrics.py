"""What receivers count. The composition root gives an implementation; without one nothing is counted."""

from __future__ import annotations

from typing import Protocol


class ReceiverMetrics(Protocol):
    """Counters by signal (`traces`, `logs`, `metrics`, `unknown`) and transport (`http_protobuf`, …).

    Transports are `http_protobuf`, `http_json`, `http` (before the encoding is known) and `grpc`.
    """

    def request(self, signal: str, transport: str, outcome: str, reason: str) -> None:
        """Count a request: outcome `accepted`, `partial`, `refused` (never retry) or `unavailable`.

        The reason is empty for the first two, else one of a fixed few (`too_large`, `malformed`,
        `unauthenticated`, …), so that it can be a label.
        """
        ...

    def records(self, signal: str, transport: str, outcome: str, reason: str, count: int) -> None:
        """Count spans, log records or data points, `accepted` or `rejected` (with the decoder's reason)."""
        ...

    def received(self, signal: str, transport: str, body_bytes: int) -> None:
        """Count the bytes of a decompressed body."""
        ...


class NoMetrics:
    """Counts nothing."""

    def request(self, signal: str, transport: str, outcome: str, reason: str) -> None:
        """Do nothing."""

    def records(self, signal: str, transport: str, outcome: str, reason: str, count: int) -> None:
        """Do nothing."""

    def received(self, signal: str, transport: str, body_bytes: int) -> None:
        """Do nothing."""
