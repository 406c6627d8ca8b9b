"""One POST, for every notifier: guarded address, one time limit over all of it, no redirects."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final

import httpcore
import httpx

from control.notifiers.guard import AddressRefused, GuardedBackend
from control.notifiers.guard import resolve as look_up
from control.notifiers.protocol import Delivered, Failed, Gone, Result

if TYPE_CHECKING:
    from collections.abc import Mapping

    from control.notifiers.guard import Resolve

_MAX_DIGITS: Final = 18  # of a Retry-After; more of them are as good as for ever
_MAX_ANSWER: Final = 2048
_SHOWN: Final = 200
_ABOUT_MESSAGE: Final = frozenset({400, 409, 411, 412, 413, 415, 422, 431})
"""Answers that blame the message. All others blame the destination: its address, its access, itself."""
_UNSURE: Final = frozenset({500, 502, 504})
"""Answers after which the message may have been taken all the same: before it broke, behind a gateway."""

_TROUBLE: Final = (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException, OSError)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a destination answered; `body` is its beginning, as text, when it was asked for."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""


class Http:
    """Connections to one destination; belongs to one event loop. `resolve` looks names up."""

    def __init__(
        self, timeout_s: float, *, allow_private: bool, ca_file: str = "", resolve: Resolve = look_up
    ) -> None:
        self._timeout_s = timeout_s
        self._ca_file = ca_file
        self._backend = GuardedBackend(allow_private=allow_private, resolve=resolve)
        self._pool: httpcore.AsyncConnectionPool | None = None

    async def post(
        self, url: str, body: bytes, headers: Mapping[str, str], *, read_body: bool = False
    ) -> Answer | Failed:
        """Make one request. Never raises for what the network or the other side does."""
        sent = False

        async def trace(event: str, _info: object) -> None:
            nonlocal sent
            sent = sent or event.startswith("http11.send_request")

        given = {
            "host": parse_url(url).origin_header,
            "content-type": "application/json",
            "user-agent": "recloser",
            "content-length": str(len(body)),
            **headers,
        }
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                self._connections().stream(
                    "POST",
                    parse_url(url).core,
                    headers=[(name.encode(), value.encode()) for name, value in given.items()],
                    content=body,
                    extensions={"trace": trace},
                ) as response,
            ):
                text = await _beginning(response) if read_body else ""
                told = {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in response.headers}
                return Answer(response.status, told, text)
        except TimeoutError:
            return Failed(f"no answer within {self._timeout_s:g} s", unsure=sent)
        except AddressRefused as error:
            return Failed(f"refused: {error}")
        except _TROUBLE as error:
            return Failed(_said(error), unsure=sent)

    async def close(self) -> None:
        """Close the connections. Safe to call twice."""
        if self._pool is not None:
            await self._pool.aclose()
            self._pool = None

    def _connections(self) -> httpcore.AsyncConnectionPool:
        if self._pool is None:
            trust = ssl.create_default_context(cafile=self._ca_file) if self._ca_file else None
            self._pool = httpcore.AsyncConnectionPool(
                ssl_context=trust, max_connections=4, keepalive_expiry=30.0, network_backend=self._backend
            )
        return self._pool


def judge(answer: Answer | Failed, at_s: int) -> Result:
    """Say what an answer means to whoever has no reason to read it otherwise.

    2xx is success, 410 is goodbye, everything else is tried again.
    """
    if isinstance(answer, Failed):
        return answer
    status = answer.status
    if 200 <= status < 300:  # noqa: PLR2004 - HTTP's numbers
        return Delivered(status)
    if status == httpx.codes.GONE:
        return Gone("410 Gone: the receiver wants nothing more", status)
    reason = f"HTTP {status}"
    if 300 <= status < 400:  # noqa: PLR2004 - HTTP's numbers
        reason += ": redirects are not followed"
    elif said := " ".join(answer.body.split())[:_SHOWN]:
        reason += f": {said}"
    retry_after = parse_retry_after(answer.headers.get("retry-after"), at_s)
    return Failed(reason, status, retry_after, status in _ABOUT_MESSAGE, status in _UNSURE)


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


@dataclass(frozen=True, slots=True)
class Url:
    """An http address, taken apart."""

    core: httpcore.URL
    origin_header: str
    host: bytes


def parse_url(url: str) -> Url:
    """Take an address apart. Raises `ValueError` when it is none that can be posted to."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ValueError(f"is no address: {error}") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ValueError("must be an http or https address with a host")
    if parsed.userinfo:
        raise ValueError("must not hold a user or password: addresses are shown and logged")
    core = httpcore.URL(
        scheme=parsed.raw_scheme, host=parsed.raw_host, port=parsed.port, target=parsed.raw_path
    )
    return Url(core, parsed.netloc.decode("ascii"), parsed.raw_host)


async def _beginning(response: httpcore.Response) -> str:
    read = b""
    async for part in response.aiter_stream():
        read += part
        if len(read) >= _MAX_ANSWER:
            break
    return read[:_MAX_ANSWER].decode("utf-8", "replace")


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": ")


def rfc3339(ns: int) -> str:
    """Write a moment (unix ns) as RFC 3339 in UTC with milliseconds.

    >>> rfc3339(1_700_000_000_123_456_789)
    '2023-11-14T22:13:20.123Z'
    """
    moment = datetime.fromtimestamp(ns // 1_000_000_000, tz=UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ns // 1_000_000 % 1000:03d}Z"
