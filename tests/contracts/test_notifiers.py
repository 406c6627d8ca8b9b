"""What every notifier owes, whatever its destination. A new one is a line in `NOTIFIERS`."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from control.notifiers.alertmanager import Alertmanager, AlertmanagerConfig
from control.notifiers.alertmanager_webhook import AlertmanagerWebhook, AlertmanagerWebhookConfig
from control.notifiers.catalog import KINDS, build, configs
from control.notifiers.pagerduty import PagerDuty, PagerDutyConfig
from control.notifiers.protocol import (
    ACKNOWLEDGED,
    FIRING,
    RESOLVED,
    TEST,
    Delivered,
    Failed,
    Gone,
    Message,
    Notice,
    Notifier,
    Refused,
    Result,
)
from control.notifiers.slack import Slack, SlackConfig
from control.notifiers.webhook import Webhook, WebhookConfig
from tests.control.support import SECRET, START_NS, Receiver, Reply, receiving

AT_S: Final = START_NS // 10**9
OTHER_SECRET: Final = "whsec_" + "QUJD" * 8
KEY: Final = "0123456789abcdef0123456789abcdef"
LIMIT_S: Final = 0.3


@dataclass(frozen=True)
class Kind:
    """How to make a notifier, and where it answers otherwise than most.

    `ok` is the body of its success, `refuses` the statuses that it takes as final, `gone` whether 410 is
    goodbye, `pause_s` its least pause after 429.
    """

    make: Callable[[str], Notifier]
    ok: bytes = b""
    refuses: tuple[int, ...] = ()
    gone: bool = True
    pause_s: float | None = None


NOTIFIERS: Final = {
    "webhooks": Kind(
        lambda url: Webhook(
            WebhookConfig(name="n", url=url, secrets=(SECRET, OTHER_SECRET), timeout_s=LIMIT_S)
        )
    ),
    "alertmanagers": Kind(
        lambda url: Alertmanager(AlertmanagerConfig(name="n", urls=(url,), timeout_s=LIMIT_S)),
        refuses=(400,),
        gone=False,
    ),
    "alertmanager_webhooks": Kind(
        lambda url: AlertmanagerWebhook(AlertmanagerWebhookConfig(name="n", url=url, timeout_s=LIMIT_S))
    ),
    "pagerduty": Kind(
        lambda url: PagerDuty(PagerDutyConfig(name="n", url=url, routing_key=KEY, timeout_s=LIMIT_S)),
        refuses=(400,),
        pause_s=120.0,
    ),
    "slack": Kind(lambda url: Slack(SlackConfig(name="n", url=url, timeout_s=LIMIT_S)), ok=b"ok"),
}
DATA: Final[dict[str, Any]] = {
    "alert_id": "al_1",
    "state": "firing",
    "episode": 1,
    "kind": "doom_loop",
    "severity": "critical",
    "summary": "fetch_page: same call, same error 6 times",
    "session_id": "session-1",
    "run_id": "run-1",
    "service": "shop",
    "agent": "buyer",
    "tool": "fetch_page",
    "since": "2023-11-14T22:13:10.000000Z",
    "calls": 12,
    "tokens": 34567,
    "cost_usd": 0.42,
    "tried": ["fetch_page: not_found, 6x"],
    "cause": "not_found",
    "next_step": "Let it make another plan.",
    "links": {"run": "https://r.example/runs/1", "dashboard": None, "stop": "https://r.example/stop?a=1&b=2"},
    "breakers": [{"id": "br_1", "state": "open", "action": "halt", "tool": None}],
    "handoff": {"goal": "buy"},
    "evidence": {"threshold": 6},
}
NOTICE: Final = Notice(type=FIRING, at_ns=START_NS, data=DATA)


@pytest.fixture(params=NOTIFIERS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return NOTIFIERS[request.param]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    yield from receiving()


def send(notifier: Notifier, times: int = 1, at_s: int = AT_S) -> list[Result]:
    async def attempts() -> list[Result]:
        message = Message(id="msg_1", type=NOTICE.type, body=notifier.render(NOTICE))
        results = [await notifier.send(message, at_s + n) for n in range(times)]
        await notifier.close()
        await notifier.close()
        return results

    return asyncio.run(attempts())


def test_every_kind_is_tested() -> None:
    assert set(NOTIFIERS) == {kind.SECTION for kind in KINDS}


def test_rendering_is_pure(kind: Kind) -> None:
    assert kind.make("http://127.0.0.1:1/").render(NOTICE) == kind.make("http://127.0.0.1:1/").render(NOTICE)


@pytest.mark.parametrize("status", [200, 201, 202, 204])
def test_every_2xx_is_success(kind: Kind, receiver: Receiver, status: int) -> None:
    receiver.script = [Reply(status, body=kind.ok if status != 204 else b"")]
    if kind.ok and status == 204:
        return
    assert send(kind.make(receiver.url)) == [Delivered(status)]


@pytest.mark.parametrize(
    ("status", "about_message", "unsure"),
    [
        (400, True, False),
        (401, False, False),
        (403, False, False),
        (404, False, False),
        (422, True, False),
        (429, False, False),
        (500, False, True),
        (502, False, True),
        (503, False, False),
    ],
)
def test_what_is_no_success_is_tried_again(
    kind: Kind,
    receiver: Receiver,
    status: int,
    about_message: bool,  # noqa: FBT001 - a table's column
    unsure: bool,  # noqa: FBT001 - a table's column
) -> None:
    receiver.script = [Reply(status)]
    pause = kind.pause_s if status == 429 else None
    wanted: Result = Failed(f"HTTP {status}", status, pause, about_message, unsure)
    if status in kind.refuses:
        wanted = Refused(f"HTTP {status}", status)
    assert send(kind.make(receiver.url)) == [wanted]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_a_failure_and_not_followed(kind: Kind, receiver: Receiver, status: int) -> None:
    receiver.script = [Reply(status, {"location": receiver.url})]
    (result,) = send(kind.make(receiver.url))
    assert isinstance(result, Failed)
    assert (result.status, result.unsure) == (status, False)
    assert len(receiver.received) == 1


def test_410_is_goodbye_from_those_who_say_it(kind: Kind, receiver: Receiver) -> None:
    receiver.script = [Reply(410)]
    (result,) = send(kind.make(receiver.url))
    assert isinstance(result, Gone if kind.gone else Failed)


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("300", 300.0),
        ("0", 0.0),
        ("Tue, 14 Nov 2023 22:18:20 GMT", 300.0),
        ("Tue, 14 Nov 2023 22:00:00 GMT", 0.0),
        ("soon", None),
        ("-5", None),
    ],
)
def test_retry_after_is_read_in_both_forms(
    kind: Kind, receiver: Receiver, status: int, header: str, seconds: float | None
) -> None:
    receiver.script = [Reply(status, {"retry-after": header})]
    (result,) = send(kind.make(receiver.url))
    assert isinstance(result, Failed)
    least = kind.pause_s if status == 429 else None
    assert result.retry_after == (seconds if least is None else max(seconds or 0.0, least))


def test_silence_ends_with_the_time_limit_and_leaves_it_open(kind: Kind, receiver: Receiver) -> None:
    receiver.script = [Reply(delay_s=30.0)]
    (result,) = send(kind.make(receiver.url))
    assert isinstance(result, Failed)
    assert (result.status, result.about_message, result.unsure) == (None, False, True)


def test_nobody_at_home_is_a_failure_for_certain(kind: Kind) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        (result,) = send(kind.make(f"http://127.0.0.1:{unused.getsockname()[1]}/"))
    assert isinstance(result, Failed)
    assert (result.status, result.unsure) == (None, False)


@contextmanager
def raw_server(*pieces: bytes, reset: bool = False) -> Iterator[str]:
    """A server that reads a request, answers in pieces, then hangs until the end or resets the connection."""
    done = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        try:
            peer, _ = listener.accept()
        except OSError:
            return
        with peer, suppress(OSError):  # the other side may have gone
            peer.recv(65536)
            for piece in pieces:
                peer.sendall(piece)
                done.wait(0.05)
            if reset:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
            else:
                done.wait(10)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    finally:
        done.set()
        listener.close()
        thread.join()


@pytest.mark.parametrize(
    ("pieces", "reset"),
    [
        ((), True),
        ((b"HTTP/1.1 2",), True),
        ((b"HTTP/1.1 2",), False),
        ((b"nonsense\r\n\r\n",), False),
    ],
    ids=["reset", "reset in the answer", "half an answer", "no HTTP"],
)
def test_an_answer_that_breaks_off_leaves_it_open(
    kind: Kind,
    pieces: tuple[bytes, ...],
    reset: bool,  # noqa: FBT001 - a table's column
) -> None:
    with raw_server(*pieces, reset=reset) as url:
        (result,) = send(kind.make(url))
    assert isinstance(result, Failed)
    assert (result.status, result.unsure) == (None, True)


def test_a_body_without_end_ends_with_the_time_limit(kind: Kind) -> None:
    with raw_server(b"HTTP/1.1 200 OK\r\ncontent-length: 99999\r\n\r\n", b"o", b"k") as url:
        (result,) = send(kind.make(url))
    assert isinstance(result, Delivered | Failed)


def test_every_attempt_has_the_same_content(kind: Kind, receiver: Receiver) -> None:
    receiver.script = [Reply(500), Reply(503)]
    send(kind.make(receiver.url), times=3)
    contents = []
    for request in receiver.received:
        told = request.json
        for alert in told if isinstance(told, list) else [told]:
            alert.pop("endsAt", None)
        contents.append(json.dumps(told, sort_keys=True))
    assert (len(contents), len(set(contents))) == (3, 1)


def test_no_secret_is_kept_in_the_outbox_or_shown_as_the_address() -> None:
    pager = NOTIFIERS["pagerduty"].make("http://127.0.0.1:1/")
    assert KEY.encode() not in pager.render(NOTICE)
    assert KEY not in pager.address
    chat = NOTIFIERS["slack"].make("https://hooks.slack.example/services/T0/B0/secret")
    assert "secret" not in chat.address


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False)
    | st.text(max_size=600),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=80), inner, max_size=20),
    max_leaves=30,
)
LONG = st.text(max_size=300).map(lambda text: text * 60)
FIELDS = st.sampled_from(sorted({*DATA, "labels", "note", "resolved_by", "burn", "goal"}))


@pytest.mark.parametrize("name", NOTIFIERS)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    changes=st.dictionaries(FIELDS, JSON | LONG, max_size=8),
    type_=st.sampled_from([FIRING, ACKNOWLEDGED, RESOLVED, TEST]),
    brief=st.booleans(),
)
def test_any_notice_fits_every_limit(name: str, changes: dict[str, Any], type_: str, brief: bool) -> None:  # noqa: FBT001 - drawn
    data = DATA | {"state": type_.rpartition(".")[2]} | changes
    notifier = NOTIFIERS[name].make("http://127.0.0.1:1/")
    body = notifier.render(Notice(type=type_, at_ns=START_NS, data=data, brief=brief))
    LIMITS[name](body)


def units(text: str) -> int:
    """Length as Slack's and others' servers count it."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def webhook_limits(body: bytes) -> None:
    assert len(body) <= 20_000
    assert set(orjson.loads(body)) == {"type", "timestamp", "data"}


