"""What only the parts themselves can tell of the settings, told before anything is started."""

from __future__ import annotations

from api.build import build_engine, build_redactor
from api.config import ConfigError, Settings, to_json
from api.controlprocess import options_from


def check(settings: Settings) -> None:
    """Raise `ConfigError` for patterns, detector parameters, webhooks, rules and tokens that make no sense."""
    build_redactor(settings)
    build_engine(settings)
    if (settings.tls.cert is None) != (settings.tls.key is None):
        raise ConfigError("tls.cert and tls.key go together")
    try:
        options_from({"settings": to_json(settings), "http_port": 0, "grpc_port": 0, "api_port": 0, "metrics_port": 0})
    except ValueError as error:
        raise ConfigError(str(error)) from error
