"""Every kind of destination. Adding one: its file with a config and a class, and its line here."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, assert_never

from control.notifiers.webhook import Webhook, WebhookConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from control.notifiers.protocol import Notifier

NotifierConfig: TypeAlias = WebhookConfig


def build(configs: Sequence[NotifierConfig]) -> dict[str, Notifier]:
    """Make the notifiers by name. Raises `ValueError` when two have the same name."""
    notifiers: dict[str, Notifier] = {}
    for config in configs:
        if config.name in notifiers:
            raise ValueError(f"two destinations are named {config.name!r}")
        notifiers[config.name] = _build(config)
    return notifiers


def _build(config: NotifierConfig) -> Notifier:
    match config:
        case WebhookConfig():
            return Webhook(config)
    assert_never(config)
