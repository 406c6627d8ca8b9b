"""`recloser serve`: start the sidecar, say where exporters go, wait, drain."""

from __future__ import annotations

import sys
import threading

from api.config import Settings
from api.process import on_signals, set_up_logging
from api.sidecar import Endpoints, Sidecar, SidecarError


def serve(settings: Settings) -> int:
    """Run until SIGTERM or SIGINT; the exit status (2 when it cannot start)."""
    set_up_logging("serve", settings.log_level)
    ended = threading.Event()
    on_signals(ended.set)
    sidecar = Sidecar(settings)
    try:
        sidecar.start()
    except SidecarError as error:
        sys.stderr.write(f"recloser: {error}\n")
        return 2
    sys.stdout.write(where_to_point(sidecar.endpoints, settings))
    sys.stdout.flush()
    ended.wait()
    sys.stderr.write("recloser: draining\n")
    sidecar.stop()
    return 0


def where_to_point(endpoints: Endpoints, settings: Settings) -> str:
    """What a person who starts the sidecar needs to know next."""
    store = settings.clickhouse.url or f"embedded in {settings.data_dir}"
    return (
        "Recloser is ready.\n"
        f"  OTLP/HTTP  {endpoints.otlp_http}   OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf "
        f"OTEL_EXPORTER_OTLP_ENDPOINT={endpoints.otlp_http}\n"
        f"  OTLP/gRPC  {endpoints.otlp_grpc}   OTEL_EXPORTER_OTLP_PROTOCOL=grpc "
        f"OTEL_EXPORTER_OTLP_ENDPOINT={endpoints.otlp_grpc}\n"
        f"  API        {endpoints.api}   POST /v1/check, GET /v1/alerts, /v1/breakers, /metrics\n"
        f"  Store      {store}\n"
    )
