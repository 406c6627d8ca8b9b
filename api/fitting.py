"""Fits off the hot path: a process of its own that is begun with the first fit and ends when it idles.

scikit-learn takes a second to load and 120 MiB to hold; ingest does neither. One line of JSON with
samples goes in, one with what is normal comes out. When the process fails, whoever waits for the fit makes
it: the answer is the same, only later.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import subprocess
import sys
import threading
from concurrent.futures import Future
from typing import Final

import orjson

from detectors.result_fit import Answer, Normal, Samples, fit

logger = logging.getLogger(__name__)

IDLE_END: Final = 60.0  # seconds without a fit
PATIENCE: Final = 30.0  # seconds for one answer
ONE_THREAD: Final = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}


class FitProcess:
    """A `detectors.result_fit.Fitter` whose work is done elsewhere, one fit after the other."""

    def __init__(self, idle_end: float = IDLE_END) -> None:
        self._idle_end = idle_end
        self._wanted: queue.SimpleQueue[tuple[Samples, Future[Normal]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._closing = False

    def __call__(self, samples: Samples) -> Answer:
        """Begin a fit; return what waits for its answer."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="fits", daemon=True)
            self._thread.start()
        future: Future[Normal] = Future()
        self._wanted.put((samples, future))
        return lambda: _answer(samples, future)

    @property
    def pid(self) -> int | None:
        """The process that fits; None while there is none."""
        process = self._process
        return process.pid if process is not None else None

    def close(self) -> None:
        """End the process, whatever it is at; whoever still waits for a fit makes it."""
        if self._thread is not None:
            self._closing = True
            self._wanted.put(None)
            process = self._process
            if process is not None:
                process.kill()
            self._thread.join()
            self._thread, self._closing = None, False

    def _run(self) -> None:
        while True:
            try:
                wanted = self._wanted.get(timeout=self._idle_end)
            except queue.Empty:
                self._end()
                continue
            if wanted is None:
                self._end()
                return
            samples, future = wanted
            if self._closing:
                future.cancel()
                continue
            try:
                future.set_result(self._asked(samples))
            except Exception as error:  # noqa: BLE001 - told to whoever waits, who makes the fit himself
                self._end()
                future.set_exception(error)

    def _asked(self, samples: Samples) -> Normal:
        if self._process is None:
            self._process = _started()
        process = self._process
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the process has no pipes")
        overdue = threading.Timer(PATIENCE, process.kill)
        overdue.start()
        try:
            process.stdin.write(orjson.dumps([*samples]) + b"\n")
            process.stdin.flush()
            return Normal.load(orjson.loads(process.stdout.readline()))
        finally:
            overdue.cancel()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.communicate(timeout=1.0)
        except (subprocess.TimeoutExpired, ValueError, OSError):
            process.kill()
            process.wait()


def _answer(samples: Samples, future: Future[Normal]) -> Normal:
    try:
        return future.result()
    except Exception:
        logger.warning("the process that fits has failed; this fit is made here", exc_info=True)
        return fit(samples)


def _started() -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - our own interpreter and module
        [sys.executable, "-P", "-c", f"from {__name__} import main; main()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, **ONE_THREAD},
    )


def main() -> None:
    """Entry of the process: answers until its standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for line in sys.stdin.buffer:
        sessions, rows = orjson.loads(line)
        normal = fit(Samples(tuple(sessions), tuple(tuple(row) for row in rows)))
        try:
            sys.stdout.buffer.write(orjson.dumps(normal.json()) + b"\n")
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            os._exit(0)  # whoever asked is gone; nothing is left to be flushed
