"""Every setting: one model, from flags, `RECLOSER_*` variables and a TOML file, in that precedence."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import unquote, urlsplit, urlunsplit

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from api.policykeys import Action, Reach

Port = Annotated[int, Field(ge=0, le=65535)]


class ConfigError(Exception):
    """A setting is wrong; the message names its key."""


class Section(BaseModel):
    """A part of the configuration; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Tls(Section):
    """Certificate and key (PEM files) of the OTLP receivers; both or none."""

    cert: Path | None = Field(None, description="Certificate chain, PEM")
    key: Path | None = Field(None, description="Private key, PEM")

    @model_validator(mode="after")
    def _both(self) -> Self:
        if (self.cert is None) != (self.key is None):
            raise ValueError("cert and key go together")
        return self


class Ingest(Section):
    """The OTLP receivers and the spool."""

    max_body_bytes: int = Field(
        64 * 1024**2, gt=0, description="Largest request, before and after decompression"
    )
    max_in_flight_bytes: int = Field(
        256 * 1024**2, gt=0, description="Request bytes in memory over all requests"
    )
    read_timeout_s: float = Field(30.0, gt=0, description="Seconds in which a request must have come in")
    spool_max_bytes: int = Field(2 * 1024**3, gt=0, description="Spooled bytes at which requests are refused")
    dedup_horizon_s: float = Field(6 * 3600.0, gt=0, description="How long a span sent again is recognized")
    order_window_ms: int = Field(500, ge=0, description="How long steps wait to be put in order")
    flush_interval_s: float = Field(1.0, gt=0, description="Seconds between inserts")
    flush_rows: int = Field(10_000, gt=0, description="Rows at which an insert does not wait")


class ClickHouse(Section):
    """Where spans are kept. No URL: the embedded store under the data directory."""

    url: str | None = Field(
        None, description="HTTP interface of a server (may hold user and password); none: the embedded store"
    )
    user: str = Field("default", description="User of the server")
    password: SecretStr = Field(SecretStr(""), description="Password of that user")
    memory_bytes: int = Field(1_000_000_000, gt=0, description="Memory limit of the embedded engine")

    @model_validator(mode="before")
    @classmethod
    def _without_credentials(cls, given: Any) -> Any:  # noqa: ANN401 - not validated yet
        """Take user and password out of the URL, which is shown and logged."""
        url = given.get("url") if isinstance(given, dict) else None
        parts = urlsplit(url) if isinstance(url, str) and "@" in url else None
        if parts is None or parts.username is None:
            return given
        bare = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
        password = {} if parts.password is None else {"password": unquote(parts.password)}
        return {**given, "url": bare, "user": unquote(parts.username), **password}

    @field_validator("url")
    @classmethod
    def _http(cls, url: str | None) -> str | None:
        if url is not None and not url.startswith(("http://", "https://")):
            raise ValueError("must start with http:// or https:// (the HTTP interface, usually port 8123)")
        return url


class Retention(Section):
    """Days until rows are dropped, whole days at a time; 0 keeps them for ever."""

    spans_days: int = Field(30, ge=0, description="Days that spans and logs are kept")
    steps_days: int = Field(60, ge=0, description="Days that steps are kept")
    findings_days: int = Field(
        365, ge=0, description="Days that findings, failures, alerts, breaker events are kept"
    )


class Recovery(Section):
    """When a failed call counts as recovered, and until when it is followed."""

    calls: int = Field(5, gt=0, description="Attempts at an operation within which it must succeed")
    retries: int = Field(3, ge=0, description="Same calls among them at most")
    horizon_calls: int = Field(50, gt=0, description="Calls without coming back that abandon a failure")
    idle_s: float = Field(1800.0, gt=0, description="Seconds without a step that abandon all of an agent's")
    backoff_s: float = Field(2.0, ge=0, description="Seconds after which a retry is one with back-off")


class Prices(Section):
    """What models cost, for reports."""

    file: Path | None = Field(None, description="Price table of reports, TOML; none: the one shipped")


class Redaction(Section):
    """What is taken out of spans before anything is written, besides secrets of common shapes."""

    keys: tuple[str, ...] = Field(
        (), description="Names whose values are secret, of attributes and inside JSON"
    )
    patterns: tuple[str, ...] = Field((), description="Regular expressions (RE2) of what is secret")
    hash_only: bool = Field(
        default=False, description="Keep no content, only hashes by which calls still compare"
    )


