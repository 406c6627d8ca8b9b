"""The last known breakers on disk, so that a new process knows of a stopped run before it is told."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

_FORMAT = 1


class Kept(NamedTuple):
    """What was kept: breakers as they came, and when the sidecar was last heard (unix seconds)."""

    revision: int
    breakers: Sequence[Mapping[str, Any]]
    heard_at: float


def default_folder() -> Path:
    """Where the cache is unless it is told otherwise: the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")  # noqa: PTH111, PTH118 - Path.home raises where there is none
    return Path(base) / "recloser-guard"


class Cache:
    """One file for each sidecar and token, readable by its owner only, replaced in one step.

    What cannot be written is no reason to stop an agent: `save` tells why it failed.
    """

    def __init__(self, folder: Path, url: str, token: str | None) -> None:
        key = hashlib.sha256(f"{url}\0{token or ''}".encode()).hexdigest()[:32]
        self.path = folder / f"{key}.json"

    def load(self) -> Kept | None:
        """Read what was kept; None when there is nothing, or nothing that makes sense."""
        try:
            with self.path.open("rb") as file:
                content = json.load(file)
                heard_at = os.fstat(file.fileno()).st_mtime
            if content["format"] != _FORMAT:
                return None
            return Kept(int(content["revision"]), list(content["breakers"]), heard_at)
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return None

    def save(self, revision: int, breakers: Sequence[Mapping[str, Any]]) -> str | None:
        """Keep these; returns why it could not, else None."""
        content = json.dumps({"format": _FORMAT, "revision": revision, "breakers": list(breakers)})
        made: str | None = None
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, made = tempfile.mkstemp(dir=self.path.parent, prefix=".new-")  # made with mode 0600
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(content)
            os.replace(made, self.path)  # noqa: PTH105 - the name is a str already
        except OSError as error:
            if made is not None:
                with contextlib.suppress(OSError):
                    os.unlink(made)  # noqa: PTH108 - as above
            return f"cache {self.path}: {error}"
        return None

    def heard(self) -> None:
        """Note that what is kept is still so."""
        with contextlib.suppress(OSError):
            os.utime(self.path)
