"""Talk to the API of a running sidecar, and say in words what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import httpx

from api.config import Settings

CONFLICT: Final = frozenset({409, 412})
_TIMEOUT_S: Final = 15.0
_EVERY_ADDRESS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - turned into one that can be asked
_HINTS: Final = {
    401: "give a token as RECLOSER_TOKEN; `recloser token create` makes one",
    403: "give one that allows it as RECLOSER_TOKEN: looking needs read, trips need trip, all else override",
    412: "look at it again, then decide anew",
    429: "wait a little and try again",
    503: "try again",
}


class TalkError(Exception):
    """It was not done; the message says why and what to do."""


class NoAnswerError(TalkError):
    """Nobody is there, or something else than a sidecar."""


class RefusedError(TalkError):
    """The sidecar said no, with an HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Sidecar:
    """A running sidecar: the address of its API, and the token that it is shown."""

    base: str
    token: str | None

    def get(self, path: str, **query: str | int | bool | None) -> dict[str, Any]:
        """Read; parts of the query that are None are left out. Raises `TalkError`."""
        said = {name: value for name, value in query.items() if value is not None}
        return self._ask("GET", path, query=said)

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Change something. Raises `TalkError`."""
        return self._ask("POST", path, body=body)

    def delete(self, path: str) -> dict[str, Any]:
        """End something. Raises `TalkError`."""
        return self._ask("DELETE", path)

    def _ask(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, str | int | bool] | None = None,
        body: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        try:
            answer = httpx.request(
                method,
                f"{self.base}{path}",
                params=query or None,
                json=body,
                headers=self._headers(),
                timeout=_TIMEOUT_S,
                trust_env=False,
            )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            hint = "is `recloser serve` running? --url, RECLOSER_URL or --config say where"
            raise NoAnswerError(f"{self.base} does not answer: {error}; {hint}") from error
        try:
            said = answer.json()
        except ValueError:
            said = None
        if answer.is_success and isinstance(said, dict):
            return said
        detail = said.get("detail") if isinstance(said, dict) else None
        if detail is None:
            hint = "is this the port of the API (4319)?"
            raise NoAnswerError(f"{self.base} answers HTTP {answer.status_code}, no JSON of ours; {hint}")
        hint = _HINTS.get(answer.status_code, "")
        raise RefusedError(answer.status_code, f"{self.base}: {detail}{'; ' if hint else ''}{hint}")

    def _headers(self) -> dict[str, str]:
        if not self.token:
            return {}
        if not self.token.isascii() or not self.token.isprintable():
            raise TalkError("RECLOSER_TOKEN has characters that no token has, a line break perhaps")
        return {"authorization": f"Bearer {self.token}"}


def address(settings: Settings, url: str | None) -> str:
    """The API's address: `url`, else by the settings, this machine's own where it listens everywhere."""
    if url:
        return url.rstrip("/")
    host = _EVERY_ADDRESS.get(settings.host, settings.host)
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.api_port}"