class Destination(Section):
    """What every destination of alerts has; `control/notifiers/common.py` has the same keys."""

    timeout_s: float = Field(15.0, gt=0, description="Longest that one attempt may take")
    fallback: str = Field("", description="Destination that stands in when this one takes nothing")
    fallback_after_s: float = Field(300.0, ge=0, description="Seconds after which it does")
    allow_private: bool = Field(default=False, description="Its name may lead to a private address")
    ca_file: Path | None = Field(None, description="Certificates to trust instead of the usual ones, PEM")


class Webhook(Destination):
    """One destination of alerts, signed by Standard Webhooks. Several secrets: rotation."""

    name: str = Field("default", description="Its name in the ledger and in metrics")
    url: str = Field(description="http or https address")
    secrets: tuple[SecretStr, ...] = Field(
        min_length=1, description="`whsec_` and base64 of 24 to 64 bytes each"
    )
    audience: Literal["pager", "chat"] = Field(
        "pager", description="`chat` hears of what was over before it heard of it, `pager` does not"
    )


class Alertmanager(Destination):
    """A Prometheus Alertmanager, or a cluster of them, told of alerts as Prometheus would."""

    name: str = Field("alertmanager", description="Its name in the ledger and in metrics")
    urls: tuple[str, ...] = Field(min_length=1, description="Every member, each without `/api/v2`")
    labels: dict[str, str] = Field(default_factory=dict, description="Labels added to every alert")
    refresh_s: float = Field(60.0, gt=0, description="Seconds after which it is told everything again")
    resolved_for_s: float = Field(600.0, ge=300, description="How long it is told again what is over")
    authorization: SecretStr = Field(SecretStr(""), description="The header of this name: `Bearer …`")


class AlertmanagerWebhook(Destination):
    """A receiver of what Alertmanager posts to webhooks, version 4."""

    name: str = Field("alertmanager-webhook", description="Its name in the ledger and in metrics")
    url: str = Field(description="http or https address")
    authorization: SecretStr = Field(SecretStr(""), description="The header of this name: `Bearer …`")
    receiver: str = Field("recloser", description="Told as the receiver's name")
    external_url: str = Field("", description="Told as Alertmanager's own address")


class PagerDuty(Destination):
    """A service of PagerDuty with an Events API v2 integration."""

    name: str = Field("pagerduty", description="Its name in the ledger and in metrics")
    routing_key: SecretStr = Field(description="The integration key, 32 characters")
    url: str = Field(
        "https://events.pagerduty.com/v2/enqueue", description="Where events go; other regions have others"
    )


class Slack(Destination):
    """A channel of Slack with an incoming webhook."""

    name: str = Field("slack", description="Its name in the ledger and in metrics")
    url: SecretStr = Field(description="The webhook's address; whoever has it can post")


class Templates(Section):
    """Files of your own in place of the texts in `control/templates`, by kind of destination."""

    alertmanagers: Path | None = Field(None, description="In place of `text.j2`: the description")
    alertmanager_webhooks: Path | None = Field(None, description="In place of `text.j2`: the description")
    pagerduty: Path | None = Field(None, description="In place of `text.j2`: the description")
    slack: Path | None = Field(None, description="In place of `slack.j2`: what stands below the header")


class Alerts(Section):
    """When alerts fire, flap and end, what is said about Recloser itself, and what messages link to."""

    min_firing_s: float = Field(0.0, ge=0, description="Seconds that an alert waits before it fires")
    keep_firing_s: float = Field(60.0, ge=0, description="Seconds that it must seem over before it ends")
    quiet_calls: int = Field(8, ge=1, le=24, description="Other tool calls after which a streak is over")
    idle_s: float = Field(1800.0, ge=0, description="Seconds without a word after which it is over")
    flap_threshold: int = Field(4, ge=0, description="Episodes that make one `flapping` alert; 0 never")
    flap_window_s: float = Field(3600.0, gt=0, description="Seconds within which they are counted")
    no_data_s: float = Field(0.0, ge=0, description="Seconds of silence of a service; 0: no `no_data` alert")
    ingest_lag_s: float = Field(60.0, ge=0, description="Seconds that spans may wait in the spool; 0 any")
    delivery_lag_s: float = Field(300.0, ge=0, description="Seconds that a message may wait; 0 any")
    heartbeat_s: float = Field(0.0, ge=0, description="Seconds between heartbeats; 0: none")
    heartbeat_to: str = Field("", description="Destination of heartbeats")
    public_url: str = Field("", description="Where people reach the API; none: this machine's address")
    dashboard_url: str = Field("", description="Dashboard that messages link to")


