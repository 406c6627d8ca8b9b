"""From a request body to the spool: what receivers call; it answers for "acknowledged means kept"."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from api.metrics import IngestMetrics
from collector import ipc
from collector.batch import Decoded, Signal
from collector.spool import Spool

Decode = Callable[[Signal, str, bytes], Decoded]


class Intake:
    """A `Consume`: decodes and redacts in a small thread pool, spools, and returns when it is on disk."""

    def __init__(self, decode: Decode, spool: Spool, metrics: IngestMetrics, threads: int = 2) -> None:
        self._decode = decode
        self._spool = spool
        self._metrics = metrics
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="decode")

    async def __call__(self, signal: Signal, encoding: str, body: bytes) -> Decoded:
        """See `collector.consumer.Consume`."""
        self._spool.check_room()
        loop = asyncio.get_running_loop()
        decoded, payload = await loop.run_in_executor(
            self._pool, self._decode_and_pack, signal, encoding, body
        )
        if decoded.batch is not None and decoded.batch.columns.num_rows:
            appended = await asyncio.wrap_future(self._spool.append(decoded.batch, payload))
            self._metrics.duplicates.labels(signal.value).inc(appended.duplicates)
        return decoded

    def _decode_and_pack(self, signal: Signal, encoding: str, body: bytes) -> tuple[Decoded, bytes]:
        with self._metrics.stage("decode and redact"):
            decoded = self._decode(signal, encoding, body)
        with self._metrics.stage("pack"):
            return decoded, ipc.encode(decoded.batch) if decoded.batch is not None else b""

    def close(self) -> None:
        """Wait for what is being decoded."""
        self._pool.shutdown()
