"""The store process: the embedded engine behind its HTTP endpoint, as the supervisor starts it."""

from __future__ import annotations

from pathlib import Path

from api.config import Settings
from api.process import read_options, say_ready, set_up_logging
from storage.embedded import EmbeddedOptions, serve_embedded


def main() -> None:
    """Serve until SIGTERM or the supervisor's end."""
    options = read_options()
    settings = Settings.model_validate(options["settings"])
    set_up_logging("store", settings.log_level)
    serve_embedded(
        EmbeddedOptions(
            data_dir=Path(settings.data_dir) / "store",
            port=int(str(options["store_port"])),
            secret=str(options["store_secret"]),
            max_memory_bytes=settings.clickhouse.memory_bytes,
        ),
        lambda port: say_ready(port=port),
    )