class Delivery(Section):
    """How a message that was not accepted is tried again: full jitter under a growing bound."""

    first_s: float = Field(5.0, gt=0, description="Bound of the first pause")
    factor: float = Field(3.0, ge=1, description="Growth of the bound from try to try")
    cap_s: float = Field(10_800.0, gt=0, description="Largest bound")
    held_cap_s: float = Field(
        300.0, gt=0, description="Largest bound while a destination is left alone as a whole"
    )
    give_up_after_s: float = Field(259_200.0, gt=0, description="Age at which a message is given up")


class PolicyRule(Section):
    """A finding of one of `kinds` and at least `min_severity` trips a breaker over `scope`.

    The keys are those of a `[[rule]]` of a policy file (`api.policykeys`); one in the settings always trips.
    """

    name: str = Field("", description="Its name in breakers and audit")
    kinds: tuple[str, ...] = Field(("doom_loop",), description="Finding kinds; empty means all")
    min_severity: Literal["info", "warning", "critical"] = Field("critical", description="Least severity")
    services: tuple[str, ...] = Field((), description="Patterns of services; empty means all")
    agents: tuple[str, ...] = Field((), description="Patterns of agents; empty means all")
    tools: tuple[str, ...] = Field((), description="Patterns of tools; empty means all")
    sessions: tuple[str, ...] = Field((), description="Patterns of sessions; empty means all")
    hours: str | tuple[str, ...] = Field((), description="Times of the week; empty means always")
    timezone: str = Field("UTC", description="IANA name of the time zone of `hours`")
    alert: tuple[str, ...] | None = Field(None, description="Destinations that are told; none: all")
    scope: Reach = Field("session", description="What the breaker stops")
    action: Action = Field("deny", description="`replan` and `deny` refuse calls, `halt` ends the run")
    open_s: float | None = Field(None, gt=0, description="Seconds until it tries again; none: as usual")
    quarantine: bool = Field(default=False, description="The refusal names the tainted steps")
    shadow: bool = Field(default=False, description="Record what would have been stopped, stop nothing")
    stop: bool = Field(default=False, description="Ask no later rule about what this one means")


class ActionHook(Section):
    """A control API of the team's own that is told, signed, when breakers open and close."""

    name: str = Field(min_length=1, description="Its name in the ledger, `action:` before it")
    url: str = Field(description="http or https address")
    secrets: tuple[SecretStr, ...] = Field(
        min_length=1, description="`whsec_` and base64 of 24 to 64 bytes each"
    )
    timeout_s: float = Field(15.0, gt=0, description="Longest that one attempt may take")
    allow_private: bool = Field(default=False, description="Its name may lead to a private address")
    on: tuple[str, ...] = Field((), description="Events of breakers; empty: all that open or close one")
    services: tuple[str, ...] = Field((), description="Patterns of services; empty means all")
    agents: tuple[str, ...] = Field((), description="Patterns of agents; empty means all")
    tools: tuple[str, ...] = Field((), description="Patterns of tools; empty means all")
    sessions: tuple[str, ...] = Field((), description="Patterns of sessions; empty means all")
    actions: tuple[Action, ...] = Field((), description="Strengths of breakers; empty means all")


class Token(Section):
    """A bearer token. Scopes: ingest, read, check, trip, override, admin; see `docs/authorization.md`."""

    name: str = Field("", description="Who it is for; written into the audit")
    token: SecretStr = Field(min_length=16, description="The secret, 16 characters or more")
    scopes: tuple[Literal["ingest", "read", "check", "trip", "override", "admin"], ...] = Field(
        ("read",), min_length=1, description="What it allows; none implies another"
    )
    services: tuple[str, ...] = Field((), description="Patterns of the services it is restricted to")
    agents: tuple[str, ...] = Field((), description="Patterns of the agents it is restricted to")
    sessions: tuple[str, ...] = Field((), description="Patterns of the sessions it is restricted to")

    @field_validator("scopes", mode="before")
    @classmethod
    def _no_operate(cls, scopes: Any) -> Any:  # noqa: ANN401 - not validated yet
        if isinstance(scopes, (list, tuple)) and "operate" in scopes:
            raise ValueError(
                "'operate' is no scope any more: 'trip' opens breakers, 'override' resets and forces them, "
                "resolves and silences alerts"
            )
        return scopes


