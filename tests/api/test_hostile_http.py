"""Clients that are slow, endless, rude or misled, against the real server with small bounds."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import pytest
import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.bodies import MAX_BODY_BYTES
from api.hosts import KnownHosts, is_ours
from api.httpserver import HttpBounds, bounded, room_for_connections
from api.portions import AT_A_TIME, PORTION_BYTES, Portions
from tests.api.conftest import Api
from tests.control.support import eventually

PATIENCE = 10.0
POST = b"POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
SOON = HttpBounds(head_bytes=4096, head_timeout_s=0.3, body_timeout_s=0.3, max_connections=8)


async def reads_all(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer 200 once the whole body is there."""
    if scope["type"] != "http":
        return
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size += len(message.get("body", b""))
        if not message.get("more_body"):
            break
    body = b"%d" % size
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]}
    )
    await send({"type": "http.response.body", "body": body})


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextmanager
def serving(app: ASGIApp, bounds: HttpBounds) -> Iterator[Callable[[], socket.socket]]:
    config = uvicorn.Config(
        app,
        http=bounded(bounds),
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",
        timeout_graceful_shutdown=1,
    )
    server = _Server(config)
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])), daemon=True)
    thread.start()
    address = listener.getsockname()
    with contextlib.ExitStack() as opened:
        yield lambda: opened.enter_context(socket.create_connection(address, PATIENCE))
    server.should_exit = True
    thread.join(PATIENCE)
    listener.close()


@pytest.fixture
def connect() -> Iterator[Callable[[], socket.socket]]:
    with serving(reads_all, SOON) as connection:
        yield connection


def told(client: socket.socket) -> bytes:
    """All that comes until the server closes."""
    parts = []
    with contextlib.suppress(ConnectionError):
        while part := client.recv(65536):
            parts.append(part)
    return b"".join(parts)


def ask(client: socket.socket) -> None:
    """Send one request on a connection that stays open, and read the answer."""
    client.sendall(POST + b"Content-Length: 2\r\n\r\n{}")
    answer = b""
    while not answer.endswith(b"\r\n\r\n2"):
        part = client.recv(65536)
        assert part
        answer += part
    assert answer.startswith(b"HTTP/1.1 200")


def test_a_head_that_never_ends_is_given_up(connect: Callable[[], socket.socket]) -> None:
    silent, slow, second = connect(), connect(), connect()
    slow.sendall(POST)
    second.sendall(POST + b"Content-Length: 0\r\n\r\n" + POST)
    assert b" 408 " in told(silent)
    assert b" 408 " in told(slow)
    answers = told(second)
    assert answers.startswith(b"HTTP/1.1 200")
    assert b" 408 " in answers


def test_a_body_that_never_ends_is_given_up(connect: Callable[[], socket.socket]) -> None:
    client = connect()
    client.sendall(POST + b"Content-Length: 100\r\n\r\n{")
    assert b" 408 " in told(client)


@pytest.mark.parametrize("start", [POST, b"GET /"])
def test_a_head_that_is_too_long_is_refused(connect: Callable[[], socket.socket], start: bytes) -> None:
    client = connect()
    client.sendall(start)
    with contextlib.suppress(ConnectionError):
        for _ in range(200):
            client.sendall(b"x" * 65_536)
        raise AssertionError("13 MB of head were taken")


def test_many_requests_in_one_piece_are_all_answered(connect: Callable[[], socket.socket]) -> None:
    client = connect()
    client.sendall(
        (POST + b"Content-Length: 2\r\n\r\n{}") * 150
        + POST
        + b"Connection: close\r\nContent-Length: 0\r\n\r\n"
    )
    assert told(client).count(b"HTTP/1.1 200") == 151


def test_who_closes_his_half_after_the_request_gets_the_answer(connect: Callable[[], socket.socket]) -> None:
    client, cut = connect(), connect()
    client.sendall(POST + b"Content-Length: 2\r\n\r\n{}")
    client.shutdown(socket.SHUT_WR)
    assert told(client).startswith(b"HTTP/1.1 200")
    cut.sendall(POST + b"Content-Length: 20\r\n\r\n{}")
    cut.shutdown(socket.SHUT_WR)
    assert told(cut) == b""


def test_one_connection_too_many_is_told_to_come_again(connect: Callable[[], socket.socket]) -> None:
    clients = [connect() for _ in range(SOON.max_connections)]
    for client in clients:
        ask(client)
    answer = told(connect())
    assert answer.startswith(b"HTTP/1.1 503")
    assert b"retry-after: 1" in answer
    ask(clients[0])


def test_there_is_room_for_some_connections() -> None:
    assert 16 <= room_for_connections() <= 4096


def test_a_page_whose_name_points_here_is_refused_with_the_way_out() -> None:
    with serving(KnownHosts(reads_all, ("recloser.internal",)), SOON) as connect:
        for host, expected in (
            (b"evil.example:4319", b" 421 "),
            (b"127.0.0.1.evil.example", b" 421 "),
            (b"localhost.evil.example", b" 421 "),
            (b"Recloser.Internal:4319", b" 200 "),
            (b"localhost", b" 200 "),
        ):
            client = connect()
            client.sendall(b"GET /v1/alerts HTTP/1.1\r\nConnection: close\r\nHost: " + host + b"\r\n\r\n")
            answer = told(client)
            assert expected in answer.partition(b"\r\n")[0]
            assert (b"allowed_hosts" in answer) == (expected == b" 421 ")


