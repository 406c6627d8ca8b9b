"""`recloser serve`: start the sidecar, say where exporters go, wait, drain."""

from __future__ import annotations

import sys
import threading

from api.config import Settings
from api.policyfile import PolicyError, read_policy
from api.process import on_hangup, on_signals, set_up_logging
from api.sidecar import Endpoints, Sidecar, SidecarError
from control.notifiers.catalog import KINDS
from control.tokenfile import any_token


def serve(settings: Settings) -> int:
    """Run until SIGTERM or SIGINT; the exit status (2 when it cannot start)."""
    set_up_logging("serve", settings.log_level)
    ended = threading.Event()
    on_signals(ended.set)
    try:
        sidecar = Sidecar(settings)
        on_hangup(sidecar.reload, ended.set)
    except OSError as error:  # a host that is no name or address of this machine
        sys.stderr.write(f"recloser: cannot listen on {settings.host}: {error.strerror}\n")
        return 2
    try:
        sidecar.start()
    except SidecarError as error:
        sys.stderr.write(f"recloser: {error}\n")
        return 2
    sys.stdout.write(where_to_point(sidecar.endpoints, settings))
    sys.stdout.flush()
    ended.wait()
    sys.stderr.write("recloser: ending; what was acknowledged is on disk\n")
    sidecar.stop()
    return 0


def where_to_point(endpoints: Endpoints, settings: Settings) -> str:
    """What a person who starts the sidecar needs to know next: where things are, who is told, what stops."""
    store = settings.clickhouse.url or f"embedded in {settings.data_dir}"
    on_call = ", ".join(place.name for kind in KINDS for place in getattr(settings, kind.SECTION))
    tokens = bool(settings.tokens) or any_token(settings.data_dir / "control.db")
    bearer = "  export OTEL_EXPORTER_OTLP_HEADERS='authorization=Bearer ...'\n" if tokens else ""
    look = " -H 'authorization: Bearer ...'" if tokens else ""
    let_in = "whoever has a token" if tokens else "this machine only, since there are no tokens"
    return (
        "Recloser is ready.\n"
        f"  OTLP/HTTP  {endpoints.otlp_http}\n"
        f"  OTLP/gRPC  {endpoints.otlp_grpc}\n"
        f"  API        {endpoints.api}\n"
        f"  Store      {store}\n"
        f"  Lets in    {let_in}\n"
        f"  Tells      {on_call or 'nobody: no destination is configured'}\n"
        f"  Stops      {_stops(settings)}\n"
        "Point the OTLP exporter of an agent here:\n"
        "  export OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf\n"
        f"  export OTEL_EXPORTER_OTLP_ENDPOINT={endpoints.otlp_http}\n"
        f"{bearer}"
        f"Then look: curl {endpoints.api}/v1/findings{look}\n"
    )


def _stops(settings: Settings) -> str:
    rules = [rule.name or rule.action for rule in settings.policy if not rule.shadow]
    if settings.policy_file is not None:
        try:
            policy = read_policy(settings.policy_file).policy
        except PolicyError:
            return f"what {settings.policy_file} said before it was broken"
        rules = [
            rule.name
            for rule in policy.rules
            if rule.reach is not None and not (rule.shadow or rule.trip_in_shadow)
        ]
        rules += [threshold.name for threshold in policy.thresholds if not threshold.shadow]
    return ", ".join(rules) or "nothing: no policy is configured, or all are shadows"
