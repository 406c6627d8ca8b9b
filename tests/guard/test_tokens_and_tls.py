"""The guard with tokens, at a real sidecar, and over TLS."""

from __future__ import annotations

import http.client
import json
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import OnCall
from recloser_guard import Guard
from recloser_guard.transport import Forbidden
from scripted import Stream, breaker, eventually, scripted, snapshot
from sidecar import GuardedSidecar


class WithTokens(GuardedSidecar):
    """A sidecar that lets nobody in without a token."""

    admin = ""

    def ask(self, method: str, path: str, body: object = None, token: str | None = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.api_port, timeout=10)
        headers = {"content-type": "application/json", "authorization": f"Bearer {token or self.admin}"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, json.loads(text) if text else None

    def token(self, name: str, *verbs: str, **only: Any) -> dict[str, Any]:
        status, made = self.ask("POST", "/v1/tokens", {"name": name, "verbs": verbs, **only})
        assert status == 201, made
        return dict(made)

    def trip(self, session: str, **scope: str) -> dict[str, Any]:
        body = {"scope": {"session": session, **scope}, "action": "halt", "reason": "tested"}
        status, made = self.ask("POST", "/v1/breakers", body)
        assert status in {200, 201}, made
        return dict(made)


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WithTokens]:
    on_call = OnCall.start()
    served = WithTokens(tmp_path_factory.mktemp("tokens"), on_call)
    try:
        served.start()
        served.admin = served.token("ada", "ingest", "read", "check", "trip", "override", "admin")["secret"]
        yield served
    finally:
        served.stop()
        on_call.stop()


@pytest.mark.accept
@pytest.mark.short
def test_an_agents_token_hears_everything_and_changes_nothing(sidecar: WithTokens) -> None:
    token = sidecar.token("agents", "ingest", "read", "check")["secret"]
    with Guard(sidecar.url, token, cache=None) as guard:
        assert guard.wait_ready(10)
        made = sidecar.trip("told")
        eventually(lambda: guard.check("t", session="told").halted)
        with pytest.raises(Forbidden):
            guard.ask("POST", f"/v1/breakers/{made['id']}/reset", {"reason": "let me go on"})
        assert guard.check("t", session="told").halted


@pytest.mark.accept
@pytest.mark.short
def test_a_token_that_is_restricted_is_told_of_what_concerns_it_and_is_not_behind(
    sidecar: WithTokens,
) -> None:
    token = sidecar.token("shop", "read", "check", services=["shop-*"])["secret"]
    with Guard(sidecar.url, token, cache=None, service="shop-7", client="shop") as guard:
        assert guard.wait_ready(10)
        sidecar.trip("other", service="desk")
        sidecar.trip("mine", service="shop-7")
        eventually(lambda: guard.check("t", session="mine").halted)
        assert guard.status().breakers >= 1
        assert guard.check("t", session="other")


@pytest.mark.accept
@pytest.mark.short
def test_a_token_that_may_only_check_begins_anew_after_a_restart(sidecar: WithTokens) -> None:
    token = sidecar.token("checks", "check")["secret"]
    with Guard(sidecar.url, token, cache=None) as guard:
        assert guard.wait_ready(10)
        sidecar.trip("kept")
        eventually(lambda: guard.check("t", session="kept").halted)
        assert sidecar.kill("control")
        eventually(lambda: guard.status().reconnects > 0)
        eventually(lambda: guard.status().state == "live")
        assert guard.check("t", session="kept").halted
        assert guard.status().defects == 0


@pytest.mark.accept
@pytest.mark.short
def test_a_wrong_token_is_said(sidecar: WithTokens) -> None:
    with Guard(sidecar.url, "rcl_wrong", cache=None) as guard:
        eventually(lambda: guard.status().state == "refused")
        assert guard.check("t").because == "unreachable"


def test_over_tls_the_certificate_is_checked(tmp_path: Path) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl to make a certificate with")
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    subprocess.run(
        [
            *(openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", key, "-out", certificate),
        ],
        check=True,
        capture_output=True,
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)

    def tell(stream: Stream) -> None:
        stream.write(snapshot(breaker(tool="t")))
        stream.hold()

    with scripted(tell, context=server) as far:
        with Guard(far.url, cache=None, context=ssl.create_default_context(cafile=certificate)) as guard:
            assert guard.wait_ready(10)
            assert not guard.check("t")
            assert guard.status().state == "live"
        with Guard(far.url, cache=None) as strangers:
            assert not strangers.wait_ready(10)
            assert "CERTIFICATE_VERIFY_FAILED" in str(strangers.status().last_error)