def alertmanager_limits(body: bytes) -> None:
    alert = orjson.loads(body)
    assert len(body) <= 200_000
    assert alert["labels"]["alertname"]
    assert all(value and isinstance(value, str) for value in alert["labels"].values())
    assert {"alert_id", "session_id", "run_id"} & set(alert["labels"]) == set()
    assert all(value and isinstance(value, str) for value in alert["annotations"].values())


def alertmanager_webhook_limits(body: bytes) -> None:
    group = orjson.loads(body)
    assert len(body) <= 400_000
    assert group["version"] == "4"
    assert group["status"] == group["alerts"][0]["status"]
    assert all(isinstance(value, str) for value in group["commonAnnotations"].values())


def pagerduty_limits(body: bytes) -> None:
    assert len(body) <= 512_000 - len(KEY) - 20
    event = orjson.loads(body)
    assert 0 < units(event["dedup_key"]) <= 255
    if event["event_action"] == "trigger":
        payload = event["payload"]
        assert 0 < units(payload["summary"]) <= 1024
        assert payload["source"]
        assert payload["severity"] in ("critical", "error", "warning", "info")
        assert all(link["href"].startswith("http") and link["text"] for link in event["links"])


def slack_limits(body: bytes) -> None:
    message = orjson.loads(body)
    assert 0 < units(message["text"]) <= 4000
    blocks = message.get("blocks", [])
    assert len(blocks) <= 50
    total = 0
    for block in blocks:
        text = block["text"]["text"]
        assert 0 < units(text) <= (150 if block["type"] == "header" else 3000)
        assert "<!" not in text or block["type"] == "header"
        total += units(text)
    assert total <= 12_000


