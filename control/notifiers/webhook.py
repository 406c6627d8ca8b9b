"""A signed webhook, by Standard Webhooks 1.0.0 (https://www.standardwebhooks.com), symmetric form `v1`."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import orjson

from control.notifiers.common import DestinationConfig
from control.notifiers.http import Http, judge, rfc3339
from control.notifiers.protocol import Audience, Capabilities, Message, Notice, Result
from control.notifiers.shorten import bare, shortened

if TYPE_CHECKING:
    from collections.abc import Mapping

    from collector.step import Json

MAX_BODY_BYTES: Final = 20_000
SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - the prefix of secrets, no secret
_SECRET_BYTES: Final = range(24, 65)
_LESS_TEXT: Final = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookConfig(DestinationConfig):
    """Where to deliver, and the secrets to sign with (`whsec_` and base64 of 24 to 64 bytes).

    More than one secret signs with each: give the new one beside the old one while receivers change over.
    `audience` `pager` is told nothing of what was over before it heard of it, `chat` one short notice. Raises
    `ValueError` naming the key that makes no sense.
    """

    SECTION: ClassVar[str] = "webhooks"

    url: str
    secrets: tuple[str, ...]
    audience: str = "pager"

    def __post_init__(self) -> None:
        """Check every key."""
        self.check()
        self.check_url("url", self.url)
        if not self.secrets:
            raise ValueError(
                f"{self.where}.secrets: at least one secret is needed, deliveries are always signed"
            )
        for position, secret in enumerate(self.secrets):
            try:
                secret_key(secret)
            except ValueError as error:
                raise ValueError(f"{self.where}.secrets[{position}]: {error}") from None
        if self.audience not in set(Audience):
            raise ValueError(f"{self.where}.audience: must be pager or chat")


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


class Webhook:
    """Delivers to one URL. 2xx is success, 410 is goodbye, everything else is tried again."""

    def __init__(self, config: WebhookConfig) -> None:
        self._config = config
        self._keys = tuple(secret_key(secret) for secret in config.secrets)
        self._http = Http(config.timeout_s, allow_private=config.allow_private, ca_file=config.ca_file)
        self.capabilities = Capabilities(
            audience=Audience(config.audience),
            acknowledges=True,
            fallback=config.fallback,
            fallback_after_s=config.fallback_after_s,
        )

    @property
    def address(self) -> str:
        """The URL."""
        return self._config.url

    def render(self, notice: Notice) -> bytes:
        """Write `{type, timestamp, data}` in under 20 kB.

        To fit, evidence is shortened, then all long texts and lists, then only the plain fields are left.
        """
        body = _envelope(notice, notice.data)
        if len(body) > MAX_BODY_BYTES and isinstance(evidence := notice.data.get("evidence"), dict):
            less: dict[str, Json] = {"evidence": shortened(evidence, text=_LESS_TEXT), "truncated": True}
            body = _envelope(notice, {**notice.data, **less})
        if len(body) > MAX_BODY_BYTES:
            body = _envelope(notice, shortened(notice.data))
        if len(body) > MAX_BODY_BYTES:
            body = _envelope(notice, shortened(notice.data, text=_LESS_TEXT))
        if len(body) > MAX_BODY_BYTES:
            body = _envelope(notice, bare(notice.data))
        return body

    async def send(self, message: Message, at_s: int) -> Result:
        """Make one attempt; the answer's body is not read."""
        headers = {
            "webhook-id": message.id,
            "webhook-timestamp": str(at_s),
            "webhook-signature": " ".join(signature(k, message.id, at_s, message.body) for k in self._keys),
        }
        return judge(await self._http.post(self._config.url, message.body, headers), at_s)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()


def _envelope(notice: Notice, data: Mapping[str, Json]) -> bytes:
    return orjson.dumps({"type": notice.type, "timestamp": rfc3339(notice.at_ns), "data": data})
