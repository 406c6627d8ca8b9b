"""What the settings of every destination have in common, and how its data are read."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from control.notifiers.guard import never_allowed
from control.notifiers.http import parse_url

if TYPE_CHECKING:
    from collections.abc import Mapping

    from collector.step import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationConfig:
    """Settings that every destination has.

    `timeout_s` bounds one whole attempt. `fallback` names the destination that stands in after
    `fallback_after_s` seconds without success. `allow_private`: its name may lead to a private or
    loopback address (one that the URL spells out needs no leave). `ca_file`: certificates to trust instead
    of the usual ones, PEM. Raises `ValueError` naming the key that makes no sense.
    """

    SECTION: ClassVar[str] = ""

    name: str
    timeout_s: float = 15.0
    fallback: str = ""
    fallback_after_s: float = 300.0
    allow_private: bool = False
    ca_file: str = ""

    @property
    def where(self) -> str:
        """What errors call it."""
        return f"{self.SECTION}.{self.name}"

    def check(self) -> None:
        """Check the keys that all have."""
        if not self.name:
            raise ValueError(f"{self.SECTION}.name: must not be empty")
        if not self.timeout_s > 0:
            raise ValueError(f"{self.where}.timeout_s: must be more than 0 seconds")
        if not self.fallback_after_s >= 0:
            raise ValueError(f"{self.where}.fallback_after_s: must not be negative")
        if self.fallback == self.name:
            raise ValueError(f"{self.where}.fallback: must be another destination")
        if self.ca_file and not Path(self.ca_file).is_file():
            raise ValueError(f"{self.where}.ca_file: {self.ca_file} is no file")

    def check_url(self, key: str, url: str) -> None:
        """Check an address. Raises `ValueError` naming `key`."""
        try:
            parsed = parse_url(url)
        except ValueError as error:
            raise ValueError(f"{self.where}.{key}: {error}") from None
        if reason := never_allowed(parsed.host.decode()):
            raise ValueError(f"{self.where}.{key}: {reason}")


def dedup_key(data: Mapping[str, Json]) -> str:
    """Name one alert: SHA-256 of tenant and alert, 64 hex digits, equal in all its episodes.

    Kind and session are left out, because both can change while an alert fires.

    >>> dedup_key({"alert_id": "al_1"}) == dedup_key({"alert_id": "al_1", "kind": "flail"})
    True
    """
    labels = data.get("labels")
    tenant = labels.get("tenant") if isinstance(labels, dict) else None
    named = f"{tenant or data.get('tenant') or 'default'}|{data.get('alert_id') or ''}"
    return hashlib.sha256(named.encode("utf-8", "replace")).hexdigest()


def text_of(data: Mapping[str, Json], key: str) -> str:
    """Read a field as text; empty when it is missing.

    >>> text_of({"calls": 3, "tool": None}, "calls"), text_of({"tool": None}, "tool")
    ('3', '')
    """
    value = data.get(key)
    return "" if value is None or isinstance(value, dict | list) else str(value)


def link(data: Mapping[str, Json], key: str) -> str:
    """Return one of the alert's links when it is an http address, else nothing."""
    links = data.get("links")
    value = links.get(key) if isinstance(links, dict) else None
    return value if isinstance(value, str) and value.startswith(("http://", "https://")) else ""
