"""The real store process, for tests: started by spawn, killed and started again at will."""

from __future__ import annotations

import multiprocessing
from multiprocessing.process import BaseProcess
from pathlib import Path

from storage.client import StoreTarget
from storage.embedded import EmbeddedOptions, serve_embedded

SECRET = "a secret of the tests"
_SPAWN = multiprocessing.get_context("spawn")


class StoreProcess:
    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.port = 0
        self.process: BaseProcess | None = None

    @property
    def target(self) -> StoreTarget:
        return StoreTarget(url=f"http://127.0.0.1:{self.port}", password=SECRET)

    def start(self) -> None:
        receive, send = _SPAWN.Pipe(duplex=False)
        options = EmbeddedOptions(data_dir=self.data_dir, secret=SECRET, port=self.port)
        # A daemon, so that a test that fails does not leave the whole run waiting for it.
        self.process = _SPAWN.Process(target=serve_embedded, args=(options, send.send), daemon=True)
        self.process.start()
        send.close()
        self.port = receive.recv()
        receive.close()

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self._join()

    def stop(self) -> int | None:
        assert self.process is not None
        self.process.terminate()
        return self._join()

    def _join(self) -> int | None:
        assert self.process is not None
        self.process.join(20)
        status = self.process.exitcode
        self.process.close()
        self.process = None
        return status
