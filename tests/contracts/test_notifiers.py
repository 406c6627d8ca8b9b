"""What every notifier owes, whatever its destination. A new one is a line in `NOTIFIERS`."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from control.notifiers.catalog import build
from control.notifiers.protocol import Delivered, Failed, Gone, Message, Notice, Notifier, Result
from control.notifiers.webhook import Webhook, WebhookConfig
from tests.control.support import SECRET, START_NS, Receiver, Reply, receiving

AT_S: Final = START_NS // 10**9
OTHER_SECRET: Final = "whsec_" + "QUJD" * 8


def webhook(url: str) -> Notifier:
    return Webhook(WebhookConfig(name="hook", url=url, secrets=(SECRET, OTHER_SECRET), timeout_s=0.3))


NOTIFIERS: Final[list[Callable[[str], Notifier]]] = [webhook]
NOTICE: Final = Notice(type="alert.firing", at_ns=START_NS, data={"alert_id": "al_1", "summary": "stuck"})


@pytest.fixture(params=NOTIFIERS, ids=lambda make: make.__name__)
def make(request: pytest.FixtureRequest) -> Callable[[str], Notifier]:
    made: Callable[[str], Notifier] = request.param
    return made


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


def test_rendering_is_pure(make: Callable[[str], Notifier]) -> None:
    assert make("http://127.0.0.1:1/").render(NOTICE) == make("http://127.0.0.1:1/").render(NOTICE)


@pytest.mark.parametrize("status", [200, 201, 202, 204])
def test_every_2xx_is_success(make: Callable[[str], Notifier], receiver: Receiver, status: int) -> None:
    receiver.script = [Reply(status)]
    assert send(make(receiver.url)) == [Delivered(status)]


@pytest.mark.parametrize(
    ("status", "about_message"),
    [(400, True), (401, False), (404, False), (422, True), (429, False), (500, False), (503, False)],
)
def test_what_is_no_success_is_tried_again(
    make: Callable[[str], Notifier],
    receiver: Receiver,
    status: int,
    about_message: bool,  # noqa: FBT001 - a table's column
) -> None:
    receiver.script = [Reply(status)]
    assert send(make(receiver.url)) == [Failed(f"HTTP {status}", status, None, about_message)]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_a_failure_and_not_followed(
    make: Callable[[str], Notifier], receiver: Receiver, status: int
) -> None:
    receiver.script = [Reply(status, {"location": receiver.url})]
    (result,) = send(make(receiver.url))
    assert isinstance(result, Failed)
    assert result.status == status
    assert len(receiver.received) == 1


def test_410_is_goodbye(make: Callable[[str], Notifier], receiver: Receiver) -> None:
    receiver.script = [Reply(410)]
    (result,) = send(make(receiver.url))
    assert isinstance(result, Gone)


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("120", 120.0),
        ("0", 0.0),
        ("Tue, 14 Nov 2023 22:14:20 GMT", 60.0),
        ("Tue, 14 Nov 2023 22:00:00 GMT", 0.0),
        ("soon", None),
        ("-5", None),
    ],
)
def test_retry_after_is_read_in_both_forms(
    make: Callable[[str], Notifier], receiver: Receiver, status: int, header: str, seconds: float | None
) -> None:
    receiver.script = [Reply(status, {"retry-after": header})]
    (result,) = send(make(receiver.url))
    assert isinstance(result, Failed)
    assert result.retry_after == seconds


def test_silence_ends_with_the_time_limit(make: Callable[[str], Notifier], receiver: Receiver) -> None:
    receiver.script = [Reply(delay_s=30.0)]
    (result,) = send(make(receiver.url))
    assert isinstance(result, Failed)
    assert (result.status, result.about_message) == (None, False)


def test_nobody_at_home_is_a_failure(make: Callable[[str], Notifier]) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        (result,) = send(make(f"http://127.0.0.1:{unused.getsockname()[1]}/"))
    assert isinstance(result, Failed)
    assert result.status is None


def test_every_attempt_has_the_same_id_and_body_and_its_own_time(
    make: Callable[[str], Notifier], receiver: Receiver
) -> None:
    receiver.script = [Reply(500), Reply(503)]
    send(make(receiver.url), times=3)
    assert len({(r.id, r.body) for r in receiver.received}) == 1
    assert [int(r.headers["webhook-timestamp"]) - AT_S for r in receiver.received] == [0, 1, 2]


def test_every_secret_signs_so_that_receivers_can_change_over(receiver: Receiver) -> None:
    send(webhook(receiver.url))
    (request,) = receiver.received
    assert request.signed_with(SECRET)
    assert request.signed_with(OTHER_SECRET)
    assert not request.signed_with("whsec_" + "eHl6" * 8)
    assert request.headers["content-type"] == "application/json"


def test_two_destinations_cannot_share_a_name() -> None:
    config = WebhookConfig(name="hook", url="http://127.0.0.1:1/", secrets=(SECRET,))
    with pytest.raises(ValueError, match="two destinations are named 'hook'"):
        build([config, config])
