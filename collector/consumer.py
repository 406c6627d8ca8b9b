"""What a receiver hands its requests to, and how the next station says no.

::

    IngestError
    ├── Rejected      the same input will fail again: never retry (HTTP 400, INVALID_ARGUMENT)
    │   └── TooLarge  over a size limit (HTTP 413, RESOURCE_EXHAUSTED without RetryInfo)
    └── Unavailable   nothing wrong with the input: try again later (HTTP 503, UNAVAILABLE + RetryInfo)
"""

from __future__ import annotations

from typing import Protocol

from collector.batch import Decoded, Signal


class IngestError(Exception):
    """Something kept a request from being taken."""


class Rejected(IngestError):  # noqa: N818 - says what the caller should know, as the design names it
    """The input is bad; sending it again would fail again."""


class TooLarge(Rejected):
    """The input is over a size limit."""


class Unavailable(IngestError):  # noqa: N818 - says what the caller should do, as the design names it
    """The input is fine, but cannot be taken now. `retry_after` is in seconds."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Consume(Protocol):
    """Takes one decompressed request body; returns after it is on disk.

    Called by receivers, one request at a time per call, concurrently from the event loop. `encoding` is
    `"protobuf"` or `"json"`. Raises `Rejected` for a body that cannot be decoded at all and
    `Unavailable` for back-pressure; single bad spans are no exception, they are counted in `Decoded`.
    """

    async def __call__(self, signal: Signal, encoding: str, body: bytes) -> Decoded:
        """Decode, redact, spool; answer with what was taken and what was not."""
        ...
