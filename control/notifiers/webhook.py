"""A signed webhook, by Standard Webhooks 1.0.0 (https://www.standardwebhooks.com), symmetric form `v1`."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import httpx
import orjson

from control.notifiers.protocol import Delivered, Failed, Gone, Message, Notice, Result

if TYPE_CHECKING:
    from collections.abc import Mapping

    from collector.step import Json

MAX_BODY_BYTES: Final = 20_000
SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - the prefix of secrets, no secret
_SECRET_BYTES: Final = range(24, 65)
_MAX_TEXT: Final = 2000
_MAX_SHORT_TEXT: Final = 150
_MAX_DIGITS: Final = 18  # of a Retry-After; more of them are as good as for ever
_ABOUT_MESSAGE: Final = frozenset({400, 409, 411, 412, 413, 415, 422, 431})
"""Answers that blame the message. All others blame the destination: its address, its access, itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookConfig:
    """Where to deliver, and the secrets to sign with (`whsec_` and base64 of 24 to 64 bytes).

    More than one secret signs with each: give the new one beside the old one while receivers change over.
    `timeout_s` bounds one whole attempt. Raises `ValueError` naming the key that makes no sense.
    """

    name: str
    url: str
    secrets: tuple[str, ...]
    timeout_s: float = 15.0

    def __post_init__(self) -> None:
        """Check every key."""
        where = f"webhooks.{self.name}"
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{where}.url: must be an http or https address with a host")
        if not self.secrets:
            raise ValueError(f"{where}.secrets: at least one secret is needed, deliveries are always signed")
        for position, secret in enumerate(self.secrets):
            try:
                secret_key(secret)
            except ValueError as error:
                raise ValueError(f"{where}.secrets[{position}]: {error}") from None
        if not self.timeout_s > 0:
            raise ValueError(f"{where}.timeout_s: must be more than 0 seconds")


def secret_key(secret: str) -> bytes:
    """Return the key inside a `whsec_` secret; raises `ValueError` (without the secret) when it is none.

    >>> len(secret_key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))
    24
    """
    if not secret.startswith(SECRET_PREFIX):
        raise ValueError(f"a secret begins with {SECRET_PREFIX}")
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"what follows {SECRET_PREFIX} must be base64") from None
    if len(key) not in _SECRET_BYTES:
        raise ValueError(f"a secret has 24 to 64 bytes, this one has {len(key)}")
    return key


def signature(key: bytes, message_id: str, at_s: int, body: bytes) -> str:
    """Sign one attempt: `v1,` and base64 of HMAC-SHA256 over `id.timestamp.body`.

    >>> key = secret_key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    >>> signature(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE='
    """
    digest = hmac.digest(key, b"%s.%d.%s" % (message_id.encode(), at_s, body), hashlib.sha256)
    return f"v1,{base64.b64encode(digest).decode()}"


def parse_retry_after(value: str | None, now_s: float) -> float | None:
    """Read a Retry-After header in either form (seconds, or an HTTP date); None when there is none to read.

    >>> parse_retry_after("120", 0.0), parse_retry_after("Thu, 01 Jan 1970 00:01:00 GMT", 0.0)
    (120.0, 60.0)
    >>> parse_retry_after("soon", 0.0) is None
    True
    """
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return float(text[:_MAX_DIGITS])
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError, IndexError):  # it raises all of them, depending on the text
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, moment.timestamp() - now_s)


class Webhook:
    """Delivers to one URL. 2xx is success, 410 is goodbye, everything else is tried again."""

    def __init__(self, config: WebhookConfig) -> None:
        self._config = config
        self._keys = tuple(secret_key(secret) for secret in config.secrets)
        self._client: httpx.AsyncClient | None = None

    @property
    def address(self) -> str:
        """The URL."""
        return self._config.url

    def render(self, notice: Notice) -> bytes:
        """Write `{type, timestamp, data}` in under 20 kB; evidence is shortened, then left out, to fit."""
        body = _envelope(notice, notice.data)
        if len(body) > MAX_BODY_BYTES:
            body = _envelope(notice, _shortened(notice.data))
        if len(body) > MAX_BODY_BYTES:
            body = _envelope(notice, _bare(notice.data))
        return body

    async def send(self, message: Message, at_s: int) -> Result:
        """Make one attempt; the answer's body is not read."""
        headers = {
            "content-type": "application/json",
            "user-agent": "recloser",
            "webhook-id": message.id,
            "webhook-timestamp": str(at_s),
            "webhook-signature": " ".join(signature(k, message.id, at_s, message.body) for k in self._keys),
        }
        try:
            async with (
                asyncio.timeout(self._config.timeout_s),
                self._http().stream(
                    "POST", self._config.url, content=message.body, headers=headers
                ) as answer,
            ):
                return _judge(answer, at_s)
        except TimeoutError:
            return Failed(f"no answer within {self._config.timeout_s:g} s")
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return Failed(f"{type(error).__name__}: {error}".rstrip(": "))

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    def _http(self) -> httpx.AsyncClient:
        if self._client is None:
            # trust_env: where deliveries go is set by configuration, not by variables of the environment
            self._client = httpx.AsyncClient(
                timeout=self._config.timeout_s, follow_redirects=False, trust_env=False
            )
        return self._client


def _judge(answer: httpx.Response, at_s: int) -> Result:
    status = answer.status_code
    if answer.is_success:
        return Delivered(status)
    if status == httpx.codes.GONE:
        return Gone("410 Gone: the receiver wants nothing more", status)
    reason = f"HTTP {status}"
    if answer.is_redirect:
        reason += ": redirects are not followed"
    retry_after = parse_retry_after(answer.headers.get("retry-after"), at_s)
    return Failed(reason, status, retry_after, about_message=status in _ABOUT_MESSAGE)


def _envelope(notice: Notice, data: Mapping[str, Json]) -> bytes:
    return orjson.dumps({"type": notice.type, "timestamp": _rfc3339(notice.at_ns), "data": data})


def _rfc3339(ns: int) -> str:
    moment = datetime.fromtimestamp(ns // 1_000_000_000, tz=UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ns // 1_000_000 % 1000:03d}Z"


def _shortened(data: Mapping[str, Json]) -> dict[str, Json]:
    """Keep every field, with long texts and lists cut."""
    return {key: _cut(value, _MAX_TEXT) for key, value in data.items()} | {"truncated": True}


def _bare(data: Mapping[str, Json]) -> dict[str, Json]:
    """Keep the plain fields only, all short."""
    plain = {
        key: value for key, value in data.items() if value is None or isinstance(value, str | int | float)
    }
    return {key: _cut(value, _MAX_SHORT_TEXT) for key, value in plain.items()} | {"truncated": True}


def _cut(value: Json, length: int) -> Json:
    if isinstance(value, str):
        return value if len(value) <= length else f"{value[: length - 1]}…"
    if isinstance(value, list):
        return [_cut(item, _MAX_SHORT_TEXT) for item in value[:5]]
    if value is None or isinstance(value, bool | int | float):
        return value
    return {key[:_MAX_SHORT_TEXT]: _cut(item, _MAX_SHORT_TEXT) for key, item in list(value.items())[:20]}
