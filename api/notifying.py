"""What `recloser notify` does: through the API of a running sidecar, or by itself while none runs."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final
from urllib.parse import quote

import httpx

from api.config import Settings, to_json
from api.talking import address
from control.notifiers.catalog import build, configs
from control.notifiers.protocol import Notifier
from control.postoffice import send_once
from control.trial import try_out

_TIMEOUT_S: Final = 60.0


class NotifyError(Exception):
    """It cannot be done; the message says why."""


def destinations(settings: Settings, url: str | None, token: str | None) -> list[dict[str, Any]]:
    """List destinations as the API does. Raises `NotifyError`."""
    running = _ask(settings, url, token, "GET", "/v1/destinations")
    if running is not None:
        found: list[dict[str, Any]] = running["destinations"]
        return found
    return [
        {
            "name": name,
            "configured": True,
            "state": "not running",
            "reason": "",
            "fallback": notifier.capabilities.fallback,
            "pending": 0,
            "given_up": 0,
            "oldest_pending_at": None,
        }
        for name, notifier in sorted(_notifiers(settings).items())
    ]


def send_test(settings: Settings, name: str, url: str | None, token: str | None) -> dict[str, Any]:
    """Send a test message and tell how it went, as the API does. Raises `NotifyError`."""
    running = _ask(settings, url, token, "POST", f"/v1/destinations/{quote(name, safe='')}/test")
    if running is not None:
        return running
    notifier = _notifiers(settings).get(name)
    if notifier is None:
        raise NotifyError(f"no destination is named {name!r} in the settings, and no sidecar answers")
    trial = try_out(
        name,
        notifier,
        lambda message: asyncio.run(send_once(notifier, message, time.time_ns())),
        time.time_ns,
    )
    return {
        "destination": name,
        "delivered": trial.delivered,
        "status": trial.status,
        "problem": trial.problem,
        "template_problem": trial.template_problem,
        "took_ms": trial.took_ns / 1e6,
    }


def _notifiers(settings: Settings) -> dict[str, Notifier]:
    given = to_json(settings)
    templates = {kind: str(path) for kind, path in settings.templates if path is not None}
    try:
        return build(configs(given), templates=templates)
    except ValueError as error:
        raise NotifyError(str(error)) from error


def _ask(
    settings: Settings, url: str | None, token: str | None, method: str, path: str
) -> dict[str, Any] | None:
    """Ask the sidecar; None when none runs at the address of the settings."""
    base = address(settings, url)
    headers = {"authorization": f"Bearer {token}"} if token else {}
    try:
        answer = httpx.request(method, f"{base}{path}", headers=headers, timeout=_TIMEOUT_S, trust_env=False)
    except httpx.ConnectError as error:
        if url is None:
            return None
        raise NotifyError(f"{base} does not answer: {error}") from error
    except httpx.HTTPError as error:
        raise NotifyError(f"{base} does not answer: {error}") from error
    try:
        said = answer.json()
    except ValueError:
        said = None
    if answer.is_success and isinstance(said, dict):
        return said
    detail = said.get("detail") if isinstance(said, dict) else None
    hint = "; give a token as RECLOSER_TOKEN" if answer.status_code in {401, 403} else ""
    raise NotifyError(f"{base}: {detail or f'HTTP {answer.status_code}'}{hint}")
