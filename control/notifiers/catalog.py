"""Every kind of destination. Adding one: its file with a config and a class, and its line in `KINDS`.

A kind's settings are a list under the name that its config gives as `SECTION` (`api/config.py`).
"""

from __future__ import annotations

from dataclasses import fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from control.notifiers.alertmanager import Alertmanager, AlertmanagerConfig
from control.notifiers.alertmanager_webhook import AlertmanagerWebhook, AlertmanagerWebhookConfig
from control.notifiers.common import DestinationConfig
from control.notifiers.pagerduty import PagerDuty, PagerDutyConfig
from control.notifiers.slack import Slack, SlackConfig
from control.notifiers.webhook import Webhook, WebhookConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from control.notifiers.protocol import Notifier

NotifierConfig: TypeAlias = DestinationConfig

KINDS: Final[Mapping[type[DestinationConfig], Callable[..., Notifier]]] = MappingProxyType(
    {
        WebhookConfig: Webhook,
        AlertmanagerConfig: Alertmanager,
        AlertmanagerWebhookConfig: AlertmanagerWebhook,
        PagerDutyConfig: PagerDuty,
        SlackConfig: Slack,
    }
)


def configs(settings: Mapping[str, Any]) -> tuple[NotifierConfig, ...]:
    """Read every destination out of the settings (plain data, a list a section).

    Raises `ValueError` naming the key that makes no sense.
    """
    found: list[NotifierConfig] = []
    for kind in KINDS:
        for item in settings.get(kind.SECTION, ()):
            given: dict[str, Any] = {
                f.name: _given(item[f.name]) for f in fields(kind) if item.get(f.name) is not None
            }
            found.append(kind(**given))
    return tuple(found)


def build(
    configs: Sequence[NotifierConfig],
    *,
    templates: Mapping[str, str] = MappingProxyType({}),
    on_broken: Callable[[str], None] = lambda _kind: None,
) -> dict[str, Notifier]:
    """Make the notifiers by name.

    `templates` are paths of the user's templates by section; `on_broken` is told the kind of one that failed.
    Raises `ValueError` when two have the same name, or a fallback is none of them.
    """
    notifiers: dict[str, Notifier] = {}
    for config in configs:
        if config.name in notifiers:
            raise ValueError(f"two destinations are named {config.name!r}")
        make = KINDS[type(config)]
        worded = config.SECTION in TEMPLATED
        given = {"template": templates.get(config.SECTION, ""), "on_broken": on_broken} if worded else {}
        notifiers[config.name] = make(config, **given)
    for config in configs:
        if config.fallback and config.fallback not in notifiers:
            raise ValueError(f"{config.where}.fallback: no destination is named {config.fallback!r}")
    return notifiers


TEMPLATED: Final = tuple(kind.SECTION for kind in KINDS if kind is not WebhookConfig)
"""Sections whose destinations say what templates say."""


def _given(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value
