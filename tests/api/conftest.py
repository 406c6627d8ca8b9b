from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from api.app import create_app
from api.auth import Authority, Token, Verb
from api.following import following
from api.reload import PolicyKeeper
from api.services import Services
from control.budgets import Budgets
from control.dead_calls import DeadCalls
from control.modes import Modes
from control.notifiers.webhook import Webhook, WebhookConfig
from control.policy import Policy, Rule
from control.stop_link import StopLinks
from control.tokens import TokenBook
from tests.control.support import SECRET, ManualClock, Parts, Spool

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

    from fastapi import FastAPI

SECRETS = {verb: f"secret of {verb.value} token" for verb in Verb}
TOKENS = tuple(Token.of(verb.value, secret, {verb}) for verb, secret in SECRETS.items())


@dataclass
class Api:
    """The app over a real control plane, asked without a network."""

    app: FastAPI
    parts: Parts
    spool: Spool
    services: Services

    def ask(self, method: str, path: str, *, token: str | None = None, **request: Any) -> httpx.Response:  # noqa: ANN401 - what httpx takes
        headers = {"authorization": f"Bearer {token}"} if token is not None else {}

        async def once() -> httpx.Response:
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://recloser") as client:
                return await client.request(
                    method, path, headers=headers | request.pop("headers", {}), **request
                )

        return asyncio.run(once())

    def check(self, **call: Any) -> Any:  # noqa: ANN401 - JSON
        return self.ask("POST", "/v1/check", json=call).json()


def api_of(folder: Path, authority: Authority) -> Generator[Api]:
    """Make an app with an empty control plane of its own."""
    clock = ManualClock()
    spool = Spool(folder / "spool.db", clock)
    hook = Webhook(WebhookConfig(name="hook", url="http://127.0.0.1:1/", secrets=(SECRET,)))
    with closing(
        Parts(folder, policy=Policy(rules=(Rule(name="deny"),)), notifiers={"hook": hook}, clock=clock)
    ) as parts:
        services = Services(
            control=parts.control,
            authority=authority,
            tokens=TokenBook(parts.db, clock),
            policy=PolicyKeeper(parts.control.policies, None, parts.db, parts.metrics, clock),
            modes=Modes(parts.db, parts.control.policies, parts.metrics, clock),
            following=following(parts.control, clock),
            budgets=Budgets(parts.db, clock, lambda: parts.control.policies.current.budgets),
            dead_calls=DeadCalls(),
            stop_links=StopLinks(b"k" * 32, "http://recloser", clock),
            registry=parts.registry,
            now_ns=clock,
            probes={"control": lambda: parts.control.waiting_for},
            metrics_sources=(lambda: b"other_process_up 1\n",),
            notes_of=parts.notes.get,
        )
        yield Api(create_app(services), parts, spool, services)


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    yield from api_of(tmp_path, Authority())


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Api]:
    yield from api_of(tmp_path, Authority(TOKENS))
