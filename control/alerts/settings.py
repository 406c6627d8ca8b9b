"""The settings of alerts."""

from __future__ import annotations

from dataclasses import dataclass, fields

from detectors.notes import RECENT_KEPT


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertSettings:
    """Times in seconds. `docs/alerts.md` says what each does; 0 turns off what has a 0 as default.

    Raises `ValueError` that names the key.
    """

    min_firing_s: float = 0.0
    keep_firing_s: float = 60.0
    quiet_calls: int = 8
    idle_s: float = 1800.0
    flap_threshold: int = 4
    flap_window_s: float = 3600.0
    no_data_s: float = 0.0
    ingest_lag_s: float = 60.0
    delivery_lag_s: float = 300.0
    heartbeat_s: float = 0.0
    heartbeat_to: str = ""
    public_url: str = ""
    dashboard_url: str = ""

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        for one in fields(self):
            value = getattr(self, one.name)
            if isinstance(value, (int, float)) and not value >= 0:
                raise ValueError(f"alerts.{one.name}: must be 0 or more")
        if not 1 <= self.quiet_calls <= RECENT_KEPT:
            raise ValueError(f"alerts.quiet_calls: must be 1 to {RECENT_KEPT}: more calls are not noted")
        if self.flap_threshold == 1:
            raise ValueError("alerts.flap_threshold: must be 0 (never) or at least 2")
        if self.heartbeat_s and not self.heartbeat_to:
            raise ValueError("alerts.heartbeat_to: name the destination of heartbeats")
        for name in ("public_url", "dashboard_url"):
            url: str = getattr(self, name)
            if url and not url.startswith(("http://", "https://")):
                raise ValueError(f"alerts.{name}: must start with http:// or https://")
