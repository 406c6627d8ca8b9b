"""The real control process's parts behind the real HTTP server, on a port of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts

from api.controlprocess import ControlOptions, ControlProcess, _listen, _server
from api.ratelimit import Limits
from control.actor import Actor
from control.tokens import Wanted
from control.verbs import EVERYTHING, Only, Verb

UNLIMITED = Limits(check_per_s=0, other_per_s=0, failed_per_s=0)
MAKER = Actor(type="person", id="maker")


@dataclass
class Served:
    """A running control plane, and a client of it."""

    process: ControlProcess
    app: FastAPI
    client: httpx.Client
    secret: str | None = None
    """Of a token that a test makes for itself."""

    def token(self, name: str, *verbs: Verb, only: Only = EVERYTHING, expires_ns: int | None = None) -> str:
        """Make a token; return its secret."""
        wanted = Wanted(name=name, verbs=frozenset(verbs), only=only, expires_ns=expires_ns)
        return self.process.services.tokens.create(wanted, MAKER)[1]

    def revoke(self, name: str) -> None:
        book = self.process.services.tokens
        (found,) = (token for token in book.all() if token.name == name and token.revoked_ns is None)
        book.revoke(found.id, MAKER, last_admin=True)

    def ask(
        self,
        method: str,
        path: str,
        token: str | None = None,
        headers: Mapping[str, Any] | None = None,
        **request: Any,  # noqa: ANN401 - what httpx takes
    ) -> httpx.Response:
        """Ask; of an answer that goes on and on only the head is read."""
        given = {**(headers or {}), **({"authorization": f"Bearer {token}"} if token is not None else {})}
        with self.client.stream(method, path, headers=given, **request) as answer:
            if answer.headers.get("content-type", "").startswith("text/event-stream"):
                head = httpx.Response(answer.status_code, headers=answer.headers, request=answer.request)
                head.elapsed = timedelta(0)
                return head
            answer.read()
            return answer


@contextmanager
def served(folder: Path, limits: Limits = UNLIMITED, **options: Any) -> Iterator[Served]:  # noqa: ANN401 - any of the options
    """Serve until the end of the block."""
    process = ControlProcess(
        ControlOptions(
            spool_path=folder / "spool.db", control_path=folder / "control.db", limits=limits, **options
        )
    )
    server = _server(process.services, ())
    app = inner_app(server.config.app)
    with _listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        process.start()
        thread.start()
        try:
            while not server.started:
                time.sleep(0.005)
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=10, trust_env=False) as client:
                yield Served(process, app, client)
        finally:
            server.should_exit = True
            server.force_exit = True
            thread.join()
            process.stop()


def inner_app(app: Any) -> FastAPI:  # noqa: ANN401 - layers of ASGI
    """Find the framework's app inside what is served."""
    while not isinstance(app, FastAPI):
        app = app._app
    return app


def routes_of(app: FastAPI) -> set[tuple[str, str]]:
    """List every method and path, those that the document leaves out, too."""
    return {
        (method, str(route.path))
        for route in iter_route_contexts(app.routes)
        for method in (route.methods or ())
        if method != "HEAD"
    }
