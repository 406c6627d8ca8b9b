"""The payload that Alertmanager posts to webhooks, version 4: for receivers that were made for it.

https://prometheus.io/docs/alerting/latest/configuration/#webhook_config
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import orjson

from control.notifiers.alertmanager import fingerprint_of_alert, labels_of
from control.notifiers.common import DestinationConfig, dedup_key, link, text_of
from control.notifiers.http import Http, judge, rfc3339
from control.notifiers.protocol import RESOLVED, Audience, Capabilities, Message, Notice, Result
from control.notifiers.shorten import cut
from control.plain import plain
from control.wording import Wording

if TYPE_CHECKING:
    from collections.abc import Callable

_NEVER: Final = "0001-01-01T00:00:00Z"
_MAX_ANNOTATION: Final = 8000
_IDS: Final = ("alert_id", "episode", "session_id", "run_id", "cause", "next_step", "resolved_by")


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertmanagerWebhookConfig(DestinationConfig):
    """Where to post. `receiver` and `external_url` are told as Alertmanager would.

    `authorization` is sent as that header: the format has no signature. Raises `ValueError` naming the key
    that makes no sense.
    """

    SECTION: ClassVar[str] = "alertmanager_webhooks"

    url: str
    authorization: str = ""
    receiver: str = "recloser"
    external_url: str = ""

    def __post_init__(self) -> None:
        """Check every key."""
        self.check()
        self.check_url("url", self.url)


class AlertmanagerWebhook:
    """Posts one alert a request, as a group of its own."""

    def __init__(
        self,
        config: AlertmanagerWebhookConfig,
        *,
        template: str = "",
        on_broken: Callable[[str], None] = lambda _kind: None,
    ) -> None:
        self._config = config
        self.wording = Wording("alertmanager_webhook", plain, override=template, on_broken=on_broken)
        self._http = Http(config.timeout_s, allow_private=config.allow_private, ca_file=config.ca_file)
        self.capabilities = Capabilities(
            audience=Audience.PAGER,
            closes=True,
            fallback=config.fallback,
            fallback_after_s=config.fallback_after_s,
        )

    @property
    def address(self) -> str:
        """The URL."""
        return self._config.url

    def render(self, notice: Notice) -> bytes:
        """Write the group."""
        data = notice.data
        labels = labels_of(data, notice.type) | {"alert_id": text_of(data, "alert_id")}
        told = {
            "summary": self.wording.render("summary", data),
            "description": self.wording.render("text", data),
            **{name: text_of(data, name) for name in _IDS},
            **{f"{name}_url": link(data, name) for name in ("run", "dashboard", "handoff", "stop")},
        }
        annotations = {name: cut(value, _MAX_ANNOTATION) for name, value in told.items() if value}
        over = notice.type == RESOLVED
        status = "resolved" if over else "firing"
        started = text_of(data, "fired_at") or text_of(data, "detected_at") or rfc3339(notice.at_ns)
        alert = {
            "status": status,
            "labels": labels,
            "annotations": annotations,
            "startsAt": started,
            "endsAt": rfc3339(notice.at_ns) if over else _NEVER,
            "generatorURL": link(data, "run"),
            "fingerprint": fingerprint_of_alert(data),
        }
        group = {"alertname": labels["alertname"], "alert_id": labels["alert_id"]}
        return orjson.dumps(
            {
                "version": "4",
                "groupKey": f"{{}}:{{alert={dedup_key(data)}}}",
                "truncatedAlerts": 0,
                "receiver": self._config.receiver,
                "status": status,
                "alerts": [alert],
                "groupLabels": group,
                "commonLabels": labels,
                "commonAnnotations": annotations,
                "externalURL": self._config.external_url,
            }
        )

    async def send(self, message: Message, at_s: int) -> Result:
        """Make one attempt."""
        given = {"authorization": self._config.authorization} if self._config.authorization else {}
        return judge(await self._http.post(self._config.url, message.body, given, read_body=True), at_s)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()
