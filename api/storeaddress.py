"""Where the embedded store of a running sidecar listens, left for commands of the same user.

`store.json` beside the data holds address and secret, readable by the data's owner alone, who could read the
data as well. A store that was killed leaves it behind; nobody answers there then.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """The URL of the store's endpoint and its secret."""

    url: str
    secret: str = field(repr=False)


def leave(data_dir: Path, port: int, secret: str) -> None:
    """Write the address of the store that serves this data directory. Raises `OSError`."""
    fresh = data_dir / f"store.json.{os.getpid()}"
    descriptor = os.open(fresh, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump({"url": f"http://127.0.0.1:{port}", "secret": secret}, file)
    fresh.replace(data_dir / "store.json")


def left(data_dir: Path) -> StoreAddress | None:
    """The address that was left last; None when there is none that can be read."""
    try:
        told = json.loads((data_dir / "store.json").read_text(encoding="utf-8"))
        return StoreAddress(str(told["url"]), str(told["secret"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
