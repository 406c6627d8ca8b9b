"""The spine, end to end, in real processes: spans in, a loop seen, on-call paged, the next call refused."""

from __future__ import annotations

import gzip
import http.client
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from harness import PATIENCE, OnCall, Served, call_span, request

NO_PORTS = ("--otlp-http-port", "0", "--otlp-grpc-port", "0", "--api-port", "0")
CAPTURES = Path(__file__).parents[1] / "testdata" / "captures"
RECLOSER = Path(sys.executable).parent / "recloser"


@pytest.fixture(scope="module")
def on_call() -> Iterator[OnCall]:
    receiver = OnCall.start()
    yield receiver
    receiver.stop()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, on_call: OnCall) -> Iterator[Served]:
    sidecar = Served(tmp_path_factory.mktemp("sidecar"), on_call)
    sidecar.start()
    yield sidecar
    sidecar.stop()


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def api(served: Served, method: str, path: str, body: object = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", served.api_port, timeout=10)
    content = json.dumps(body) if body is not None else None
    connection.request(method, path, content, {"content-type": "application/json"})
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, json.loads(text) if text[:1] in (b"{", b"[") else text.decode()


def came_back(served: Served, name: str, before: int | None) -> bool:
    return served.pid(name) not in {None, before}


def check(served: Served, session: str) -> dict[str, Any]:
    status, answer = api(served, "POST", "/v1/check", {"session_id": session, "tool": "fetch_page"})
    assert status == 200
    return dict(answer)


def send(served: Served, session: str, calls: int, *, looping: bool) -> None:
    rng = random.Random(session)
    for number in range(calls):
        assert served.post_otlp(request([call_span(rng, session, number, looping=looping)])) == 200


def pages(on_call: OnCall, session: str) -> dict[str, list[dict[str, Any]]]:
    seen = list(on_call.seen.items())
    return {key: bodies for key, bodies in seen if bodies[0]["data"]["session_id"] == session}


def test_a_loop_is_seen_paged_and_stopped_and_healthy_runs_are_not(served: Served, on_call: OnCall) -> None:
    send(served, "healthy", 10, looping=False)
    assert check(served, "stuck")["decision"] == "allow"
    send(served, "stuck", 6, looping=True)
    until(lambda: check(served, "stuck")["decision"] == "halt")
    assert "fetch_page" in check(served, "stuck")["message"]
    until(lambda: pages(on_call, "stuck"))
    assert len(pages(on_call, "stuck")) == 1
    assert check(served, "healthy")["decision"] == "allow"
    assert not pages(on_call, "healthy")

    _, alerts = api(served, "GET", "/v1/alerts")
    assert [a["finding"]["session_id"] for a in alerts["alerts"]] == ["stuck"]
    _, breakers = api(served, "GET", "/v1/breakers")
    breaker = breakers["breakers"][0]
    status, _ = api(served, "POST", f"/v1/breakers/{breaker['id']}/reset", {"reason": "looked at it"})
    assert status == 200
    assert check(served, "stuck")["decision"] == "allow"


def test_a_resend_is_no_second_call(served: Served) -> None:
    body = request([call_span(random.Random(1), "resent", 0, looping=True)])
    for _ in range(10):
        assert served.post_otlp(body) == 200
    send(served, "resent-marker", 6, looping=True)
    until(lambda: check(served, "resent-marker")["decision"] == "halt")
    assert check(served, "resent")["decision"] == "allow"


def test_metrics_of_both_processes_are_on_one_page(served: Served) -> None:
    status, text = api(served, "GET", "/metrics")
    assert status == 200
    assert "recloser_accepted_total" in text
    assert "recloser_outbox_pending" in text


def test_a_killed_child_comes_back_and_nothing_is_forgotten(served: Served) -> None:
    send(served, "before", 6, looping=True)
    until(lambda: check(served, "before")["decision"] == "halt")
    for name in ("control", "ingest", "store"):
        before = served.pid(name)
        assert served.kill(name)
        until(partial(came_back, served, name, before))
        served.await_ready()
    assert check(served, "before")["decision"] == "halt"


def test_a_second_sidecar_on_the_same_folder_is_refused_with_the_reason(served: Served) -> None:
    run = subprocess.run(
        [RECLOSER, "serve", "--data-dir", served.folder / "data", *NO_PORTS],
        capture_output=True, text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    assert run.returncode == 2
    assert "another recloser is using it" in run.stderr


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("api_prot = 5", "api_prot"),
        ("[ingest]\nmax_body_bytes = -1", "ingest.max_body_bytes"),
        ("[clickhouse]\nurl = 'tcp://x'", "clickhouse.url"),
        ("[detectors.doom_loop]\nno_such = 1", "detectors.doom_loop.no_such"),
        ("[detectors.no_such]\nx = 1", "detectors.no_such"),
        ("[redaction]\npatterns = ['(']", "redaction.patterns"),
        ("host = '0.0.0.0'", "tokens"),
        ("[[webhooks]]\nurl = 'http://127.0.0.1/x'\nsecrets = ['short']", "webhooks.default.secrets"),
        ("this is no toml", "recloser.toml"),
    ],
)
def test_a_wrong_setting_ends_the_start_with_its_key(tmp_path: Path, content: str, complaint: str) -> None:
    config = tmp_path / "recloser.toml"
    config.write_text(content)
    run = subprocess.run(
        [RECLOSER, "serve", "--data-dir", tmp_path / "data", "--config", config],
        capture_output=True, text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    assert run.returncode == 2
    assert complaint in run.stderr
    assert "Traceback" not in run.stderr


def test_a_taken_port_is_named(tmp_path: Path, served: Served) -> None:
    run = subprocess.run(
        [RECLOSER, "serve", "--data-dir", tmp_path, "--otlp-http-port", str(served.http_port)],
        capture_output=True, text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    assert run.returncode == 2
    assert str(served.http_port) in run.stderr


def test_sigterm_drains_what_was_acknowledged_into_the_store(tmp_path: Path, on_call: OnCall) -> None:
    sidecar = Served(tmp_path, on_call)
    sidecar.start()
    send(sidecar, "drained", 25, looping=False)
    assert sidecar.process is not None
    sidecar.process.send_signal(signal.SIGTERM)
    assert sidecar.process.wait(PATIENCE) == 0
    assert sidecar.stored("SELECT count() FROM otel.otel_traces") == [[25]]
    assert sidecar.stored("SELECT uniqExact(step_id) FROM otel.steps") == [[25]]


@pytest.mark.parametrize(
    "recording", ["pydantic-ai/native-v3", "langgraph/openinference+openai", "vercel-ai-sdk/v7-generate"]
)
def test_live_and_recorded_give_the_same_findings(served: Served, recording: str) -> None:
    folder = CAPTURES / recording
    command = [str(RECLOSER), "analyze", str(folder), "--format", "findings-jsonl"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    recorded = {f["id"]: (f["kind"], f["severity"]) for f in map(json.loads, run.stdout.splitlines())}
    assert recorded
    for path in sorted(folder.glob("*-traces.pb.gz")):
        assert served.post_otlp(gzip.decompress(path.read_bytes())) == 200

    def live() -> dict[str, tuple[str, str]]:
        _, answer = api(served, "GET", "/v1/findings?limit=1000")
        return {f["id"]: (f["kind"], f["severity"]) for f in answer["findings"] if f["id"] in recorded}

    until(lambda: live() == recorded)
