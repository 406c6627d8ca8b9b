"""The store process: the embedded engine behind its HTTP endpoint, as the supervisor starts it."""

from __future__ import annotations

import sys
from pathlib import Path

from api.config import Settings
from api.locks import LockedError, hold
from api.process import read_options, say_ready, set_up_logging
from api.storeaddress import leave
from storage.embedded import EmbeddedOptions, serve_embedded


def main() -> None:
    """Serve until SIGTERM or the supervisor's end."""
    options = read_options()
    settings = Settings.model_validate(options["settings"])
    set_up_logging("store", settings.log_level)
    data_dir, secret = Path(settings.data_dir), str(options["store_secret"])
    try:
        # The store's own lock does not wait; a predecessor whose supervisor was killed may still be draining.
        hold(data_dir / "storeprocess.lock")
        serve_embedded(
            EmbeddedOptions(
                data_dir=data_dir / "store",
                port=int(str(options["store_port"])),
                secret=secret,
                max_memory_bytes=settings.clickhouse.memory_bytes,
            ),
            lambda port: _begin(data_dir, port, secret),
        )
    except LockedError as error:
        sys.stderr.write(f"recloser: {error}\n")
        raise SystemExit(2) from error
    except OSError as error:
        sys.stderr.write(f"recloser: {error.filename or data_dir / 'store'}: {error.strerror}\n")
        raise SystemExit(2) from error


def _begin(data_dir: Path, port: int, secret: str) -> None:
    leave(data_dir, port, secret)
    say_ready(port=port)