LIMITS: Final[dict[str, Callable[[bytes], None]]] = {
    "webhooks": webhook_limits,
    "alertmanagers": alertmanager_limits,
    "alertmanager_webhooks": alertmanager_webhook_limits,
    "pagerduty": pagerduty_limits,
    "slack": slack_limits,
}


def test_two_destinations_cannot_share_a_name() -> None:
    config = WebhookConfig(name="hook", url="http://127.0.0.1:1/", secrets=(SECRET,))
    with pytest.raises(ValueError, match="two destinations are named 'hook'"):
        build([config, config])


def test_a_fallback_must_be_another_destination() -> None:
    hook = WebhookConfig(name="hook", url="http://127.0.0.1:1/", secrets=(SECRET,), fallback="chat")
    with pytest.raises(ValueError, match=r"webhooks\.hook\.fallback: no destination is named 'chat'"):
        build([hook])
    with pytest.raises(ValueError, match=r"slack\.chat\.fallback: must be another destination"):
        SlackConfig(name="chat", url="https://hooks.slack.example/x", fallback="chat")


@pytest.mark.parametrize(
    ("section", "given", "message"),
    [
        ("pagerduty", {"routing_key": "short"}, "pagerduty.n.routing_key"),
        ("alertmanagers", {"urls": []}, "alertmanagers.n.urls"),
        ("alertmanagers", {"urls": ["http://am", "am:9093"]}, r"alertmanagers.n.urls\[1\]"),
        ("alertmanagers", {"urls": ["http://am"], "labels": {"a-b": "c"}}, "alertmanagers.n.labels: 'a-b'"),
        ("alertmanagers", {"urls": ["http://am"], "resolved_for_s": 60}, "resolved_for_s: must be 300"),
        ("slack", {"url": "https://user:pass@example.test/"}, "slack.n.url: must not hold a user"),
        ("alertmanager_webhooks", {"url": "http://169.254.169.254/"}, "url: 169.254.169.254 is the address"),
        ("webhooks", {"url": "http://x/", "secrets": [SECRET], "ca_file": "/none"}, "ca_file: /none is no"),
    ],
)
def test_a_setting_that_makes_no_sense_is_named(section: str, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        configs({section: [{"name": "n", **given}]})
