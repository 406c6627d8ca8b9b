"""One process of a kind at a time on a data directory, also while an orphan is still draining."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import Final

PATIENCE: Final = 15.0  # seconds


class LockedError(Exception):
    """The lock cannot be had, mostly because another process holds it; the message names the file."""


def hold(path: Path, patience: float = PATIENCE) -> int:
    """Hold `path` until this process ends. Raises `LockedError` when it is not free in `patience` seconds."""
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise LockedError(f"{path}: {error.strerror}") from error
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(descriptor)
                raise LockedError(f"{path}: another process is using it") from None
            time.sleep(0.05)
        else:
            return descriptor