OURS = ("[::1]:80", "[::1", "LOCALHOST.", "10.0.0.1:4318", "agent.localhost")
STRANGE = ("evil.example", "localhost@evil.example", "127.0.0.1.nip.example", "\x00")


@pytest.mark.parametrize(("host", "ours"), [*((h, True) for h in OURS), *((h, False) for h in STRANGE)])
def test_numbers_and_localhost_are_ours_and_names_are_not(host: str, *, ours: bool) -> None:
    assert is_ours(host) is ours


@pytest.mark.parametrize(
    "path", ["/v1/check", "/v1/check/batch", "/v1/breakers/x/reset", "/v1/alerts/x/resolve"]
)
def test_no_route_takes_a_body_without_end(api: Api, path: str) -> None:
    response = api.ask(
        "POST", path, content=b" " * (MAX_BODY_BYTES + 1), headers={"content-type": "application/json"}
    )
    assert (response.status_code, response.json()["code"]) == (413, "too_large")


@pytest.mark.parametrize("path", ["/v1/check", "/v1/check/batch", "/v1/breakers/x/reset"])
@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_what_a_foreign_page_may_send_without_asking_is_refused(
    api: Api, path: str, content_type: str
) -> None:
    response: httpx.Response = api.ask(
        "POST", path, content=b'{"session_id": "s"}', headers={"content-type": content_type}
    )
    assert response.status_code == 415


async def answers_much(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with one body of eight megabytes, in one piece."""
    if scope["type"] != "http":
        return
    del receive
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"8388608")]})
    await send({"type": "http.response.body", "body": MUCH})


MUCH = bytes(8 << 20)


def test_a_long_answer_comes_whole_and_only_as_fast_as_it_is_read() -> None:
    sent: list[int] = []

    async def noting(scope: Scope, receive: Receive, send: Send) -> None:
        async def noted(message: Message) -> None:
            await send(message)
            sent.append(len(message.get("body", b"")))

        await Portions(answers_much)(scope, receive, noted)

    with serving(noting, HttpBounds()) as connection:
        client = connection()
        client.sendall(POST + b"Content-Length: 2\r\n\r\n{}")
        head = client.recv(1)
        eventually(lambda: len(sent) > 1)
        assert max(sent) <= PORTION_BYTES
        assert sum(sent) < len(MUCH)  # the rest has not left the application
        whole = bytearray(head)
        while len(whole) < len(MUCH):
            whole += client.recv(1 << 20)
        assert whole.endswith(MUCH[: 1 << 20])


def test_who_reads_nothing_of_an_answer_is_let_go() -> None:
    ended = threading.Event()

    async def noting(scope: Scope, receive: Receive, send: Send) -> None:
        await Portions(answers_much)(scope, receive, send)
        ended.set()

    with serving(noting, HttpBounds(unread_timeout_s=0.2)) as connection:
        client = connection()
        client.sendall(POST + b"Content-Length: 2\r\n\r\n{}")
        assert ended.wait(PATIENCE)
        assert len(told(client)) < len(MUCH)


@pytest.mark.parametrize("size", [0, 1, PORTION_BYTES, PORTION_BYTES + 1, 2 * PORTION_BYTES])
@pytest.mark.parametrize("more", [False, True])
def test_portions_are_the_body(size: int, *, more: bool) -> None:
    body = bytes(number % 251 for number in range(size))
    came: list[Message] = []

    async def one_piece(scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        await send({"type": "http.response.body", "body": body, "more_body": more})

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        came.append(message)

    asyncio.run(Portions(one_piece)({"type": "http"}, receive, send))
    assert b"".join(message["body"] for message in came) == body
    assert [message["more_body"] for message in came] == [True] * (len(came) - 1) + [more]


def test_long_answers_leave_room_for_short_ones_between_their_portions() -> None:
    order: list[str] = []
    body = bytes(3 * PORTION_BYTES)

    async def long(scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        await send({"type": "http.response.body", "body": body})

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        order.append("portion" if message["body"] else "short")

    async def all_of_them() -> None:
        app = Portions(long)
        async with asyncio.TaskGroup() as group:
            for _ in range(2 * AT_A_TIME):
                group.create_task(app({"type": "http"}, receive, send))
            for _ in range(3):
                await asyncio.sleep(0)
                await send({"type": "http.response.body", "body": b""})

    asyncio.run(all_of_them())
    assert order.count("portion") == 3 * 2 * AT_A_TIME
    shorts = [0, *(place for place, what in enumerate(order) if what == "short")]
    assert max(later - sooner for sooner, later in itertools.pairwise(shorts)) <= AT_A_TIME + 1


def test_who_leaves_while_waiting_for_a_portion_holds_up_nobody() -> None:
    done: list[int] = []

    async def long(scope: Scope, receive: Receive, send: Send) -> None:
        del receive
        await send({"type": "http.response.body", "body": bytes(5 * PORTION_BYTES)})
        done.append(scope["number"])

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        del message

    async def all_of_them() -> None:
        app = Portions(long)
        tasks = [
            asyncio.create_task(app({"type": "http", "number": number}, receive, send))
            for number in range(40)
        ]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(all_of_them())
    assert set(done) >= set(range(1, 40, 2))
