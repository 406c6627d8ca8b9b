"""What alerting reads and links to, out of the settings and the files of the data directory."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from control.alerts.desk import AlertParts
from control.alerts.settings import AlertSettings
from control.conditions import SpoolLag
from control.facts import SpoolNotes
from control.handoff.brief import brief
from control.notices import Links
from control.stop_link import StopLinks, load_key

LINK_KEY: Final = "link.key"
_ANY: Final = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - recognized, not bound to


def alert_settings(
    given: Mapping[str, Any], destinations: Collection[str], host: str, port: int
) -> AlertSettings:
    """Read `[alerts]`; links begin with this machine's API unless `public_url` says otherwise.

    Raises `ValueError` that names the key.
    """
    settings = AlertSettings(**given)
    if settings.heartbeat_to and settings.heartbeat_to not in destinations:
        raise ValueError(f"alerts.heartbeat_to: no destination is named {settings.heartbeat_to!r}")
    return settings if settings.public_url else replace(settings, public_url=_local(host, port))


def stop_links(settings: AlertSettings, folder: Path) -> StopLinks:
    """Make what signs and checks links that stop a session. Raises what `load_key` does."""
    return StopLinks(load_key(folder / LINK_KEY), settings.public_url, time.time_ns)


def alert_parts(settings: AlertSettings, links: StopLinks, spool_path: Path) -> AlertParts:
    """Put together what alerting reads of the spool, and where its messages link to."""
    notes = SpoolNotes(spool_path)
    return AlertParts(
        settings=settings,
        notes_of=notes.get,
        brief_of=brief,
        links=Links(
            public_url=settings.public_url,
            dashboard_url=settings.dashboard_url,
            stop_of=links.of,
        ),
        oldest_unread=SpoolLag(spool_path).oldest,
        pulse=notes.pulse,
    )


def _local(host: str, port: int) -> str:
    """The API's address on this machine; empty while the port is not known."""
    if not port:
        return ""
    name = "127.0.0.1" if host in _ANY else f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}"
