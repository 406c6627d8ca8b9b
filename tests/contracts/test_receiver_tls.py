"""Both receivers speak TLS when they are given a certificate."""

from __future__ import annotations

import http.client
import shutil
import ssl
import subprocess
from pathlib import Path

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub
from otlp_requests import traces
from receiver_rig import on, receivers

from collector.receivers.limits import Limits
from collector.receivers.tls import Tls


@pytest.fixture
def tls(tmp_path: Path) -> Tls:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl to make a certificate with")
    made = Tls(tmp_path / "certificate.pem", tmp_path / "key.pem")
    subprocess.run(
        [
            *(openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"),
            *("-keyout", str(made.key_file), "-out", str(made.certificate_file)),
        ],
        check=True,
        capture_output=True,
    )
    return made


def test_requests_over_tls(tls: Tls) -> None:
    with receivers(Limits(), tls) as rig:
        context = ssl.create_default_context(cafile=str(tls.certificate_file))
        connection = http.client.HTTPSConnection("127.0.0.1", rig.http_port, context=context, timeout=20)
        headers = {"Content-Type": "application/x-protobuf"}
        assert on(connection, "/v1/traces", traces(1).SerializeToString(), headers).code == 200
        connection.close()
        credentials = grpc.ssl_channel_credentials(tls.certificate_file.read_bytes())
        with grpc.secure_channel(f"localhost:{rig.grpc_port}", credentials) as channel:
            TraceServiceStub(channel).Export(traces(2), timeout=20)  # type: ignore[no-untyped-call]
        assert len(rig.rows()) == 3
