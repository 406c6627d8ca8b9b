"""Prometheus Alertmanager, `POST /api/v2/alerts`, with everything that it expects of those who send.

It keeps alerts in memory only, and of each cluster's members every one must be told: so whatever fires is
told again to all of them long before it would lapse, and what is over for some minutes more. An alert is its
labels; ours have few values, and what names a single run stands in annotations. Alerts with equal labels
are one alert there: it is resolved when the last of them is.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

import orjson

from control.notifiers.common import DestinationConfig, dedup_key, link, text_of
from control.notifiers.http import Http, judge, rfc3339
from control.notifiers.protocol import (
    RESOLVED,
    Audience,
    Capabilities,
    Delivered,
    Failed,
    Gone,
    Message,
    Notice,
    Refused,
    Result,
)
from control.notifiers.shorten import cut
from control.plain import plain
from control.wording import Wording

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from collector.step import Json

_log = logging.getLogger(__name__)
_LAPSES_AFTER: Final = 4  # refreshes that must fail in a row before it lets an alert lapse
_MAX_LABEL: Final = 200
_MAX_ANNOTATION: Final = 8000
_LABELS: Final = ("kind", "severity", "service", "agent", "tool")
_IDS: Final = ("alert_id", "episode", "session_id", "run_id", "trace_id", "cause", "next_step")
_NS: Final = 1_000_000_000
_BATCH: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertmanagerConfig(DestinationConfig):
    """Base addresses (without `/api/v2`) of every member of the cluster, never of a balancer before it.

    `labels` are added to every alert. What fires is told again every `refresh_s`; what is over, for
    `resolved_for_s` more. `authorization` is sent as that header. Raises `ValueError` naming the wrong key.
    """

    SECTION: ClassVar[str] = "alertmanagers"

    urls: tuple[str, ...]
    labels: Mapping[str, str] = field(default_factory=dict)
    refresh_s: float = 60.0
    resolved_for_s: float = 600.0
    authorization: str = ""

    def __post_init__(self) -> None:
        """Check every key."""
        self.check()
        if not self.urls:
            raise ValueError(f"{self.where}.urls: at least one address is needed")
        for position, url in enumerate(self.urls):
            self.check_url(f"urls[{position}]", url)
        if not self.refresh_s > 0:
            raise ValueError(f"{self.where}.refresh_s: must be more than 0 seconds")
        if self.resolved_for_s < 300:  # noqa: PLR2004 - Alertmanager's own rule for those who send
            raise ValueError(f"{self.where}.resolved_for_s: must be 300 seconds or more")
        for label in self.labels:
            if not (label.isascii() and label.isidentifier()):
                raise ValueError(f"{self.where}.labels: {label!r} is no name of a label")


class Alertmanager:
    """Tells every member of one cluster."""

    def __init__(
        self,
        config: AlertmanagerConfig,
        *,
        template: str = "",
        on_broken: Callable[[str], None] = lambda _kind: None,
    ) -> None:
        self._config = config
        self.refresh_s = config.refresh_s
        self.resolved_for_s = config.resolved_for_s
        self.wording = Wording("alertmanager", plain, override=template, on_broken=on_broken)
        self._https = tuple(
            Http(config.timeout_s, allow_private=config.allow_private, ca_file=config.ca_file)
            for _ in config.urls
        )
        self._away: set[str] = set()
        self.capabilities = Capabilities(
            audience=Audience.PAGER,
            closes=True,
            fallback=config.fallback,
            fallback_after_s=config.fallback_after_s,
        )

    @property
    def address(self) -> str:
        """All members."""
        return " ".join(self._config.urls)

    def render(self, notice: Notice) -> bytes:
        """Write one alert without `endsAt`, which depends on when it is sent."""
        data = notice.data
        annotations = {
            "summary": self.wording.render("summary", data),
            "description": self.wording.render("text", data),
            **{name: text_of(data, name) for name in _IDS},
            **{f"{name}_url": link(data, name) for name in ("run", "dashboard", "handoff", "stop")},
        }
        alert = {
            "labels": labels_of(data, notice.type) | dict(self._config.labels),
            "annotations": {k: cut(v, _MAX_ANNOTATION) for k, v in annotations.items() if v},
            "startsAt": rfc3339(notice.at_ns),
        }
        if url := link(data, "run"):
            alert["generatorURL"] = url
        return orjson.dumps(alert)

    def group(self, body: bytes) -> str:
        """Name the alert as Alertmanager does: by its labels."""
        return fingerprint(orjson.loads(body)["labels"])

    async def send(self, message: Message, at_s: int) -> Result:
        """Tell every member; it is delivered when one took it, for the others hear of it at the next refresh.

        One alert only is sent: 400 means that this one is not valid, and never will be.
        """
        result = await self._post([self._alert(message, at_s)], at_s)
        if isinstance(result, Failed) and result.status == 400:  # noqa: PLR2004 - HTTP's number
            return Refused(result.reason, result.status)
        return result

    async def refresh(self, messages: Sequence[Message], at_s: int) -> Result:
        """Tell all of it again. A 400 means that the valid ones were taken."""
        result: Result = Delivered(200)
        for start in range(0, len(messages), _BATCH):
            batch = [self._alert(message, at_s) for message in messages[start : start + _BATCH]]
            one = await self._post(batch, at_s)
            if isinstance(one, Failed) and one.status == 400:  # noqa: PLR2004 - HTTP's number
                one = Delivered(400, one.reason)
            if not isinstance(one, Delivered) or one.note:
                result = one
        return result

    async def close(self) -> None:
        """Close the connections."""
        for http in self._https:
            await http.close()

    def _alert(self, message: Message, at_s: int) -> dict[str, Any]:
        alert: dict[str, Any] = orjson.loads(message.body)
        if message.type != RESOLVED:
            return alert | {"endsAt": rfc3339(int((at_s + _LAPSES_AFTER * self.refresh_s) * _NS))}
        ended = alert["startsAt"]
        if message.opening is not None:
            opening = orjson.loads(message.opening)
            alert |= {"labels": opening["labels"], "startsAt": opening["startsAt"]}
        return alert | {"endsAt": ended}

    async def _post(self, alerts: list[dict[str, Any]], at_s: int) -> Result:
        body = orjson.dumps(alerts)
        given = {"authorization": self._config.authorization} if self._config.authorization else {}
        results = await asyncio.gather(
            *(
                http.post(f"{url.rstrip('/')}/api/v2/alerts", body, given, read_body=True)
                for http, url in zip(self._https, self._config.urls, strict=True)
            )
        )
        judged = [_without_goodbye(judge(answer, at_s)) for answer in results]
        self._tell_away(judged)
        taken = next((result for result in judged if isinstance(result, Delivered)), None)
        return taken or _worst(result for result in judged if isinstance(result, Failed))

    def _tell_away(self, judged: Sequence[Result]) -> None:
        for url, result in zip(self._config.urls, judged, strict=True):
            if isinstance(result, Delivered):
                self._away.discard(url)
            elif url not in self._away and len(judged) > 1:
                self._away.add(url)
                _log.warning("%s: the member %s: %s", self._config.name, url, getattr(result, "reason", ""))


def labels_of(data: Mapping[str, Json], what: str = "") -> dict[str, str]:
    """Label an alert by what has few values; empty ones are left out. `what` names one without a kind.

    >>> labels_of({"kind": "flail", "agent": None, "session_id": "s"}), labels_of({}, "heartbeat")
    ({'alertname': 'RecloserFlail', 'kind': 'flail'}, {'alertname': 'RecloserHeartbeat'})
    """
    kind = text_of(data, "kind") or what.rpartition(".")[2]
    named = "".join(part.capitalize() for part in kind.split("_"))
    found = {name: cut(text_of(data, name), _MAX_LABEL) for name in _LABELS}
    return {"alertname": f"Recloser{named}"} | {name: value for name, value in found.items() if value}


def fingerprint(labels: Mapping[str, str]) -> str:
    """Name a set of labels: 16 hex digits."""
    told = orjson.dumps(sorted(labels.items()))
    return hashlib.sha256(told).hexdigest()[:16]


def fingerprint_of_alert(data: Mapping[str, Json]) -> str:
    """Name one alert: 16 hex digits, equal in all its episodes."""
    return dedup_key(data)[:16]


def _without_goodbye(result: Result) -> Result:
    """Alertmanager never says goodbye: a 410 comes from something before it, and will pass."""
    return Failed(result.reason, result.status) if isinstance(result, Gone) else result


def _worst(failures: Iterable[Failed]) -> Failed:
    """Join the failures of all members: unsure when one is, about the message only when all are."""
    every = list(failures)
    first = next((one for one in every if not one.about_message), every[0])
    return replace(
        first,
        unsure=any(one.unsure for one in every),
        about_message=all(one.about_message for one in every),
        reason="; ".join(dict.fromkeys(one.reason for one in every)),
    )
