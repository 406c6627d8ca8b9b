"""What the routes work with, built by the process that serves them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from api.auth import Authority
    from api.following import Following
    from api.reload import PolicyKeeper
    from control.budgets import Budgets
    from control.dead_calls import DeadCalls
    from control.modes import Modes
    from control.service import Control
    from control.stop_link import StopLinks
    from control.tokens import TokenBook
    from detectors.notes import Notes

Probe: TypeAlias = Callable[[], str | None]
"""Says what a part is waiting for, or None when it is ready. May block for a second at most."""

MetricsSource: TypeAlias = Callable[[], bytes]
"""Gives another process's metrics as Prometheus text; empty when it cannot be reached."""


def _no_notes(_session_id: str) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """`probes` are asked by `/readyz`; `metrics_sources` are appended to `/metrics`.

    What the probes in `asides` say is shown by `/readyz`, too, and keeps nobody from being ready.
    `notes_of` gives what ingest has noted of a session, None when there is nothing.
    """

    control: Control
    authority: Authority
    tokens: TokenBook
    policy: PolicyKeeper
    modes: Modes
    following: Following
    budgets: Budgets
    dead_calls: DeadCalls
    stop_links: StopLinks
    registry: CollectorRegistry
    now_ns: Callable[[], int]
    probes: Mapping[str, Probe] = field(default_factory=dict)
    asides: Mapping[str, Probe] = field(default_factory=dict)
    metrics_sources: tuple[MetricsSource, ...] = ()
    notes_of: Callable[[str], Notes | None] = _no_notes