class Limits(Section):
    """Requests a second to the HTTP API; 0 lifts a limit. See `docs/authorization.md`."""

    check_per_s: float = Field(2000.0, ge=0, description="Checks of one token; refused only above ten times")
    other_per_s: float = Field(100.0, ge=0, description="All other requests of one token")
    failed_per_s: float = Field(1.0, ge=0, description="Unknown tokens from one address")


class Settings(BaseSettings):
    """All of Recloser's settings."""

    model_config = SettingsConfigDict(
        env_prefix="RECLOSER_", env_nested_delimiter="__", extra="forbid", frozen=True
    )

    data_dir: Path = Field(
        default_factory=lambda: Path.home() / ".local/share/recloser",
        description="Spool, control database and embedded store",
    )
    host: str = Field("127.0.0.1", description="Address that the receivers and the API bind to")
    allowed_hosts: tuple[str, ...] = Field(
        (), description="Names, besides localhost, by which clients may call it while there are no tokens"
    )
    otlp_http_port: Port = Field(4318, description="OTLP/HTTP; 0 picks a free port")
    otlp_grpc_port: Port = Field(4317, description="OTLP/gRPC; 0 picks a free port")
    api_port: Port = Field(4319, description="HTTP API; 0 picks a free port")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least level logged")
    ingest: Ingest = Ingest()
    clickhouse: ClickHouse = ClickHouse()
    retention: Retention = Retention()
    recovery: Recovery = Recovery()
    prices: Prices = Prices()
    redaction: Redaction = Redaction()
    detectors: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="Per detector: its parameters"
    )
    tls: Tls = Tls()
    tokens: tuple[Token, ...] = ()
    limits: Limits = Limits()
    webhooks: tuple[Webhook, ...] = ()
    alertmanagers: tuple[Alertmanager, ...] = ()
    alertmanager_webhooks: tuple[AlertmanagerWebhook, ...] = ()
    pagerduty: tuple[PagerDuty, ...] = ()
    slack: tuple[Slack, ...] = ()
    templates: Templates = Templates()
    alerts: Alerts = Alerts()
    delivery: Delivery = Delivery()
    escalate_after: int = Field(3, ge=0, description="Refused checks after which a deny halts; 0 never")
    policy: tuple[PolicyRule, ...] = ()
    policy_file: Path | None = Field(
        None, description="TOML file with the policy, read again when it changes; instead of `policy`"
    )
    actions: tuple[ActionHook, ...] = ()

    @model_validator(mode="after")
    def _one_policy(self) -> Self:
        if self.policy and self.policy_file is not None:
            raise ValueError("policy_file: there is [[policy]], too; move its rules into the file")
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags, then environment, then the file."""
        del dotenv_settings, file_secret_settings
        return (init_settings, env_settings, TomlConfigSettingsSource(settings_cls))


def load(flags: Mapping[str, object], config: Path | None) -> Settings:
    """The settings in force. Raises `ConfigError` that names each wrong key and, for a file, the file."""
    if config is not None:
        try:
            tomllib.loads(config.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"{config}: {error.strerror}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{config}: {error}") from error

    class FromFile(Settings):
        model_config = SettingsConfigDict(toml_file=config)

    try:
        return FromFile(**flags)  # type: ignore[arg-type]  # the model validates them
    except ValidationError as error:
        where = f"{config}: " if config else ""
        raise ConfigError(
            "\n".join(f"{where}{_problem(e['loc'], e['msg'])}" for e in error.errors())
        ) from error
    except SettingsError as error:
        raise ConfigError(str(error)) from error


def _problem(location: tuple[int | str, ...], message: str) -> str:
    if not location:  # of the settings as a whole; the message names the key
        return message.removeprefix("Value error, ")
    return f"{'.'.join(map(str, location))}: {message}"


def to_json(settings: BaseModel) -> dict[str, object]:
    """The settings as plain data, secrets revealed: for a process of ours, never for showing."""
    return {name: _plain(getattr(settings, name)) for name in type(settings).model_fields}


def _plain(value: object) -> object:
    match value:
        case BaseModel():
            return to_json(value)
        case SecretStr():
            return value.get_secret_value()
        case Path():
            return str(value)
        case tuple() | list():
            return [_plain(item) for item in value]
        case dict():
            return {key: _plain(item) for key, item in value.items()}
    return value
