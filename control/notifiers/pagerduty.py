"""PagerDuty Events API v2 (https://developer.pagerduty.com/docs/events-api-v2-overview).

An accepted event (202) is processed later. A trigger opens an incident or adds to the open one of its
`dedup_key`; acknowledge and resolve without an open incident are dropped. A trigger that comes after its
resolve would open an incident that nobody ends: the outbox keeps the order.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final

import orjson

from control.notifiers.common import DestinationConfig, dedup_key, link, text_of
from control.notifiers.http import Http, judge, rfc3339
from control.notifiers.protocol import (
    ACKNOWLEDGED,
    RESOLVED,
    Audience,
    Capabilities,
    Failed,
    Message,
    Notice,
    Refused,
    Result,
)
from control.notifiers.shorten import bare, cut, shortened
from control.plain import plain
from control.wording import Wording

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from collector.step import Json

MAX_DEDUP_KEY: Final = 255
MAX_SUMMARY: Final = 1024
MAX_EVENT_BYTES: Final = 512_000
_KEY_ROOM: Final = 100  # of the routing key, added when it is sent
_MAX_SOURCE: Final = 255
_MIN_PAUSE_S: Final = 120.0
"""After 429: the documentation asks for minutes."""
_KEY_LENGTH: Final = 32
_URL: Final = "https://events.pagerduty.com/v2/enqueue"
_SEVERITIES: Final = frozenset({"critical", "error", "warning", "info"})
_DETAILS: Final = (
    "alert_id",
    "episode",
    "kind",
    "session_id",
    "run_id",
    "tool",
    "since",
    "calls",
    "tokens",
    "cost_usd",
    "tried",
    "cause",
    "next_step",
    "breakers",
    "resolved_by",
    "note",
    "handoff",
)
_LINKS: Final = (
    ("run", "Run"),
    ("dashboard", "Dashboard"),
    ("handoff", "Hand-off"),
    ("stop", "Stop this run"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PagerDutyConfig(DestinationConfig):
    """The integration key of a service, 32 characters. Raises `ValueError` naming the key that is wrong."""

    SECTION: ClassVar[str] = "pagerduty"

    routing_key: str
    url: str = _URL

    def __post_init__(self) -> None:
        """Check every key."""
        self.check()
        self.check_url("url", self.url)
        if len(self.routing_key) != _KEY_LENGTH or not self.routing_key.isalnum():
            raise ValueError(f"{self.where}.routing_key: must have {_KEY_LENGTH} letters and digits")


class PagerDuty:
    """Opens, acknowledges and resolves incidents of one service."""

    def __init__(
        self,
        config: PagerDutyConfig,
        *,
        template: str = "",
        on_broken: Callable[[str], None] = lambda _kind: None,
    ) -> None:
        self._config = config
        self.wording = Wording("pagerduty", plain, override=template, on_broken=on_broken)
        self._http = Http(config.timeout_s, allow_private=config.allow_private, ca_file=config.ca_file)
        self.capabilities = Capabilities(
            audience=Audience.PAGER,
            acknowledges=True,
            closes=True,
            beats=False,
            rate_per_s=2.0,
            burst=10,
            fallback=config.fallback,
            fallback_after_s=config.fallback_after_s,
        )

    @property
    def address(self) -> str:
        """The URL and a hash of the key: another key is another service."""
        return f"{self._config.url}#{hashlib.sha256(self._config.routing_key.encode()).hexdigest()[:16]}"

    def render(self, notice: Notice) -> bytes:
        """Write an event without its routing key, which is added when it is sent."""
        for data in (notice.data, shortened(notice.data), bare(notice.data)):
            event = self._event(notice, data)
            if len(event) <= MAX_EVENT_BYTES - _KEY_ROOM:
                return event
        return self._event(notice, {"alert_id": cut(text_of(notice.data, "alert_id"), _MAX_SOURCE)})

    def group(self, body: bytes) -> str:
        """Name the incident: its key."""
        return str(orjson.loads(body)["dedup_key"])

    async def send(self, message: Message, at_s: int) -> Result:
        """Make one attempt. 400 means that it will never be taken."""
        event = orjson.loads(message.body) | {"routing_key": self._config.routing_key}
        if message.opening is not None:
            event["dedup_key"] = orjson.loads(message.opening)["dedup_key"]
        answer = await self._http.post(self._config.url, orjson.dumps(event), {}, read_body=True)
        result = judge(answer, at_s)
        if isinstance(result, Failed):
            result = replace(result, reason=result.reason.replace(self._config.routing_key, "…"))
            if result.status == 400:  # noqa: PLR2004 - HTTP's number
                return Refused(result.reason, result.status)
            if result.status == 429:  # noqa: PLR2004 - HTTP's number
                return replace(result, retry_after=max(result.retry_after or 0.0, _MIN_PAUSE_S))
        return result

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    def _event(self, notice: Notice, data: Mapping[str, Json]) -> bytes:
        key = (text_of(notice.data, "dedup_key") or dedup_key(notice.data))[:MAX_DEDUP_KEY]
        if notice.type in (RESOLVED, ACKNOWLEDGED):
            action = "resolve" if notice.type == RESOLVED else "acknowledge"
            return orjson.dumps({"event_action": action, "dedup_key": key})
        severity = text_of(data, "severity")
        summary = self.wording.render("summary", data)
        return orjson.dumps(
            {
                "event_action": "trigger",
                "dedup_key": key,
                "client": "Recloser",
                **({"client_url": url} if (url := link(data, "run")) else {}),
                "links": [
                    {"href": href, "text": text} for name, text in _LINKS if (href := link(data, name))
                ],
                "payload": {
                    "summary": cut(summary, MAX_SUMMARY),
                    "source": cut(text_of(data, "service") or "recloser", _MAX_SOURCE),
                    "severity": severity if severity in _SEVERITIES else "info",
                    "timestamp": rfc3339(notice.at_ns),
                    "component": cut(text_of(data, "agent"), _MAX_SOURCE),
                    "group": cut(text_of(data, "service"), _MAX_SOURCE),
                    "class": cut(text_of(data, "kind"), _MAX_SOURCE),
                    "custom_details": {
                        "description": self.wording.render("text", data),
                        **{name: data[name] for name in _DETAILS if data.get(name) is not None},
                    },
                },
            }
        )
