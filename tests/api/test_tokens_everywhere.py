"""Tokens are turned on, given out and taken back while the real processes run."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import grpc
import pytest
from harness import PATIENCE, OnCall, Served
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub

pytestmark = [pytest.mark.accept, pytest.mark.short]
RECLOSER: Final = Path(sys.executable).parent / "recloser"


@pytest.fixture
def sidecar(tmp_path: Path) -> Iterator[Served]:
    on_call = OnCall.start()
    sidecar = Served(tmp_path, on_call)
    sidecar.start()
    yield sidecar
    sidecar.stop()
    on_call.stop()


def token(sidecar: Served, *arguments: str, admin: str = "") -> str:
    done = subprocess.run(
        [RECLOSER, "token", *arguments, "--config", sidecar.folder / "recloser.toml"],
        env={**os.environ, "RECLOSER_TOKEN": admin},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def send(sidecar: Served, secret: str | None) -> int:
    headers = {"content-type": "application/x-protobuf"}
    if secret is not None:
        headers["authorization"] = f"Bearer {secret}"
    connection = http.client.HTTPConnection("127.0.0.1", sidecar.http_port, timeout=10)
    connection.request("POST", "/v1/traces", b"", headers)
    status = connection.getresponse().status
    connection.close()
    return status


def call(sidecar: Served, secret: str | None) -> object:
    metadata = () if secret is None else (("authorization", f"Bearer {secret}"),)
    with grpc.insecure_channel(f"127.0.0.1:{sidecar.grpc_port}") as channel:
        try:
            TraceServiceStub(channel).Export(ExportTraceServiceRequest(), metadata=metadata, timeout=10)  # type: ignore[no-untyped-call]  # it ships without types
        except grpc.RpcError as error:
            return error.code()
    return 200


def becomes(sidecar: Served, secret: str | None, status: int) -> bool:
    deadline = time.monotonic() + PATIENCE
    while send(sidecar, secret) != status:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def test_every_process_follows_the_tokens(sidecar: Served) -> None:
    assert (send(sidecar, None), call(sidecar, None)) == (200, 200)
    boss = token(sidecar, "create", "boss", "--verbs", "admin,read")
    assert sidecar.get("/v1/alerts")[0] == 401
    assert becomes(sidecar, None, 401)
    assert call(sidecar, None) is grpc.StatusCode.UNAUTHENTICATED
    assert send(sidecar, boss) == 403
    bot = token(sidecar, "create", "bot", "--agent", admin=boss)
    assert becomes(sidecar, bot, 200)
    assert call(sidecar, bot) == 200
    listed = token(sidecar, "list", admin=boss).splitlines()
    (number,) = (line.split()[0] for line in listed if "bot" in line.split())
    token(sidecar, "revoke", number, admin=boss)
    assert becomes(sidecar, bot, 401)
    assert call(sidecar, bot) is grpc.StatusCode.UNAUTHENTICATED
