"""A server that ends tells streams to end, so that nobody waits for them and none is cut."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import uvicorn

from api.httpserver import EndingServer

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send


def test_open_streams_end_whole_when_the_server_does() -> None:
    async def everything() -> bytes:
        over = asyncio.Event()

        async def stream(_scope: Scope, _receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"begun", "more_body": True})
            await over.wait()
            await send({"type": "http.response.body", "body": b"over", "more_body": False})

        server = EndingServer(uvicorn.Config(stream, lifespan="off", log_level="error"), over.set)
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            serving = asyncio.ensure_future(server._serve([listener]))  # no signal handlers in a test
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            began = await reader.readuntil(b"begun\r\n")
            server.should_exit = True
            rest = await reader.read()
            await serving
            writer.close()
            return began + rest

    answer = asyncio.run(everything())
    assert answer.endswith(b"4\r\nover\r\n0\r\n\r\n")
