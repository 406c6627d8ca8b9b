"""What one kind of destination owes beyond what all do."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from standardwebhooks.webhooks import Webhook as Verifier

from control.notifiers.alertmanager import Alertmanager, AlertmanagerConfig
from control.notifiers.http import Answer, Http
from control.notifiers.pagerduty import PagerDuty, PagerDutyConfig
from control.notifiers.protocol import (
    ACKNOWLEDGED,
    FIRING,
    RESOLVED,
    Delivered,
    Failed,
    Message,
    Notice,
    Result,
)
from control.notifiers.slack import Slack, SlackConfig
from control.notifiers.webhook import Webhook, WebhookConfig, secret_key, signature
from tests.control.support import SECRET, START_NS, Receiver, Reply, receiving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from control.notifiers.protocol import Notifier

AT_S = START_NS // 10**9
KEY = "0123456789abcdef0123456789abcdef"
OTHER_SECRET = "whsec_" + "QUJD" * 8
DATA: dict[str, Any] = {
    "alert_id": "al_1",
    "dedup_key": "k" * 64,
    "state": "firing",
    "kind": "doom_loop",
    "severity": "critical",
    "summary": "stuck",
    "service": "shop",
    "session_id": "session-1",
    "agent": "buyer",
    "links": {"run": "https://r.example/runs/1"},
    "handoff": {"goal": "buy", "timeline": ["x" * 500] * 200},
}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    yield from receiving()


@pytest.fixture
def second() -> Iterator[Receiver]:
    yield from receiving()


def notice(what: str, /, **data: object) -> Notice:
    return Notice(type=what, at_ns=START_NS, data=DATA | {"state": what.rpartition(".")[2]} | data)


def message(notifier: Notifier, what: str, opening: bytes | None = None, /, **data: object) -> Message:
    return Message(id="msg_1", type=what, body=notifier.render(notice(what, **data)), opening=opening)


def send(notifier: Notifier, *messages: Message, at_s: int = AT_S) -> list[Result]:
    async def attempts() -> list[Result]:
        results = [await notifier.send(one, at_s) for one in messages]
        await notifier.close()
        return results

    return asyncio.run(attempts())


def test_the_reference_implementation_verifies_what_is_sent_by_each_secret(receiver: Receiver) -> None:
    hook = Webhook(WebhookConfig(name="h", url=receiver.url, secrets=(SECRET, OTHER_SECRET)))
    now_s = int(datetime.now(UTC).timestamp())  # the reference refuses old timestamps
    send(hook, message(hook, FIRING), at_s=now_s)
    (request,) = receiver.received
    for secret in (SECRET, OTHER_SECRET):
        assert Verifier(secret).verify(request.body, request.headers) == orjson.loads(request.body)
        assert request.signed_with(secret)
    assert not request.signed_with("whsec_" + "eHl6" * 8)


@pytest.mark.parametrize("body", ["{}", '{"test": 2432232314}', '{"a": "é😀"}'])
def test_signatures_are_those_of_the_reference_implementation(body: str) -> None:
    moment = datetime.fromtimestamp(AT_S, UTC)
    wanted = Verifier(SECRET).sign("msg_1", moment, body)
    assert signature(secret_key(SECRET), "msg_1", AT_S, body.encode()) == wanted


def test_the_webhook_carries_the_hand_off_within_its_limit(receiver: Receiver) -> None:
    hook = Webhook(WebhookConfig(name="h", url=receiver.url, secrets=(SECRET,)))
    body = hook.render(notice(FIRING))
    told = orjson.loads(body)["data"]
    assert len(body) <= 20_000
    assert told["handoff"]["goal"] == "buy"
    assert told["truncated"] is True


def test_pagerduty_triggers_acknowledges_and_resolves_one_incident(receiver: Receiver) -> None:
    pager = PagerDuty(PagerDutyConfig(name="p", url=receiver.url, routing_key=KEY))
    receiver.script = [Reply(202)] * 3
    opening = pager.render(notice(FIRING))
    end = message(pager, RESOLVED, opening, dedup_key="another, because its session was merged")
    assert send(pager, message(pager, FIRING), message(pager, ACKNOWLEDGED), end) == [Delivered(202)] * 3
    events = [request.json for request in receiver.received]
    assert [event["event_action"] for event in events] == ["trigger", "acknowledge", "resolve"]
    assert {event["dedup_key"] for event in events} == {"k" * 64} == {pager.group(opening)}
    assert {event["routing_key"] for event in events} == {KEY}


@pytest.mark.parametrize("status", [400, 403, 429, 500])
def test_no_answer_of_pagerduty_shows_the_key(receiver: Receiver, status: int) -> None:
    receiver.script = [Reply(status, body=f'{{"errors": ["{KEY} is wrong"]}}'.encode())]
    pager = PagerDuty(PagerDutyConfig(name="p", url=receiver.url, routing_key=KEY))
    (result,) = send(pager, message(pager, FIRING))
    assert KEY not in str(result)
    assert "is wrong" in str(result)


def test_slack_must_say_ok(receiver: Receiver) -> None:
    slack = Slack(SlackConfig(name="s", url=receiver.url))
    receiver.script = [
        Reply(body=b"ok"),
        Reply(body=b"<html>please log in</html>"),
        Reply(404, body=b"no_service"),
    ]
    taken, page, gone = send(slack, *[message(slack, FIRING)] * 3)
    assert taken == Delivered(200)
    assert isinstance(page, Failed)
    assert "please log in" in page.reason
    assert isinstance(gone, Failed)
    assert gone.reason == "HTTP 404: no_service"


def test_a_long_text_becomes_sections_that_slack_takes(tmp_path: Path) -> None:
    long = tmp_path / "mine.j2"
    long.write_text("{% for n in range(60) %}*{{ n }}* {{ '&' * 90 }}\n\n{% endfor %}")
    slack = Slack(SlackConfig(name="s", url="https://hooks.slack.example/x"), template=str(long))
    blocks = orjson.loads(slack.render(notice(FIRING)))["blocks"]
    assert len(blocks) <= 50
    assert sum(len(block["text"]["text"]) for block in blocks) <= 12_000
    assert all(block["text"]["verbatim"] for block in blocks[1:])
    assert not any(block["text"]["text"].endswith(("&", "&a", "&am", "&amp")) for block in blocks)


def cluster(*receivers: Receiver, **settings: Any) -> Alertmanager:  # noqa: ANN401 - any setting
    urls = tuple(one.url.removesuffix("/hook") for one in receivers)
    return Alertmanager(AlertmanagerConfig(name="am", urls=urls, timeout_s=1.0, **settings))


def test_every_member_of_a_cluster_is_told(receiver: Receiver, second: Receiver) -> None:
    alertmanager = cluster(receiver, second)
    assert send(alertmanager, message(alertmanager, FIRING)) == [Delivered(200)]
    assert receiver.received[0].body == second.received[0].body
    (alert,) = receiver.received[0].json
    assert alert["endsAt"] == "2023-11-14T22:17:20.000Z"
    assert alert["generatorURL"] == "https://r.example/runs/1"
    assert "session_id" not in alert["labels"]
    assert alert["annotations"]["session_id"] == "session-1"


def test_one_member_that_is_away_holds_up_no_other(
    receiver: Receiver, second: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    alertmanager = cluster(receiver, second)
    second.script = [Reply(503)] * 2
    assert send(alertmanager, *[message(alertmanager, FIRING)] * 2) == [Delivered(200)] * 2
    assert len([r for r in caplog.records if "the member" in r.getMessage()]) == 1


def test_when_all_members_fail_it_is_tried_again(receiver: Receiver, second: Receiver) -> None:
    alertmanager = cluster(receiver, second)
    receiver.script, second.script = [Reply(400)], [Reply(503, {"retry-after": "9"})]
    (result,) = send(alertmanager, message(alertmanager, FIRING))
    assert isinstance(result, Failed)
    assert (result.about_message, result.retry_after) == (False, 9.0)


def test_an_end_has_the_labels_of_its_begin_though_the_alert_changed(receiver: Receiver) -> None:
    alertmanager = cluster(receiver)
    opening = alertmanager.render(notice(FIRING))
    send(alertmanager, message(alertmanager, RESOLVED, opening, kind="cascade", severity="warning"))
    (alert,) = receiver.received[0].json
    assert alert["labels"] == orjson.loads(opening)["labels"]
    assert (alert["startsAt"], alert["endsAt"]) == ("2023-11-14T22:13:20.000Z", "2023-11-14T22:13:20.000Z")


def test_a_refresh_tells_all_at_once_and_400_means_that_the_valid_ones_were_taken(receiver: Receiver) -> None:
    alertmanager = cluster(receiver)
    receiver.script = [Reply(), Reply(400, body=b"one is not valid")]
    firing = message(alertmanager, FIRING)
    over = message(alertmanager, RESOLVED, firing.body)

    async def twice() -> list[Result]:
        results = [await alertmanager.refresh([firing, over], AT_S + n) for n in range(2)]
        await alertmanager.close()
        return results

    fine, complaint = asyncio.run(twice())
    assert fine == Delivered(200)
    assert isinstance(complaint, Delivered)
    assert "one is not valid" in complaint.note
    assert [len(request.json) for request in receiver.received] == [2, 2]


def test_a_certificate_is_checked_against_the_authority_that_is_named(tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        (
            "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes "
            "-days 2 -subj /CN=localhost "
            f"-addext subjectAltName=DNS:localhost -keyout {key} -out {cert}"
        ).split(),
        check=True,
        capture_output=True,
    )

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_args: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.handle_error = lambda *_args: None  # type: ignore[method-assign]  # handshakes fail on purpose
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()

    async def post(ca_file: str) -> Answer | Failed:
        http = Http(2.0, allow_private=False, ca_file=ca_file)
        try:
            return await http.post(f"https://localhost:{server.server_port}/", b"{}", {})
        finally:
            await http.close()

    try:
        assert isinstance(asyncio.run(post(str(cert))), Answer)
        refused = asyncio.run(post(""))
        assert isinstance(refused, Failed)
        assert "CERTIFICATE_VERIFY_FAILED" in refused.reason
        assert not refused.unsure
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_heartbeats_are_an_alert_of_their_own_that_lapses(receiver: Receiver) -> None:
    alertmanager = cluster(receiver)
    beat = Notice(type="heartbeat", at_ns=START_NS, data={"alert_id": "", "summary": "Recloser is at work"})
    send(alertmanager, Message(id="msg_1", type=beat.type, body=alertmanager.render(beat)))
    (alert,) = receiver.received[0].json
    assert alert["labels"] == {"alertname": "RecloserHeartbeat"}
    assert alert["endsAt"] == "2023-11-14T22:17:20.000Z"
    assert not PagerDuty(PagerDutyConfig(name="p", url=receiver.url, routing_key=KEY)).capabilities.beats


def test_evidence_is_shortened_before_the_hand_off_is(receiver: Receiver) -> None:
    hook = Webhook(WebhookConfig(name="h", url=receiver.url, secrets=(SECRET,)))
    handoff = {"timeline": [f"{n}: {'x' * 300}" for n in range(30)]}
    told = orjson.loads(hook.render(notice(FIRING, handoff=handoff, evidence={"spans": "y" * 15_000})))[
        "data"
    ]
    assert told["handoff"] == handoff
    assert len(told["evidence"]["spans"]) < 500
