"""What the control process counts about itself, for Prometheus. The registry is handed in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Counter, Gauge, Histogram

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class ControlMetrics:
    """All metrics of alerts, deliveries, breakers and checks; `docs/api.md` lists them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.findings = Counter(
            "recloser_control_findings",
            "Revisions of findings that control decided on.",
            ["kind", "severity"],
            registry=registry,
        )
        self.malformed = Counter(
            "recloser_control_findings_malformed",
            "Rows of the spool that were no findings.",
            registry=registry,
        )
        self.decision_lag = Histogram(
            "recloser_control_decision_lag_seconds",
            "From a finding's row in the spool to the decision on disk.",
            registry=registry,
            buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60),
        )
        self.alerts = Counter(
            "recloser_alerts",
            "Changes of alerts (pend, fire, cover, flap, update, hold, tell, ack, resolve, expire).",
            ["event"],
            registry=registry,
        )
        self.attempts = Counter(
            "recloser_delivery_attempts",
            "Attempts to deliver (delivered, retry, dead, disabled).",
            ["destination", "result"],
            registry=registry,
        )
        self.delivery_lag = Histogram(
            "recloser_delivery_lag_seconds",
            "From the alert to its delivery.",
            ["destination"],
            registry=registry,
            buckets=(0.05, 0.1, 0.25, 0.5, 1, 2, 5, 15, 60, 300, 3600, 86400),
        )
        self.oldest_pending = Gauge(
            "recloser_delivery_oldest_seconds",
            "For how long the oldest message has been waiting.",
            ["destination"],
            registry=registry,
        )
        self.diverted = Counter(
            "recloser_delivery_diverted",
            "Messages given to a fallback because this destination took none for too long.",
            ["destination"],
            registry=registry,
        )
        self.refreshes = Counter(
            "recloser_delivery_refreshes",
            "Times that a destination that forgets was told everything again (delivered, failed).",
            ["destination", "result"],
            registry=registry,
        )
        self.template_failures = Counter(
            "recloser_template_failures",
            "Messages written with the default text because the user's template failed.",
            ["template"],
            registry=registry,
        )
        self.pending = Gauge(
            "recloser_outbox_pending", "Messages that wait for delivery.", ["destination"], registry=registry
        )
        self.disabled = Gauge(
            "recloser_destination_disabled",
            "1 when a destination answered 410 and gets nothing more.",
            ["destination"],
            registry=registry,
        )
        self.given_up = Counter(
            "recloser_outbox_expired",
            "Messages that were given up: they waited for too long, were refused, or could not be written.",
            registry=registry,
        )
        self.breaker_changes = Counter(
            "recloser_breaker_changes",
            "Changes of breakers by event (trip, shadow_trip, escalate, latch, cool_down, probe_ok, "
            "probe_failed, reset, expire, force_open, force_close, release, resume, shadow).",
            ["event"],
            registry=registry,
        )
        self.trips_refused = Counter(
            "recloser_breaker_trips_refused",
            "Automatic trips that are never done (a whole tenant).",
            registry=registry,
        )
        self.breakers_open = Gauge(
            "recloser_breakers_open", "Breakers that refuse calls now.", registry=registry
        )
        self.watchers = Gauge(
            "recloser_watchers", "Clients that follow the breakers by event stream.", registry=registry
        )
        self.stale_clients = Gauge(
            "recloser_clients_stale",
            "Clients that have not acknowledged the newest change for half a minute.",
            registry=registry,
        )
        self.watch_resets = Counter(
            "recloser_watch_resets", "Times a client was too slow and had to begin anew.", registry=registry
        )
        self.propagation = Histogram(
            "recloser_breaker_propagation_seconds",
            "From the commit of a breaker's change to its acknowledgement by a client.",
            registry=registry,
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60),
        )
        self.checks = Counter(
            "recloser_checks", "Answers to checks (allow, deny, halt).", ["decision"], registry=registry
        )
        self.checks_over_limit = Counter(
            "recloser_checks_over_limit",
            "Checks above limits.check_per_s, answered all the same up to ten times that.",
            registry=registry,
        )
        self.refused_requests = Counter(
            "recloser_api_refused",
            "Requests refused by authorization (401, 403) or by a limit (429).",
            ["status"],
            registry=registry,
        )
        self.policy_reloads = Counter(
            "recloser_policy_reloads",
            "Readings of the policy file that found something new (loaded, broken).",
            ["result"],
            registry=registry,
        )
        self.policy_broken = Gauge(
            "recloser_policy_broken",
            "1 while the policy file is broken and the policy before it is in force.",
            registry=registry,
        )
        self.mode_changes = Counter(
            "recloser_mode_changes",
            "Changes of modes of agents (began, ended, by_hand, expired).",
            ["event"],
            registry=registry,
        )
        self.modes_holding = Gauge(
            "recloser_modes_holding", "Rules that keep agents from their full mode now.", registry=registry
        )
        self.modes_by_hand = Gauge(
            "recloser_modes_by_hand", "Agents whose mode a person has set.", registry=registry
        )
