"""From the arrival of the span that completes a loop to its finding, and to the webhook, under load.

    python bench/latency.py [--rate 1000] [--loops 30]

The span counts as arrived when its request is sent. The finding's time is that of its commit, read from
the spool afterwards; the webhook's that of its arrival at a receiver on loopback.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import http.client
import json
import platform
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from pydantic import SecretStr

from api.config import Settings, Webhook
from api.sidecar import Sidecar

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests" / "support"))

from harness import call_span, request  # noqa: E402 - after the path

SECRET = "whsec_" + base64.b64encode(hashlib.sha256(b"latency").digest()).decode()
CALLS = 4  # the fourth failing call completes the loop
PAUSE = 0.05


def receiver(arrived: dict[str, int]) -> ThreadingHTTPServer:
    """On-call: notes when the first page of a session came."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            now = time.time_ns()
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            arrived.setdefault(body["data"]["session_id"], now)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            del args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def loop(port: int, session: str) -> int:
    """Make one loop; when its completing span was sent, in unix nanoseconds."""
    rng = random.Random(session)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    sent = 0
    for number in range(CALLS):
        body = request([call_span(rng, session, number, looping=True)])
        sent = time.time_ns()
        connection.request("POST", "/v1/traces", body, {"content-type": "application/x-protobuf"})
        connection.getresponse().read()
        time.sleep(PAUSE)
    connection.close()
    return sent


def line(name: str, values_ms: list[float]) -> str:
    """Quantiles of latencies in milliseconds."""
    ordered = sorted(values_ms)
    p95 = ordered[int(len(ordered) * 0.95)]
    p50 = statistics.median(ordered)
    return f"{name:36} n {len(ordered)}  p50 {p50:.0f} ms  p95 {p95:.0f} ms  max {ordered[-1]:.0f} ms"


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", type=float, default=1_000)
    parser.add_argument("--loops", type=int, default=30)
    options = parser.parse_args()
    arrived: dict[str, int] = {}
    on_call = receiver(arrived)
    hook = Webhook(url=f"http://127.0.0.1:{on_call.server_port}/", secrets=(SecretStr(SECRET),))
    with tempfile.TemporaryDirectory(prefix="recloser-bench-") as folder:
        sidecar = Sidecar(
            Settings(
                data_dir=Path(folder), otlp_http_port=0, otlp_grpc_port=0, api_port=0, log_level="error",
                webhooks=(hook,),
            )
        )  # fmt: skip
        sidecar.start()
        port = sidecar.endpoints.otlp_http_port
        load = subprocess.Popen(
            [sys.executable, str(HERE / "load.py"), sidecar.endpoints.otlp_http, "--rate", str(options.rate),
             "--batch", "100", "--seconds", str(options.loops + 10)],
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        time.sleep(5)
        sent = {}
        for number in range(options.loops):
            sent[f"loop-{number}"] = loop(port, f"loop-{number}")
            time.sleep(1 - CALLS * PAUSE)
        time.sleep(3)
        load.terminate()
        load.wait()
        with sqlite3.connect(f"file:{folder}/spool.db?mode=ro", uri=True) as spool:
            found = dict(
                spool.execute(
                    "SELECT json_extract(payload, '$.session_id'), min(created_ns) FROM findings"
                    " WHERE json_extract(payload, '$.severity') = 'critical' GROUP BY 1"
                ).fetchall()
            )
        sidecar.stop()
    on_call.shutdown()
    print(f"{'machine':36} {platform.machine()}, background load {options.rate:.0f} spans/s")
    print(line("completing span -> finding", [(found[s] - at) / 1e6 for s, at in sent.items() if s in found]))
    print(
        line(
            "completing span -> webhook", [(arrived[s] - at) / 1e6 for s, at in sent.items() if s in arrived]
        )
    )


if __name__ == "__main__":
    main()
