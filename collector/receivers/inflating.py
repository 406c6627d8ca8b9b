"""Request bodies out of their content encoding beside the event loop, counted among the bytes in flight."""

from __future__ import annotations

import asyncio
from typing import Final

from collector.receivers.compression import decompressed
from collector.receivers.limits import Holding, Limits

_INLINE_BYTES: Final = 16 * 1024  # smaller compressed bodies are inflated on the event loop
_GUESS: Final = 4  # times its size, until it is known better


async def inflated(encoding: str, raw: bytes, limits: Limits, holding: Holding) -> bytes:
    """Return the body in full; what comes out is held as soon as it is known.

    Raises TooLarge, Rejected (see `decompressed`), and Unavailable when there is no room.
    """
    holding.grow_to(len(raw) + min(limits.max_body_bytes, len(raw) * _GUESS))
    if len(raw) <= _INLINE_BYTES:
        body = decompressed(encoding, raw, limits.max_body_bytes)
    else:
        body = await asyncio.to_thread(decompressed, encoding, raw, limits.max_body_bytes)
    holding.grow_to(len(raw) + len(body))
    return body
