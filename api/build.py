"""Parts of ingest and of the analyzer, built from the settings in one place."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from api.config import ConfigError, Settings
from api.metrics import IngestMetrics
from api.shipping import pack_rows
from collector.batch import Decoded, Signal
from collector.decode import decode
from collector.reader import StepReader
from collector.redact import RedactionSettings, Redactor
from collector.step import Step
from detectors.catalog import build as detectors
from detectors.engine import Engine
from storage.rows import step_rows

MS: Final = 1_000_000  # ns


def build_redactor(settings: Settings) -> Redactor:
    """What takes secrets out. Raises `ConfigError` for a pattern that is none."""
    redaction = settings.redaction
    try:
        return Redactor(RedactionSettings(redaction.keys, redaction.patterns, redaction.hash_only))
    except ValueError as error:
        raise ConfigError(f"redaction.patterns: {error}") from error


def build_decode(
    settings: Settings, metrics: IngestMetrics | None = None
) -> Callable[[Signal, str, bytes], Decoded]:
    """Decoding and redaction of one request body; what had to be repaired is counted in `metrics`."""
    redactor = build_redactor(settings)

    def note(reason: str, count: int) -> None:
        if metrics is not None:
            metrics.repaired.labels(reason).inc(count)

    def run(signal: Signal, encoding: str, body: bytes) -> Decoded:
        return decode(signal, encoding, body, redactor=redactor, now_ns=time.time_ns(), note=note)

    return run


def build_engine(settings: Settings) -> Engine:
    """The detectors. Raises `ConfigError` that names the key that is wrong."""
    try:
        return Engine(detectors(settings.detectors))
    except (TypeError, ValueError) as error:
        raise ConfigError(str(error)) from error


def build_reader(settings: Settings) -> StepReader:
    """The reader of live spans."""
    return StepReader(hold_ns=settings.ingest.order_window_ms * MS)


def build_offline_reader(_settings: Settings) -> StepReader:
    """The reader of recorded spans: a scope's steps wait until they are certain."""
    return StepReader(offline=True)


def pack_steps(steps: Sequence[Step]) -> bytes:
    """Steps as the spool keeps them for the store."""
    return pack_rows(step_rows(steps))

