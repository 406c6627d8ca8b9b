"""Where `recloser token` works: on a running sidecar through its API, or on `control.db` while none runs."""

from __future__ import annotations

import getpass
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import quote

import httpx

from api.auth import configured_tokens
from api.config import Settings, to_json
from api.routes.tokens import TokenRequest, token_out, wanted_of
from api.talking import address
from control.actor import Actor
from control.db import ControlDb, ControlDbError, ControlDbInUseError
from control.tokens import TokenBook, TokenRefused, UnknownToken

if TYPE_CHECKING:
    from control.tokens import Token

_TIMEOUT_S: Final = 15.0


class PlaceError(Exception):
    """It cannot be done; the message says why and what to do."""


class Place(Protocol):
    """Answers are those of the API, as plain data."""

    @property
    def where(self) -> str:
        """Say where that is."""
        ...

    def is_open(self) -> bool:
        """Tell whether no token is needed yet. Raises `PlaceError`."""
        ...

    def create(self, wanted: TokenRequest) -> dict[str, Any]:
        """Make a token. Raises `PlaceError`."""
        ...

    def tokens(self) -> list[dict[str, Any]]:
        """List all. Raises `PlaceError`."""
        ...

    def revoke(self, token_id: str) -> dict[str, Any]:
        """End one. Raises `PlaceError`."""
        ...


@contextmanager
def place(settings: Settings, url: str | None, secret: str | None, *, make: bool) -> Iterator[Place]:
    """Find where to work: at `url`, else on the file of the data directory unless a sidecar has it.

    `make`: a file that is not there is made. Raises `PlaceError`.
    """
    if url is None:
        path = Path(settings.data_dir) / "control.db"
        if not make and not path.exists():
            raise PlaceError(f"there is no {path}, and so no token; is it another --data-dir?")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            db = ControlDb(path)
        except OSError as error:
            raise PlaceError(f"data_dir {path.parent}: {error.strerror}") from error
        except ControlDbInUseError:
            url = address(settings, None)
        except ControlDbError as error:
            raise PlaceError(str(error)) from error
        else:
            try:
                yield _File(db, settings)
            finally:
                db.close()
            return
    with httpx.Client(base_url=url, timeout=_TIMEOUT_S, trust_env=False) as client:
        yield _Running(client, secret)


@dataclass
class _Running:
    client: httpx.Client
    secret: str | None

    @property
    def where(self) -> str:
        return f"the sidecar at {self.client.base_url}"

    def is_open(self) -> bool:
        return not self._ask("GET", "/v1/whoami").get("tokens_needed", True)

    def create(self, wanted: TokenRequest) -> dict[str, Any]:
        return self._ask("POST", "/v1/tokens", wanted.model_dump(mode="json"))

    def tokens(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._ask("GET", "/v1/tokens")["tokens"]
        return found

    def revoke(self, token_id: str) -> dict[str, Any]:
        return self._ask("DELETE", f"/v1/tokens/{quote(token_id, safe='')}")

    def _ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        headers = {"authorization": f"Bearer {self.secret}"} if self.secret else {}
        try:
            answer = self.client.request(method, path, json=body, headers=headers)
        except httpx.HTTPError as error:
            raise PlaceError(f"{self.where} does not answer: {error}") from error
        try:
            said = answer.json()
        except ValueError:
            said = None
        if answer.is_success and isinstance(said, dict):
            return said
        detail = said.get("detail") if isinstance(said, dict) else None
        hint = "; give an admin token as RECLOSER_TOKEN" if answer.status_code in {401, 403} else ""
        raise PlaceError(f"{self.where}: {detail or f'HTTP {answer.status_code}'}{hint}")


class _File:
    def __init__(self, db: ControlDb, settings: Settings) -> None:
        by_default = "" if "data_dir" in settings.model_fields_set else ", the default --data-dir"
        self.where = f"{db.path} (no sidecar is using it{by_default})"
        try:
            configured = configured_tokens([to_json(token) for token in settings.tokens])
        except ValueError as error:
            raise PlaceError(str(error)) from error
        self._book = TokenBook(db, time.time_ns, configured=configured)
        self._actor = Actor(type="person", id=_user())

    def is_open(self) -> bool:
        return not self._book.required

    def create(self, wanted: TokenRequest) -> dict[str, Any]:
        try:
            token, secret = self._book.create(wanted_of(wanted, time.time_ns()), self._actor)
        except (ValueError, TokenRefused) as error:
            raise PlaceError(str(error)) from error
        return {"token": _plain(token), "secret": secret}

    def tokens(self) -> list[dict[str, Any]]:
        return [_plain(token) for token in self._book.all()]

    def revoke(self, token_id: str) -> dict[str, Any]:
        try:
            return _plain(self._book.revoke(token_id, self._actor, last_admin=True))
        except TokenRefused as error:
            raise PlaceError(str(error)) from error
        except UnknownToken as error:
            raise PlaceError(f"no token has the id {token_id!r}") from error


def _plain(token: Token) -> dict[str, Any]:
    return token_out(token, time.time_ns()).model_dump(mode="json")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        return "local"
