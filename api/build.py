"""Parts of ingest and of the analyzer, built from the settings in one place."""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal

from api.auth import Tokens, configured_tokens
from api.config import ConfigError, Settings, to_json
from api.detection import Pack
from api.metrics import IngestMetrics
from api.shipping import pack_rows
from collector.batch import Decoded, Signal
from collector.decode import decode
from collector.reader import StepReader
from collector.receivers.auth import FORBIDDEN, UNAUTHENTICATED, Auth
from collector.receivers.limits import Limits
from collector.redact import RedactionSettings, Redactor
from control.tokenfile import TokenFile
from control.tokens import digest_of
from control.verbs import Verb
from detectors.catalog import BUILT_IN, third_party, tool_policy
from detectors.catalog import build as detectors
from detectors.engine import Engine
from detectors.reading import Lens
from detectors.recovery import Config
from detectors.recovery_book import RecoveryBook
from detectors.result_baseline import NAME as BASELINE
from detectors.result_baseline import ResultBaseline
from detectors.result_fit import Fitter, inline
from storage.rows import failure_rows, session_merge_rows, step_rows, tool_definition_rows

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


def build_engine(settings: Settings, fitter: Fitter = inline) -> Engine:
    """The detectors; `fitter` makes the fits. Raises `ConfigError` that names the key that is wrong."""
    try:
        kinds = {**BUILT_IN, **third_party()}
        kinds[BASELINE] = replace(kinds[BASELINE], make=lambda tuned: ResultBaseline(tuned, fitter))
        return Engine(detectors(settings.detectors, kinds), policy=tool_policy(settings.detectors))
    except (TypeError, ValueError) as error:
        raise ConfigError(str(error)) from error


def build_recoveries(settings: Settings, lens: Lens | None = None) -> RecoveryBook:
    """What follows failed calls until they are settled; through the engine's lens it costs less."""
    wanted = settings.recovery
    config = Config(
        calls=wanted.calls,
        retries=wanted.retries,
        horizon_calls=wanted.horizon_calls,
        idle_s=wanted.idle_s,
        backoff_s=wanted.backoff_s,
    )
    return RecoveryBook(config, lens or Lens(tool_policy(settings.detectors)))


def build_reader(settings: Settings) -> StepReader:
    """The reader of live spans."""
    return StepReader(hold_ns=settings.ingest.order_window_ms * MS)


def build_offline_reader(_settings: Settings) -> StepReader:
    """The reader of recorded spans: a scope's steps wait until they are certain."""
    return StepReader(hold_ns=None)


def build_limits(settings: Settings) -> Limits:
    """How much the receivers take."""
    ingest = settings.ingest
    return Limits(
        max_compressed_bytes=ingest.max_body_bytes,
        max_body_bytes=ingest.max_body_bytes,
        max_in_flight_bytes=ingest.max_in_flight_bytes,
        read_timeout_s=ingest.read_timeout_s,
    )


def build_tokens(settings: Settings) -> TokenFile:
    """The tokens of the configuration and those of `control.db`. Raises `ConfigError`."""
    given = [to_json(token) for token in settings.tokens]
    try:
        return TokenFile(Path(settings.data_dir) / "control.db", configured_tokens(given))
    except ValueError as error:
        raise ConfigError(str(error)) from error


def build_auth(tokens: Tokens, now_ns: Callable[[], int] = time.time_ns) -> Auth:
    """Who may send spans: everyone without tokens, else those whose token has the verb `ingest`."""

    def check(secret: str | None) -> Literal[401, 403] | None:
        if not tokens.required:
            return None
        digest = digest_of(secret or "")
        token = tokens.find(digest)
        if token is None or not hmac.compare_digest(token.digest, digest) or not token.valid(now_ns()):
            return UNAUTHENTICATED
        if Verb.INGEST not in token.verbs:
            return FORBIDDEN
        tokens.used(token)
        return None

    return check


def build_pack() -> Pack:
    """Derived rows as the spool keeps them for the store."""
    return Pack(
        steps=lambda steps: pack_rows(step_rows(steps)),
        merges=lambda merges: pack_rows(session_merge_rows(merges)),
        failures=lambda recoveries: pack_rows(failure_rows(recoveries)),
        definitions=lambda definitions: pack_rows(tool_definition_rows(definitions)),
    )
